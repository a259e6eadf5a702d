//! Requests: what people, programs and the dispatcher itself ask of a lane.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::actor::RequestWork;
use super::archives::{self, Archived};
use super::closing::Outcome;
use super::failure::{Failure, Stop};
use super::job::Job;
use super::request::{Answer, Request, RequestError, What};
use super::{Context, LEASE_MS, checkout, closing, gc, judging, restoring, session};
use crate::domain::archive::AtRisk;
use crate::domain::checkout::{CheckoutRecord, Strategy, Wanted};
use crate::domain::envelope::Envelope;
use crate::domain::log_event::{LogEvent, Source};
use crate::domain::removal::fate;
use crate::domain::routing::{ItemFacts, is_item_untrusted};
use crate::domain::work_item::{ItemKind, ItemName};
use crate::store::{ItemRow, StoreError};

/// Works on a request. Returns it if it has to wait for a session's place.
pub(super) async fn work(
    context: &Arc<Context>,
    work: RequestWork,
    cancel: &CancellationToken,
) -> Option<RequestWork> {
    match work {
        RequestWork::Asked {
            item,
            request,
            answer,
        } => {
            let outcome = asked(context, item, &request, cancel).await;
            match outcome {
                Err(Stop::ForPlace) => Some(RequestWork::Asked {
                    item,
                    request,
                    answer,
                }),
                outcome => {
                    // Whoever asked may have gone away; what was done stands.
                    let _gone = answer.send(outcome.unwrap_or_else(|stop| Err(stop.into())));
                    None
                }
            }
        }
        RequestWork::Settle {
            session,
            told_to_wait,
        } => match session::settle(context, &session, told_to_wait).await {
            Err(Stop::ForPlace) => Some(RequestWork::Settle {
                session,
                told_to_wait: true,
            }),
            Err(stop) => {
                tell_unsettled(&session, stop);
                None
            }
            Ok(()) => None,
        },
        RequestWork::Reconcile { item, step, done } => {
            if let Err(stop) = judging::carry_out(context, item, step).await {
                tell_unsettled("what differs between store and disk", stop);
            }
            drop(done);
            None
        }
        RequestWork::Tidy { item, answer } => {
            match gc::tidy(context, item, false).await {
                Ok(found) => {
                    // Whoever asked may have gone away; what was done stands.
                    let _gone = answer.send(found);
                }
                Err(stop) => tell_unsettled("what can be made again", stop),
            }
            None
        }
        RequestWork::Expire { item, archived } => {
            if let Err(stop) = expire(context, item, *archived).await {
                tell_unsettled("an archive that has been kept for long enough", stop);
            }
            None
        }
    }
}

impl From<Stop> for RequestError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(Failure { code, message }) => Self::Failed { code, message },
            Stop::Superseded => Self::Refused("the item was closed in the meantime".to_owned()),
            Stop::ForPlace => Self::Refused("every place for a session is taken".to_owned()),
            Stop::Store(error) => Self::Store(error),
        }
    }
}

fn tell_unsettled(what: &str, stop: Stop) {
    let error = RequestError::from(stop);
    if !matches!(error, RequestError::Store(StoreError::Closed)) {
        tracing::error!(
            what,
            error = format!("{:#}", anyhow::Error::from(error)),
            "Not settled; the next round or start does it."
        );
    }
}

/// Returns a job for a request about an item that is known.
pub(super) async fn job_for(
    context: &Arc<Context>,
    item: i64,
    source: Source,
) -> Result<Job, StoreError> {
    let owner = context.owner.clone();
    let (item, claim) = context
        .store
        .write(move |tx| {
            let claim = tx.claim_item(item, &owner, LEASE_MS, true)?;
            Ok((tx.item(item)?, claim))
        })
        .await?;
    Ok(Job {
        context: Arc::clone(context),
        settings: context.settings(),
        item,
        claim,
        delivery: None,
        source,
        last_attempt: true,
    })
}

/// What came of a request, unless it stopped on the way.
pub(super) type Asked = Result<Result<Answer, RequestError>, Stop>;

