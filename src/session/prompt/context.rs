//! What a template can name.
//!
//! Texts of the payload are strings that are safe to print: long ones
//! (`item.body`, `comment.body`) are whole blocks, fenced and marked as
//! untrusted, or empty; short ones (titles, branches, labels) are one cleaned
//! line. `item.body_text` and `comment.body_text` are the cleaned texts without
//! the fence, to be tested or passed through the `untrusted` filter.

use serde_json::{Value, json};

use super::untrusted::{block, clean, line, login};
use super::{CheckoutFacts, PromptFacts};
use crate::domain::envelope::{Actor, Comment, Envelope, ItemState};
use crate::domain::work_item::ItemKind;

/// Where this input stands among those that are told at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) index: usize,
    pub(super) count: usize,
    pub(super) text_bytes_max: usize,
}

pub(super) fn build(envelope: &Envelope, facts: &PromptFacts<'_>, place: Place) -> Value {
    let Envelope {
        event,
        action,
        repository,
        sender,
        item,
        comment,
        label,
        before,
        after,
        url_mismatch: _,
    } = envelope;
    let bound = place.text_bytes_max;
    json!({
        "event": line(event),
        "action": optional_line(action.as_ref()),
        "repository": optional_line(repository.as_ref()),
        "sender": actor(sender.as_ref()),
        "item": item.as_ref().map(|item| self::item(item, bound)),
        "comment": comment.as_ref().map(|comment| self::comment(comment, bound)),
        "label": optional_line(label.as_ref()),
        "before": optional_line(before.as_ref()),
        "after": optional_line(after.as_ref()),
        "checkout": facts.checkout.map(checkout),
        "session": { "id": facts.session_id, "resumed": facts.is_resumed },
        "work_item": line(facts.work_item),
        "index": place.index,
        "count": place.count,
        "first": place.index == 1,
    })
}

fn item(item: &ItemState, bound: usize) -> Value {
    let kind = match item.kind {
        ItemKind::Issue => "issue",
        ItemKind::PullRequest => "pull request",
    };
    json!({
        "reference": line(&item.name.reference()),
        "number": item.name.number,
        "kind": kind,
        "title": line(&item.title),
        "body": written(&item.body, &format!("body of the {kind}"), item.author.as_ref(), bound),
        "body_text": bounded(&item.body, bound),
        "url": optional_line(item.url.as_ref()),
        "author": actor(item.author.as_ref()),
        "association": optional_line(item.association.as_ref()),
        "open": item.open,
        "labels": item.labels.iter().map(|label| line(label)).collect::<Vec<_>>(),
        "draft": item.draft,
        "merged": item.merged,
        "head": item.head.as_ref().map(|head| json!({
            "sha": optional_line(head.sha.as_ref()),
            "branch": optional_line(head.branch.as_ref()),
            "fork": head.fork,
            "repository_gone": head.repository_gone,
        })),
        "base": optional_line(item.base.as_ref()),
    })
}

fn comment(comment: &Comment, bound: usize) -> Value {
    json!({
        "id": comment.id,
        "body": written(&comment.body, "a comment", comment.author.as_ref(), bound),
        "body_text": bounded(&comment.body, bound),
        "author": actor(comment.author.as_ref()),
        "association": optional_line(comment.association.as_ref()),
        "url": optional_line(comment.url.as_ref()),
    })
}

fn checkout(facts: &CheckoutFacts<'_>) -> Value {
    json!({
        "path": facts.path.to_string_lossy(),
        "branch": facts.branch.map(line),
        "commit": facts.commit,
        "base": facts.base,
        "update": facts.update.as_ref().map(|update| json!({
            "moved": update.is_moved,
            "from": update.from,
            "to": update.to,
        })),
        "fallback": facts.fallback.map(line),
        "push_off": facts.push_off,
    })
}

fn written(text: &str, what: &str, author: Option<&Actor>, bound: usize) -> String {
    if text.trim().is_empty() {
        return String::new();
    }
    match author.map(|author| login(&author.login)) {
        Some(author) if !author.is_empty() => {
            block(&format!("{what}, written by {author}"), text, bound)
        }
        _ => block(what, text, bound),
    }
}

fn bounded(text: &str, bound: usize) -> String {
    let mut clean = clean(text);
    clean.truncate(clean.floor_char_boundary(bound));
    clean
}

fn actor(actor: Option<&Actor>) -> Value {
    actor.map_or(
        Value::Null,
        |actor| json!({ "login": login(&actor.login), "bot": actor.bot }),
    )
}

fn optional_line(text: Option<&String>) -> Option<String> {
    text.map(|text| line(text))
}
