//! Comparing what the store says of a checkout with what the disk says.
//!
//! Everything that is found has one answer here, and none of them removes what
//! is not known: half-made things of ours are finished or undone, an absence is
//! noted, what is not ours is left alone.
//!
//! At start nothing else runs, so what is half-done is nobody's. In a round
//! while the daemon works, lanes do their part at the same time; what changed a
//! moment ago is theirs.

use serde::{Deserialize, Serialize};

use super::checkout::CheckoutState;

/// When the comparison is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// Before anything else runs.
    Start,
    /// While everything runs.
    Round,
}

/// What the store says of one checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where it is in its life.
    pub state: CheckoutState,
    /// For how long.
    pub age_ms: i64,
    /// Whether its item is open.
    pub open: bool,
    /// Whether it was to go and was kept.
    pub kept: bool,
    /// Whether a delivery of its item waits or runs: it takes up what is
    /// half-done by itself.
    pub delivery_waits: bool,
    /// Whether an operator said, since it was found gone, that what is gone is
    /// gone.
    pub given_up: bool,
}

/// What the disk says of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is the one.
    Present,
    /// Nothing is there.
    Missing,
    /// Something else is there, or it cannot be told.
    Foreign,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Note that it is gone, and tell.
    NoteMissing,
    /// Note that it is back.
    NoteReturned,
    /// Adopt it if it was completed, else note that nothing was made.
    FinishPreparing,
    /// Go through with its removal, or undo it.
    FinishRemoval,
    /// Ask the removal gate again.
    JudgeAgain,
    /// Tell that something else stands there, and leave it alone.
    LeaveForeign,
}

/// How much a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Sessions and checkouts that were taken up as they were.
    pub adopted: u64,
    /// What was half-done and is finished or undone.
    pub finished: u64,
    /// Checkouts whose directories were found gone.
    pub missing: u64,
    /// What is not ours.
    pub foreign: u64,
}

/// In a round, what is half-done for less than this is being worked on.
pub const WORKED_ON_MS: i64 = 5 * 60 * 1000;

/// A checkout of a closed item that is gone for this long was deleted, not
/// moved away for a while.
pub const GONE_FOR_GOOD_MS: i64 = 24 * 60 * 60 * 1000;

/// Returns what follows for one checkout; `found` is none where no directory is
/// recorded.
pub fn step(occasion: Occasion, stored: &Stored, found: Option<Found>) -> Step {
    let is_nobodys = !stored.delivery_waits
        && match occasion {
            Occasion::Start => true,
            Occasion::Round => stored.age_ms >= WORKED_ON_MS,
        };
    match stored.state {
        CheckoutState::Preparing if is_nobodys => Step::FinishPreparing,
        // At start also with a delivery that waits: what was begun comes first.
        CheckoutState::Removing if is_nobodys || occasion == Occasion::Start => Step::FinishRemoval,
        CheckoutState::Ready => match found {
            Some(Found::Missing) => Step::NoteMissing,
            Some(Found::Foreign) => Step::LeaveForeign,
            Some(Found::Present) if stored.kept && may_be_judged(occasion, stored) => {
                Step::JudgeAgain
            }
            Some(Found::Present) | None => Step::Nothing,
        },
        CheckoutState::Missing => match found {
            Some(Found::Present) => Step::NoteReturned,
            // It may be being prepared again at this moment.
            Some(Found::Foreign) if !stored.delivery_waits => Step::LeaveForeign,
            Some(Found::Missing) if is_gone_for_good(stored) && may_be_judged(occasion, stored) => {
                Step::JudgeAgain
            }
            Some(Found::Foreign | Found::Missing) | None => Step::Nothing,
        },
        CheckoutState::Preparing
        | CheckoutState::Removing
        | CheckoutState::Removed
        | CheckoutState::Failed => Step::Nothing,
    }
}

const fn is_gone_for_good(stored: &Stored) -> bool {
    stored.given_up || stored.age_ms >= GONE_FOR_GOOD_MS
}

