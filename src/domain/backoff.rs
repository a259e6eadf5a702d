//! How long to wait before a failed delivery is taken again.

use super::code::{FailureCode, Retry};

/// The first wait. Doubled after each attempt.
pub const FIRST_WAIT_MS: u64 = 5_000;

/// The longest wait.
pub const WAIT_MS_MAX: u64 = 300_000;

/// How far a wait may be from its nominal length, in per cent, so that what
/// failed together is not tried again together.
const JITTER_PERCENT: u64 = 20;

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Taken again after so many milliseconds.
    Again {
        /// How long to wait.
        after_ms: u64,
    },
    /// Given up.
    Park,
}

/// Decides what follows attempt number `attempt` (from 1) of `attempts_max`.
/// `seed` spreads waits: the same seed and attempt always wait equally long.
/// `first_wait_ms` is [`FIRST_WAIT_MS`] outside of tests.
pub fn after_failure(
    code: FailureCode,
    attempt: u32,
    attempts_max: u32,
    seed: u64,
    first_wait_ms: u64,
) -> AfterFailure {
    match code.retry() {
        Retry::Never => AfterFailure::Park,
        Retry::Later if attempt >= attempts_max => AfterFailure::Park,
        Retry::Later => {
            let doublings = attempt.saturating_sub(1).min(16);
            let nominal = first_wait_ms
                .saturating_mul(1 << doublings)
                .min(WAIT_MS_MAX);
            // A multiplicative hash; its upper bits are well spread.
            let spread = (seed ^ u64::from(attempt).rotate_left(32))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                >> 40;
            let percent = 100 - JITTER_PERCENT + spread % (2 * JITTER_PERCENT + 1);
            AfterFailure::Again {
                after_ms: nominal * percent / 100,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_stay_within_the_jitter() {
        for seed in 0..200 {
            for attempt in 1..20 {
                let nominal = (FIRST_WAIT_MS << (attempt - 1).min(16)).min(WAIT_MS_MAX);
                let AfterFailure::Again { after_ms } =
                    after_failure(FailureCode::Network, attempt, 99, seed, FIRST_WAIT_MS)
                else {
                    panic!("attempts are left")
                };
                assert!(after_ms >= nominal * 80 / 100 && after_ms <= nominal * 120 / 100);
            }
        }
    }

    #[test]
    fn six_attempts_take_about_two_and_a_half_minutes() {
        let total: u64 = (1..6)
            .map(|attempt| {
                match after_failure(FailureCode::RefNotYet, attempt, 6, 7, FIRST_WAIT_MS) {
                    AfterFailure::Again { after_ms } => after_ms,
                    AfterFailure::Park => panic!("attempts are left"),
                }
            })
            .sum();
        assert!((124_000..=186_000).contains(&total), "{total}");
        assert_eq!(
            after_failure(FailureCode::RefNotYet, 6, 6, 7, FIRST_WAIT_MS),
            AfterFailure::Park
        );
    }

    #[test]
    fn what_cannot_succeed_later_is_parked_at_once() {
        for code in FailureCode::ALL {
            let parked = after_failure(*code, 1, 6, 1, FIRST_WAIT_MS) == AfterFailure::Park;
            assert_eq!(parked, code.retry() == Retry::Never, "{code}");
        }
    }

    #[test]
    fn waits_of_different_deliveries_differ() {
        let waits: std::collections::BTreeSet<_> = (0..50)
            .map(|seed| {
                format!(
                    "{:?}",
                    after_failure(FailureCode::Network, 1, 6, seed, FIRST_WAIT_MS)
                )
            })
            .collect();
        assert!(waits.len() > 10, "{}", waits.len());
    }
}
