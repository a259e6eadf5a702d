//! What a delivery does: a pure decision from the policy, the delivery, and what
//! is known about its item.
//!
//! # Order of the questions
//!
//! 1. Is it about an item of a repository that is served?
//! 2. Does an own rule match, and say `ignore`?
//! 3. Is it the item's own close? Then it ends the item, whoever closed it,
//!    paused or not.
//! 4. What do the first matching own rule, or else the built-in rules, want?
//! 5. May the actor want that? ([`trust`])
//! 6. Is the item closed, or paused?
//!
//! # Invariants
//!
//! 1. An untrusted actor's event neither starts nor reaches a session; of all
//!    it could do, only closing acts.
//! 2. A closed item is started by nothing but its reopening, in whatever order
//!    deliveries arrive.
//! 3. Text that a bot wrote starts and reaches nothing, unless the bot is named.

mod builtin;
mod closing;
mod pattern;
mod rule;
mod trust;

#[cfg(test)]
mod tests;

pub use closing::{ClosedState, closed_state, is_close, open_after};
pub use pattern::{BadPattern, Pattern};
pub use rule::{Rule, Then, When};
pub use trust::{Standing, Trust, is_author_trusted, is_item_untrusted, standing};

use super::checkout::Strategy;
use super::envelope::{Actor, Envelope, ItemState, handled};
use super::reason::DropReason;
use super::repo_target::HostPolicy;

/// Everything in the configuration that decides what a delivery does.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Hosts whose repositories are worked with.
    pub hosts: HostPolicy,
    /// Globs over `owner/name`; none of them matching means not allowed.
    pub repositories: Vec<Pattern>,
    /// The label that arms an item.
    pub label: String,
    /// The first word of a command comment.
    pub command: String,
    /// Whose events may start or reach a session.
    pub trust: Trust,
    /// The operator's own rules, in order.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Returns whether a repository is one that is worked with.
    pub fn is_repository_allowed(&self, host: &str, full_name: &str) -> bool {
        self.hosts.is_served(host)
            && self
                .repositories
                .iter()
                .any(|pattern| pattern.is_match(full_name))
    }
}

/// What is known about an item besides what the delivery says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemFacts {
    /// The item is in the store.
    pub known: bool,
    /// It is open, as far as earlier deliveries said ([`open_after`]).
    pub open: bool,
    /// It was armed by a label or a command, and not disarmed since.
    pub armed: bool,
    /// It takes no events until it is resumed.
    pub paused: bool,
    /// It has a session that lives or can be resumed.
    pub has_session: bool,
    /// It has a checkout, which may have been kept after a close.
    pub has_checkout: bool,
    /// Who opened it; used where the delivery does not say.
    pub author: Option<Actor>,
    /// The opener's association; used where the delivery does not say.
    pub association: Option<String>,
    /// Labels on it, beside those in the delivery.
    pub labels: Vec<String>,
    /// Whether its head is a fork's, or gone; used where the delivery does not say.
    pub fork: Option<bool>,
    /// Its head's branch; used where the delivery does not say.
    pub branch: Option<String>,
    /// Its base's branch; used where the delivery does not say.
    pub base: Option<String>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Prepare the checkout and start a session, or hand over to the item's.
    Start,
    /// Hand over to a live or resumable session.
    Deliver,
    /// End the item: session, then checkout through the gate. For an item that
    /// is closed already: judge what was kept once more.
    Close,
    /// End the session, keep the checkout, disarm.
    Stop,
    /// Drop later events.
    Pause,
    /// Take events again.
    Resume,
    /// End the item because a person asks for it.
    Cleanup,
    /// Say how things stand.
    Status,
    /// The label is gone; what runs goes on.
    Disarm,
}

impl Action {
    /// Every action.
    pub const ALL: &'static [Self] = &[
        Self::Start,
        Self::Deliver,
        Self::Close,
        Self::Stop,
        Self::Pause,
        Self::Resume,
        Self::Cleanup,
        Self::Status,
        Self::Disarm,
    ];

    /// Returns the word as it is stored and told.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Deliver => "deliver",
            Self::Close => "close",
            Self::Stop => "stop",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cleanup => "cleanup",
            Self::Status => "status",
            Self::Disarm => "disarm",
        }
    }

    /// Returns the action of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|action| action.as_str() == name)
    }
}

/// Something is to be done, and which rule says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// Name of the rule; built-in ones are called `built-in: …`.
    pub rule: String,
    /// What is to be done.
    pub action: Action,
    /// The profile that the rule names.
    pub profile: Option<String>,
    /// The strategy that the rule names.
    pub strategy: Option<Strategy>,
    /// The item counts as armed from now on.
    pub arm: bool,
}

/// What becomes of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It has an effect.
    Act(Act),
    /// It has none, and why.
    Drop(DropReason),
}

/// What a rule wants, before it is asked whether that may be.
struct Wish {
    act: Act,
    /// Harmless whoever wants it.
    trust_needed: bool,
}