async fn asked(
    context: &Arc<Context>,
    item: Option<i64>,
    request: &Request,
    cancel: &CancellationToken,
) -> Asked {
    let item = match item {
        Some(item) => item,
        None => match new_item(context, request).await? {
            Ok(item) => item,
            Err(refused) => return Ok(Err(refused)),
        },
    };
    let job = job_for(context, item, request.source).await?;
    match &request.what {
        What::Prepare {
            commit,
            branch,
            strategy,
        } => {
            prepare(
                &job,
                commit.as_deref(),
                branch.as_deref(),
                *strategy,
                cancel,
            )
            .await
        }
        What::Explain => explain(&job).await,
        What::ExitKeep { stop } => {
            if let Some(refused) = refuse_live(&job, *stop).await? {
                return Ok(Err(refused));
            }
            session::close(&job, "exit").await?;
            let item = job.item.id;
            let row = job
                .context
                .store
                .read(move |reader| reader.live_checkout(item))
                .await?;
            Ok(match row {
                Some(_) => Ok(Answer::Done {
                    message: format!("the checkout of {} stays", job.item.reference),
                }),
                None => Err(no_checkout(&job)),
            })
        }
        What::ExitRemove { stop, discard } => {
            if let Some(refused) = refuse_live(&job, *stop).await? {
                return Ok(Err(refused));
            }
            session::close(&job, "exit").await?;
            let at_risk = discard.clone().map_or(AtRisk::Keep, AtRisk::Consent);
            let outcome = closing::remove(&job, false, &at_risk).await?;
            Ok(Ok(outcome_of(&job, outcome)))
        }
        What::Restore { archive, to } => match archives::of_item(context, &job.item, archive).await
        {
            Ok(Some(found)) => match to {
                Some(to) => restoring::alone(context, &found, to).await,
                None => restoring::into_item(&job, &found, cancel).await,
            },
            Ok(None) => Ok(Err(archives::unknown(archive))),
            Err(error) => Err(error.into()),
        },
        What::Purge { archive } => match archives::of_item(context, &job.item, archive).await {
            Ok(Some(found)) => Ok(Ok(archives::purge(context, &found).await?)),
            Ok(None) => Ok(Err(archives::unknown(archive))),
            Err(error) => Err(error.into()),
        },
        What::Start => start(&job, cancel).await,
        What::Stop => {
            let ended = session::close(&job, "stopped").await?;
            change(&job, |item| item.armed = false, None).await?;
            let what = if ended {
                "session ended"
            } else {
                "no session was running"
            };
            Ok(Ok(Answer::Done {
                message: format!("{}: {what}, disarmed", job.item.reference),
            }))
        }
        What::Pause => {
            let paused = LogEvent::RoutingPaused {
                reason: "asked for".to_owned(),
            };
            change(&job, |item| item.paused = true, Some(paused)).await?;
            Ok(Ok(Answer::Done {
                message: format!(
                    "{}: later events are dropped until resumed",
                    job.item.reference
                ),
            }))
        }
        What::Resume => {
            change(&job, |item| item.paused = false, None).await?;
            Ok(Ok(Answer::Done {
                message: format!("{}: takes events again", job.item.reference),
            }))
        }
        What::Cleanup => {
            change(&job, |item| item.armed = false, None).await?;
            Ok(Ok(outcome_of(&job, closing::clean_up(&job).await?)))
        }
        What::StopSession { session } => {
            let current = session::current(&job).await?;
            match current {
                Some(row) if row.id == *session && row.state.is_live() => {
                    session::end(&job).await?;
                    Ok(Ok(Answer::Done {
                        message: format!("session {session} ended"),
                    }))
                }
                _ => Ok(Err(RequestError::NotFound(format!(
                    "session {session} is not running"
                )))),
            }
        }
    }
}

