//! Archives: what a removed checkout held that existed nowhere else.

use serde::{Deserialize, Serialize};

use super::checkout::{CheckoutRecord, Strategy};
use super::reason::Kept;

/// What happens to work that exists only in a checkout that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtRisk {
    /// The checkout stays.
    Keep,
    /// It is archived, then the checkout goes.
    Archive,
    /// As `Archive`, if what is at risk is still what somebody was shown: the
    /// fingerprint of that look. Otherwise the checkout stays.
    Consent(String),
}

/// What follows for a checkout in which something is at risk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is archived, then it goes.
    Archive,
    /// It stays.
    Keep {
        /// What a consent would have to name; none if consent would not help.
        token: Option<String>,
    },
}

/// Decides what happens to a checkout that is kept for `reasons`, of which the
/// look has this fingerprint; none if it was not seen whole.
pub fn decide(at_risk: &AtRisk, reasons: &[Kept], fingerprint: Option<&str>) -> Decision {
    let archivable = reasons.iter().all(|reason| reason.code.is_archivable());
    let Some(fingerprint) = fingerprint.filter(|_| archivable) else {
        return Decision::Keep { token: None };
    };
    let agreed = match at_risk {
        AtRisk::Keep => false,
        AtRisk::Archive => true,
        AtRisk::Consent(token) => token == fingerprint,
    };
    if agreed {
        Decision::Archive
    } else {
        Decision::Keep {
            token: Some(fingerprint.to_owned()),
        }
    }
}

/// An archive, as it is listed and told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveSummary {
    /// Its id, which commands and events name.
    pub id: String,
    /// The checkout it was made of, as it was.
    pub record: CheckoutRecord,
    /// Reference of the work item; unknown to a workspace that nobody told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item: Option<String>,
    /// What was at risk.
    pub reasons: Vec<Kept>,
    /// Where HEAD was: a full ref name or an object id; none if it was unborn.
    pub head: Option<String>,
    /// When it was made, milliseconds since 1970.
    pub created_at: i64,
    /// Bytes that it takes on disk.
    pub bytes: u64,
    /// How many files, directories and links are in it beside commits.
    pub files: u64,
    /// How many commits are in it that were nowhere else.
    pub commits: u64,
}

impl ArchiveSummary {
    /// How the checkout was made.
    pub const fn strategy(&self) -> Strategy {
        self.record.strategy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::reason::KeepReason;

    #[test]
    fn only_what_an_archive_can_hold_and_somebody_agreed_to_is_archived() {
        let can = vec![Kept::new(KeepReason::Untracked, ["a"])];
        let cannot = vec![can[0].clone(), Kept::new(KeepReason::InUse, ["b"])];
        let token = || Some("t".to_owned());
        let consent = |text: &str| AtRisk::Consent(text.to_owned());
        for (at_risk, reasons, seen, expected) in [
            (AtRisk::Archive, &can, Some("t"), Decision::Archive),
            (consent("t"), &can, Some("t"), Decision::Archive),
            (
                consent("u"),
                &can,
                Some("t"),
                Decision::Keep { token: token() },
            ),
            (
                consent("true"),
                &can,
                Some("t"),
                Decision::Keep { token: token() },
            ),
            (consent(""), &can, None, Decision::Keep { token: None }),
            (
                AtRisk::Keep,
                &can,
                Some("t"),
                Decision::Keep { token: token() },
            ),
            (
                AtRisk::Keep,
                &cannot,
                Some("t"),
                Decision::Keep { token: None },
            ),
            (
                AtRisk::Archive,
                &cannot,
                Some("t"),
                Decision::Keep { token: None },
            ),
            (
                consent("t"),
                &cannot,
                Some("t"),
                Decision::Keep { token: None },
            ),
            (AtRisk::Archive, &can, None, Decision::Keep { token: None }),
        ] {
            assert_eq!(decide(&at_risk, reasons, seen), expected, "{at_risk:?}");
        }
    }
}
