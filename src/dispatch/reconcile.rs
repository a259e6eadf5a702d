//! What the store says of checkouts compared with what stands on disk, at start
//! and in every round, and what follows.
//!
//! What follows is decided in `domain::reconcile`. A change that is only a note
//! is made at once, if the row is still as it was when the disk was looked at;
//! everything else is asked of the item's lane ([`super::judging`]), so that it
//! is never done beside something else for the same item.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::{Context, LEASE_MS, breaker};
use crate::clock;
use crate::domain::breaker::Halt;
use crate::domain::checkout::{CheckoutRecord, CheckoutState};
use crate::domain::log_event::{Entry, LogEvent};
use crate::domain::reconcile::{Found, Occasion, Step, Stored, Tally, step};
use crate::store::{CheckoutRow, ItemRow, StoreError};
use crate::workspace::{DirectoryState, Survey};

/// A step that is for the item's lane.
#[derive(Debug)]
pub(super) struct ForLane {
    pub(super) item: ItemRow,
    pub(super) step: Step,
    /// When the row last changed.
    pub(super) since: i64,
}

/// A row with its item and what the store knows beside.
struct Known {
    row: CheckoutRow,
    item: ItemRow,
    delivery_waits: bool,
}

/// Compares everything. Notes what is missing and what is back, tells what is
/// foreign, and returns what is for the lanes.
pub(super) async fn compare(
    context: &Arc<Context>,
    occasion: Occasion,
    tally: &mut Tally,
) -> Result<Vec<ForLane>, StoreError> {
    let known = read(context).await?;
    let mut by_root: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    if let Some(workspace) = &context.settings().workspace {
        by_root.entry(workspace.root.clone()).or_default();
    }
    for (index, one) in known.iter().enumerate() {
        by_root
            .entry(PathBuf::from(&one.row.root))
            .or_default()
            .push(index);
    }
    let resumed_at = breaker::read(context).await?.resumed_at;
    let mut for_lanes = Vec::new();
    for (root, indices) in by_root {
        let with_record: Vec<usize> = indices
            .iter()
            .copied()
            .filter(|index| known[*index].row.record.is_some())
            .collect();
        let records = with_record
            .iter()
            .filter_map(|index| known[*index].row.record.clone())
            .collect();
        let survey = match context.workspace(&root).survey(records).await {
            Ok(survey) => survey,
            Err(error) => {
                tracing::warn!(root = %root.display(), %error, "What stands below this root could not be compared.");
                continue;
            }
        };
        let Survey { states, strangers } = survey;
        tally.foreign += tell_strangers(context, strangers);
        let states: BTreeMap<usize, DirectoryState> = with_record.into_iter().zip(states).collect();
        for index in indices {
            let one = &known[index];
            let stored = stored(one, resumed_at);
            let state = states.get(&index);
            let step = step(occasion, &stored, state.map(found_of));
            carry_out(context, one, step, state, tally, &mut for_lanes).await?;
        }
    }
    breaker::look(context).await?;
    Ok(for_lanes)
}

async fn carry_out(
    context: &Arc<Context>,
    one: &Known,
    step: Step,
    state: Option<&DirectoryState>,
    tally: &mut Tally,
    for_lanes: &mut Vec<ForLane>,
) -> Result<(), StoreError> {
    match step {
        Step::Nothing => {}
        Step::NoteMissing => {
            if note_missing(context, &one.item, &one.row).await? {
                tally.missing += 1;
            }
        }
        Step::NoteReturned => {
            let back = change(context, &one.item, &one.row, CheckoutState::Ready, None).await?;
            if back {
                tally.adopted += 1;
                tracing::info!(
                    work_item = one.item.reference,
                    "A checkout that was missing is back."
                );
            }
        }
        Step::LeaveForeign => {
            if let (Some(record), Some(DirectoryState::Foreign(why))) = (&one.row.record, state) {
                tally.foreign += 1;
                if is_news(context, &record.path) {
                    tracing::warn!(
                        directory = %record.path.display(),
                        why,
                        "Something else stands where a checkout was made; it is left alone."
                    );
                }
            }
        }
        Step::FinishPreparing | Step::FinishRemoval | Step::JudgeAgain => {
            for_lanes.push(ForLane {
                item: one.item.clone(),
                step,
                since: one.row.updated_at,
            });
        }
    }
    Ok(())
}

