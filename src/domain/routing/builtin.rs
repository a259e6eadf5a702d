//! The rules that always apply, behind the operator's own.

use super::trust::Standing;
use super::{Action, Case, Wish, built_in, is_same_word};
use crate::domain::envelope::{CommandName, parse_command};
use crate::domain::reason::DropReason;

/// An item's own close ends it.
pub(super) const CLOSE: &str = "built-in: close";
/// A checkout that was kept when its item closed is judged again.
pub(super) const KEPT: &str = "built-in: kept checkout";
/// A command in a comment.
const COMMAND: &str = "built-in: command";
/// The label arms an item.
const LABEL: &str = "built-in: label";
/// A new head of an item that has a checkout and no session.
const CHECKOUT: &str = "built-in: checkout";
/// An event of an item that has a session.
const SESSION: &str = "built-in: session";

/// Returns what the built-in rules want, or why they want nothing.
pub(super) fn wish(case: &Case<'_>, standing: Standing) -> Result<Wish, DropReason> {
    let needs_trust = |rule, action| {
        Ok(Wish {
            act: built_in(rule, action),
            trust_needed: true,
        })
    };
    let command = case
        .new_text()
        .and_then(|text| parse_command(text, &case.policy.command));
    if let Some(command) = command {
        return needs_trust(COMMAND, of_command(command.name));
    }
    if case.is_item_event() && case.action() == "unlabeled" && is_arming_label(case) {
        return if case.facts.armed {
            Ok(Wish {
                act: built_in(LABEL, Action::Disarm),
                trust_needed: false,
            })
        } else {
            Err(DropReason::NoRule)
        };
    }
    if is_armed_start(case) {
        return needs_trust(LABEL, Action::Start);
    }
    if case.facts.has_session {
        return needs_trust(SESSION, Action::Deliver);
    }
    // A checkout without a session follows its pull request too.
    if case.facts.has_checkout && case.is_item_event() && case.action() == "synchronize" {
        return needs_trust(CHECKOUT, Action::Deliver);
    }
    // What a bot says is ignored as such, so that a loop of two shows in the log.
    if case.envelope.comment.is_some() && standing == Standing::Bot {
        return Err(DropReason::Bot);
    }
    Err(DropReason::NoRule)
}

fn of_command(name: CommandName) -> Action {
    match name {
        CommandName::Start => Action::Start,
        CommandName::Stop => Action::Stop,
        CommandName::Pause => Action::Pause,
        CommandName::Resume => Action::Resume,
        CommandName::Status => Action::Status,
        CommandName::Cleanup => Action::Cleanup,
    }
}

/// Returns whether the label that was just set or taken away is the one that
/// arms.
fn is_arming_label(case: &Case<'_>) -> bool {
    let label = case.envelope.label.as_deref();
    label.is_some_and(|label| is_same_word(label, &case.policy.label))
}

fn is_armed_start(case: &Case<'_>) -> bool {
    if !case.is_item_event() {
        return false;
    }
    match case.action() {
        "labeled" => is_arming_label(case),
        "opened" | "ready_for_review" => case.has_label(&case.policy.label),
        // Reopening starts again what had been started by a command as well.
        "reopened" => case.facts.armed || case.has_label(&case.policy.label),
        _ => false,
    }
}
