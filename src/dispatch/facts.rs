//! What is known about an item: learnt from each payload, used where a later
//! payload is silent.

use crate::domain::envelope::Envelope;
use crate::domain::routing::{ItemFacts, open_after};
use crate::store::{ItemRow, StoreError, Tx};

/// How many head commits of an item are remembered; the oldest are forgotten.
const HEADS_MAX: usize = 500;

/// Returns what the routing decision needs to know beside the event.
pub(super) fn facts_of(tx: &Tx<'_>, item: Option<&ItemRow>) -> Result<ItemFacts, StoreError> {
    let Some(item) = item else {
        return Ok(ItemFacts::default());
    };
    let session = tx.current_session(item.id)?;
    let checkout = tx.live_checkout(item.id)?;
    Ok(ItemFacts {
        known: true,
        open: item.open,
        armed: item.armed,
        paused: item.paused,
        has_session: session.is_some(),
        has_checkout: checkout.is_some(),
        author: item.facts.author.clone(),
        association: item.facts.association.clone(),
        labels: item.facts.labels.clone(),
        fork: item.facts.head.as_ref().map(|head| head.fork),
        branch: item
            .facts
            .head
            .as_ref()
            .and_then(|head| head.branch.clone()),
        base: item.facts.base.clone(),
    })
}

/// Takes over what an authentic payload says about an item, of which `seen` was
/// known before.
pub(super) fn learn(item: &mut ItemRow, envelope: &Envelope, seen: &ItemFacts) {
    let Some(said) = &envelope.item else { return };
    item.open = open_after(envelope, seen.known.then_some(seen.open));
    item.kind = said.kind;
    let facts = &mut item.facts;
    facts.title.clone_from(&said.title);
    if said.url.is_some() {
        facts.url.clone_from(&said.url);
    }
    if said.author.is_some() {
        facts.author.clone_from(&said.author);
        facts.association.clone_from(&said.association);
    }
    facts.labels.clone_from(&said.labels);
    facts.draft = said.draft;
    if said.merged.is_some() {
        facts.merged = said.merged;
    }
    if said.base.is_some() {
        facts.base.clone_from(&said.base);
    }
    if let Some(head) = &said.head {
        if let Some(sha) = &head.sha {
            remember(&mut facts.heads, sha);
        }
        facts.head = Some(head.clone());
    }
}

/// Remembers that the head which an event names was pushed by a session of the
/// item itself.
pub(super) fn own_push(item: &mut ItemRow, envelope: &Envelope) {
    let head = envelope.item.as_ref().and_then(|said| said.head.as_ref());
    if let Some(sha) = head.and_then(|head| head.sha.as_ref()) {
        remember(&mut item.facts.own_heads, sha);
    }
}

fn remember(heads: &mut Vec<String>, sha: &str) {
    if heads.iter().any(|known| known == sha) {
        return;
    }
    heads.push(sha.to_owned());
    let excess = heads.len().saturating_sub(HEADS_MAX);
    heads.drain(..excess);
}