/// Looks which checkouts are gone, notes those that were not known to be, and
/// returns the halt if removals are halted because checkouts vanished. Asked
/// before anything is done for one whose directory is gone: alone it was
/// deleted, with many others a disk is not mounted.
pub(super) async fn look_for_vanished(context: &Arc<Context>) -> Result<Option<Halt>, StoreError> {
    let known = read(context).await?;
    let mut by_root: BTreeMap<PathBuf, Vec<(usize, CheckoutRecord)>> = BTreeMap::new();
    for (index, one) in known.iter().enumerate() {
        if one.row.state == CheckoutState::Ready
            && let Some(record) = &one.row.record
        {
            let root = by_root.entry(PathBuf::from(&one.row.root)).or_default();
            root.push((index, record.clone()));
        }
    }
    for (root, checkouts) in by_root {
        let (indices, records): (Vec<_>, Vec<_>) = checkouts.into_iter().unzip();
        // A root that does not answer says nothing about what is below it.
        let states = context
            .workspace(&root)
            .directory_states(records)
            .await
            .unwrap_or_default();
        for (index, state) in indices.into_iter().zip(states) {
            if matches!(state, DirectoryState::Missing) {
                note_missing(context, &known[index].item, &known[index].row).await?;
            }
        }
    }
    breaker::look(context).await?;
    breaker::vanished(context).await
}

async fn read(context: &Context) -> Result<Vec<Known>, StoreError> {
    context
        .store
        .read(|reader| {
            reader
                .live_checkouts()?
                .into_iter()
                .map(|row| {
                    Ok(Known {
                        item: reader.item(row.item)?,
                        delivery_waits: reader.has_pending_delivery(row.item)?,
                        row,
                    })
                })
                .collect()
        })
        .await
}

fn stored(one: &Known, resumed_at: i64) -> Stored {
    Stored {
        state: one.row.state,
        age_ms: (clock::now_ms() - one.row.updated_at).max(0),
        open: one.item.open,
        kept: one.row.kept.is_some(),
        delivery_waits: one.delivery_waits,
        given_up: one.row.updated_at <= resumed_at,
    }
}

const fn found_of(state: &DirectoryState) -> Found {
    match state {
        DirectoryState::Present => Found::Present,
        DirectoryState::Missing => Found::Missing,
        DirectoryState::Foreign(_) => Found::Foreign,
    }
}

/// Notes that a checkout's directory is gone, and tells it; returns false if the
/// row has changed since the disk was looked at: it is being worked on.
async fn note_missing(
    context: &Context,
    item: &ItemRow,
    row: &CheckoutRow,
) -> Result<bool, StoreError> {
    let path = row.record.as_ref().map(|record| record.path.as_path());
    let event = LogEvent::WorkspaceMissing {
        checkout: path.unwrap_or(Path::new("")).display().to_string(),
    };
    change(context, item, row, CheckoutState::Missing, Some(event)).await
}

/// Moves a row to another state, with an event, unless it has changed since.
async fn change(
    context: &Context,
    item: &ItemRow,
    row: &CheckoutRow,
    to: CheckoutState,
    event: Option<LogEvent>,
) -> Result<bool, StoreError> {
    let entry = event.map(|event| Entry::new(event).of_item(item.reference.clone()));
    let (item, id, seen, owner) = (
        item.id,
        row.id,
        (row.state, row.updated_at),
        context.owner.clone(),
    );
    context
        .store
        .write(move |tx| {
            let claim = tx.claim_item(item, &owner, LEASE_MS, true)?;
            let changed = tx.change_checkout_state(claim, id, seen, to)?;
            if let Some(entry) = entry.filter(|_| changed) {
                tx.append(&entry)?;
            }
            Ok(changed)
        })
        .await
}

/// Tells each stranger once for as long as the daemon runs; returns how many
/// there are.
fn tell_strangers(context: &Context, strangers: Vec<PathBuf>) -> u64 {
    let count = strangers.len() as u64;
    for path in strangers {
        if is_news(context, &path) {
            tracing::warn!(
                path = %path.display(),
                "This stands below the workspace root and was not made by Innkeeper; it is left alone."
            );
        }
    }
    count
}

fn is_news(context: &Context, path: &Path) -> bool {
    let mut told: std::sync::MutexGuard<'_, HashSet<PathBuf>> = context
        .strangers_told
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    told.insert(path.to_owned())
}
