//! When a repository is maintained: idle, at most once a day, one at a time.

/// How long nothing may have happened in a repository, milliseconds.
pub const IDLE_MS: i64 = 10 * 60 * 1000;
/// How long ago the last maintenance must be, milliseconds.
pub const EVERY_MS: i64 = 24 * 60 * 60 * 1000;

/// What is known of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// When anything was last done in it, milliseconds since 1970; none if
    /// nothing was since the daemon started.
    pub used: Option<i64>,
    /// When it was last maintained; none if never.
    pub maintained: Option<i64>,
}

/// Returns which of the repositories is to be maintained now: the one whose
/// turn is longest due; none if none is due.
///
/// `started` is when the daemon was: until it has been idle itself for as long,
/// nothing is, because what follows a start uses everything.
pub fn next(now: i64, started: i64, candidates: &[Candidate]) -> Option<usize> {
    candidates
        .iter()
        .enumerate()
        .filter(|(_, one)| is_due(now, started, one))
        .min_by_key(|(_, one)| one.maintained.unwrap_or(i64::MIN))
        .map(|(at, _)| at)
}

fn is_due(now: i64, started: i64, one: &Candidate) -> bool {
    let idle = now.saturating_sub(one.used.unwrap_or(started)) >= IDLE_MS;
    // A time that has not come yet is a clock that was set back.
    let due = one
        .maintained
        .is_none_or(|then| then > now || now.saturating_sub(then) >= EVERY_MS);
    idle && due
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;
    const LONG_AGO: i64 = NOW - 10 * EVERY_MS;

    fn one(used: Option<i64>, maintained: Option<i64>) -> Candidate {
        Candidate { used, maintained }
    }

    #[test]
    fn what_was_just_used_or_just_maintained_waits() {
        let table = [
            (one(None, None), true),
            (one(Some(NOW - IDLE_MS), None), true),
            (one(Some(NOW - IDLE_MS + 1), None), false),
            (one(Some(LONG_AGO), Some(NOW - EVERY_MS)), true),
            (one(Some(LONG_AGO), Some(NOW - EVERY_MS + 1)), false),
            (one(Some(LONG_AGO), Some(NOW + 1)), true),
            (one(Some(NOW + 5), None), false),
        ];
        for (candidate, due) in table {
            assert_eq!(
                next(NOW, LONG_AGO, &[candidate]).is_some(),
                due,
                "{candidate:?}"
            );
        }
    }

    #[test]
    fn nothing_is_maintained_right_after_the_start() {
        assert_eq!(next(NOW, NOW - IDLE_MS + 1, &[one(None, None)]), None);
        assert_eq!(next(NOW, NOW - IDLE_MS, &[one(None, None)]), Some(0));
    }

    #[test]
    fn the_one_that_waits_longest_comes_first() {
        let many = [
            one(None, Some(NOW - 2 * EVERY_MS)),
            one(None, Some(NOW - 3 * EVERY_MS)),
            one(Some(NOW), None),
        ];
        assert_eq!(next(NOW, LONG_AGO, &many), Some(1));
        let never = [many[1], one(None, None)];
        assert_eq!(next(NOW, LONG_AGO, &never), Some(1));
        assert_eq!(next(NOW, LONG_AGO, &[]), None);
    }
}
