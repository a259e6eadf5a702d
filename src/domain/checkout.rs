//! A checkout: what was made, for which item, and how it is told apart.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::work_item::ItemKind;

/// How a checkout is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// A linked worktree of the repository's shared clone.
    Worktree,
    /// A full clone with objects of its own.
    Clone,
}

impl Strategy {
    /// Returns the word as it stands in configuration and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worktree => "worktree",
            Self::Clone => "clone",
        }
    }

    /// Returns the strategy of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "worktree" => Some(Self::Worktree),
            "clone" => Some(Self::Clone),
            _ => None,
        }
    }
}

/// Where a checkout is in its life.
///
/// ```text
/// planned/preparing ─► ready ─► removing ─► removed
///        │               ▲          │
///        └─► failed      └─ kept ───┘       missing: directory gone while ready
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckoutState {
    /// Being made.
    Preparing,
    /// There, at its commit.
    Ready,
    /// Its directory was found gone.
    Missing,
    /// On its way out.
    Removing,
    /// Gone.
    Removed,
    /// Could not be made; nothing is left of the attempt.
    Failed,
}

impl CheckoutState {
    /// Every state.
    pub const ALL: &'static [Self] = &[
        Self::Preparing,
        Self::Ready,
        Self::Missing,
        Self::Removing,
        Self::Removed,
        Self::Failed,
    ];

    /// Returns the state as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Ready => "ready",
            Self::Missing => "missing",
            Self::Removing => "removing",
            Self::Removed => "removed",
            Self::Failed => "failed",
        }
    }

    /// Returns the state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|state| state.as_str() == name)
    }

    /// Returns whether something of it may be on disk.
    pub const fn is_live(self) -> bool {
        match self {
            Self::Preparing | Self::Ready | Self::Missing | Self::Removing => true,
            Self::Removed | Self::Failed => false,
        }
    }
}

/// What a checkout is to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// The present tip of the default branch, for which the remote is asked.
    DefaultBranch,
    /// A commit or branch that a person named.
    Named {
        /// Full object id.
        commit: Option<String>,
        /// Branch of the repository.
        branch: Option<String>,
    },
    /// The head of a pull request.
    PullRequest {
        /// Its number.
        number: u64,
        /// The head commit that the event named, if it named one.
        commit: Option<String>,
        /// The head's branch, if it is known and in this very repository.
        branch: Option<String>,
        /// Whether the head is elsewhere: a fork, a fork that is gone, or unknown.
        fork: bool,
        /// The base's branch, if known.
        base: Option<String>,
        /// The payload says that the head's ref does not exist any more.
        gone: bool,
    },
}

/// Everything that tells a checkout apart from any other directory.
///
/// The store keeps it, and so does the workspace's own journal beside the
/// vault; before anything is changed or removed both must agree with the
/// directory and with git's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutRecord {
    /// Slug of the work item.
    pub slug: String,
    /// Host of the repository, as in paths (`host+port`).
    pub host: String,
    /// Owner of the repository.
    pub owner: String,
    /// Name of the repository, as in paths (`repo~id` for a second one).
    pub repo: String,
    /// Issue or pull request.
    pub kind: ItemKind,
    /// Its number.
    pub number: u64,
    /// How it was made.
    pub strategy: Strategy,
    /// The workspace root it stands below.
    pub root: PathBuf,
    /// The directory itself.
    pub path: PathBuf,
    /// Name of git's record below the shared clone's `worktrees/`; none for a clone.
    pub record: Option<String>,
    /// Random, written into git's record (worktree) or git directory (clone).
    pub nonce: String,
    /// Inode of the directory.
    pub inode: u64,
    /// Device of the directory; compared within one boot only.
    pub device: u64,
    /// The kernel's boot id when `device` was read.
    pub boot_id: String,
    /// The commit that Innkeeper put there last.
    pub commit: String,
    /// The commit it was first made at.
    pub base: String,
    /// The local branch it was put on; none when detached.
    pub branch: Option<String>,
    /// Whether that branch was made by this checkout's preparation.
    pub branch_created: bool,
    /// Whether pushing is switched off (heads of forks).
    pub push_off: bool,
    /// When it was made, milliseconds since 1970.
    pub created_at: i64,
}
