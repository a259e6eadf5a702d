//! Locks that somebody's git left: may one be removed?
//!
//! A git that was killed leaves its locks, and every later git stops at them. A
//! lock is removed only on proof that nobody holds it: no process has it open,
//! no git works where it stands, and it is older than this daemon, or than any
//! git holds one of its kind. Git closes a lock's file before it is done with
//! it, so that nobody has it open proves nothing alone.

use std::time::Duration;

/// What a lock protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// An index; held while an editor is open for a commit.
    Index,
    /// A ref, `HEAD`, or the packed refs.
    Ref,
    /// A configuration.
    Config,
    /// The boundary of a shallow repository.
    Shallow,
    /// A commit-graph, a multi-pack-index, or the alternates.
    Objects,
    /// The mark of a running maintenance.
    Maintenance,
}

impl LockKind {
    /// Returns the kind of a lock by its path within a git directory; none for
    /// what is no lock of git's.
    pub fn of(relative: &str) -> Option<Self> {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        let stem = name.strip_suffix(".lock")?;
        Some(match stem {
            "index" => Self::Index,
            "config" | "config.worktree" => Self::Config,
            "shallow" => Self::Shallow,
            "commit-graph" | "commit-graph-chain" | "multi-pack-index" | "alternates" => {
                Self::Objects
            }
            "maintenance" | "gc.pid" => Self::Maintenance,
            _ => Self::Ref,
        })
    }

    /// Returns how long no living git holds a lock of this kind without a sign
    /// of it.
    pub const fn age_max(self) -> Duration {
        match self {
            Self::Ref | Self::Config => Duration::from_mins(1),
            Self::Index | Self::Shallow | Self::Objects => Duration::from_mins(10),
            Self::Maintenance => Duration::from_hours(1),
        }
    }
}

/// What is known of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockFacts {
    /// What it protects.
    pub kind: LockKind,
    /// How old it is; none if that cannot be told.
    pub age: Option<Duration>,
    /// Whether it was there before this daemon took the root, and with it ended
    /// every git of an earlier one.
    pub before_start: bool,
    /// Whether a process has it open; none if that cannot be told.
    pub open: Option<bool>,
    /// Whether a git works in the repository or a checkout of it; none if that
    /// cannot be told. For a directory that only the daemon's git writes: false,
    /// as long as the writer's lock is held.
    pub git_inside: Option<bool>,
}

/// Returns the proof that nobody holds a lock, in words; none if there is none.
pub fn proof(facts: &LockFacts) -> Option<String> {
    if facts.open != Some(false) || facts.git_inside != Some(false) {
        return None;
    }
    let age = facts.age?;
    if facts.before_start {
        return Some(
            "it is older than this daemon, no process has it open, and no git works there"
                .to_owned(),
        );
    }
    (age >= facts.kind.age_max()).then(|| {
        format!(
            "it is {} s old, longer than any git holds one of its kind, no process has it open, and no git works there",
            age.as_secs()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_of_gits_has_a_kind_and_nothing_else_has() {
        let table = [
            ("index.lock", Some(LockKind::Index)),
            ("worktrees/x/index.lock", Some(LockKind::Index)),
            ("HEAD.lock", Some(LockKind::Ref)),
            ("packed-refs.lock", Some(LockKind::Ref)),
            ("refs/heads/a/b.lock", Some(LockKind::Ref)),
            ("refs/stash.lock", Some(LockKind::Ref)),
            ("config.lock", Some(LockKind::Config)),
            ("shallow.lock", Some(LockKind::Shallow)),
            ("objects/info/commit-graph.lock", Some(LockKind::Objects)),
            (
                "objects/info/commit-graphs/commit-graph-chain.lock",
                Some(LockKind::Objects),
            ),
            ("objects/maintenance.lock", Some(LockKind::Maintenance)),
            ("gc.pid.lock", Some(LockKind::Maintenance)),
            ("refs/heads/lock", None),
            ("worktrees/x/locked", None),
            ("index", None),
        ];
        for (path, kind) in table {
            assert_eq!(LockKind::of(path), kind, "{path}");
        }
    }

    #[test]
    fn only_all_of_the_proof_is_proof() {
        let old = LockFacts {
            kind: LockKind::Ref,
            age: Some(Duration::from_mins(1)),
            before_start: false,
            open: Some(false),
            git_inside: Some(false),
        };
        let young = LockFacts {
            age: Some(Duration::from_secs(59)),
            ..old
        };
        let table = [
            (old, true),
            (young, false),
            (
                LockFacts {
                    before_start: true,
                    ..young
                },
                true,
            ),
            (
                LockFacts {
                    kind: LockKind::Index,
                    ..old
                },
                false,
            ),
            (
                LockFacts {
                    open: Some(true),
                    ..old
                },
                false,
            ),
            (LockFacts { open: None, ..old }, false),
            (
                LockFacts {
                    git_inside: Some(true),
                    ..old
                },
                false,
            ),
            (
                LockFacts {
                    git_inside: None,
                    ..old
                },
                false,
            ),
            (LockFacts { age: None, ..old }, false),
        ];
        for (facts, removable) in table {
            assert_eq!(proof(&facts).is_some(), removable, "{facts:?}");
        }
    }
}
