//! Which lane a stored delivery belongs to, if it belongs to any.
//!
//! What can be said without its item's state is said here: pings, events that
//! nothing is done with, repositories that are not served. Everything else is
//! decided when the delivery's turn comes.

use super::{Context, repository_key};
use crate::domain::code::FailureCode;
use crate::domain::envelope::{self, ContentType};
use crate::domain::lane::{LaneKey, Waiting};
use crate::domain::log_event::{Entry, LogEvent};
use crate::domain::reason::DropReason;
use crate::domain::repo_target::HostPolicy;
use crate::domain::routing::{self, Policy};
use crate::domain::work_item::ItemName;
use crate::store::{Pending, StoreError};

/// A delivery with its lane.
pub(super) struct Placed {
    pub(super) lane: LaneKey,
    pub(super) repository: String,
    pub(super) waiting: Waiting,
}

/// What was found out about a delivery.
enum Found {
    Lane(ItemName, Placed),
    Dropped(DropReason),
    NotUnderstood(String),
}

/// Sorts stored deliveries: finishes those that need nothing, in one write, and
/// returns the others with their lanes, in order.
pub(super) async fn sort(context: &Context, batch: Vec<Pending>) -> Vec<Placed> {
    let settings = context.settings();
    let mut placed = Vec::new();
    let mut finished = Vec::new();
    for pending in batch {
        let found = understand(&settings.policy.hosts, &settings.policy, &pending);
        match found {
            Found::Lane(name, place) => placed.push((name, place)),
            Found::Dropped(reason) => finished.push((pending.row, Ok(reason))),
            Found::NotUnderstood(why) => finished.push((pending.row, Err(why))),
        }
    }
    if !finished.is_empty() {
        let stored = context
            .store
            .write(move |tx| {
                for (row, found) in finished {
                    let event = match found {
                        Ok(reason) => {
                            tx.delivery_dropped(row.seq, reason)?;
                            LogEvent::DeliveryDropped { reason }
                        }
                        Err(error) => {
                            let code = FailureCode::BadPayload;
                            tx.delivery_parked(row.seq, code, &error)?;
                            LogEvent::DeliveryParked { code, error }
                        }
                    };
                    tx.append(&Entry::new(event).of_delivery(row.id))?;
                }
                Ok(())
            })
            .await;
        if let Err(error) = stored {
            tracing::error!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "Deliveries that need nothing could not be finished; the next start does it."
            );
        }
    }
    match keep_known_lanes(context, placed).await {
        Ok(placed) => placed,
        Err(error) => {
            tracing::error!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "Items could not be read; the deliveries are taken up at the next start."
            );
            Vec::new()
        }
    }
}

/// Gives each delivery of an item that is known the item's own lane, whatever
/// the item's name is now.
async fn keep_known_lanes(
    context: &Context,
    placed: Vec<(ItemName, Placed)>,
) -> Result<Vec<Placed>, StoreError> {
    if placed.is_empty() {
        return Ok(Vec::new());
    }
    context
        .store
        .read(move |reader| {
            placed
                .into_iter()
                .map(|(name, mut place)| {
                    if let Some(item) = reader.find_item(&name)? {
                        place.lane = item.slug;
                    }
                    Ok(place)
                })
                .collect()
        })
        .await
}

fn understand(hosts: &HostPolicy, policy: &Policy, pending: &Pending) -> Found {
    let row = &pending.row;
    if row.gh_event == "ping" {
        return Found::Dropped(DropReason::Ping);
    }
    let kind = if row.form {
        ContentType::Form
    } else {
        ContentType::Json
    };
    let envelope = match envelope::parse(&row.gh_event, hosts, &pending.body, kind) {
        Ok(envelope) => envelope,
        Err(error) => return Found::NotUnderstood(error.to_string()),
    };
    if !envelope::handled(&row.gh_event) {
        return Found::Dropped(DropReason::EventNotHandled);
    }
    let Some(item) = &envelope.item else {
        return Found::Dropped(DropReason::NoWorkItem);
    };
    let name = &item.name;
    // Whether its repository is allowed is asked when its turn comes: what was
    // made while it was is still taken away.
    let served = hosts.target(&name.host, &name.owner, &name.repo);
    if served.is_err() {
        return Found::Dropped(DropReason::RepositoryNotAllowed);
    }
    let waiting = Waiting {
        seq: row.seq,
        id: row.id.clone(),
        closes: routing::is_close(policy, &envelope),
        synchronizes: envelope.event == "pull_request"
            && envelope.action.as_deref() == Some("synchronize"),
        not_before: row.not_before,
        told_to_wait: false,
    };
    let placed = Placed {
        lane: name.slug(),
        repository: repository_key(name),
        waiting,
    };
    Found::Lane(name.clone(), placed)
}
