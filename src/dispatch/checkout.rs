//! The effect "there is a checkout": prepared, taken up again, or moved on.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::failure::{Failure, Stop};
use super::job::Job;
use super::reconcile;
use super::settings::WorkspaceSettings;
use crate::clock;
use crate::domain::checkout::{CheckoutRecord, CheckoutState, Strategy, Wanted};
use crate::domain::code::{FailureCode, Retry};
use crate::domain::log_event::LogEvent;
use crate::domain::repo_target::RepoTarget;
use crate::domain::work_item::ItemKind;
use crate::process::CrashPoint;
use crate::store::CheckoutRow;
use crate::workspace::{DirectoryState, PrepareOptions, Prepared};

/// A checkout that a session may run in.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    /// Its row in the store.
    pub(super) row: i64,
    /// Its identity.
    pub(super) record: CheckoutRecord,
    /// The new head and what it replaced, if the event brought one.
    pub(super) update: Option<Update>,
    /// The head could not be had and the default branch was given.
    pub(super) fallback: bool,
    /// Whether it was there before.
    pub(super) reused: bool,
}

/// A pull request's new head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Update {
    /// Whether the files were moved to it.
    pub(super) moved: bool,
    pub(super) from: String,
    pub(super) to: String,
}

/// Returns the item's checkout, made if there is none; none if no workspace is
/// configured.
pub(super) async fn ensure(
    job: &Job,
    asked: Option<Strategy>,
    untrusted: bool,
    cancel: &CancellationToken,
) -> Result<Option<Ready>, Stop> {
    ensure_wanted(job, wanted(job), asked, untrusted, cancel).await
}

/// Like [`ensure`], for what a person named.
pub(super) async fn ensure_wanted(
    job: &Job,
    wanted: Wanted,
    asked: Option<Strategy>,
    untrusted: bool,
    cancel: &CancellationToken,
) -> Result<Option<Ready>, Stop> {
    let item = job.item.id;
    let present = job
        .context
        .store
        .read(move |reader| reader.live_checkout(item))
        .await?;
    // An item keeps its checkout where it is, also if the root has changed since.
    if let Some(row) = &present
        && matches!(row.state, CheckoutState::Ready | CheckoutState::Missing)
        && let Some(record) = &row.record
    {
        match job
            .context
            .workspace(&record.root)
            .directory_state(record)
            .await
        {
            // Preparing verifies what is back, and what stands in its place.
            _ if row.state == CheckoutState::Missing => {}
            DirectoryState::Present => return taken_up(job, row, record, &wanted, cancel).await,
            DirectoryState::Missing => {
                let (claim, id) = (job.claim, row.id);
                let missing = job.entry(LogEvent::WorkspaceMissing {
                    checkout: record.path.display().to_string(),
                });
                job.context
                    .store
                    .write(move |tx| {
                        tx.set_checkout_state(claim, id, CheckoutState::Missing)?;
                        tx.append(&missing)
                    })
                    .await?;
            }
            DirectoryState::Foreign(why) => {
                return Err(Failure::new(
                    FailureCode::PathOccupied,
                    format!(
                        "{} is not the checkout that was made for {}: {why}; move it away to have it prepared again",
                        record.path.display(),
                        job.item.reference
                    ),
                )
                .into());
            }
        }
    }
    if let Some(row) = &present
        && row.record.is_some()
        && let Some(halt) = gone_with_others(job, row).await?
    {
        return Err(tell_failure(job, Some(row), halt).await);
    }
    let Some(workspace) = &job.settings.workspace else {
        return Ok(None);
    };
    let strategy = asked.unwrap_or(if untrusted {
        workspace.untrusted_strategy
    } else {
        workspace.strategy
    });
    prepare(job, workspace, strategy, wanted, cancel)
        .await
        .map(Some)
}

/// Returns why nothing is made in the place of a directory that is gone: many
/// others went with it, and what is written now would be in the way when the
/// disk is back.
async fn gone_with_others(job: &Job, row: &CheckoutRow) -> Result<Option<Failure>, Stop> {
    let Some(record) = &row.record else {
        return Ok(None);
    };
    let state = job
        .context
        .workspace(&record.root)
        .directory_state(record)
        .await;
    if !matches!(state, DirectoryState::Missing) {
        return Ok(None);
    }
    let halt = reconcile::look_for_vanished(&job.context).await?;
    Ok(halt.map(|halt| {
        Failure::new(
            FailureCode::Internal,
            format!(
                "`{}` is gone, and not alone: {}; nothing is prepared in its place until it is back, or `innkeeper gc --resume-removals` says that it is gone for good",
                record.path.display(),
                halt.sentence()
            ),
        )
    }))
}

