//! Whose events may start or reach a session.

use super::{ItemFacts, Policy, is_same_word};
use crate::domain::envelope::{Actor, Comment, Envelope, ItemState};
use crate::domain::work_item::ItemKind;

/// Whom the configuration trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Associations with the repository, upper case.
    pub associations: Vec<String>,
    /// Logins of people.
    pub users: Vec<String>,
    /// Logins of bots.
    pub bots: Vec<String>,
}

impl Trust {
    fn has_association(&self, association: Option<&str>) -> bool {
        association.is_some_and(|association| {
            self.associations
                .iter()
                .any(|one| one.eq_ignore_ascii_case(association))
        })
    }

    fn has_user(&self, actor: &Actor) -> bool {
        !actor.bot
            && self
                .users
                .iter()
                .any(|user| is_same_word(user, &actor.login))
    }

    fn has_bot(&self, actor: &Actor) -> bool {
        self.bots.iter().any(|bot| is_same_word(bot, &actor.login))
    }
}

/// How the actor of a delivery is looked upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// May start and reach sessions.
    Trusted,
    /// May not: nobody vouches for them.
    Untrusted,
    /// May not: a bot that the configuration does not name.
    Bot,
}

/// Returns how the actor of a delivery is looked upon.
///
/// Text counts by who wrote it, not by who sent it: a maintainer who corrects a
/// stranger's comment does not vouch for the rest of it.
pub fn standing(policy: &Policy, envelope: &Envelope, facts: &ItemFacts) -> Standing {
    let trust = &policy.trust;
    if let Some(comment) = &envelope.comment {
        return of_text(trust, comment, envelope.sender.as_ref());
    }
    let Some(sender) = &envelope.sender else {
        return Standing::Untrusted;
    };
    let item = envelope.item.as_ref();
    let own_push = envelope.action.as_deref() == Some("synchronize")
        && item
            .and_then(|item| item.head.as_ref())
            .is_some_and(|head| !head.fork);
    // Nobody pushes to the repository's own branch without the right to.
    if own_push || trust.has_user(sender) {
        return Standing::Trusted;
    }
    if sender.bot && trust.has_bot(sender) {
        return Standing::Trusted;
    }
    let author = item
        .and_then(|item| item.author.as_ref())
        .or(facts.author.as_ref());
    // Asked before the actions that need rights: an issue form sets labels and
    // assignees in the name of whoever fills it in.
    if author.is_some_and(|author| is_same_word(&author.login, &sender.login)) {
        return if sender.bot {
            Standing::Bot
        } else if trust.has_association(association(item, facts)) {
            Standing::Trusted
        } else {
            Standing::Untrusted
        };
    }
    match envelope.action.as_deref() {
        Some(
            "labeled" | "unlabeled" | "assigned" | "unassigned" | "milestoned" | "demilestoned",
        ) => Standing::Trusted,
        _ if sender.bot => Standing::Bot,
        _ => Standing::Untrusted,
    }
}

fn of_text(trust: &Trust, comment: &Comment, sender: Option<&Actor>) -> Standing {
    let Some(author) = comment.author.as_ref().or(sender) else {
        return Standing::Untrusted;
    };
    let bot = [Some(author), sender]
        .into_iter()
        .flatten()
        .find(|one| one.bot);
    if let Some(bot) = bot {
        return if trust.has_bot(bot) {
            Standing::Trusted
        } else {
            Standing::Bot
        };
    }
    if trust.has_user(author) || trust.has_association(comment.association.as_deref()) {
        Standing::Trusted
    } else {
        Standing::Untrusted
    }
}

/// Returns whether the item's author is trusted.
pub fn is_author_trusted(policy: &Policy, item: Option<&ItemState>, facts: &ItemFacts) -> bool {
    let trust = &policy.trust;
    let author = item
        .and_then(|item| item.author.as_ref())
        .or(facts.author.as_ref());
    match author {
        Some(author) if author.bot => trust.has_bot(author),
        Some(author) => trust.has_user(author) || trust.has_association(association(item, facts)),
        None => false,
    }
}

/// Returns whether the item must be prepared as an untrusted one: its head is a
/// fork's, or gone, or not known, or its author is not trusted.
pub fn is_item_untrusted(policy: &Policy, item: Option<&ItemState>, facts: &ItemFacts) -> bool {
    let fork = match item.map(|item| (item.kind, &item.head)) {
        Some((ItemKind::Issue, _)) => false,
        Some((ItemKind::PullRequest, Some(head))) => head.fork || head.repository_gone,
        Some((ItemKind::PullRequest, None)) | None => facts.fork.unwrap_or(true),
    };
    fork || !is_author_trusted(policy, item, facts)
}

fn association<'v>(item: Option<&'v ItemState>, facts: &'v ItemFacts) -> Option<&'v str> {
    item.and_then(|item| item.association.as_deref())
        .or(facts.association.as_deref())
}
