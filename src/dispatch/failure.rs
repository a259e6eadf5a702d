//! Why a job stopped before its effect was complete.

use crate::domain::code::FailureCode;
use crate::store::StoreError;
use crate::workspace::WorkspaceError;

/// Why a job stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// It failed; the code decides what follows.
    Failed(Failure),
    /// A close of the item has come: what was begun is undone.
    Superseded,
    /// Every place for a session is taken.
    ForPlace,
    /// The state could not be read or written; what is stored stands.
    Store(StoreError),
}

/// A failure with its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: FailureCode,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(super) fn of_workspace(error: WorkspaceError) -> Self {
        let code = error.code();
        Self::new(code, format!("{:#}", anyhow::Error::from(error)))
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
