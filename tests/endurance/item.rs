//! What the model knows of one work item and its checkout.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::snapshot::Snapshot;
use crate::support::payloads::{Issue, Payload, PullRequest, Repo};
use crate::support::world::HOST;

/// A checkout that was removed and what was in it.
#[derive(Clone)]
pub struct Archived {
    pub id: String,
    pub snapshot: Snapshot,
    /// Commits that only the agent's repository had, with what reaches them.
    pub commits: BTreeSet<String>,
}

/// A checkout as it was when somebody wrote there last.
pub struct Checkout {
    pub path: PathBuf,
    pub snapshot: Snapshot,
    pub commits: BTreeSet<String>,
    /// Where somebody has moved it for a while.
    pub away: Option<PathBuf>,
}

pub struct Item {
    pub repo: Repo,
    /// Which of the world's repositories it is of.
    pub origin: usize,
    pub number: u64,
    /// Of a pull request; an issue has none.
    pub branch: Option<String>,
    pub head: String,
    pub ever_opened: bool,
    pub open: bool,
    pub checkout: Option<Checkout>,
    /// Deliveries that are not over.
    pub outstanding: Vec<String>,
    /// How many of the item's events were read.
    pub read: usize,
    pub archives: Vec<Archived>,
}

impl Item {
    pub fn reference(&self) -> String {
        format!("github:{HOST}/{}#{}", self.repo.full_name(), self.number)
    }

    fn pull(&self) -> Option<PullRequest> {
        let branch = self.branch.as_ref()?;
        Some(PullRequest::new(&self.repo, self.number, &self.head).branch(branch))
    }

    fn issue(&self) -> Issue {
        Issue::new(&self.repo, self.number)
    }

    pub fn opening(&self) -> Payload {
        match (self.pull(), self.ever_opened) {
            (Some(pull), false) => pull.opened(),
            (Some(pull), true) => pull.reopened(),
            (None, false) => self.issue().opened(),
            (None, true) => self.issue().reopened(),
        }
    }

    pub fn closing(&self, merged: bool) -> Payload {
        match self.pull() {
            Some(pull) if merged => pull.closed_merged(),
            Some(pull) => pull.closed_unmerged(),
            None => self.issue().closed(),
        }
    }

    pub fn comment(&self, text: &str) -> Payload {
        match self.pull() {
            Some(pull) => pull.commented("alice", "MEMBER", text),
            None => self.issue().commented("alice", "MEMBER", text),
        }
    }

    pub fn synchronize(&self, before: &str) -> Option<Payload> {
        self.pull().map(|pull| pull.synchronize(before))
    }
}
