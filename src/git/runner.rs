//! One git program, and what every call of it has in common.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{GitCommand, GitError};
use crate::domain::code::FailureCode;

/// The oldest git that is supported.
pub const VERSION_MIN: Version = Version {
    major: 2,
    minor: 39,
    patch: 0,
};

/// The variable that marks every git, and what it starts, as this root's.
pub const MARK: &str = "INNKEEPER_GIT_OF";

/// What git inherits from the daemon's own environment; nothing else.
const INHERITED: &[&str] = &[
    "HOME",
    "PATH",
    "SSH_AUTH_SOCK",
    "XDG_CONFIG_HOME",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
];

/// A version of git.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 2
    pub major: u32,
    /// 47
    pub minor: u32,
    /// 3
    pub patch: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    /// Parses what `git version` prints.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text
            .strip_prefix("git version ")?
            .split(|c: char| !c.is_ascii_digit())
            .map(|part| part.parse().unwrap_or(0));
        Some(Self {
            major: numbers.next()?,
            minor: numbers.next()?,
            patch: numbers.next().unwrap_or(0),
        })
    }
}

/// How git is run.
#[derive(Clone, Debug)]
pub struct GitOptions {
    /// The program: a path, or a name looked up in `PATH`.
    pub program: PathBuf,
    /// The daemon's own environment, from which a few variables are taken.
    pub environment: Vec<(OsString, OsString)>,
    /// The only configuration file of a user that git reads; see
    /// [`super::operator_config`].
    pub global_config: PathBuf,
    /// Value of [`MARK`].
    pub mark: PathBuf,
    /// How long a call may take.
    pub timeout: Duration,
    /// How long git has between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// After how many seconds with less than one byte a second a transfer is
    /// given up.
    pub low_speed_seconds: u64,
}

/// A git program. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Git(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) program: PathBuf,
    pub(super) base_env: Vec<(OsString, OsString)>,
    pub(super) options: GitOptions,
}

impl Git {
    /// Returns a handle. Starts nothing and looks at nothing but `PATH`.
    pub fn new(options: GitOptions) -> Self {
        let mut base_env: Vec<(OsString, OsString)> = options
            .environment
            .iter()
            .filter(|(name, _)| INHERITED.iter().any(|one| name == one))
            .cloned()
            .collect();
        let own: [(&str, &OsStr); 9] = [
            (MARK, options.mark.as_os_str()),
            ("GIT_CONFIG_NOSYSTEM", OsStr::new("1")),
            ("GIT_CONFIG_GLOBAL", options.global_config.as_os_str()),
            ("GIT_ATTR_NOSYSTEM", OsStr::new("1")),
            ("GIT_TERMINAL_PROMPT", OsStr::new("0")),
            ("GIT_NO_REPLACE_OBJECTS", OsStr::new("1")),
            ("GIT_NO_LAZY_FETCH", OsStr::new("1")),
            ("GIT_LITERAL_PATHSPECS", OsStr::new("1")),
            ("LC_ALL", OsStr::new("C")),
        ];
        base_env.extend(own.map(|(name, value)| (name.into(), value.to_owned())));
        Self(Arc::new(Shared {
            program: resolve(&options.program, &options.environment),
            base_env,
            options,
        }))
    }

    /// Returns the program that is started.
    pub fn program(&self) -> &Path {
        &self.0.program
    }

    /// Starts describing a call of `git <subcommand>`.
    pub fn command(&self, subcommand: &str) -> GitCommand {
        GitCommand::new(Arc::clone(&self.0), subcommand)
    }

