//! One attempt at a delivery: decide, act, finish.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::failure::{Failure, Stop};
use super::job::{Delivery, Job};
use super::{Context, LEASE_MS, checkout, closing, facts, session};
use crate::clock;
use crate::domain::backoff::{AfterFailure, after_failure};
use crate::domain::code::FailureCode;
use crate::domain::envelope::{self, ContentType, Envelope};
use crate::domain::lane::{Ended, Waiting};
use crate::domain::log_event::{Entry, LogEvent, Source};
use crate::domain::reason::DropReason;
use crate::domain::routing::{self, Act, Action, Decision};
use crate::process::CrashPoint;
use crate::store::{DeliveryState, StoreError};

/// How long to wait before a delivery is taken again whose state could not be
/// stored.
const STORE_WAIT_MS: i64 = 5_000;

/// What the first write of an attempt found.
enum Begun {
    /// Nothing is to be done, which is stored.
    Over,
    /// The decision is stored, the claim holds.
    Act {
        job: Box<Job>,
        act: Act,
        untrusted: bool,
        attempt: u32,
    },
}

/// Works on a delivery; returns what its lane does next.
pub(super) async fn deliver(
    context: &Arc<Context>,
    waiting: Waiting,
    cancel: &CancellationToken,
) -> Ended {
    let began = Instant::now();
    // Many may wait for one place; only who can have it goes through the rest.
    if waiting.told_to_wait {
        match session::is_place_free(context).await {
            Ok(true) => {}
            Ok(false) => return Ended::ForPlace(waiting),
            Err(error) => return not_stored(waiting, error),
        }
    }
    let outcome = match begin(context, &waiting, began).await {
        Ok(Begun::Over) => return Ended::Done,
        Ok(Begun::Act {
            job,
            act,
            untrusted,
            attempt,
        }) => {
            CrashPoint::DeliveryClaimed.pass();
            let outcome = perform(&job, &act, untrusted, &waiting, cancel).await;
            outcome.map_err(|stop| (stop, Some(job), attempt))
        }
        Err(stop) => Err((stop, None, 0)),
    };
    match outcome {
        Ok(()) => Ended::Done,
        Err((Stop::Superseded, job, _)) => {
            let lane = job.map_or_else(String::new, |job| job.item.slug);
            context.supersede(&lane, &waiting).await;
            Ended::Done
        }
        Err((Stop::ForPlace, _, _)) => {
            let seq = waiting.seq;
            if let Err(error) = context
                .store
                .write(move |tx| tx.postpone_delivery(seq))
                .await
            {
                return not_stored(waiting, error);
            }
            Ended::ForPlace(Waiting {
                told_to_wait: true,
                ..waiting
            })
        }
        Err((Stop::Store(error), _, _)) => not_stored(waiting, error),
        Err((Stop::Failed(failure), job, attempt)) => {
            let reference = job.map(|job| job.item.reference);
            match failed(context, &waiting, reference, failure, attempt).await {
                Ok(ended) => ended,
                Err(error) => not_stored(waiting, error),
            }
        }
    }
}

/// What could not be stored is tried again while the daemon runs; it is found
/// again at the next start otherwise.
fn not_stored(waiting: Waiting, error: StoreError) -> Ended {
    if matches!(error, StoreError::Closed) {
        return Ended::Done;
    }
    tracing::error!(
        delivery = waiting.id,
        error = format!("{:#}", anyhow::Error::from(error)),
        "The state could not be written; the delivery is taken again in a moment."
    );
    let not_before = clock::now_ms() + STORE_WAIT_MS;
    Ended::Again(Waiting {
        not_before,
        ..waiting
    })
}

/// Stores a failure: the delivery is taken again, or parked.
async fn failed(
    context: &Context,
    waiting: &Waiting,
    reference: Option<String>,
    failure: Failure,
    attempt: u32,
) -> Result<Ended, StoreError> {
    let Failure { code, message } = failure;
    let attempts = context.settings().attempts;
    let seq = waiting.seq;
    let seed = u64::try_from(seq).unwrap_or(0);
    let entry = |event| Entry {
        work_item: reference,
        delivery: Some(waiting.id.clone()),
        event,
    };
    match after_failure(code, attempt, attempts, seed, context.first_wait_ms) {
        AfterFailure::Again { after_ms } => {
            let not_before = clock::now_ms() + i64::try_from(after_ms).unwrap_or(i64::MAX / 2);
            let event = LogEvent::DeliveryRetrying {
                attempt,
                code,
                after_ms,
                error: message.clone(),
            };
            let entry = entry(event);
            context
                .store
                .write(move |tx| {
                    tx.retry_delivery(seq, code, &message, not_before)?;
                    tx.append(&entry)
                })
                .await?;
            Ok(Ended::Again(Waiting {
                not_before,
                ..waiting.clone()
            }))
        }
        AfterFailure::Park => {
            // What the remote has not got after all attempts is not coming.
            let code = if code == FailureCode::RefNotYet {
                FailureCode::RefGone
            } else {
                code
            };
            let entry = entry(LogEvent::DeliveryParked {
                code,
                error: message.clone(),
            });
            context
                .store
                .write(move |tx| {
                    tx.delivery_parked(seq, code, &message)?;
                    tx.append(&entry)
                })
                .await?;
            Ok(Ended::Done)
        }
    }
}