/// Makes the item that a person names and that no event has named yet.
async fn new_item(
    context: &Arc<Context>,
    request: &Request,
) -> Result<Result<i64, RequestError>, Stop> {
    let dispatcher = super::Dispatcher {
        context: Arc::clone(context),
    };
    let name: ItemName = match dispatcher.name_of(&request.item) {
        Ok(name) => name,
        Err(refused) => return Ok(Err(refused)),
    };
    // Nobody has said yet whether it is an issue or a pull request: the remote
    // knows, as only pull requests have a head there.
    let settings = context.settings();
    let Some(workspace) = &settings.workspace else {
        return Ok(Err(RequestError::Refused(
            "no workspace is configured (routing.workspace.root)".to_owned(),
        )));
    };
    let target = match settings
        .policy
        .hosts
        .target(&name.host, &name.owner, &name.repo)
    {
        Ok(target) => target,
        Err(error) => return Ok(Err(RequestError::Refused(error.to_string()))),
    };
    let is_pull = context
        .workspace(&workspace.root)
        .has_pull_request(&target, name.number)
        .await
        .map_err(Failure::of_workspace)?;
    let kind = if is_pull {
        ItemKind::PullRequest
    } else {
        ItemKind::Issue
    };
    let item = context
        .store
        .write(move |tx| tx.ensure_item(&name, kind))
        .await?;
    Ok(Ok(item.id))
}

async fn prepare(
    job: &Job,
    commit: Option<&str>,
    branch: Option<&str>,
    strategy: Option<Strategy>,
    cancel: &CancellationToken,
) -> Asked {
    let wanted = if commit.is_some() || branch.is_some() {
        Wanted::Named {
            commit: commit.map(str::to_owned),
            branch: branch.map(str::to_owned),
        }
    } else {
        checkout::wanted(job)
    };
    let ready = checkout::ensure_wanted(job, wanted, strategy, is_untrusted(job), cancel).await?;
    let Some(ready) = ready else {
        return Ok(Err(RequestError::Refused(
            "no workspace is configured (routing.workspace.root)".to_owned(),
        )));
    };
    if ready.reused
        && let Some(has) = otherwise(&ready.record, commit, branch, strategy)
    {
        return Ok(Err(RequestError::Refused(format!(
            "{} has a checkout already, {has}, which is never reset: {}",
            job.item.reference,
            ready.record.path.display()
        ))));
    }
    Ok(Ok(Answer::prepared(ready.record, ready.reused)))
}

/// Returns what an existing checkout is instead of what was asked for.
fn otherwise(
    record: &CheckoutRecord,
    commit: Option<&str>,
    branch: Option<&str>,
    strategy: Option<Strategy>,
) -> Option<String> {
    if commit.is_some_and(|commit| record.commit != commit) {
        return Some(format!("at {}", record.commit));
    }
    if branch.is_some() && record.branch.as_deref() != branch {
        return Some(match &record.branch {
            Some(branch) => format!("on branch {branch}"),
            None => "on no branch".to_owned(),
        });
    }
    if strategy.is_some_and(|strategy| record.strategy != strategy) {
        return Some(format!("with strategy {}", record.strategy.as_str()));
    }
    None
}

fn is_untrusted(job: &Job) -> bool {
    let facts = &job.item.facts;
    let seen = ItemFacts {
        known: true,
        open: job.item.open,
        author: facts.author.clone(),
        association: facts.association.clone(),
        labels: facts.labels.clone(),
        fork: facts.head.as_ref().map(|head| head.fork),
        ..ItemFacts::default()
    };
    is_item_untrusted(
        &job.settings.policy,
        envelope_for(&job.item).item.as_ref(),
        &seen,
    )
}

async fn explain(job: &Job) -> Asked {
    let item = job.item.id;
    let row = job
        .context
        .store
        .read(move |reader| reader.live_checkout(item))
        .await?;
    let Some((_, record)) = row.and_then(|row| row.record.clone().map(|record| (row, record)))
    else {
        return Ok(Err(no_checkout(job)));
    };
    let inspection = job
        .context
        .workspace(&record.root)
        .inspect(&record, &closing::facts_of(job), &CancellationToken::new())
        .await
        .map_err(Failure::of_workspace)?;
    Ok(Ok(Answer::Explained {
        probes: inspection.results,
        on_close: fate(&inspection.verdict, job.settings.removal.on_close),
        verdict: inspection.verdict,
        checkout: record.path.display().to_string(),
    }))
}

