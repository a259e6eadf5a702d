//! One call of git.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::GitError;
use super::error::{classify, without_secrets};
use super::runner::Shared;
use crate::domain::code::FailureCode;
use crate::process::{self, Output, RunError, Spec};

/// How much of git's diagnostics is kept.
const STDERR_BYTES_MAX: usize = 64 * 1024;
/// How much of git's answer is kept unless a call says otherwise.
const STDOUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A call of git under construction; see [`super::Git::command`].
#[derive(Clone, Debug)]
#[must_use = "a GitCommand does nothing until it is run"]
pub struct GitCommand {
    git: Arc<Shared>,
    subcommand: String,
    config: Vec<(String, String)>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    left_out: Vec<OsString>,
    protocols: Vec<String>,
    dir: PathBuf,
    stdin: Option<Vec<u8>>,
    stdout_max: usize,
    deadline: Option<Duration>,
}

impl GitCommand {
    pub(super) fn new(git: Arc<Shared>, subcommand: &str) -> Self {
        Self {
            git,
            subcommand: subcommand.to_owned(),
            config: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            left_out: Vec::new(),
            protocols: vec!["https".into(), "ssh".into()],
            dir: PathBuf::from("/"),
            stdin: None,
            stdout_max: STDOUT_BYTES_MAX,
            deadline: None,
        }
    }

    /// Names the git directory; it must be one that only the daemon writes.
    pub fn git_dir(self, dir: &Path) -> Self {
        self.env("GIT_DIR", dir)
    }

    /// Names the working tree, and runs git in it.
    pub fn work_tree(self, dir: &Path) -> Self {
        self.env("GIT_WORK_TREE", dir)
            .config("core.bare", "false")
            .dir(dir)
    }

    /// Names the index file.
    pub fn index_file(self, file: &Path) -> Self {
        self.env("GIT_INDEX_FILE", file)
    }

    /// Sets a variable of git's environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Takes a variable out of git's environment.
    pub(super) fn without_env(mut self, name: &str) -> Self {
        self.left_out.push(name.into());
        self
    }

    /// Sets a configuration key for this call.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.config.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Says which transports git may use; `https` and `ssh` unless said.
    pub fn protocols<S: AsRef<str>>(mut self, protocols: &[S]) -> Self {
        self.protocols = protocols.iter().map(|p| p.as_ref().to_owned()).collect();
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Says where git runs; `/` unless said.
    pub fn dir(mut self, dir: &Path) -> Self {
        dir.clone_into(&mut self.dir);
        self
    }

    /// Says what git reads; nothing unless said.
    pub fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = Some(bytes);
        self
    }

    /// Says how many bytes of the answer are kept.
    pub fn stdout_max(mut self, bytes: usize) -> Self {
        self.stdout_max = bytes;
        self
    }

    /// Says how long the call may take.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Runs the call; succeeds if git does, and all of the answer was kept.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends git and its children.
    pub async fn run(self, cancel: &CancellationToken) -> Result<Output, GitError> {
        let subcommand = self.subcommand.clone();
        let output = self.run_to_end(cancel).await?;
        let failed = |code, message| GitError::Failed {
            subcommand: subcommand.clone(),
            code,
            status: output.status.code(),
            message,
        };
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let mut message = without_secrets(&stderr);
            if message.is_empty() {
                message = format!("ended with {} and said nothing", output.status);
            }
            return Err(failed(classify(&stderr), message));
        }
        if output.truncated {
            let message = "said more than is kept".to_owned();
            return Err(failed(FailureCode::Internal, message));
        }
        Ok(output)
    }

    /// Runs the call and returns whatever came of it, a failure of git's too.
    pub async fn run_to_end(self, cancel: &CancellationToken) -> Result<Output, GitError> {
        let options = &self.git.options;
        let limit = self.deadline.unwrap_or(options.timeout);
        let slow = options.low_speed_seconds.to_string();
        let mut config: Vec<(&str, &str)> = vec![
            ("core.hooksPath", "/dev/null"),
            ("core.fsmonitor", "false"),
            ("maintenance.auto", "false"),
            ("gc.auto", "0"),
            ("submodule.recurse", "false"),
            ("http.lowSpeedLimit", "1"),
            ("http.lowSpeedTime", &slow),
        ];
        config.extend(self.config.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        let mut args: Vec<OsString> = Vec::new();
        for (key, value) in config {
            args.push("-c".into());
            args.push(format!("{key}={value}").into());
        }
        args.push(self.subcommand.clone().into());
        args.extend(self.args);
        let mut env = self.git.base_env.clone();
        env.retain(|(name, _)| !self.left_out.contains(name));
        env.push(("GIT_ALLOW_PROTOCOL".into(), self.protocols.join(":").into()));
        // A later value of the same name replaces an earlier one.
        env.extend(self.env);

        tracing::debug!(subcommand = self.subcommand, ?args, "Running git.");
        let spec = Spec {
            program: self.git.program.clone(),
            args,
            env,
            dir: self.dir,
            stdin: self.stdin,
            stdout_max: self.stdout_max,
            stderr_max: STDERR_BYTES_MAX,
            deadline: limit,
            grace: options.grace,
        };
        let subcommand = self.subcommand;
        process::run(spec, cancel).await.map_err(|error| {
            let code = match &error {
                RunError::Cancelled => return GitError::Cancelled { subcommand },
                RunError::Start { .. } => FailureCode::GitMissing,
                RunError::TimedOut { .. } => FailureCode::Timeout,
                RunError::Directory { .. } | RunError::Watch { .. } => FailureCode::Internal,
            };
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            GitError::Failed {
                subcommand,
                code,
                status: None,
                message: format!("{error}{}", source.unwrap_or_default()),
            }
        })
    }
}
