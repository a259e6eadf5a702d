//! Moments on the command line: a time, a date, or how long ago.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::clock;

/// A moment, as milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(pub(super) i64);

/// The text is no moment.
#[derive(Debug, thiserror::Error)]
#[error(
    "write a time (2026-11-30T12:00:00Z), a local time or date (2026-11-30), or how long ago (90m, 2h, 3d)"
)]
pub(super) struct BadMoment;

impl std::str::FromStr for Moment {
    type Err = BadMoment;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text, clock::now(), &TimeZone::system()).ok_or(BadMoment)
    }
}

fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Moment> {
    let text = text.trim();
    if let Some(ago) = ago(text) {
        return Some(Moment(now.checked_sub(ago).ok()?.as_millisecond()));
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(Moment(moment.as_millisecond()));
    }
    let local = match text.parse::<Date>() {
        Ok(date) if text.len() <= "2026-11-30".len() => {
            date.to_datetime(jiff::civil::Time::midnight())
        }
        _ => text.parse::<DateTime>().ok()?,
    };
    let moment = zone.to_timestamp(local).ok()?;
    Some(Moment(moment.as_millisecond()))
}

/// Returns what `90m` and the like mean.
fn ago(text: &str) -> Option<SignedDuration> {
    let unit = text.chars().next_back()?;
    let count: i64 = text[..text.len() - unit.len_utf8()].parse().ok()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    (count >= 0).then_some(())?;
    Some(SignedDuration::from_secs(count.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_moment_is_understood() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().expect("a time");
        let read =
            |text: &str| parse(text, now, &TimeZone::UTC).map(|moment| clock::rfc3339(moment.0));
        for (text, want) in [
            ("2h", "2026-11-30T10:00:00.000Z"),
            ("3d", "2026-11-27T12:00:00.000Z"),
            ("2026-11-29", "2026-11-29T00:00:00.000Z"),
            ("2026-11-29T10:00:00+02:00", "2026-11-29T08:00:00.000Z"),
            ("2026-11-29T10:00:00", "2026-11-29T10:00:00.000Z"),
            ("2026-11-29 10:00", "2026-11-29T10:00:00.000Z"),
        ] {
            assert_eq!(read(text).as_deref(), Some(want), "{text}");
        }
        for bad in [
            "",
            "h",
            "-2h",
            "yesterday",
            "2026-13-01",
            "99999999999999999w",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