    /// Returns the program's version.
    ///
    /// # Errors
    ///
    /// `git_missing` if it cannot be started or is no git; `git_too_old`.
    pub async fn version(&self, cancel: &CancellationToken) -> Result<Version, GitError> {
        let output = self
            .command("version")
            .deadline(self.0.options.timeout.min(Duration::from_secs(20)))
            .run(cancel)
            .await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = |code, message| GitError::Failed {
            subcommand: "version".into(),
            code,
            status: None,
            message,
        };
        let version = Version::parse(text.trim()).ok_or_else(|| {
            failed(
                FailureCode::GitMissing,
                format!(
                    "`{}` is no git: it says `{}`",
                    self.program().display(),
                    text.trim()
                ),
            )
        })?;
        if version < VERSION_MIN {
            return Err(failed(
                FailureCode::GitTooOld,
                format!(
                    "`{}` is git {version}; {VERSION_MIN} or later is needed",
                    self.program().display()
                ),
            ));
        }
        Ok(version)
    }
}

/// Looks a bare name up in `PATH` once, so that starting it later needs no
/// search (and can be done without a fork).
fn resolve(program: &Path, environment: &[(OsString, OsString)]) -> PathBuf {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return program.to_owned();
    }
    let path = environment
        .iter()
        .find(|(name, _)| name == "PATH")
        .map_or_else(
            || OsString::from("/usr/bin:/bin"),
            |(_, value)| value.clone(),
        );
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|candidate| {
            rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok()
                && candidate.is_file()
        })
        .unwrap_or_else(|| program.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn git(program: &Path, environment: Vec<(OsString, OsString)>) -> Git {
        Git::new(GitOptions {
            program: program.to_owned(),
            environment,
            global_config: "/dev/null".into(),
            mark: "/nowhere".into(),
            timeout: Duration::from_secs(20),
            grace: Duration::from_secs(1),
            low_speed_seconds: 60,
        })
    }

    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("git");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("made executable");
        path
    }

    #[test]
    fn versions_of_all_vendors_are_understood() {
        let table = [
            ("git version 2.47.3", (2, 47, 3)),
            ("git version 2.39.5 (Apple Git-154)", (2, 39, 5)),
            ("git version 2.50.GIT", (2, 50, 0)),
        ];
        for (text, (major, minor, patch)) in table {
            assert_eq!(
                Version::parse(text),
                Some(Version {
                    major,
                    minor,
                    patch
                }),
                "{text}"
            );
        }
        assert_eq!(Version::parse("hub version 1"), None);
    }

    #[tokio::test]
    async fn a_missing_and_an_old_git_have_codes_of_their_own() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let cancel = CancellationToken::new();
        let missing = git(&dir.path().join("none"), vec![]);
        let error = missing.version(&cancel).await.expect_err("missing");
        assert_eq!(error.code(), FailureCode::GitMissing);
        let old = script(dir.path(), "echo git version 2.30.2");
        let error = git(&old, vec![]).version(&cancel).await.expect_err("old");
        assert_eq!(error.code(), FailureCode::GitTooOld);
        assert!(error.to_string().contains("2.39"), "{error}");
    }

    #[tokio::test]
    async fn nothing_is_inherited_but_the_listed_variables() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let program = script(dir.path(), "echo \"$@\"; env");
        let mine = [
            ("GIT_DIR", "/evil"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_INDEX_FILE", "/evil"),
            ("GITHUB_TOKEN", "canary"),
            ("HOME", "/home/me"),
            ("PATH", "/usr/bin:/bin"),
            ("HTTPS_PROXY", "http://proxy"),
        ];
        let environment = mine.map(|(k, v)| (k.into(), v.into())).to_vec();
        let output = git(&program, environment)
            .command("status")
            .protocols(&["https", "file"])
            .run(&CancellationToken::new())
            .await
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        for gone in ["evil", "canary", "GIT_CONFIG_COUNT"] {
            assert!(!text.contains(gone), "{text}");
        }
        for there in [
            "HOME=/home/me",
            "HTTPS_PROXY=http://proxy",
            "GIT_ALLOW_PROTOCOL=https:file",
            "GIT_CONFIG_NOSYSTEM=1",
            "core.hooksPath=/dev/null",
        ] {
            assert!(text.contains(there), "{there} is not in {text}");
        }
    }
}
