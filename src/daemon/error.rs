//! Why a daemon did not start, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::api::BindError;
use crate::config::ConfigErrors;
use crate::domain::code::FailureCode;
use crate::domain::routing::BadPattern;
use crate::event_log::EventLogError;
use crate::files::LockError;
use crate::store::StoreError;
use crate::workspace::WorkspaceError;

/// What stands in the way.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The state directory cannot be made.
    #[error("the state directory `{}` cannot be used; make it writable for this user, or set state.root", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Another daemon has it.
    #[error("the state in `{}` is in use; stop the other daemon, or set another state.root", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// By whom.
        #[source]
        source: LockError,
    },
    /// The database.
    #[error("the state in `{}` cannot be used", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The event log.
    #[error("the event log cannot be used")]
    EventLog(#[from] EventLogError),
    /// The webhook listener's address.
    #[error(
        "the webhook listener cannot be bound to {address}; something else may use the port (ss -ltnp shows what), or set webhooks.github.port"
    )]
    Webhooks {
        /// Host and port.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The control socket.
    #[error("the control socket cannot be bound")]
    Control(#[from] BindError),
    /// The webhook's secrets.
    #[error("{0}")]
    Secrets(#[from] ConfigErrors),
    /// A secret is empty.
    #[error(transparent)]
    EmptySecret(#[from] crate::ingress::EmptySecret),
    /// A glob.
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    /// The workspace.
    #[error("the workspace in `{}` cannot be used", root.display())]
    Workspace {
        /// Its root.
        root: PathBuf,
        /// Why.
        #[source]
        source: WorkspaceError,
    },
}

impl DaemonError {
    /// Returns what to do about it, where the message does not say it.
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::EventLog(_) => Some("make it writable for this user, or set eventLog.path"),
            Self::Workspace { source, .. } => Some(match source.code() {
                FailureCode::GitMissing | FailureCode::GitTooOld => {
                    "install git 2.39 or later, or name one in routing.workspace.gitBinary"
                }
                FailureCode::LockTimeout => {
                    "stop the other daemon, or set another routing.workspace.root"
                }
                _ => {
                    "make it a directory that this user may write to, or set routing.workspace.root"
                }
            }),
            Self::State { .. }
            | Self::Locked { .. }
            | Self::Store { .. }
            | Self::Webhooks { .. }
            | Self::Control(_)
            | Self::Secrets(_)
            | Self::EmptySecret(_)
            | Self::Pattern(_) => None,
        }
    }

    /// Returns whether the configuration has to change before it can work.
    pub const fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Secrets(_) | Self::EmptySecret(_) | Self::Pattern(_)
        )
    }
}
