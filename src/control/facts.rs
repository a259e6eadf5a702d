//! What the daemon tells about itself, given once and at every reload.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::removal::OnClose;

/// What is fixed while one configuration is in force.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Version of the program.
    pub version: String,
    /// When it started, milliseconds since 1970.
    pub started_at: i64,
    /// Name of the node, as it stands in events.
    pub node: String,
    /// What it listens on.
    pub listeners: Listeners,
    /// Where the state is.
    pub state_root: PathBuf,
    /// Where checkouts are; none while no workspace is configured.
    pub workspace_root: Option<PathBuf>,
    /// The event log's file.
    pub event_log: PathBuf,
    /// What happens to checkouts when their items close.
    pub on_close: OnClose,
    /// For how many days archives are kept; 0 is for ever.
    pub archive_days: u64,
    /// What is refused beyond which bound.
    pub limits: Limits,
}

/// What the daemon listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listeners {
    /// Address and path of the webhook listener, if there is one.
    pub webhooks: Option<String>,
    /// The control socket.
    pub control: String,
}

/// Bounds that are told beside the figures they bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Deliveries that may wait.
    pub max_pending: u64,
    /// Checkouts that may exist.
    pub max_checkouts: u64,
    /// Sessions that may run.
    pub max_sessions: u64,
    /// Bytes that must be free where checkouts are made.
    pub min_free_bytes: u64,
    /// Inodes that must be free where checkouts are made.
    pub min_free_inodes: u64,
}