fn no_checkout(job: &Job) -> RequestError {
    RequestError::NotFound(format!("{} has no checkout", job.item.reference))
}

async fn refuse_live(job: &Job, stop: bool) -> Result<Option<RequestError>, Stop> {
    let live = session::current(job)
        .await?
        .filter(|row| row.state.is_live());
    Ok(live.filter(|_| !stop).map(|row| {
        RequestError::InUse(format!(
            "session {} of {} is running; --stop ends it first",
            row.id, job.item.reference
        ))
    }))
}

fn outcome_of(job: &Job, outcome: Outcome) -> Answer {
    match outcome {
        Outcome::None => Answer::Done {
            message: format!("{} has no checkout", job.item.reference),
        },
        Outcome::Removed { checkout, archive } => Answer::Removed { checkout, archive },
        Outcome::Kept {
            checkout,
            reasons,
            token,
        } => Answer::Kept {
            reasons,
            checkout,
            token,
        },
    }
}

async fn start(job: &Job, cancel: &CancellationToken) -> Asked {
    if !job.item.open {
        return Ok(Err(RequestError::Refused(format!(
            "{} is closed; reopen it first",
            job.item.reference
        ))));
    }
    let armed = change(job, |item| item.armed = true, None).await?;
    let Some(profile) = job.settings.default_profile.clone() else {
        let ready = checkout::ensure(&armed, None, is_untrusted(job), cancel).await?;
        return Ok(match ready {
            Some(ready) => Ok(Answer::prepared(ready.record, ready.reused)),
            None => Err(RequestError::Refused(
                "there is neither a workspace (routing.workspace.root) nor a profile (sessions.default)".to_owned(),
            )),
        });
    };
    let ready = checkout::ensure(&armed, None, is_untrusted(job), cancel).await?;
    session::hand_over(&armed, ready, &profile, false, cancel).await?;
    let current = session::current(job).await?;
    Ok(Ok(Answer::Done {
        message: match current {
            Some(row) => format!("session {} of {} runs", row.id, job.item.reference),
            None => format!("{} was started", job.item.reference),
        },
    }))
}

/// Changes and stores the item; returns a job with the changed one.
async fn change(
    job: &Job,
    change: impl FnOnce(&mut ItemRow),
    event: Option<LogEvent>,
) -> Result<Job, Stop> {
    let mut changed = job.clone();
    change(&mut changed.item);
    let (claim, item) = (changed.claim, changed.item.clone());
    let entry = event.map(|event| changed.entry(event));
    job.context
        .store
        .write(move |tx| {
            tx.update_item(claim, &item)?;
            entry.map_or(Ok(()), |entry| tx.append(&entry))
        })
        .await?;
    Ok(changed)
}

/// Deletes an archive if it still has been kept for long enough: its item may
/// have been opened again since that was found.
async fn expire(context: &Arc<Context>, item: i64, archived: Archived) -> Result<(), Stop> {
    let job = job_for(context, item, Source::Cli).await?;
    let archived = Archived {
        item: Some(job.item),
        ..archived
    };
    if archived.is_expired(job.settings.removal.archive_days) {
        archives::purge(context, &archived).await?;
    }
    Ok(())
}

/// Returns an envelope with nothing but the item, for a request that no event
/// brought.
pub(super) fn envelope_for(item: &ItemRow) -> Envelope {
    use crate::domain::envelope::ItemState;
    let facts = item.facts.clone();
    Envelope {
        event: match item.kind {
            ItemKind::Issue => "issues".to_owned(),
            ItemKind::PullRequest => "pull_request".to_owned(),
        },
        action: None,
        repository: Some(format!("{}/{}", item.name.owner, item.name.repo)),
        sender: None,
        item: Some(ItemState {
            name: item.name.clone(),
            kind: item.kind,
            title: facts.title,
            body: String::new(),
            url: facts.url,
            author: facts.author,
            association: facts.association,
            open: Some(item.open),
            labels: facts.labels,
            draft: facts.draft,
            merged: facts.merged,
            head: facts.head,
            base: facts.base,
        }),
        comment: None,
        label: None,
        before: None,
        after: None,
        url_mismatch: None,
    }
}
