//! How a session can fail to start, and what the dispatcher may do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::domain::code::FailureCode;

/// A session that was not started.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The id cannot be a file name; a fault of the caller.
    #[error("`{session}` cannot be a session's id")]
    BadSessionId {
        /// The id.
        session: String,
    },

    /// The run is over without its command ever having run: the directory is not
    /// the expected one, or the command cannot be started. The next attempt is
    /// the session's next run.
    #[error("{reason}")]
    NotStarted {
        /// What was in the way, for people.
        reason: String,
    },

    /// A file of the session could not be written; nothing was started. The same
    /// run may be launched again.
    #[error("could not write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },

    /// The launcher itself did not work; nothing was started. The same run may
    /// be launched again.
    #[error("the session launcher did not work: {reason}")]
    Launcher {
        /// What it did, for people.
        reason: String,
    },

    /// The launcher did not say within `limit` what became of the command. Look
    /// at the run's state before anything else.
    #[error("the session launcher did not answer within {limit:?}")]
    Silent {
        /// How long it was waited for.
        limit: Duration,
    },
}

impl SessionError {
    /// Returns the code that decides what happens to the delivery.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::Write { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                FailureCode::DiskFull
            }
            Self::BadSessionId { .. } => FailureCode::Internal,
            Self::NotStarted { .. }
            | Self::Write { .. }
            | Self::Launcher { .. }
            | Self::Silent { .. } => FailureCode::SessionStartFailed,
        }
    }
}
