//! Why a workspace could not do what it was asked.

use std::io;
use std::path::Path;

use crate::domain::code::FailureCode;
use crate::git::GitError;

/// Something was not done; nothing half-made is left.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The caller cancelled; what was made by then is undone.
    #[error("cancelled")]
    Cancelled,
    /// It failed, and the code says what happens next.
    #[error("{message}")]
    Failed {
        /// The code.
        code: FailureCode,
        /// What was tried, on what, and why it failed.
        message: String,
    },
}

impl WorkspaceError {
    /// Returns an error of this code.
    pub(crate) fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self::Failed {
            code,
            message: message.into(),
        }
    }

    /// Returns the code that decides what happens next.
    pub const fn code(&self) -> FailureCode {
        match self {
            Self::Cancelled => FailureCode::Internal,
            Self::Failed { code, .. } => *code,
        }
    }

    /// Returns whether the caller cancelled.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled)
    }

    /// Returns an error about a file or directory.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(
            code_of(error),
            format!("could not {action} `{}`: {error}", path.display()),
        )
    }

    /// Returns the same error, saying where it happened.
    #[must_use]
    pub(crate) fn at(self, path: &Path) -> Self {
        match self {
            Self::Cancelled => Self::Cancelled,
            Self::Failed { code, message } => Self::Failed {
                code,
                message: format!("{message} (at `{}`)", path.display()),
            },
        }
    }
}

fn code_of(error: &io::Error) -> FailureCode {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailureCode::DiskFull,
        io::ErrorKind::AlreadyExists => FailureCode::PathOccupied,
        _ => FailureCode::Internal,
    }
}

impl From<GitError> for WorkspaceError {
    fn from(error: GitError) -> Self {
        if error.is_cancelled() {
            Self::Cancelled
        } else {
            Self::new(error.code(), error.to_string())
        }
    }
}

impl From<io::Error> for WorkspaceError {
    /// For errors of `files`, which name what was tried and where.
    fn from(error: io::Error) -> Self {
        Self::new(code_of(&error), error.to_string())
    }
}

impl From<git2::Error> for WorkspaceError {
    fn from(error: git2::Error) -> Self {
        let text = error.message().to_lowercase();
        let is_damage = [
            "corrupt",
            "hash mismatch",
            "inflat",
            "zlib",
            "bad packed object",
            "invalid pack",
            "pack index",
            "packfile",
            "failed to parse loose object",
            "doesn't exist on the repository",
        ]
        .iter()
        .any(|phrase| text.contains(phrase));
        let code = if text.contains("no space left") {
            FailureCode::DiskFull
        } else if is_damage {
            FailureCode::Corrupt
        } else {
            match error.code() {
                git2::ErrorCode::Locked => FailureCode::LockTimeout,
                git2::ErrorCode::NotFound => FailureCode::Corrupt,
                _ => FailureCode::Internal,
            }
        };
        Self::new(code, format!("reading a repository: {}", error.message()))
    }
}
