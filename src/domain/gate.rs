//! The removal gate's decision: may this checkout go?
//!
//! The probes are run elsewhere (`workspace::probe`); here is what they can say
//! and what follows from it. A probe that could not be run counts as work.

use serde::{Deserialize, Serialize};

use super::reason::{KeepReason, Kept};

/// The ten probes, in the order in which they are run and told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// Store, directory and git's record agree.
    Identity,
    /// Leases and locks.
    Locks,
    /// Processes inside.
    Processes,
    /// Operations in progress.
    Operations,
    /// Index, tree, untracked and ignored files.
    Files,
    /// Entries hidden from status.
    HiddenFiles,
    /// Commits that are on no remote.
    Commits,
    /// Submodules.
    Submodules,
    /// Nested repositories and files that status never lists.
    Nested,
    /// Stash entries made here.
    Stash,
}

impl Probe {
    /// Every probe, in order.
    pub const ALL: [Self; 10] = [
        Self::Identity,
        Self::Locks,
        Self::Processes,
        Self::Operations,
        Self::Files,
        Self::HiddenFiles,
        Self::Commits,
        Self::Submodules,
        Self::Nested,
        Self::Stash,
    ];

    /// Returns the probe's name as it is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Locks => "locks",
            Self::Processes => "processes",
            Self::Operations => "operations",
            Self::Files => "files",
            Self::HiddenFiles => "hidden files",
            Self::Commits => "commits",
            Self::Submodules => "submodules",
            Self::Nested => "nested repositories",
            Self::Stash => "stash",
        }
    }
}

/// What one probe ran and saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Which probe.
    pub probe: Probe,
    /// What was done, for a reader: a command or a sentence.
    pub ran: String,
    /// What came of it.
    pub outcome: ProbeOutcome,
}

/// The outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// Nothing at risk.
    Clear,
    /// Work, or a hindrance.
    Found(Vec<Kept>),
    /// The question could not be answered, and why.
    Failed(String),
    /// Not asked, because an earlier answer already forbids going on, and why.
    Skipped(String),
}

/// Whether a checkout may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing in it exists only there.
    Removable,
    /// It stays, for these reasons.
    Keep(Vec<Kept>),
}

/// Decides from what the probes said. Removable only if every one of the ten
/// probes was run and is clear.
pub fn judge(results: &[ProbeResult]) -> Verdict {
    let mut reasons = Vec::new();
    for probe in Probe::ALL {
        match results.iter().find(|result| result.probe == probe) {
            Some(ProbeResult {
                outcome: ProbeOutcome::Clear,
                ..
            }) => {}
            Some(ProbeResult {
                outcome: ProbeOutcome::Found(found),
                ..
            }) => {
                // A finding without a reason is a mistake of the probe, not an all-clear.
                if found.is_empty() {
                    reasons.push(Kept::new(KeepReason::ProbeFailed, [probe.as_str()]));
                }
                reasons.extend(found.iter().cloned());
            }
            Some(ProbeResult {
                outcome: ProbeOutcome::Failed(why),
                ..
            }) => {
                reasons.push(Kept::new(
                    KeepReason::ProbeFailed,
                    [format!("{}: {why}", probe.as_str())],
                ));
            }
            Some(ProbeResult {
                outcome: ProbeOutcome::Skipped(_),
                ..
            }) if !reasons.is_empty() => {}
            Some(ProbeResult {
                outcome: ProbeOutcome::Skipped(why),
                ..
            }) => {
                reasons.push(Kept::new(
                    KeepReason::ProbeFailed,
                    [format!("{}: skipped: {why}", probe.as_str())],
                ));
            }
            None => {
                reasons.push(Kept::new(
                    KeepReason::ProbeFailed,
                    [format!("{}: not asked", probe.as_str())],
                ));
            }
        }
    }
    if reasons.is_empty() {
        Verdict::Removable
    } else {
        Verdict::Keep(reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_clear() -> Vec<ProbeResult> {
        Probe::ALL
            .iter()
            .map(|probe| ProbeResult {
                probe: *probe,
                ran: String::new(),
                outcome: ProbeOutcome::Clear,
            })
            .collect()
    }

    #[test]
    fn a_checkout_is_removable_only_if_every_probe_is_clear() {
        assert_eq!(judge(&all_clear()), Verdict::Removable);
        for n in 0..Probe::ALL.len() {
            for outcome in [
                ProbeOutcome::Failed("no".into()),
                ProbeOutcome::Skipped("no".into()),
                ProbeOutcome::Found(vec![]),
                ProbeOutcome::Found(vec![Kept::new(KeepReason::Untracked, ["a"])]),
            ] {
                let mut results = all_clear();
                results[n].outcome = outcome.clone();
                assert!(
                    matches!(judge(&results), Verdict::Keep(_)),
                    "{n} {outcome:?}"
                );
            }
            let mut results = all_clear();
            results.remove(n);
            assert!(matches!(judge(&results), Verdict::Keep(_)), "{n} missing");
        }
    }
}
