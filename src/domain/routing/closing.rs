//! Whether an item is open, and which deliveries change that.
//!
//! GitHub promises no order, and renders a payload when it sends it: a `closed`
//! may carry `state: open` because the item was reopened in between, and a
//! `synchronize` from before a close may arrive after it. So a close that the
//! payload itself contradicts closes nothing, and a closed item is opened by
//! nothing but a `reopened`.

use super::{Act, Action, Case, Decision, ItemFacts, Policy, decide};
use crate::domain::envelope::Envelope;

/// What a delivery says about its item's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedState {
    /// Nothing.
    NotAClose,
    /// The item is over: closed, or deleted, or transferred away.
    Closed {
        /// Whether it was merged; none if the payload does not say, or for an issue.
        merged: Option<bool>,
    },
    /// It says `closed`, and that the item is open: it was reopened before the
    /// payload was written, which a delivery of its own tells.
    Contradicted,
}

/// Returns what a delivery says about its item's end.
pub fn closed_state(envelope: &Envelope) -> ClosedState {
    let Some(item) = &envelope.item else {
        return ClosedState::NotAClose;
    };
    match (envelope.event.as_str(), envelope.action.as_deref()) {
        ("issues" | "pull_request", Some("closed")) if item.open == Some(true) => {
            ClosedState::Contradicted
        }
        ("issues" | "pull_request", Some("closed")) => ClosedState::Closed {
            merged: item.merged,
        },
        // Its state stays `open` for ever: there will be no other end.
        ("issues", Some("deleted" | "transferred")) => ClosedState::Closed { merged: None },
        _ => ClosedState::NotAClose,
    }
}

/// Returns whether a delivery says that its item is open again.
fn is_reopening(envelope: &Envelope) -> bool {
    let reopened = matches!(envelope.event.as_str(), "issues" | "pull_request")
        && envelope.action.as_deref() == Some("reopened");
    let contradicted = envelope
        .item
        .as_ref()
        .is_some_and(|item| item.open == Some(false));
    reopened && !contradicted
}

/// Returns whether the item counts as open after a delivery; `before` is none
/// for an item that is not known yet.
pub fn open_after(envelope: &Envelope, before: Option<bool>) -> bool {
    let says = envelope.item.as_ref().and_then(|item| item.open);
    match closed_state(envelope) {
        ClosedState::Closed { .. } => false,
        ClosedState::Contradicted => before.unwrap_or(true),
        ClosedState::NotAClose if is_reopening(envelope) => true,
        ClosedState::NotAClose => before.or(says).unwrap_or(true),
    }
}

/// Returns whether the item must be taken for closed: by what is remembered, or
/// by what the delivery says of its state.
pub(super) fn is_item_closed(case: &Case<'_>) -> bool {
    if is_reopening(case.envelope) {
        return false;
    }
    (case.facts.known && !case.facts.open) || case.item.open == Some(false)
}

/// Returns whether a delivery ends its item, by closing it, by a rule or by the
/// command `cleanup`: a preparation that is running for it is cancelled.
pub fn is_close(policy: &Policy, envelope: &Envelope) -> bool {
    // As if the item were being prepared right now.
    let preparing = ItemFacts {
        known: true,
        open: true,
        has_session: true,
        ..ItemFacts::default()
    };
    matches!(
        decide(policy, envelope, &preparing),
        Decision::Act(Act {
            action: Action::Close | Action::Cleanup,
            ..
        })
    )
}
