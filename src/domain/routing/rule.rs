//! The operator's own rules.

use super::{Act, Action, Case, Pattern, Wish, is_same_word};
use crate::domain::checkout::Strategy;
use crate::domain::envelope::command_words;
use crate::domain::work_item::ItemKind;

/// What a rule does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// Prepare and start, or hand over.
    Start,
    /// Only reach a live or resumable session.
    Deliver,
    /// End the item.
    Close,
    /// Nothing.
    Ignore,
}

/// What a rule matches; an empty list or none matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// GitHub's names of events.
    pub event: Vec<String>,
    /// GitHub's names of actions.
    pub action: Vec<String>,
    /// Globs over `owner/name` ([`Pattern::repository`]).
    pub repository: Vec<Pattern>,
    /// Any of these labels on the item.
    pub label: Vec<String>,
    /// Login of the actor.
    pub author: Vec<String>,
    /// Association of the comment's author, else of the item's.
    pub association: Vec<String>,
    /// Whether the head is another repository's. An issue is no fork; where it
    /// is not known, neither value matches.
    pub fork: Option<bool>,
    /// Whether the pull request is a draft.
    pub draft: Option<bool>,
    /// Globs over the base branch ([`Pattern::branch`]).
    pub base: Vec<Pattern>,
    /// Globs over the head branch ([`Pattern::branch`]).
    pub branch: Vec<Pattern>,
    /// Words that follow the command word in a new comment or review.
    pub command: Vec<String>,
}

/// One rule of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it is called in the event log.
    pub name: String,
    /// What it matches.
    pub when: When,
    /// What then happens.
    pub then: Then,
    /// The profile to start with.
    pub profile: Option<String>,
    /// The strategy to prepare with.
    pub strategy: Option<Strategy>,
}

impl Rule {
    pub(super) fn is_match(&self, case: &Case<'_>) -> bool {
        let Case {
            policy,
            envelope,
            item,
            facts,
        } = case;
        let when = &self.when;
        let full_name = || format!("{}/{}", item.name.owner, item.name.repo);
        let comment = envelope.comment.as_ref();
        let association = || {
            comment
                .map_or(&item.association, |comment| &comment.association)
                .as_deref()
                .or(match comment {
                    Some(_) => None,
                    None => facts.association.as_deref(),
                })
        };
        let fork = || match (item.kind, &item.head) {
            (ItemKind::Issue, _) => Some(false),
            (ItemKind::PullRequest, Some(head)) => Some(head.fork),
            (ItemKind::PullRequest, None) => facts.fork,
        };
        let branch = || {
            item.head
                .as_ref()
                .and_then(|head| head.branch.as_deref())
                .or(facts.branch.as_deref())
        };
        let command = || {
            let (word, _) = command_words(case.new_text()?, &policy.command)?;
            Some(word)
        };
        is_in(&when.event, || Some(envelope.event.as_str()), |a, b| a == b)
            && is_in(&when.action, || envelope.action.as_deref(), |a, b| a == b)
            && (when.repository.is_empty() || any_match(&when.repository, &full_name()))
            && (when.label.is_empty() || when.label.iter().any(|label| case.has_label(label)))
            && is_in(
                &when.author,
                || Some(case.actor()?.login.as_str()),
                is_same_word,
            )
            && is_in(&when.association, association, |a, b| {
                a.eq_ignore_ascii_case(b)
            })
            && when.fork.is_none_or(|wanted| fork() == Some(wanted))
            && when.draft.is_none_or(|wanted| item.draft == wanted)
            && (when.base.is_empty()
                || item
                    .base
                    .as_deref()
                    .or(facts.base.as_deref())
                    .is_some_and(|base| any_match(&when.base, base)))
            && (when.branch.is_empty()
                || branch().is_some_and(|branch| any_match(&when.branch, branch)))
            && is_in(&when.command, command, |a, b| a == b)
    }

    /// Returns what the rule wants; none if it wants nothing.
    pub(super) fn wish(&self) -> Option<Wish> {
        let action = match self.then {
            Then::Start => Action::Start,
            Then::Deliver => Action::Deliver,
            Then::Close => Action::Close,
            Then::Ignore => return None,
        };
        Some(Wish {
            act: Act {
                rule: self.name.clone(),
                action,
                profile: self.profile.clone(),
                strategy: self.strategy,
                arm: action == Action::Start,
            },
            trust_needed: true,
        })
    }
}

/// Returns whether a list is empty, or holds the value.
fn is_in<'v>(
    wanted: &[String],
    value: impl FnOnce() -> Option<&'v str>,
    is_same: impl Fn(&str, &str) -> bool,
) -> bool {
    wanted.is_empty() || value().is_some_and(|value| wanted.iter().any(|one| is_same(one, value)))
}

fn any_match(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.is_match(name))
}
