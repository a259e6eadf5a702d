//! Launches a run: hands it to a launcher and waits until the command runs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::Instant;

use super::error::SessionError;
use super::launcher::{self, DirectoryIdentity, Report, StartSpec, encode_environment};
use super::run_files::RunFiles;
use super::state::{RunState, observe};
use crate::files;
use crate::process::tree::Identity;

/// The variable by which every process of a session is known.
pub const MARK: &str = "INNKEEPER_SESSION_ID";

/// How long a launcher has until the command runs: far more than three small
/// writes take on a busy disk.
pub const START_LIMIT: Duration = Duration::from_secs(30);

/// The longest report that is read.
const REPORT_BYTES_MAX: u64 = 64 << 10;

/// What is to be started, where and with what.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// The binary that can be a launcher: this one. `/proc/self/exe` names it
    /// also after an upgrade has replaced the file.
    pub launcher: PathBuf,
    /// The run's files.
    pub files: RunFiles,
    /// Where the command runs.
    pub directory: PathBuf,
    /// Which directory that has to be, if it is known.
    pub identity: Option<DirectoryIdentity>,
    /// The command and its arguments, expanded; no shell is involved.
    pub command: Vec<String>,
    /// The command's whole environment. It goes through a pipe and into no file.
    pub environment: BTreeMap<OsString, OsString>,
    /// The longest log, all runs together.
    pub log_bytes: u64,
}

/// A run that exists, whoever started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Whether this very call started it.
    pub is_new: bool,
    /// What it is doing: running, or over already.
    pub state: RunState,
}

/// Starts the run if nothing has, and returns once its command runs or is over.
///
/// It can be called again at any time and from several processes at once: the
/// command is started once, and every caller is told of that one. It needs a
/// tokio runtime, which also collects the launcher when it ends.
///
/// # Errors
///
/// See [`SessionError`]: the variant says whether the same run may be launched
/// again.
///
/// # Cancel safety
///
/// Dropping the future leaves the run either unclaimed or started; [`observe`]
/// tells, and [`end`](super::end::end) makes sure that neither becomes the other.
pub async fn launch(spec: &LaunchSpec) -> Result<Launched, SessionError> {
    let deadline = Instant::now() + START_LIMIT;
    if observe(&spec.files) != RunState::NotClaimed {
        return settle(&spec.files, false, deadline, "").await;
    }
    let environment = checked_environment(spec)?;
    write_spec(spec).await?;
    let report = run_launcher(spec, &environment, deadline).await?;
    match report {
        Some(Report::Started) => settle(&spec.files, true, deadline, "").await,
        Some(Report::NotStarted(reason)) => Err(SessionError::NotStarted { reason }),
        Some(Report::Refused(reason)) => Err(SessionError::Launcher { reason }),
        Some(Report::ClaimedElsewhere) => settle(&spec.files, false, deadline, "").await,
        None => {
            let reason = "it ended without a word";
            settle(&spec.files, false, deadline, reason).await
        }
    }
}

/// Waits out the moment between claim and start, and returns what there is.
async fn settle(
    files: &RunFiles,
    is_new: bool,
    deadline: Instant,
    why_not_claimed: &str,
) -> Result<Launched, SessionError> {
    let mut pause = Duration::from_millis(2);
    loop {
        match observe(files) {
            RunState::NotClaimed => {
                return Err(SessionError::Launcher {
                    reason: why_not_claimed.to_owned(),
                });
            }
            RunState::FailedToStart(reason) => return Err(SessionError::NotStarted { reason }),
            RunState::Starting if Instant::now() >= deadline => {
                return Err(SessionError::Silent { limit: START_LIMIT });
            }
            RunState::Starting => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(250));
            }
            state @ (RunState::Running { .. } | RunState::Exited { .. } | RunState::Lost) => {
                return Ok(Launched { is_new, state });
            }
        }
    }
}

/// Returns the environment with the session's mark in it.
fn checked_environment(spec: &LaunchSpec) -> Result<Vec<u8>, SessionError> {
    let mut environment = spec.environment.clone();
    environment.insert(MARK.into(), spec.files.session().into());
    let has_nul = |text: &OsStr| text.as_bytes().contains(&0);
    for (name, value) in &environment {
        if name.is_empty() || name.as_bytes().contains(&b'=') || has_nul(name) || has_nul(value) {
            let reason = format!("`{}` cannot be in an environment", name.display());
            return Err(SessionError::Launcher { reason });
        }
    }
    Ok(encode_environment(&environment))
}

async fn write_spec(spec: &LaunchSpec) -> Result<(), SessionError> {
    let start = StartSpec {
        files: spec.files.clone(),
        directory: spec.directory.clone(),
        identity: spec.identity.clone(),
        command: spec.command.clone(),
        log_bytes: spec.log_bytes,
    };
    let path = spec.files.spec();
    let failed = |source| SessionError::Write {
        path: path.clone(),
        source,
    };
    let text = serde_json::to_vec(&start).map_err(|error| failed(error.into()))?;
    let (directory, target) = (spec.files.directory().to_owned(), path.clone());
    let written = tokio::task::spawn_blocking(move || {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        files::atomic_write_private(&target, &text)
    })
    .await;
    written
        .unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
        .map_err(failed)
}

/// Runs a launcher until it reports; none if it ended without.
async fn run_launcher(
    spec: &LaunchSpec,
    environment: &[u8],
    deadline: Instant,
) -> Result<Option<Report>, SessionError> {
    #[allow(
        clippy::disallowed_methods,
        reason = "a launcher outlives its starter, which no other child process does"
    )]
    let mut command = Command::new(&spec.launcher);
    let mut child = command
        .arg0("innkeeper")
        .arg(launcher::ARGUMENT)
        .arg(spec.files.spec())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(false)
        .spawn()
        .map_err(|error| SessionError::Launcher {
            reason: format!("`{}`: {error}", spec.launcher.display()),
        })?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let identity = pid.and_then(Identity::of);
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    // Collected whenever it ends, for it is a child of this process.
    let reaped = tokio::spawn(async move { drop(child.wait().await) });

    let conversation = async {
        if let Some(mut stdin) = stdin {
            // A launcher that does not read says why, or ends.
            drop(stdin.write_all(environment).await);
        }
        let mut text = Vec::new();
        if let Some(stdout) = stdout {
            drop(stdout.take(REPORT_BYTES_MAX).read_to_end(&mut text).await);
        }
        serde_json::from_slice(&text).ok()
    };
    if let Ok(report) = tokio::time::timeout_at(deadline, conversation).await {
        return Ok(report);
    }
    if observe(&spec.files) == RunState::NotClaimed
        && let Some(identity) = identity
    {
        identity.signal(Signal::KILL);
        drop(reaped.await);
    }
    Err(SessionError::Silent { limit: START_LIMIT })
}
