//! Reading a body within its bounds.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::Problem;
use super::budget::{BodyBudget, Held};

/// The longest pause within a body.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// The longest time for a whole body; senders give up earlier.
const WHOLE_MAX: Duration = Duration::from_mins(1);

/// The longest time spent on a body that is refused.
const DISCARD_MAX: Duration = Duration::from_secs(5);

/// What is set aside for a body at first.
const FIRST_BYTES: u64 = 32 * 1024;

/// Reads a body of at most `max` bytes. Memory is taken as bytes come, not as
/// they are announced: announcing costs a sender nothing.
///
/// # Errors
///
/// Returns [`Problem`] if it is too large, too slow, or the budget is used up.
pub(super) async fn read(
    mut body: Body,
    length: Option<u64>,
    max: u64,
    budget: &BodyBudget,
) -> Result<(Bytes, Held), Problem> {
    let deadline = Instant::now() + WHOLE_MAX;
    let whole = length.unwrap_or(max).min(max);
    let mut held = budget.hold_nothing();
    let mut bytes = Vec::new();
    let mut room = 0;
    loop {
        let next = timeout_at(deadline, timeout(IDLE_MAX, body.frame())).await;
        let Ok(Ok(next)) = next else {
            return Err(Problem::Slow);
        };
        let Some(frame) = next else {
            return Ok((Bytes::from(bytes), held));
        };
        let Ok(chunk) = frame.map_err(|_broken| Problem::Broken)?.into_data() else {
            continue;
        };
        let need = (bytes.len() + chunk.len()) as u64;
        if need > max {
            drop(bytes);
            drop(held);
            discard(body, max).await;
            return Err(Problem::TooLarge { max });
        }
        if need > room {
            let wanted = need.max((room * 2).max(FIRST_BYTES).min(whole));
            if !held.grow(wanted - room) {
                drop(bytes);
                drop(held);
                discard(body, max).await;
                return Err(Problem::BudgetUsedUp);
            }
            room = wanted;
            let more = usize::try_from(room).unwrap_or(usize::MAX) - bytes.len();
            bytes.reserve_exact(more);
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// Reads and forgets what a sender still has to say, so that it hears the
/// answer; bounded in bytes and time, and without keeping any of it.
pub(super) async fn discard(mut body: Body, max: u64) {
    let rest = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, |chunk| chunk.len() as u64);
            if seen > max.saturating_mul(2) {
                break;
            }
        }
    };
    // Whoever is slower than that misses the answer.
    let _late = timeout(DISCARD_MAX, rest).await;
}
