//! The bulk breaker: when checkouts go in numbers and no event asked for it,
//! something is wrong, and nothing more is removed until an operator says so.
//!
//! Counted are checkouts whose directories were found gone, and removals that a
//! comparison of store and disk began by itself. A removal that a close or a
//! person asked for has its own cause and never counts.
//!
//! More than a handful within [`WINDOW_MS`] trips it, or, where there are many
//! checkouts, more than a fifth of them: of the two bounds the larger one holds.
//! So a person may delete a directory or two by hand in a small inn, and a disk
//! that is not mounted trips it in any.

use serde::{Deserialize, Serialize};

/// How many may go in one go, however few there are.
pub const HANDFUL: u64 = 5;

/// What counts as one go.
pub const WINDOW_MS: i64 = 10 * 60 * 1000;

/// What there was too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Directories were found gone, some of them at least.
    Vanished,
    /// All of them would have been removals.
    Removed,
}

/// Removals are halted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// Since when, milliseconds since 1970.
    pub at: i64,
    /// Why.
    pub cause: Cause,
    /// How many went or would have gone.
    pub count: u64,
    /// Of how many.
    pub checkouts: u64,
}

impl Halt {
    /// Returns what happened, as a sentence without a stop.
    pub fn sentence(&self) -> String {
        let Self {
            count, checkouts, ..
        } = self;
        match self.cause {
            Cause::Vanished => format!(
                "{count} of {checkouts} checkouts were gone at once, as if a disk were not mounted"
            ),
            Cause::Removed => format!(
                "{count} of {checkouts} checkouts would have been removed at once without an event for each"
            ),
        }
    }
}

/// What the breaker remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Breaker {
    /// None while removals go on.
    pub halted: Option<Halt>,
    /// When removals that nobody asked for were begun, the newest ones.
    pub removals: Vec<i64>,
    /// When an operator said last that removals may go on: what went before
    /// is accounted for.
    pub resumed_at: i64,
}

/// Returns how many of `checkouts` may go in one go.
pub const fn allowed(checkouts: u64) -> u64 {
    let fifth = checkouts / 5;
    if fifth > HANDFUL { fifth } else { HANDFUL }
}

impl Breaker {
    /// Looks at what vanished: `vanished` are the times at which present
    /// absences were found, `checkouts` how many there are, those included.
    /// Returns the halt if this trips it.
    pub fn look(&mut self, now: i64, vanished: &[i64], checkouts: u64) -> Option<Halt> {
        self.count(now, vanished, checkouts, 0)
    }

    /// Asks for one more removal that nobody asked for. It may be begun unless
    /// removals are halted, which this may do.
    pub fn admit(&mut self, now: i64, vanished: &[i64], checkouts: u64) -> Option<Halt> {
        let tripped = self.count(now, vanished, checkouts, 1);
        if self.halted.is_none() {
            self.removals.push(now);
        }
        tripped
    }

    /// Lets removals go on. What has gone so far counts no more.
    pub fn resume(&mut self, now: i64) -> Option<Halt> {
        self.removals.clear();
        self.resumed_at = now;
        self.halted.take()
    }

    fn count(&mut self, now: i64, vanished: &[i64], checkouts: u64, more: u64) -> Option<Halt> {
        let since = now - WINDOW_MS;
        self.removals.retain(|at| *at > since);
        if self.halted.is_some() {
            return None;
        }
        let gone = vanished
            .iter()
            .filter(|at| **at > since && **at > self.resumed_at)
            .count() as u64;
        let removed = self.removals.len() as u64;
        // What was removed is not among the checkouts any more.
        let all = checkouts + removed;
        let count = gone + removed + more;
        if count <= allowed(all) {
            return None;
        }
        let halt = Halt {
            at: now,
            cause: if gone > 0 {
                Cause::Vanished
            } else {
                Cause::Removed
            },
            count,
            checkouts: all,
        };
        self.halted = Some(halt.clone());
        Some(halt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    #[test]
    fn a_handful_may_go_or_a_fifth_whichever_is_more() {
        for (checkouts, expected) in [(0, 5), (1, 5), (12, 5), (25, 5), (30, 6), (200, 40)] {
            assert_eq!(allowed(checkouts), expected, "{checkouts}");
        }
    }

    #[test]
    fn what_vanished_trips_it_only_in_numbers_and_at_once() {
        let old = NOW - WINDOW_MS;
        for (vanished, checkouts, trips) in [
            (vec![], 12, false),
            (vec![NOW; 1], 1, false),
            (vec![NOW; 5], 5, false),
            (vec![NOW; 6], 6, true),
            (vec![NOW; 12], 12, true),
            // One after the other, over a long time.
            ([vec![old; 9], vec![NOW; 5]].concat(), 20, false),
            ([vec![old + 1; 3], vec![NOW; 3]].concat(), 20, true),
            (vec![NOW; 40], 200, false),
            (vec![NOW; 41], 200, true),
        ] {
            let mut breaker = Breaker::default();
            let halt = breaker.look(NOW, &vanished, checkouts);
            assert_eq!(halt.is_some(), trips, "{} of {checkouts}", vanished.len());
            assert_eq!(breaker.halted, halt);
            assert!(halt.is_none_or(|halt| halt.cause == Cause::Vanished));
        }
    }

    #[test]
    fn the_removal_after_a_handful_is_not_begun_and_those_after_it_neither() {
        let mut breaker = Breaker::default();
        let mut left = 12;
        for n in 0..5 {
            assert_eq!(breaker.admit(NOW + n, &[], left), None);
            assert_eq!(breaker.halted, None, "{n}");
            left -= 1;
        }
        let halt = breaker.admit(NOW + 5, &[], left).expect("it trips");
        assert_eq!(
            (halt.cause, halt.count, halt.checkouts),
            (Cause::Removed, 6, 12)
        );
        // Told once, halted for good, also when the window is over.
        assert_eq!(breaker.admit(NOW + 6, &[], left), None);
        assert_eq!(breaker.admit(NOW + 9 * WINDOW_MS, &[], left), None);
        assert!(breaker.halted.is_some());
        assert_eq!(breaker.removals, [0_i64; 0]);
    }

    #[test]
    fn removals_that_are_spread_over_time_go_on() {
        let mut breaker = Breaker::default();
        for n in 0..50 {
            breaker.admit(NOW + n * WINDOW_MS / 5, &[], 10);
            assert_eq!(breaker.halted, None, "{n}");
        }
    }

    #[test]
    fn what_vanished_and_what_was_removed_count_together() {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            breaker.admit(NOW, &[], 20);
        }
        let halt = breaker.look(NOW, &[NOW; 3], 17).expect("six in one go");
        assert_eq!((halt.cause, halt.count), (Cause::Vanished, 6));
    }

    #[test]
    fn after_the_operators_word_what_was_gone_before_counts_no_more() {
        let mut breaker = Breaker::default();
        breaker.look(NOW, &[NOW; 12], 12);
        assert!(breaker.resume(NOW + 1).is_some());
        assert_eq!(breaker.look(NOW + 2, &[NOW; 12], 12), None);
        assert_eq!(breaker.admit(NOW + 3, &[NOW; 12], 12), None);
        assert_eq!(breaker.halted, None);
        assert!(breaker.look(NOW + 4, &[NOW + 4; 6], 12).is_some());
    }
}