/// Reads the delivery again, decides, and stores the decision with the claim.
async fn begin(context: &Arc<Context>, waiting: &Waiting, began: Instant) -> Result<Begun, Stop> {
    let seq = waiting.seq;
    let found = context
        .store
        .read(move |reader| reader.delivery_with_body(seq))
        .await?;
    let Some(pending) = found else {
        return Ok(Begun::Over);
    };
    let row = pending.row;
    if !matches!(row.state, DeliveryState::Received | DeliveryState::Running) {
        return Ok(Begun::Over);
    }
    let settings = context.settings();
    let kind = if row.form {
        ContentType::Form
    } else {
        ContentType::Json
    };
    let envelope = envelope::parse(&row.gh_event, &settings.policy.hosts, &pending.body, kind)
        .map_err(|error| Failure::new(FailureCode::BadPayload, error.to_string()))?;
    // Begun before: it was decided then, and what it did must not count as a
    // reason to do nothing more.
    let begun_before = row.item.is_some();
    let own = !begun_before && is_own_push(context, &envelope).await?;

    let context = Arc::clone(context);
    let store = context.store.clone();
    let begun = store
        .write(move |tx| {
            let Some(item_state) = &envelope.item else {
                return dropped(tx, &row, None, &envelope, DropReason::NoWorkItem);
            };
            let known = tx.find_item(&item_state.name)?;
            let mut seen = facts::facts_of(tx, known.as_ref())?;
            let is_close = matches!(
                routing::closed_state(&envelope),
                routing::ClosedState::Closed { .. }
            );
            if begun_before && is_close {
                // It was this very close that closed the item.
                seen.open = true;
            }
            // A checkout that was kept when its item closed is judged at every
            // event, at that of its own push above all.
            let is_kept = seen.known && !seen.open && seen.has_checkout;
            let decision = if own && !is_kept {
                Decision::Drop(DropReason::OwnEvent)
            } else {
                routing::decide(&settings.policy, &envelope, &seen)
            };
            let untrusted =
                routing::is_item_untrusted(&settings.policy, envelope.item.as_ref(), &seen);
            let act = match decision {
                Decision::Act(act) => act,
                Decision::Drop(reason) => {
                    // What it says about the item is kept all the same.
                    if let Some(mut item) = known {
                        let claim = tx.claim_item(item.id, &context.owner, LEASE_MS, true)?;
                        facts::learn(&mut item, &envelope, &seen);
                        if reason == DropReason::OwnEvent {
                            facts::own_push(&mut item, &envelope);
                        }
                        tx.update_item(claim, &item)?;
                        return dropped(tx, &row, Some(&item), &envelope, reason);
                    }
                    return dropped(tx, &row, None, &envelope, reason);
                }
            };
            let mut item = tx.ensure_item(&item_state.name, item_state.kind)?;
            let claim = tx.claim_item(item.id, &context.owner, LEASE_MS, true)?;
            facts::learn(&mut item, &envelope, &seen);
            item.armed |= act.arm;
            match act.action {
                Action::Stop | Action::Disarm | Action::Cleanup => item.armed = false,
                Action::Pause => item.paused = true,
                Action::Resume => item.paused = false,
                // A close disarms nothing: reopening starts again what was started.
                Action::Start | Action::Deliver | Action::Close | Action::Status => {}
            }
            tx.update_item(claim, &item)?;
            tx.describe_delivery(
                row.seq,
                Some(item.id),
                envelope.action.as_deref(),
                envelope.repository.as_deref(),
            )?;
            let attempt = tx.begin_delivery(row.seq)?;
            let job = Job {
                context: Arc::clone(&context),
                settings: Arc::clone(&settings),
                item,
                claim,
                delivery: Some(Delivery {
                    seq: row.seq,
                    id: row.id.clone(),
                    envelope,
                    began,
                }),
                source: Source::Webhook,
                last_attempt: attempt >= settings.attempts,
            };
            if !begun_before {
                tx.append(&job.entry(LogEvent::RoutingMatched {
                    rule: act.rule.clone(),
                    then: act.action.as_str().to_owned(),
                }))?;
            }
            Ok(Begun::Act {
                job: Box::new(job),
                act,
                untrusted,
                attempt,
            })
        })
        .await?;
    Ok(begun)
}