/// Starting only looks. An open item's checkout is wanted, and a delivery that
/// waits judges by itself.
fn may_be_judged(occasion: Occasion, stored: &Stored) -> bool {
    occasion == Occasion::Round && !stored.open && !stored.delivery_waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use CheckoutState::{Failed, Missing, Preparing, Ready, Removed, Removing};
    use Occasion::{Round, Start};

    fn stored(state: CheckoutState) -> Stored {
        Stored {
            state,
            age_ms: WORKED_ON_MS,
            open: true,
            kept: false,
            delivery_waits: false,
            given_up: false,
        }
    }

    #[test]
    fn every_state_with_everything_that_can_be_found() {
        let (present, missing, foreign) = (
            Some(Found::Present),
            Some(Found::Missing),
            Some(Found::Foreign),
        );
        for (state, found, at_start, in_a_round) in [
            (
                Preparing,
                None,
                Step::FinishPreparing,
                Step::FinishPreparing,
            ),
            (
                Preparing,
                present,
                Step::FinishPreparing,
                Step::FinishPreparing,
            ),
            (
                Preparing,
                missing,
                Step::FinishPreparing,
                Step::FinishPreparing,
            ),
            (
                Preparing,
                foreign,
                Step::FinishPreparing,
                Step::FinishPreparing,
            ),
            (Ready, None, Step::Nothing, Step::Nothing),
            (Ready, present, Step::Nothing, Step::Nothing),
            (Ready, missing, Step::NoteMissing, Step::NoteMissing),
            (Ready, foreign, Step::LeaveForeign, Step::LeaveForeign),
            (Missing, None, Step::Nothing, Step::Nothing),
            (Missing, present, Step::NoteReturned, Step::NoteReturned),
            (Missing, missing, Step::Nothing, Step::Nothing),
            (Missing, foreign, Step::LeaveForeign, Step::LeaveForeign),
            (Removing, None, Step::FinishRemoval, Step::FinishRemoval),
            (Removing, present, Step::FinishRemoval, Step::FinishRemoval),
            (Removing, missing, Step::FinishRemoval, Step::FinishRemoval),
            (Removing, foreign, Step::FinishRemoval, Step::FinishRemoval),
            (Removed, None, Step::Nothing, Step::Nothing),
            (Removed, present, Step::Nothing, Step::Nothing),
            (Failed, None, Step::Nothing, Step::Nothing),
            (Failed, foreign, Step::Nothing, Step::Nothing),
        ] {
            for (occasion, expected) in [(Start, at_start), (Round, in_a_round)] {
                let now = step(occasion, &stored(state), found);
                assert_eq!(now, expected, "{occasion:?} {state:?} {found:?}");
            }
        }
    }

    #[test]
    fn in_a_round_what_changed_a_moment_ago_is_somebodys() {
        for state in [Preparing, Removing] {
            let fresh = Stored {
                age_ms: WORKED_ON_MS - 1,
                ..stored(state)
            };
            assert_eq!(step(Round, &fresh, None), Step::Nothing, "{state:?}");
            assert_ne!(step(Start, &fresh, None), Step::Nothing, "{state:?}");
        }
    }

    #[test]
    fn a_delivery_that_waits_takes_up_what_is_half_done() {
        let waits = |state| Stored {
            delivery_waits: true,
            ..stored(state)
        };
        assert_eq!(step(Start, &waits(Preparing), None), Step::Nothing);
        assert_eq!(step(Round, &waits(Preparing), None), Step::Nothing);
        assert_eq!(step(Round, &waits(Removing), None), Step::Nothing);
        let foreign = Some(Found::Foreign);
        assert_eq!(step(Round, &waits(Missing), foreign), Step::Nothing);
        assert_eq!(step(Round, &waits(Ready), foreign), Step::LeaveForeign);
        assert_eq!(step(Start, &waits(Removing), None), Step::FinishRemoval);
    }

    #[test]
    fn only_kept_checkouts_of_closed_items_are_judged_again_and_only_in_a_round() {
        for (open, kept, waits, expected) in [
            (false, true, false, Step::JudgeAgain),
            (false, true, true, Step::Nothing),
            (false, false, false, Step::Nothing),
            (true, true, false, Step::Nothing),
            (true, false, false, Step::Nothing),
        ] {
            let stored = Stored {
                open,
                kept,
                delivery_waits: waits,
                ..stored(Ready)
            };
            let found = Some(Found::Present);
            assert_eq!(step(Round, &stored, found), expected, "{stored:?}");
            assert_eq!(step(Start, &stored, found), Step::Nothing, "{stored:?}");
        }
    }

    #[test]
    fn a_missing_one_of_a_closed_item_is_judged_when_it_is_gone_for_good() {
        for (open, age_ms, given_up, expected) in [
            (false, GONE_FOR_GOOD_MS - 1, false, Step::Nothing),
            (false, GONE_FOR_GOOD_MS, false, Step::JudgeAgain),
            (false, 0, true, Step::JudgeAgain),
            (true, GONE_FOR_GOOD_MS, true, Step::Nothing),
        ] {
            let stored = Stored {
                age_ms,
                open,
                given_up,
                ..stored(Missing)
            };
            assert_eq!(
                step(Round, &stored, Some(Found::Missing)),
                expected,
                "{stored:?}"
            );
        }
    }
}
