//! How much memory all bodies together may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory for bodies that are being read or stored; cheap to clone.
#[derive(Clone)]
pub struct BodyBudget {
    inner: Arc<Counts>,
}

struct Counts {
    limit: AtomicU64,
    used: AtomicU64,
}

/// A part of the budget, given back when dropped.
pub(super) struct Held {
    budget: BodyBudget,
    bytes: u64,
}

impl BodyBudget {
    /// Returns a budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            inner: Arc::new(Counts {
                limit: AtomicU64::new(limit),
                used: AtomicU64::new(0),
            }),
        }
    }

    /// Sets another limit; what is held already stays.
    pub(super) fn set_limit(&self, limit: u64) {
        self.inner.limit.store(limit, Ordering::Relaxed);
    }

    pub(super) fn hold_nothing(&self) -> Held {
        Held {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

impl Held {
    /// Holds `bytes` more, if they are there.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let counts = &self.budget.inner;
        let limit = counts.limit.load(Ordering::Relaxed);
        let grown = counts
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= limit)
            });
        if grown.is_ok() {
            self.bytes += bytes;
        }
        grown.is_ok()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget
            .inner
            .used
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_given_back() {
        let budget = BodyBudget::new(10);
        let mut first = budget.hold_nothing();
        let mut second = budget.hold_nothing();
        assert!(first.grow(4) && first.grow(4));
        assert!(!second.grow(3) && second.grow(2));
        drop(first);
        assert!(second.grow(8));
        assert!(!second.grow(1));
    }
}