fn dropped(
    tx: &mut crate::store::Tx<'_>,
    row: &crate::store::DeliveryRow,
    item: Option<&crate::store::ItemRow>,
    envelope: &Envelope,
    reason: DropReason,
) -> Result<Begun, StoreError> {
    tx.describe_delivery(
        row.seq,
        item.map(|item| item.id),
        envelope.action.as_deref(),
        envelope.repository.as_deref(),
    )?;
    tx.delivery_dropped(row.seq, reason)?;
    let work_item = item
        .map(|item| item.reference.clone())
        .or_else(|| envelope.item.as_ref().map(|item| item.name.reference()));
    tx.append(&Entry {
        work_item,
        delivery: Some(row.id.clone()),
        event: LogEvent::DeliveryDropped { reason },
    })?;
    Ok(Begun::Over)
}

/// Returns whether the event tells of a commit that was made in the item's own
/// checkout: the session pushed it.
async fn is_own_push(context: &Context, envelope: &Envelope) -> Result<bool, StoreError> {
    let is_synchronize =
        envelope.event == "pull_request" && envelope.action.as_deref() == Some("synchronize");
    let Some(item) = envelope.item.as_ref().filter(|_| is_synchronize) else {
        return Ok(false);
    };
    let commit = envelope
        .after
        .clone()
        .or_else(|| item.head.as_ref().and_then(|head| head.sha.clone()));
    let Some(commit) = commit else {
        return Ok(false);
    };
    let name = item.name.clone();
    let named = commit.clone();
    let row = context
        .store
        .read(move |reader| {
            let Some(item) = reader.find_item(&name)? else {
                return Ok(None);
            };
            // A head that somebody else had pushed before: they went back to it.
            if item.facts.heads.contains(&named) && !item.facts.own_heads.contains(&named) {
                return Ok(None);
            }
            reader.live_checkout(item.id)
        })
        .await?;
    let Some(record) = row.and_then(|row| row.record) else {
        return Ok(false);
    };
    // The commit that Innkeeper put there itself is no push of the session's.
    if record.commit == commit {
        return Ok(false);
    }
    Ok(context
        .workspace(&record.root)
        .knows_commit(&record, &commit)
        .await)
}

async fn perform(
    job: &Job,
    act: &Act,
    untrusted: bool,
    waiting: &Waiting,
    cancel: &CancellationToken,
) -> Result<(), Stop> {
    match act.action {
        Action::Start => {
            let ready = checkout::ensure(job, act.strategy, untrusted, cancel).await;
            let ready = match ready {
                Ok(ready) => ready,
                Err(stop) => return Err(session::not_spawned(job, stop).await),
            };
            let profile = act
                .profile
                .clone()
                .or_else(|| job.settings.default_profile.clone());
            match profile {
                Some(profile) => {
                    session::hand_over(job, ready, &profile, waiting.told_to_wait, cancel).await
                }
                None => Ok(job.finish(|_tx| Ok(())).await?),
            }
        }
        Action::Deliver => {
            let ready = checkout::ensure(job, act.strategy, untrusted, cancel).await?;
            match session::profile_of_current(job).await? {
                Some(profile) => {
                    session::hand_over(job, ready, &profile, waiting.told_to_wait, cancel).await
                }
                None => Ok(job.finish(|_tx| Ok(())).await?),
            }
        }
        Action::Close => closing::close(job).await.map(drop),
        Action::Cleanup => closing::clean_up(job).await.map(drop),
        Action::Stop => {
            session::close(job, "stopped").await?;
            without_effect(job).await
        }
        Action::Pause => {
            let paused = LogEvent::RoutingPaused {
                reason: "asked for".to_owned(),
            };
            if !job.item.open {
                job.tell(paused).await?;
                return without_effect(job).await;
            }
            let paused = job.entry(paused);
            Ok(job.finish(move |tx| tx.append(&paused)).await?)
        }
        Action::Resume | Action::Disarm | Action::Status => without_effect(job).await,
    }
}

/// Finishes a delivery that asks nothing of the checkout. One that was kept when
/// its item closed is judged again all the same.
async fn without_effect(job: &Job) -> Result<(), Stop> {
    if job.item.open {
        Ok(job.finish(|_tx| Ok(())).await?)
    } else {
        closing::close(job).await.map(drop)
    }
}
