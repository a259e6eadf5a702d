//! Giving back what nobody needs.

use serde::{Deserialize, Serialize};

use super::{Control, ControlError};
use crate::clock;
use crate::dispatch::gc::{GcError, GcReport, GcRequest};
use crate::domain::breaker::Halt;

/// Removals are halted, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltView {
    /// Since when.
    pub since: String,
    /// Why.
    pub reason: String,
    /// What lets them go on.
    pub remedy: String,
}

impl HaltView {
    pub(super) fn of(halt: &Halt) -> Self {
        Self {
            since: clock::rfc3339(halt.at),
            reason: halt.sentence(),
            remedy: "see that the disk is mounted; if all is as it should be, \
                     `innkeeper gc --resume-removals`"
                .to_owned(),
        }
    }
}

impl Control {
    /// Compares store and disk, gives back what nobody needs, and accounts for
    /// the rest.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError`] if it was not done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop what was begun.
    pub async fn gc(&self, asked: GcRequest) -> Result<GcReport, ControlError> {
        if asked.dry_run && asked.resume_removals {
            return Err(ControlError::Invalid(
                "a dry run changes nothing, so removals cannot go on with it".to_owned(),
            ));
        }
        let dispatcher = self.dispatcher().clone();
        tokio::spawn(async move { dispatcher.gc(asked).await })
            .await
            .map_err(|_ended| ControlError::ShuttingDown)?
            .map_err(Into::into)
    }
}

impl From<GcError> for ControlError {
    fn from(error: GcError) -> Self {
        match error {
            GcError::Workspace { code, message } => Self::Failed { code, message },
            GcError::Store(error) => Self::Store(error),
        }
    }
}
