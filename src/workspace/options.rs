//! How a workspace behaves, and what one preparation may be told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::log_event::LogEvent;

/// What a pull request without a reachable head gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingBranch {
    /// Its preparation fails.
    #[default]
    Fail,
    /// The default branch, detached, and it is said.
    Default,
}

/// How a workspace behaves.
#[derive(Clone, Debug)]
pub struct WorkspaceOptions {
    /// Where everything stands.
    pub root: PathBuf,
    /// How checkouts are made unless a preparation says otherwise.
    pub strategy: Strategy,
    /// The git program.
    pub git_binary: PathBuf,
    /// How long a git call, and waiting for a repository, may take.
    pub git_timeout: Duration,
    /// How long git has between SIGTERM and SIGKILL.
    pub git_grace: Duration,
    /// After how many seconds of near silence a transfer is given up.
    pub low_speed_seconds: u64,
    /// Below this nothing is begun.
    pub min_free_bytes: u64,
    /// Below this nothing is begun; a file system that counts no inodes is
    /// unlimited.
    pub min_free_inodes: u64,
    /// What a pull request without a reachable head gets.
    pub missing_branch: MissingBranch,
    /// Ignored files that may be thrown away, as gitignore patterns.
    pub regenerable: Vec<String>,
    /// The most bytes that one archive may take on disk; what is larger is kept.
    pub archive_max_bytes: u64,
    /// Transports allowed for a host beside `https` and `ssh`: the scheme of
    /// the host's configured clone URL.
    pub protocols: BTreeMap<String, Vec<String>>,
    /// The daemon's own environment; none for that of this process.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Where to tell of what was done without being asked: locks that were
    /// removed, drift that was put back, repositories that were made anew.
    pub told: Option<UnboundedSender<LogEvent>>,
}

impl WorkspaceOptions {
    /// Returns the defaults of the configuration for a root.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            strategy: Strategy::Worktree,
            git_binary: PathBuf::from("git"),
            git_timeout: Duration::from_mins(30),
            git_grace: Duration::from_secs(5),
            low_speed_seconds: 60,
            min_free_bytes: 2 * 1024 * 1024 * 1024,
            min_free_inodes: 50_000,
            missing_branch: MissingBranch::Fail,
            regenerable: Vec::new(),
            archive_max_bytes: 268_435_456,
            protocols: BTreeMap::new(),
            environment: None,
            told: None,
        }
    }
}

/// What one preparation is told beside what it is for.
#[derive(Clone, Debug, Default)]
pub struct PrepareOptions {
    /// How to make the checkout, if it has to be made; none for the
    /// workspace's own strategy. One that exists keeps its own.
    pub strategy: Option<Strategy>,
    /// What the caller remembers of the checkout; it must agree with the disk.
    pub remembered: Option<CheckoutRecord>,
    /// Whether the caller will not try again: a head that is not there yet is
    /// then one that is not there.
    pub last_attempt: bool,
}
