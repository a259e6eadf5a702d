//! What is compared at start: the store with the disk and with the sessions.
//!
//! Nothing is removed here that was not on its way out already, and nothing that
//! is not known is touched.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::actor::{Message, RequestWork};
use super::{Context, LEASE_MS, launching, repository_key};
use crate::domain::checkout::CheckoutState;
use crate::domain::code::FailureCode;
use crate::domain::log_event::{Entry, LogEvent};
use crate::session::RunState;
use crate::store::{CheckoutRow, ItemRow, StoreError};
use crate::workspace::DirectoryState;

/// How often in a row the daemon may die with one delivery as the only one
/// running before that delivery is parked.
const CRASHES_MAX: u32 = 5;

/// What was found, for `reconcile.finished`.
#[derive(Default)]
struct Found {
    adopted: u64,
    finished: u64,
    missing: u64,
    foreign: u64,
}

/// Takes up what a daemon that ended left unfinished.
pub(super) async fn recover(context: &Arc<Context>) -> Result<(), StoreError> {
    interrupted_deliveries(context).await?;
    let mut found = Found::default();
    sessions(context, &mut found).await?;
    checkouts(context, &mut found).await?;
    let Found {
        adopted,
        finished,
        missing,
        foreign,
    } = found;
    context
        .store
        .tell(Entry::new(LogEvent::ReconcileFinished {
            adopted,
            finished,
            missing,
            foreign,
        }))
        .await
}

/// Puts back what was being worked on. One that was the only one each time the
/// daemon died is not taken up for ever.
async fn interrupted_deliveries(context: &Context) -> Result<(), StoreError> {
    context
        .store
        .write(|tx| {
            let running = tx.running_deliveries()?;
            let alone = running.len() == 1;
            for row in running {
                let crashes = if alone { row.crashes + 1 } else { 0 };
                tx.postpone_delivery(row.seq)?;
                tx.set_delivery_crashes(row.seq, crashes)?;
                if crashes >= CRASHES_MAX {
                    let code = FailureCode::Interrupted;
                    let error = code.meaning().to_owned();
                    tx.delivery_parked(row.seq, code, &error)?;
                    tx.append(
                        &Entry::new(LogEvent::DeliveryParked { code, error }).of_delivery(row.id),
                    )?;
                }
            }
            Ok(())
        })
        .await
}

async fn item_of(context: &Context, id: i64) -> Result<ItemRow, StoreError> {
    context.store.read(move |reader| reader.item(id)).await
}

fn ask(context: &Context, item: &ItemRow, work: RequestWork) {
    context.send(Message::Request {
        lane: item.slug.clone(),
        repository: repository_key(&item.name),
        work,
    });
}

fn settle(session: String) -> RequestWork {
    RequestWork::Settle {
        session,
        told_to_wait: false,
    }
}

/// Sessions outlive the daemon: those that run are watched again, those that
/// ended meanwhile are settled in their lanes.
async fn sessions(context: &Context, found: &mut Found) -> Result<(), StoreError> {
    let live = context
        .store
        .read(|reader| reader.sessions(true, u32::MAX))
        .await?;
    for row in live {
        let item = item_of(context, row.item).await?;
        let runs = launching::files(context, &row.id, row.run)
            .is_ok_and(|files| matches!(crate::session::observe(&files), RunState::Running { .. }));
        if runs {
            found.adopted += 1;
        } else {
            found.finished += 1;
        }
        ask(context, &item, settle(row.id));
    }
    // Texts that waited when the daemon ended, for a session whose run is over.
    let waiting = context
        .store
        .read(|reader| reader.sessions_with_waiting_inputs())
        .await?;
    for row in waiting.into_iter().filter(|row| !row.state.is_live()) {
        let item = item_of(context, row.item).await?;
        ask(context, &item, settle(row.id));
    }
    Ok(())
}

async fn checkouts(context: &Context, found: &mut Found) -> Result<(), StoreError> {
    let rows = context.store.read(|reader| reader.live_checkouts()).await?;
    let mut known: HashSet<PathBuf> = HashSet::new();
    let mut roots: HashSet<PathBuf> = HashSet::new();
    roots.extend(
        context
            .settings()
            .workspace
            .as_ref()
            .map(|workspace| workspace.root.clone()),
    );
    for row in rows {
        let item = item_of(context, row.item).await?;
        roots.insert(PathBuf::from(&row.root));
        known.extend(row.record.as_ref().map(|record| record.path.clone()));
        match row.state {
            CheckoutState::Removing => {
                found.finished += 1;
                ask(context, &item, RequestWork::Judge { item: item.id });
            }
            CheckoutState::Ready => {
                let Some(record) = &row.record else { continue };
                let state = context
                    .workspace(&record.root)
                    .directory_state(record)
                    .await;
                if matches!(state, DirectoryState::Missing) {
                    found.missing += 1;
                    let event = LogEvent::WorkspaceMissing {
                        checkout: record.path.display().to_string(),
                    };
                    set_state(context, &item, &row, CheckoutState::Missing, Some(event)).await?;
                }
            }
            CheckoutState::Preparing => {
                known.extend(half_made(context, &item, &row, found).await?);
            }
            CheckoutState::Missing | CheckoutState::Removed | CheckoutState::Failed => {}
        }
    }
    for root in roots {
        for directory in context.workspace(&root).checkout_directories().await {
            if !known.contains(&directory) {
                found.foreign += 1;
                tracing::warn!(
                    directory = %directory.display(),
                    "This directory stands among the checkouts and is none of them; it is left alone."
                );
            }
        }
    }
    Ok(())
}

/// A checkout whose preparation was interrupted: its delivery takes it up again;
/// without one it is adopted if it was complete, else nothing is left of it.
/// Returns its directory.
async fn half_made(
    context: &Context,
    item: &ItemRow,
    row: &CheckoutRow,
    found: &mut Found,
) -> Result<Option<PathBuf>, StoreError> {
    let settings = context.settings();
    let name = &item.name;
    let recorded = match settings
        .policy
        .hosts
        .target(&name.host, &name.owner, &name.repo)
    {
        Ok(target) => {
            let workspace = context.workspace(std::path::Path::new(&row.root));
            workspace.recorded(&target, &item.slug).await
        }
        Err(_) => None,
    };
    let directory = recorded.as_ref().map(|record| record.path.clone());
    let id = item.id;
    if context
        .store
        .read(move |reader| reader.has_pending_delivery(id))
        .await?
    {
        return Ok(directory);
    }
    match recorded {
        Some(record) => {
            found.adopted += 1;
            let (item, row, owner) = (item.id, row.id, context.owner.clone());
            context
                .store
                .write(move |tx| {
                    let claim = tx.claim_item(item, &owner, LEASE_MS, true)?;
                    tx.checkout_ready(claim, row, &record)
                })
                .await?;
        }
        None => set_state(context, item, row, CheckoutState::Failed, None).await?,
    }
    Ok(directory)
}

async fn set_state(
    context: &Context,
    item: &ItemRow,
    row: &CheckoutRow,
    state: CheckoutState,
    event: Option<LogEvent>,
) -> Result<(), StoreError> {
    let entry = event.map(|event| Entry::new(event).of_item(item.reference.clone()));
    let (item, row, owner) = (item.id, row.id, context.owner.clone());
    context
        .store
        .write(move |tx| {
            let claim = tx.claim_item(item, &owner, LEASE_MS, true)?;
            tx.set_checkout_state(claim, row, state)?;
            entry.map_or(Ok(()), |entry| tx.append(&entry))
        })
        .await
}