/// Returns what the checkout of this job's item is to hold.
pub(super) fn wanted(job: &Job) -> Wanted {
    if job.item.kind == ItemKind::Issue {
        return Wanted::DefaultBranch;
    }
    let facts = &job.item.facts;
    let said = job.envelope().and_then(|envelope| envelope.item.as_ref());
    // A comment's payload has no head: git is asked for the present one, on the
    // branch that an earlier payload named.
    let head = said
        .and_then(|item| item.head.as_ref())
        .or(facts.head.as_ref());
    let commit = said
        .and_then(|item| item.head.as_ref())
        .and_then(|head| head.sha.clone());
    Wanted::PullRequest {
        number: job.item.name.number,
        commit,
        branch: head
            .filter(|head| !head.fork)
            .and_then(|head| head.branch.clone()),
        fork: head.is_none_or(|head| head.fork),
        base: facts.base.clone(),
        gone: false,
    }
}

/// Returns where the item's repository is, under the name it has now.
pub(super) fn target(job: &Job) -> Result<RepoTarget, Failure> {
    let name = &job.item.name;
    job.settings
        .policy
        .hosts
        .target(&name.host, &name.owner, &name.repo)
        .map_err(|error| Failure::new(FailureCode::BadInput, error.to_string()))
}

/// Makes the checkout, or finds that an attempt before a crash had made it.
async fn prepare(
    job: &Job,
    settings: &WorkspaceSettings,
    strategy: Strategy,
    wanted: Wanted,
    cancel: &CancellationToken,
) -> Result<Ready, Stop> {
    if cancel.is_cancelled() {
        return Err(Stop::Superseded);
    }
    let began = Instant::now();
    let target = target(job)?;
    let repository = target.rel_path().display().to_string();
    let claim = job.claim;
    let root = settings.root.display().to_string();
    let checkouts = settings.checkouts;
    let row = job
        .context
        .store
        .write(move |tx| {
            if tx.live_checkout(claim.item)?.is_none() {
                let present = tx.live_checkout_count()?;
                if present >= checkouts {
                    return Ok(Err(present));
                }
            }
            tx.begin_checkout(claim, &repository, &root, strategy)
                .map(Ok)
        })
        .await?;
    let row = match row {
        Ok(row) => row,
        Err(present) => {
            return Err(tell_failure(job, None, no_more(present)).await);
        }
    };
    CrashPoint::CheckoutBegun.pass();
    let workspace = job.context.workspace(std::path::Path::new(&row.root));
    let options = PrepareOptions {
        strategy: Some(row.strategy),
        remembered: row.record.clone(),
        last_attempt: job.last_attempt,
    };
    let outcome = workspace
        .prepare(
            &target,
            &job.item.slug,
            (job.item.kind, job.item.name.number),
            &wanted,
            options,
            cancel,
        )
        .await;
    CrashPoint::CheckoutMade.pass();
    match outcome {
        Ok(prepared) => ready(job, &row, prepared, &wanted, began).await,
        Err(_) if cancel.is_cancelled() => {
            set_failed(job, &row).await?;
            Err(Stop::Superseded)
        }
        Err(error) => {
            let failure = Failure::of_workspace(error);
            Err(tell_failure(job, Some(&row), failure).await)
        }
    }
}

/// Returns the failure of making one checkout more than there may be.
pub(super) fn no_more(present: u64) -> Failure {
    Failure::new(
        FailureCode::Quota,
        format!(
            "{present} checkouts exist, which is as many as maxCheckouts allows; clean some up or raise it"
        ),
    )
}

async fn set_failed(job: &Job, row: &CheckoutRow) -> Result<(), Stop> {
    let (claim, id) = (job.claim, row.id);
    // A checkout that was there before stays known, whatever went wrong now.
    let state = match row.record {
        Some(_) => row.state,
        None => CheckoutState::Failed,
    };
    job.context
        .store
        .write(move |tx| tx.set_checkout_state(claim, id, state))
        .await?;
    Ok(())
}

