//! The time, as a value: the one place that reads the clock.

use std::time::Duration;

use jiff::Timestamp;

/// Returns the present moment.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Returns the present moment as milliseconds since 1970, as the store keeps it.
pub fn now_ms() -> i64 {
    now().as_millisecond()
}

/// Returns a moment as RFC 3339 with milliseconds, UTC.
pub fn rfc3339(ms: i64) -> String {
    let moment = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{moment:.3}")
}

/// Returns `duration` in whole milliseconds, bounded.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns how long ago a moment was; none if it is still to come.
pub fn since(then: std::time::SystemTime) -> Option<Duration> {
    then.elapsed().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_with_three_digits_and_in_utc() {
        assert_eq!(rfc3339(1_796_000_000_000), "2026-11-30T00:53:20.000Z");
        assert_eq!(rfc3339(1_796_000_000_007), "2026-11-30T00:53:20.007Z");
    }
}