/// Decides what a delivery does.
pub fn decide(policy: &Policy, envelope: &Envelope, facts: &ItemFacts) -> Decision {
    if envelope.event == "ping" {
        return Decision::Drop(DropReason::Ping);
    }
    if !handled(&envelope.event) {
        return Decision::Drop(DropReason::EventNotHandled);
    }
    let Some(item) = &envelope.item else {
        return Decision::Drop(DropReason::NoWorkItem);
    };
    let case = Case {
        policy,
        envelope,
        item,
        facts,
    };
    let state = closed_state(envelope);
    // What was made while the repository was allowed is still taken away.
    let ends_ours = facts.known
        && (facts.has_checkout || facts.has_session)
        && matches!(state, ClosedState::Closed { .. });
    if !ends_ours && !case.is_allowed() {
        return Decision::Drop(DropReason::RepositoryNotAllowed);
    }
    let own = policy.rules.iter().find(|rule| rule.is_match(&case));
    if own.is_some_and(|rule| rule.then == Then::Ignore) {
        return Decision::Drop(DropReason::NoRule);
    }
    match state {
        ClosedState::Closed { .. } => {
            let settled = facts.known && !facts.open && !facts.has_checkout && !facts.has_session;
            return if settled {
                Decision::Drop(DropReason::AlreadyClosed)
            } else {
                Decision::Act(built_in(builtin::CLOSE, Action::Close))
            };
        }
        ClosedState::Contradicted => return Decision::Drop(DropReason::Superseded),
        ClosedState::NotAClose => {}
    }
    decide_open(&case, own)
}

/// Decides about everything but an item's own close.
fn decide_open(case: &Case<'_>, own: Option<&Rule>) -> Decision {
    let standing = standing(case.policy, case.envelope, case.facts);
    let wish = match own {
        Some(rule) => rule.wish().ok_or(DropReason::NoRule),
        None => builtin::wish(case, standing),
    };
    let closed = closing::is_item_closed(case);
    let wish = match wish {
        Ok(wish) => wish,
        Err(_) if closed && case.facts.has_checkout => return judge_again(),
        Err(reason) => return Decision::Drop(reason),
    };
    let for_session = matches!(wish.act.action, Action::Start | Action::Deliver);
    if closed && for_session && case.facts.has_checkout {
        return judge_again();
    }
    if wish.trust_needed && standing != Standing::Trusted {
        return match standing {
            _ if closed && case.facts.has_checkout => judge_again(),
            Standing::Bot => Decision::Drop(DropReason::Bot),
            Standing::Trusted | Standing::Untrusted => Decision::Drop(DropReason::UntrustedActor),
        };
    }
    if closed && for_session {
        return Decision::Drop(DropReason::AlreadyClosed);
    }
    if case.facts.paused && for_session {
        return Decision::Drop(DropReason::Paused);
    }
    if wish.act.action == Action::Deliver && !case.facts.has_session {
        return Decision::Drop(DropReason::NoSession);
    }
    Decision::Act(wish.act)
}

/// A checkout that was kept when its item closed is judged again at every later
/// event of the item.
fn judge_again() -> Decision {
    Decision::Act(built_in(builtin::KEPT, Action::Close))
}

fn built_in(rule: &str, action: Action) -> Act {
    Act {
        rule: rule.to_owned(),
        action,
        profile: None,
        strategy: None,
        arm: action == Action::Start,
    }
}

/// One delivery with everything that is known beside it.
struct Case<'a> {
    policy: &'a Policy,
    envelope: &'a Envelope,
    item: &'a ItemState,
    facts: &'a ItemFacts,
}

impl<'a> Case<'a> {
    fn is_allowed(&self) -> bool {
        let name = &self.item.name;
        let full_name = format!("{}/{}", name.owner, name.repo);
        self.policy.is_repository_allowed(&name.host, &full_name)
    }

    fn action(&self) -> &'a str {
        self.envelope.action.as_deref().unwrap_or_default()
    }

    /// Returns whether the event is about the item itself, not about something
    /// said on it.
    fn is_item_event(&self) -> bool {
        matches!(self.envelope.event.as_str(), "issues" | "pull_request")
    }

    /// Returns whether the item has a label.
    fn has_label(&self, label: &str) -> bool {
        self.item
            .labels
            .iter()
            .chain(&self.facts.labels)
            .any(|one| is_same_word(one, label))
    }

    /// Returns the text that was written just now; none for an edit, whose text
    /// was a command once already.
    fn new_text(&self) -> Option<&'a str> {
        let comment = self.envelope.comment.as_ref()?;
        let new = match self.envelope.event.as_str() {
            "issue_comment" | "pull_request_review_comment" => self.action() == "created",
            "pull_request_review" => self.action() == "submitted",
            _ => false,
        };
        new.then_some(comment.body.as_str())
    }

    /// Returns who caused the event.
    fn actor(&self) -> Option<&'a Actor> {
        let comment = self.envelope.comment.as_ref();
        self.envelope
            .sender
            .as_ref()
            .or_else(|| comment.and_then(|comment| comment.author.as_ref()))
    }
}

/// Compares logins and labels, which GitHub keeps apart by more than case.
fn is_same_word(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}
