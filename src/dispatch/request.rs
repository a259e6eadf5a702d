//! What people and programs may ask of an item's lane, beside deliveries.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::code::FailureCode;
use crate::domain::gate::{ProbeResult, Verdict};
use crate::domain::log_event::Source;
use crate::domain::reason::Kept;
use crate::domain::removal::Fate;
use crate::domain::work_item::ItemQuery;

/// A request about one work item. It takes its turn in the item's lane.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which item; [`What::Prepare`] makes one that is not known yet.
    pub item: ItemQuery,
    /// What is asked for.
    pub what: What,
    /// Who asks.
    pub source: Source,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Prepare the checkout; starts nothing.
    Prepare {
        /// Full object id.
        commit: Option<String>,
        /// Branch of the repository.
        branch: Option<String>,
        /// How to make it.
        strategy: Option<Strategy>,
    },
    /// Run the removal gate's probes and change nothing.
    Explain,
    /// End the session, keep the checkout.
    ExitKeep {
        /// End a session that is live; otherwise it is refused.
        stop: bool,
    },
    /// Remove the checkout if nothing in it is at risk.
    ExitRemove {
        /// End a session that is live; otherwise it is refused.
        stop: bool,
        /// The token of a refusal: what was at risk then is archived, and the
        /// checkout goes, if it is still the same.
        discard: Option<String>,
    },
    /// Restore an archive of the item.
    Restore {
        /// Its id.
        archive: String,
        /// Where to, as a repository that stands alone; none for a new checkout
        /// of the item.
        to: Option<PathBuf>,
    },
    /// Delete an archive of the item.
    Purge {
        /// Its id.
        archive: String,
    },
    /// Arm the item, prepare it, start its session.
    Start,
    /// End the session, keep the checkout, disarm.
    Stop,
    /// Drop later events until resumed.
    Pause,
    /// Take events again.
    Resume,
    /// End the item: session, and checkout as when the item closes.
    Cleanup,
    /// End this session and nothing else.
    StopSession {
        /// Its id.
        session: String,
    },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The checkout is ready.
    Prepared {
        /// Where it is.
        checkout: String,
        /// How it is made.
        strategy: Strategy,
        /// The local branch; none when detached.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
        /// The commit that was put there.
        commit: String,
        /// The commit it was first made at.
        base: String,
        /// Whether it was there already.
        reused: bool,
    },
    /// What the gate saw.
    Explained {
        /// Probe by probe.
        probes: Vec<ProbeResult>,
        /// And what follows.
        verdict: Verdict,
        /// The checkout's directory.
        checkout: String,
        /// What would become of it if its item closed now.
        on_close: Fate,
    },
    /// The checkout was not removed.
    Kept {
        /// Why.
        reasons: Vec<Kept>,
        /// Where it is.
        checkout: String,
        /// What a consent to archiving and removing it has to name; none if
        /// consent would not help.
        token: Option<String>,
    },
    /// The checkout is gone.
    Removed {
        /// Where it was.
        checkout: String,
        /// The archive of what existed only there.
        archive: Option<String>,
    },
    /// An archive was restored.
    Restored {
        /// Its id.
        archive: String,
        /// Where to.
        checkout: String,
        /// Whether it is a repository that stands alone, not the item's checkout.
        alone: bool,
        /// What is not as it was removed, in words; empty if all of it is.
        differs: Vec<String>,
    },
    /// An archive was deleted.
    Purged {
        /// Its id.
        archive: String,
        /// What it took of the disk.
        bytes: u64,
    },
    /// Done; the sentence says what.
    Done {
        /// For people.
        message: String,
    },
}

impl Answer {
    /// Returns the answer that a checkout is ready.
    pub(super) fn prepared(record: CheckoutRecord, reused: bool) -> Self {
        Self::Prepared {
            checkout: record.path.display().to_string(),
            strategy: record.strategy,
            branch: record.branch,
            commit: record.commit,
            base: record.base,
            reused,
        }
    }
}

/// A request that was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No such item, checkout or session.
    #[error("{0}")]
    NotFound(String),
    /// Several items are meant.
    #[error("{0}")]
    Ambiguous(String),
    /// A live session stands in the way.
    #[error("{0}")]
    InUse(String),
    /// The state of the item forbids it.
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
    /// The state could not be read or written.
    #[error("the daemon's state could not be read or written")]
    Store(#[from] crate::store::StoreError),
}
