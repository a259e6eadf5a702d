//! What stands below a workspace root, and whether it may be given back.
//!
//! Nothing here is work: a checkout goes through the removal gate and in no
//! other way. What may go is what was removed already, what nobody finished,
//! what can be made or fetched again.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What something below the root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldingKind {
    /// A work item's checkout.
    Checkout,
    /// Ignored output in a kept checkout that can be made again.
    Regenerable,
    /// The clone that worktrees of a repository are linked to.
    SharedClone,
    /// What was fetched of a repository.
    Vault,
    /// What a removed checkout held.
    Archive,
    /// Removed, and not deleted yet.
    Trash,
    /// In the making, or left over from it.
    Staging,
    /// A pack that a git which was killed did not finish.
    LeakedPack,
    /// Damaged, and set aside.
    SetAside,
    /// Not made by Innkeeper.
    Foreign,
    /// The daemon's own files, and the directories between everything else.
    Own,
}

impl HoldingKind {
    /// Returns the word as it is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Checkout => "checkout",
            Self::Regenerable => "regenerable",
            Self::SharedClone => "shared_clone",
            Self::Vault => "vault",
            Self::Archive => "archive",
            Self::Trash => "trash",
            Self::Staging => "staging",
            Self::LeakedPack => "leaked_pack",
            Self::SetAside => "set_aside",
            Self::Foreign => "foreign",
            Self::Own => "own",
        }
    }
}

/// Whether it may be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It was given back just now.
    Reclaimed,
    /// It could be.
    Reclaimable,
    /// It stays.
    Stays,
}

impl Fate {
    /// Returns the word as it is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reclaimed => "reclaimed",
            Self::Reclaimable => "reclaimable",
            Self::Stays => "stays",
        }
    }
}

/// One thing below the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// What it is.
    pub kind: HoldingKind,
    /// Where it is, or was.
    pub path: PathBuf,
    /// Bytes that it takes on disk, without other holdings inside it.
    pub bytes: u64,
    /// Whether it may be given back.
    pub fate: Fate,
    /// Why, for people.
    pub reason: String,
}

/// What a decision says: whether it may go, and why or why not.
pub type Judged = Result<String, String>;

/// How long a repository has to lie idle before its clones may go.
pub const IDLE_DAYS: u64 = 30;

/// What is known about a repository's clones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneUse {
    /// Removals are halted.
    pub halted: bool,
    /// Vault and shared clone bear our marker, as far as they are there.
    pub ours: bool,
    /// Somebody fetches or writes at this moment.
    pub busy: bool,
    /// Slugs of checkouts, those in the making and on their way out included.
    pub checkouts: Vec<String>,
    /// Records of worktrees that are none of these, such as a person's own.
    pub foreign_worktrees: Vec<String>,
    /// How many archives need it, or may need it.
    pub archives: u64,
    /// How many things were set aside in it.
    pub set_aside: u64,
    /// Commits, branches and stash entries that are on no remote, as shown to
    /// people; or why it could not be told.
    pub at_risk: Vec<String>,
    /// Processes that work inside.
    pub processes: Vec<String>,
    /// For how many days nothing was made or removed there; none if unknown.
    pub idle_days: Option<u64>,
}

