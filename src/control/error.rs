//! How an operation can fail, for its three readers: the code for a program,
//! the message for the caller, the source for the log.

use crate::dispatch::request::RequestError;
use crate::domain::code::FailureCode;
use crate::domain::work_item::ItemQuery;
use crate::store::StoreError;

/// An operation that was not done.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// Several things are meant.
    #[error("{0}")]
    Ambiguous(String),
    /// What was given makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A live session stands in the way.
    #[error("{0}")]
    InUse(String),
    /// The present state forbids it.
    #[error("{0}")]
    Refused(String),
    /// Preparing or removing failed.
    #[error("{message}")]
    Failed {
        /// Why, for programs.
        code: FailureCode,
        /// Why, for people.
        message: String,
    },
    /// The daemon is shutting down.
    #[error("the daemon is shutting down")]
    ShuttingDown,
    /// A file of the daemon's could not be read.
    #[error("could not read `{}`", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The state could not be read or written.
    #[error("the daemon's state could not be read or written")]
    Store(#[from] StoreError),
}

impl ControlError {
    /// Returns the stable word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::Ambiguous(_) => "ambiguous",
            Self::Invalid(_) => "bad_input",
            Self::InUse(_) => "in_use",
            Self::Refused(_) => "refused",
            Self::Failed { code, .. } => code.as_str(),
            Self::ShuttingDown => "shutting_down",
            Self::File { .. } | Self::Store(_) => "internal",
        }
    }

    /// Returns the kind of failure, coarser than the code; none where the code
    /// says all there is.
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::NotFound(_) | Self::Ambiguous(_) | Self::Invalid(_) => Some("validation_failed"),
            Self::InUse(_) | Self::Refused(_) => Some("api_rejected"),
            Self::Failed { code, .. } => match code {
                FailureCode::Timeout | FailureCode::Slow | FailureCode::LockTimeout => {
                    Some("timeout")
                }
                FailureCode::SessionStartFailed => Some("session_failed"),
                FailureCode::BadInput => Some("validation_failed"),
                _ => None,
            },
            Self::ShuttingDown | Self::File { .. } | Self::Store(_) => None,
        }
    }
}

impl From<RequestError> for ControlError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NotFound(message) => Self::NotFound(message),
            RequestError::Ambiguous(message) => Self::Ambiguous(message),
            RequestError::InUse(message) => Self::InUse(message),
            RequestError::Refused(message) => Self::Refused(message),
            RequestError::Failed { code, message } => Self::Failed { code, message },
            RequestError::ShuttingDown => Self::ShuttingDown,
            RequestError::Store(error) => Self::Store(error),
        }
    }
}

/// Returns a query as somebody would write it.
pub(super) fn written(query: &ItemQuery) -> String {
    match query {
        ItemQuery::Slug(slug) => slug.clone(),
        ItemQuery::Name {
            host,
            owner,
            repo,
            number,
        } => match host {
            Some(host) => format!("{host}/{owner}/{repo}#{number}"),
            None => format!("{owner}/{repo}#{number}"),
        },
    }
}
