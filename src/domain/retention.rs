//! Which archives have been kept for long enough.
//!
//! # Invariants
//!
//! 1. An archive of an item that is open goes by itself at no age, also if the
//!    item was closed in between.
//! 2. One whose item nobody remembers stays: nothing says that it is over.

/// What is known of an archive and of the item it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// When it was made, milliseconds since 1970.
    pub created_at: i64,
    /// Its item; none if none is known.
    pub item: Option<ItemAge>,
}

/// What is known of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemAge {
    /// Whether it is open.
    pub open: bool,
    /// When something last became known about it.
    pub changed_at: i64,
}

const DAY_MS: i64 = 86_400_000;

/// Returns when an archive may go, milliseconds since 1970: `days` after it was
/// made and after its item last changed. None is never.
pub fn expires_at(kept: Kept, days: u64) -> Option<i64> {
    let item = kept.item?;
    if days == 0 || item.open {
        return None;
    }
    let days = i64::try_from(days).unwrap_or(i64::MAX);
    let since = kept.created_at.max(item.changed_at);
    Some(since.saturating_add(days.saturating_mul(DAY_MS)))
}

/// Returns whether an archive is to go now.
pub fn is_expired(kept: Kept, days: u64, now: i64) -> bool {
    expires_at(kept, days).is_some_and(|at| at <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_goes_after_its_days_and_never_while_its_item_is_open() {
        let closed = |changed_at| {
            Some(ItemAge {
                open: false,
                changed_at,
            })
        };
        let open = Some(ItemAge {
            open: true,
            changed_at: 0,
        });
        let day = DAY_MS;
        for (what, created_at, item, days, now, expected) in [
            ("its last moment", 0, closed(0), 30, 30 * day - 1, false),
            ("its day", 0, closed(0), 30, 30 * day, true),
            (
                "made later than the close",
                day,
                closed(0),
                30,
                30 * day,
                false,
            ),
            ("heard of since", 0, closed(20 * day), 30, 49 * day, false),
            (
                "not heard of for its days",
                0,
                closed(20 * day),
                30,
                50 * day,
                true,
            ),
            ("of an open item", 0, open, 30, 10_000 * day, false),
            (
                "of an item that nobody knows",
                0,
                None,
                30,
                10_000 * day,
                false,
            ),
            ("kept for ever", 0, closed(0), 0, 10_000 * day, false),
            ("one day", 0, closed(0), 1, day, true),
            ("from the future", 9 * day, closed(0), 1, 2 * day, false),
            ("for ages", 0, closed(0), u64::MAX, i64::MAX - 1, false),
        ] {
            let kept = Kept { created_at, item };
            assert_eq!(is_expired(kept, days, now), expected, "{what}");
        }
    }
}