/// Decides whether a repository's shared clone and vault may go. They can be
/// fetched again; what hangs on them, or exists only in them, keeps both.
pub fn judge_clones(used: &CloneUse) -> Judged {
    let first = |names: &[String]| names.first().cloned().unwrap_or_default();
    if !used.ours {
        return Err("nothing says that Innkeeper made it".to_owned());
    }
    if !used.checkouts.is_empty() {
        return Err(format!("{} checkouts depend on it", used.checkouts.len()));
    }
    if !used.foreign_worktrees.is_empty() {
        return Err(format!(
            "somebody's own worktree depends on it: {}",
            first(&used.foreign_worktrees)
        ));
    }
    if used.archives > 0 {
        return Err(format!("{} archives are pinned in it", used.archives));
    }
    if !used.at_risk.is_empty() {
        return Err(format!(
            "{} commits or stash entries exist only in it: {}",
            used.at_risk.len(),
            first(&used.at_risk)
        ));
    }
    if used.set_aside > 0 {
        return Err(format!("{} things were set aside in it", used.set_aside));
    }
    match used.idle_days {
        Some(days) if days >= IDLE_DAYS => {
            if used.busy || !used.processes.is_empty() {
                return Err("it is being worked on".to_owned());
            }
            if used.halted {
                return Err(HALTED.to_owned());
            }
            Ok(format!(
                "nothing depends on it and it was idle for {days} days; it can be fetched again"
            ))
        }
        Some(days) => Err(format!(
            "no checkout needs it, but it was used {days} days ago; it goes after {IDLE_DAYS} idle days"
        )),
        None => Err("it cannot be told when it was used last".to_owned()),
    }
}

/// What is told of everything that stays because of the breaker.
pub const HALTED: &str = "removals are halted; see `innkeeper status`";

/// Decides about something that a git, or a preparation, writes while it is
/// made: it is left over if nobody has touched it for twice as long as git may
/// take, and nobody has it open.
pub fn judge_unfinished(age_seconds: Option<u64>, git_seconds: u64, is_open: bool) -> Judged {
    let limit = git_seconds.saturating_mul(2);
    match age_seconds {
        _ if is_open => Err("a process has it open".to_owned()),
        Some(age) if age >= limit => {
            Ok("left over: nobody has touched it for twice as long as git may take".to_owned())
        }
        Some(_) => Err(format!(
            "it may be in the making; it is left over when nobody touches it for {limit} s"
        )),
        None => Err("it cannot be told when it was touched last".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> CloneUse {
        CloneUse {
            ours: true,
            idle_days: Some(IDLE_DAYS),
            ..CloneUse::default()
        }
    }

    #[test]
    fn clones_go_only_if_nothing_depends_on_them_and_nothing_exists_only_there() {
        judge_clones(&idle()).expect("it may go");
        let one = || vec!["x".to_owned()];
        for (what, used) in [
            (
                "foreign",
                CloneUse {
                    ours: false,
                    ..idle()
                },
            ),
            (
                "checkout",
                CloneUse {
                    checkouts: one(),
                    ..idle()
                },
            ),
            (
                "worktree",
                CloneUse {
                    foreign_worktrees: one(),
                    ..idle()
                },
            ),
            (
                "archive",
                CloneUse {
                    archives: 1,
                    ..idle()
                },
            ),
            (
                "aside",
                CloneUse {
                    set_aside: 1,
                    ..idle()
                },
            ),
            (
                "at risk",
                CloneUse {
                    at_risk: one(),
                    ..idle()
                },
            ),
            (
                "process",
                CloneUse {
                    processes: one(),
                    ..idle()
                },
            ),
            (
                "busy",
                CloneUse {
                    busy: true,
                    ..idle()
                },
            ),
            (
                "halted",
                CloneUse {
                    halted: true,
                    ..idle()
                },
            ),
            (
                "young",
                CloneUse {
                    idle_days: Some(IDLE_DAYS - 1),
                    ..idle()
                },
            ),
            (
                "unknown",
                CloneUse {
                    idle_days: None,
                    ..idle()
                },
            ),
        ] {
            assert!(judge_clones(&used).is_err(), "{what}");
        }
    }

    #[test]
    fn what_is_unfinished_is_left_over_only_when_it_is_old_and_closed() {
        for (age, is_open, goes) in [
            (Some(3600), false, true),
            (Some(3599), false, false),
            (Some(3600), true, false),
            (None, false, false),
        ] {
            let judged = judge_unfinished(age, 1800, is_open);
            assert_eq!(judged.is_ok(), goes, "{age:?} {is_open}");
        }
        assert!(judge_unfinished(Some(u64::MAX), u64::MAX, false).is_ok());
    }
}
