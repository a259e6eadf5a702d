//! How many deliveries wait, without counting them each time.
//!
//! Counting costs time in proportion to what waits. So the inbox adds up what it
//! took since the last count, which is never less than the truth as far as
//! arrivals go, and counts again when that sum reaches the limit, and once in a
//! while for what was put back by other ways (a replay).

use std::time::{Duration, Instant};

use crate::store::StoreError;

/// How many arrivals one count is good for.
const RECOUNT_AFTER: u64 = 1024;

/// Counting takes at most this part of the writer's time while the inbox is
/// full; in between, the last count stands.
const RECOUNT_SHARE: u32 = 10;

/// A count that is faster than this may be repeated at will.
const CHEAP: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
pub(super) struct PendingEstimate {
    counted: Option<Counted>,
    since: u64,
}

#[derive(Debug)]
struct Counted {
    pending: u64,
    at: Instant,
    took: Duration,
}

impl PendingEstimate {
    /// Answers whether one more may be taken.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::InboxFull`] at the limit, and what `count` returned.
    pub(super) fn admit(
        &mut self,
        limit: u64,
        count: impl FnOnce() -> Result<u64, StoreError>,
    ) -> Result<(), StoreError> {
        let is_due = match &self.counted {
            None => true,
            Some(counted)
                if self.since >= RECOUNT_AFTER || counted.pending + self.since >= limit =>
            {
                counted.took < CHEAP || counted.at.elapsed() >= counted.took * RECOUNT_SHARE
            }
            Some(_) => false,
        };
        if is_due {
            let began = Instant::now();
            let pending = count()?;
            self.counted = Some(Counted {
                pending,
                at: Instant::now(),
                took: began.elapsed(),
            });
            self.since = 0;
        }
        let pending = self.counted.as_ref().map_or(0, |counted| counted.pending) + self.since;
        if pending >= limit {
            return Err(StoreError::InboxFull { pending });
        }
        Ok(())
    }

    /// One more was taken.
    pub(super) fn admitted(&mut self) {
        self.since += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_the_limit_nothing_is_counted_again() {
        let mut estimate = PendingEstimate::default();
        estimate.admit(10, || Ok(3)).expect("room");
        estimate.admitted();
        for _ in 0..6 {
            estimate
                .admit(10, || panic!("must not count"))
                .expect("room");
            estimate.admitted();
        }
        // 3 + 7 reach the limit: only a count can tell that some were finished.
        estimate.admit(10, || Ok(4)).expect("room again");
    }

    #[test]
    fn at_the_limit_the_truth_decides() {
        let mut estimate = PendingEstimate::default();
        assert!(matches!(
            estimate.admit(2, || Ok(2)),
            Err(StoreError::InboxFull { pending: 2 })
        ));
    }

    #[test]
    fn an_expensive_count_is_not_repeated_at_once() {
        let mut estimate = PendingEstimate {
            counted: Some(Counted {
                pending: 5,
                at: Instant::now(),
                took: Duration::from_hours(1),
            }),
            since: 0,
        };
        assert!(estimate.admit(5, || panic!("must not count")).is_err());
    }
}