async fn tell_failure(job: &Job, row: Option<&CheckoutRow>, failure: Failure) -> Stop {
    let event = LogEvent::WorkspacePrepareFailed {
        code: failure.code,
        retryable: failure.code.retry() == Retry::Later,
        error: failure.message.clone(),
    };
    let entry = job.entry(event);
    let state = row.map(|row| {
        let failed = row.record.is_none();
        (
            row.id,
            if failed {
                CheckoutState::Failed
            } else {
                row.state
            },
        )
    });
    let claim = job.claim;
    let stored = job
        .context
        .store
        .write(move |tx| {
            if let Some((id, state)) = state {
                tx.set_checkout_state(claim, id, state)?;
            }
            tx.append(&entry)
        })
        .await;
    match stored {
        Ok(()) => Stop::Failed(failure),
        Err(error) => Stop::Store(error),
    }
}

async fn ready(
    job: &Job,
    row: &CheckoutRow,
    prepared: Prepared,
    wanted: &Wanted,
    began: Instant,
) -> Result<Ready, Stop> {
    let record = prepared.record;
    let base = match wanted {
        Wanted::PullRequest { base, .. } => base.clone(),
        Wanted::DefaultBranch | Wanted::Named { .. } => None,
    };
    let entry = job.entry(LogEvent::WorkspacePrepared {
        strategy: record.strategy.as_str().to_owned(),
        checkout: record.path.display().to_string(),
        branch: record.branch.clone(),
        commit: record.commit.clone(),
        base,
        source: job.source,
        ms: clock::millis(began.elapsed()),
        fetched: prepared.fetched,
        coalesced: prepared.coalesced,
        pooled: false,
        reused: prepared.reused,
        fallback: prepared.fallback,
        detached_because: prepared.detached_because.clone(),
    });
    let drift = (!prepared.drift.is_empty()).then(|| {
        job.entry(LogEvent::SharedCloneDrift {
            keys: prepared.drift,
        })
    });
    let (claim, id, stored) = (job.claim, row.id, record.clone());
    job.context
        .store
        .write(move |tx| {
            tx.checkout_ready(claim, id, &stored)?;
            tx.checkout_wanted(claim, id)?;
            if let Some(drift) = drift {
                tx.append(&drift)?;
            }
            tx.append(&entry)
        })
        .await?;
    CrashPoint::CheckoutReady.pass();
    Ok(Ready {
        row: id,
        record,
        update: None,
        fallback: prepared.fallback,
        reused: prepared.reused,
    })
}

/// Takes up a checkout that is there. If the event brought a new head it is
/// moved to it, or left alone because somebody works in it.
async fn taken_up(
    job: &Job,
    row: &CheckoutRow,
    record: &CheckoutRecord,
    wanted: &Wanted,
    cancel: &CancellationToken,
) -> Result<Option<Ready>, Stop> {
    let mut ready = Ready {
        row: row.id,
        record: record.clone(),
        update: None,
        fallback: false,
        reused: true,
    };
    let new_head = match wanted {
        Wanted::PullRequest {
            commit: Some(commit),
            ..
        } => *commit != record.commit,
        Wanted::PullRequest { commit: None, .. } | Wanted::DefaultBranch | Wanted::Named { .. } => {
            false
        }
    };
    let action = job
        .envelope()
        .and_then(|envelope| envelope.action.as_deref());
    // Only events that tell of the head move anything: others may be late.
    let tells_of_head = matches!(action, Some("synchronize" | "reopened"));
    if new_head && tells_of_head {
        let target = target(job)?;
        let item = job.item.id;
        let idle = job
            .context
            .store
            .read(move |reader| reader.current_session(item))
            .await?
            .is_none_or(|session| !session.state.is_live());
        let workspace = job.context.workspace(&record.root);
        let updated = match workspace
            .update(record, &target, wanted, idle, cancel)
            .await
        {
            Ok(updated) => updated,
            Err(_) if cancel.is_cancelled() => return Err(Stop::Superseded),
            Err(error) => {
                return Err(tell_failure(job, Some(row), Failure::of_workspace(error)).await);
            }
        };
        CrashPoint::CheckoutMoved.pass();
        let update = Update {
            moved: updated.moved,
            from: updated.from.clone(),
            to: updated.to.clone(),
        };
        let entry = job.entry(LogEvent::WorkspaceUpdated {
            moved: updated.moved,
            from: updated.from,
            to: updated.to,
        });
        let (claim, id, stored) = (job.claim, row.id, updated.record.clone());
        job.context
            .store
            .write(move |tx| {
                tx.checkout_ready(claim, id, &stored)?;
                tx.append(&entry)
            })
            .await?;
        ready.record = updated.record;
        ready.update = Some(update);
    }
    if row.kept.is_some() && job.item.open {
        let (claim, id) = (job.claim, row.id);
        job.context
            .store
            .write(move |tx| tx.checkout_wanted(claim, id))
            .await?;
    }
    Ok(Some(ready))
}
