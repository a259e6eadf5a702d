//! What the configuration makes of a checkout whose item closes.

use serde::{Deserialize, Serialize};

use super::gate::Verdict;

/// What happens to checkouts when their items close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnClose {
    /// They stay, whatever is in them.
    Stay,
    /// They go if nothing exists only there.
    KeepWork,
    /// They go; what exists only there is archived before.
    ArchiveWork,
}

impl OnClose {
    /// Returns what is said of it to people, behind "when its item closes".
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Stay => "it stays (keepCheckoutOnClose)",
            Self::KeepWork => "it is removed if nothing exists only in it",
            Self::ArchiveWork => "it is removed; what exists only in it is archived first",
        }
    }
}

/// What would become of a checkout if its item closed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It would be removed; nothing exists only there.
    Removed,
    /// What exists only there would be archived, then it would be removed.
    Archived,
    /// It would stay.
    Kept,
}

/// Returns what would become of a checkout of which this was seen.
pub fn fate(verdict: &Verdict, on_close: OnClose) -> Fate {
    match (on_close, verdict) {
        (OnClose::Stay, _) | (OnClose::KeepWork, Verdict::Keep(_)) => Fate::Kept,
        (OnClose::KeepWork | OnClose::ArchiveWork, Verdict::Removable) => Fate::Removed,
        (OnClose::ArchiveWork, Verdict::Keep(reasons)) => {
            if reasons.iter().all(|kept| kept.code.is_archivable()) {
                Fate::Archived
            } else {
                Fate::Kept
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::reason::{KeepReason, Kept};

    #[test]
    fn what_is_at_risk_is_archived_only_if_all_of_it_can_be_and_it_is_asked_for() {
        let keep = |codes: &[KeepReason]| {
            Verdict::Keep(codes.iter().map(|code| Kept::new(*code, ["x"])).collect())
        };
        let work = keep(&[KeepReason::Untracked, KeepReason::UnlandedCommits]);
        let mixed = keep(&[KeepReason::Untracked, KeepReason::InUse]);
        for (verdict, on_close, expected) in [
            (&Verdict::Removable, OnClose::Stay, Fate::Kept),
            (&Verdict::Removable, OnClose::KeepWork, Fate::Removed),
            (&Verdict::Removable, OnClose::ArchiveWork, Fate::Removed),
            (&work, OnClose::Stay, Fate::Kept),
            (&work, OnClose::KeepWork, Fate::Kept),
            (&work, OnClose::ArchiveWork, Fate::Archived),
            (&mixed, OnClose::Stay, Fate::Kept),
            (&mixed, OnClose::KeepWork, Fate::Kept),
            (&mixed, OnClose::ArchiveWork, Fate::Kept),
        ] {
            assert_eq!(
                fate(verdict, on_close),
                expected,
                "{verdict:?} {on_close:?}"
            );
        }
    }
}
