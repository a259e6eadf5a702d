//! The files of one run of a session, and what stands in them.
//!
//! ```text
//! <state.root>/sessions/
//!   <id>.log              output of all its runs, appended, bounded
//!   <id>.spec.json        what the launcher is to start; holds no environment
//!   <id>.started          the claim: whoever makes it starts the command, once
//!   <id>.exit             how the command ended, or why it could not be started
//!   <id>.2.spec.json  <id>.2.started  <id>.2.exit     the same of its second run, and so on
//! ```
//!
//! 1. `.started` is made once and never removed while the session is known.
//! 2. The command's process is written in `.started` before the command runs.
//! 3. `.exit` is written once, after the command ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::SessionError;
use crate::domain::log_event::ExitStatus;
use crate::files;
use crate::process::tree::Identity;

/// Where the files of one run are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunFiles {
    directory: PathBuf,
    session: String,
    run: u32,
}

impl RunFiles {
    /// Returns the files of run number `run`, counted from 1, of `session` below
    /// the absolute `directory`.
    ///
    /// # Errors
    ///
    /// Returns [`SessionError::BadSessionId`] for an id that is no plain file
    /// name of letters, digits, `-` and `_`.
    pub fn new(
        directory: impl Into<PathBuf>,
        session: impl Into<String>,
        run: u32,
    ) -> Result<Self, SessionError> {
        let session = session.into();
        let is_plain = (1..=128).contains(&session.len())
            && session
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !is_plain || run == 0 {
            return Err(SessionError::BadSessionId { session });
        }
        Ok(Self {
            directory: directory.into(),
            session,
            run,
        })
    }

    /// Returns the session's id.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns which run of the session this is, counted from 1.
    pub const fn run(&self) -> u32 {
        self.run
    }

    /// Returns the directory they are in.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the log, which all runs of the session share.
    pub fn log(&self) -> PathBuf {
        self.directory.join(format!("{}.log", self.session))
    }

    /// Returns what the launcher is to start.
    pub fn spec(&self) -> PathBuf {
        self.of_run("spec.json")
    }

    /// Returns the claim.
    pub fn started(&self) -> PathBuf {
        self.of_run("started")
    }

    /// Returns how the command ended.
    pub fn exit(&self) -> PathBuf {
        self.of_run("exit")
    }

    fn of_run(&self, what: &str) -> PathBuf {
        let name = match self.run {
            1 => format!("{}.{what}", self.session),
            run => format!("{}.{run}.{what}", self.session),
        };
        self.directory.join(name)
    }

    /// Takes the start of this run; returns whether this call took it.
    pub(super) fn claim(&self, claim: &Claim) -> io::Result<bool> {
        files::claim(&self.started(), &json(claim))
    }

    /// Writes who runs, in place of the claim that this process made.
    pub(super) fn record_started(&self, claim: &Claim) -> io::Result<()> {
        files::atomic_write_private(&self.started(), &json(claim))
    }

    /// Writes how the command ended.
    pub(super) fn record_end(&self, end: &EndRecord) -> io::Result<()> {
        files::atomic_write_private(&self.exit(), &json(end))
    }

    /// Returns the claim; none if there is none, an error if what is there
    /// cannot be understood.
    pub(super) fn load_claim(&self) -> Option<serde_json::Result<Claim>> {
        let text = fs::read(self.started()).ok()?;
        Some(serde_json::from_slice(&text))
    }

    /// Returns how the command ended, if that is written.
    pub(super) fn load_end(&self) -> Option<EndRecord> {
        let text = fs::read(self.exit()).ok()?;
        Some(
            serde_json::from_slice(&text).unwrap_or_else(|error| EndRecord {
                end: End::Error(format!("the exit file cannot be understood: {error}")),
                ended_at: 0,
            }),
        )
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).expect("plain structs with text keys serialise");
    text.push(b'\n');
    text
}

/// What stands in `.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// The launcher; none if the run was ended before one came.
    pub(super) launcher: Option<Identity>,
    /// The command's process, once there is one.
    pub(super) child: Option<Identity>,
    /// When it was claimed, milliseconds since 1970.
    pub(super) claimed_at: i64,
}

/// What stands in `.exit`: `{"code":0,"ended_at":…}`, `signal` or `error` in place of `code`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndRecord {
    /// How it ended.
    #[serde(flatten)]
    pub(super) end: End,
    /// When, milliseconds since 1970.
    pub(super) ended_at: i64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum End {
    /// The command exited by itself.
    Code(i32),
    /// A signal ended the command.
    Signal(i32),
    /// The command was not started, and why.
    Error(String),
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Code(code) => Self::Code(code),
            ExitStatus::Signal(signal) => Self::Signal(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_run_has_the_plain_names_and_the_log_is_shared() {
        let first = RunFiles::new("/s", "abc-1", 1).expect("a plain id");
        let second = RunFiles::new("/s", "abc-1", 2).expect("a plain id");
        assert_eq!(first.started(), Path::new("/s/abc-1.started"));
        assert_eq!(second.started(), Path::new("/s/abc-1.2.started"));
        assert_eq!(second.exit(), Path::new("/s/abc-1.2.exit"));
        assert_eq!(first.log(), second.log());
    }

    #[test]
    fn an_id_that_could_leave_the_directory_is_refused() {
        for id in ["", "..", "a/b", "a.b", "a\n", &"x".repeat(129)] {
            assert!(RunFiles::new("/s", id, 1).is_err(), "{id:?}");
        }
        assert!(RunFiles::new("/s", "a", 0).is_err());
    }

    #[test]
    fn the_end_is_one_flat_object() {
        let end = EndRecord {
            end: End::Signal(9),
            ended_at: 5,
        };
        assert_eq!(json(&end), b"{\"signal\":9,\"ended_at\":5}\n");
        let read: EndRecord = serde_json::from_slice(&json(&end)).expect("what is written reads");
        assert_eq!(read, end);
    }
}
