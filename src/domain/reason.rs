//! Expected outcomes that need a word: why a delivery was dropped, why a
//! checkout was kept.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal, $doc:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $(#[doc = $doc] #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every word, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the word as it is written in the event log and the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns what it means, as one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }

            /// Returns the word of this name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Why a delivery had no effect.
    DropReason {
        EventNotHandled = "event-not-handled", "Innkeeper does nothing with events of this kind.";
        RepositoryNotAllowed = "repository-not-allowed", "The repository or its host is not one of the configured ones.";
        UntrustedActor = "untrusted-actor", "Its actor may neither start nor reach a session.";
        OwnEvent = "own-event", "It tells of a commit that was made in the item's own checkout.";
        Bot = "bot", "A bot wrote it.";
        NoWorkItem = "no-work-item", "It names no issue and no pull request.";
        NoRule = "no-rule", "No rule asks for anything to be done.";
        NoSession = "no-session", "It was meant for a session, and the item has none.";
        Superseded = "superseded", "A later event of the same item made it pointless.";
        AlreadyClosed = "already-closed", "The item is closed and has no checkout left.";
        Paused = "paused", "The item is paused.";
        Ping = "ping", "It only asks whether anybody is there.";
    }
}

words! {
    /// Why a checkout may not go.
    KeepReason {
        TrackedDirty = "tracked_dirty", "Tracked files differ from HEAD, in the index or in the working tree.";
        Untracked = "untracked", "Files exist that git does not track.";
        IgnoredPrecious = "ignored_precious", "Ignored files exist that are not known to be regenerable.";
        HiddenDirty = "hidden_dirty", "Files marked skip-worktree or assume-unchanged differ.";
        UnlandedCommits = "unlanded_commits", "Commits exist that are on no remote.";
        DetachedUnreferenced = "detached_unreferenced", "Commits exist that no branch holds and that are on no remote.";
        OpInProgress = "op_in_progress", "A merge, rebase, cherry-pick, revert, bisect or am is in progress.";
        SubmoduleUnlanded = "submodule_unlanded", "A submodule has changes or commits that exist only here.";
        NestedRepo = "nested_repo", "A repository of its own is nested inside.";
        StashFromHere = "stash_from_here", "Stash entries were made here.";
        InUse = "in_use", "A process works inside.";
        LeaseHeld = "lease_held", "It is lent to somebody.";
        Locked = "locked", "Somebody else locked it.";
        IdentityMismatch = "identity_mismatch", "Store, directory and git's record do not agree that it is the one.";
        ArchiveTooBig = "archive_too_big", "What is at risk is larger than an archive may be.";
        ArchiveFailed = "archive_failed", "What is at risk could not be archived.";
        ProbeFailed = "probe_failed", "A question could not be answered, which counts as work.";
        Configured = "configured", "The configuration asks to keep it.";
    }
}

impl KeepReason {
    /// Returns whether an archive can hold what stands behind it. Everything
    /// else is a hindrance, which only its own end takes away.
    pub const fn is_archivable(self) -> bool {
        match self {
            Self::TrackedDirty
            | Self::Untracked
            | Self::IgnoredPrecious
            | Self::HiddenDirty
            | Self::UnlandedCommits
            | Self::DetachedUnreferenced
            | Self::OpInProgress
            | Self::SubmoduleUnlanded
            | Self::NestedRepo
            | Self::StashFromHere => true,
            Self::InUse
            | Self::LeaseHeld
            | Self::Locked
            | Self::IdentityMismatch
            | Self::ArchiveTooBig
            | Self::ArchiveFailed
            | Self::ProbeFailed
            | Self::Configured => false,
        }
    }
}

/// How many paths a reason names; the count says how many there are.
pub const PATHS_MAX: usize = 5;

/// One reason to keep a checkout, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// What kind of work is there.
    pub code: KeepReason,
    /// How many files, commits, entries or processes.
    pub count: u64,
    /// The first of them, at most [`PATHS_MAX`]: paths relative to the
    /// checkout, commits as `<short id> <subject>`, processes as `<pid> <name>`.
    pub paths: Vec<String>,
}

impl Kept {
    /// Returns a reason that names the first few of `all`.
    pub fn new(code: KeepReason, all: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut count = 0;
        let mut paths = Vec::new();
        for one in all {
            count += 1;
            if paths.len() < PATHS_MAX {
                paths.push(one.into());
            }
        }
        Self { code, count, paths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_counts_everything_and_names_the_first_five() {
        let kept = Kept::new(KeepReason::Untracked, (0..9).map(|n| n.to_string()));
        assert_eq!((kept.count, kept.paths.len()), (9, 5));
    }

    #[test]
    fn the_words_are_their_own_serialised_form() {
        for reason in DropReason::ALL {
            assert_eq!(
                serde_json::to_value(reason).expect("serialises"),
                serde_json::Value::from(reason.as_str())
            );
            assert_eq!(DropReason::from_name(reason.as_str()), Some(*reason));
        }
        for reason in KeepReason::ALL {
            assert_eq!(
                serde_json::to_value(reason).expect("serialises"),
                serde_json::Value::from(reason.as_str())
            );
        }
    }
}
