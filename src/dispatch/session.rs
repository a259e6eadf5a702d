//! The effects on an item's session: started, handed a text, ended.
//!
//! A session's command runs many times: it is started, and resumed with what
//! has come since. Each run carries the texts that waited for it. A run is
//! planned in the store, then started by a launcher that claims it, so that a
//! daemon that dies in between neither starts it twice nor forgets it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::actor::{Message, RequestWork};
use super::asked::envelope_for;
use super::checkout::Ready;
use super::failure::{Failure, Stop};
use super::job::Job;
use super::settings::Profile;
use super::{Context, LEASE_MS, launching, repository_key};
use crate::domain::code::{FailureCode, Retry};
use crate::domain::envelope::Envelope;
use crate::domain::log_event::{ExitStatus, LogEvent, Source};
use crate::process::CrashPoint;
use crate::session::{RunFiles, RunState};
use crate::store::{SessionRow, SessionState, StoreError, Tx};

/// Where a run takes place.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The checkout's row; none while no workspace is configured.
    pub(super) checkout: Option<i64>,
    /// The checkout, if there is one.
    pub(super) record: Option<crate::domain::checkout::CheckoutRecord>,
    /// The directory.
    pub(super) directory: PathBuf,
}

impl Place {
    fn of(job: &Job, ready: Option<&Ready>) -> Self {
        match ready {
            Some(ready) => Self {
                checkout: Some(ready.row),
                record: Some(ready.record.clone()),
                directory: ready.record.path.clone(),
            },
            None => Self {
                checkout: None,
                record: None,
                directory: job.settings.spawn_workdir.clone(),
            },
        }
    }
}

/// A run that is planned in the store.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) session: String,
    pub(super) profile: String,
    pub(super) run: u32,
    /// Whether the conversation goes on, or begins.
    pub(super) resumes: bool,
}

/// What the store says about a text that is to be handed over.
enum Choice {
    /// It was handed over; the delivery is done.
    Handed,
    /// This run carries it and is to be started.
    Launch(Planned),
    /// Every place is taken.
    Full,
}

/// Returns the item's session that is not over for good.
pub(super) async fn current(job: &Job) -> Result<Option<SessionRow>, StoreError> {
    let item = job.item.id;
    job.context
        .store
        .read(move |reader| reader.current_session(item))
        .await
}

/// Returns the profile of the item's session, if it has one.
pub(super) async fn profile_of_current(job: &Job) -> Result<Option<String>, StoreError> {
    Ok(current(job).await?.map(|row| row.profile))
}

/// Returns the event of the job, or one with nothing but the item.
pub(super) fn envelope_of(job: &Job) -> Envelope {
    job.envelope()
        .cloned()
        .unwrap_or_else(|| envelope_for(&job.item))
}

/// Returns whether fewer sessions run than may.
pub(super) async fn is_place_free(context: &Context) -> Result<bool, StoreError> {
    let limit = context.settings().sessions;
    let (live, _) = context
        .store
        .read(|reader| reader.live_session_counts(""))
        .await?;
    Ok(live < limit)
}

/// Tells that a session was not started because its checkout could not be
/// prepared: it never runs anywhere else.
pub(super) async fn not_spawned(job: &Job, stop: Stop) -> Stop {
    let Stop::Failed(failure) = stop else {
        return stop;
    };
    match tell_not_spawned(job, &failure).await {
        Ok(()) => Stop::Failed(failure),
        Err(error) => Stop::Store(error),
    }
}

async fn tell_not_spawned(job: &Job, failure: &Failure) -> Result<(), StoreError> {
    job.tell(LogEvent::SessionSpawnFailed {
        error: format!("{}: {}", failure.code, failure.message),
        retryable: failure.code.retry() == Retry::Later,
    })
    .await
}

/// Hands the event's text to the item's session: to the live one after its run,
/// else by a run of its own. Finishes the delivery.
pub(super) async fn hand_over(
    job: &Job,
    ready: Option<Ready>,
    profile_name: &str,
    told_to_wait: bool,
    cancel: &CancellationToken,
) -> Result<(), Stop> {
    let Some(profile) = job.settings.profiles.get(profile_name).cloned() else {
        let failure = Failure::new(
            FailureCode::SessionStartFailed,
            format!("the profile `{profile_name}` is not configured any more"),
        );
        return Err(not_spawned(job, failure.into()).await);
    };
    let place = Place::of(job, ready.as_ref());
    let input = launching::Input::of(job, ready.as_ref());
    if let Err(failure) = launching::check(job, &profile, &place, &input) {
        return Err(not_spawned(job, failure.into()).await);
    }
    let text = serde_json::to_string(&input).map_err(StoreError::from)?;
    if cancel.is_cancelled() {
        return Err(Stop::Superseded);
    }
    match choose(job, &place, profile_name, &profile, text, told_to_wait).await? {
        Choice::Handed => Ok(job.finish(|_tx| Ok(())).await?),
        Choice::Full => Err(Stop::ForPlace),
        Choice::Launch(planned) => launch(job, &place, &profile, &planned).await,
    }
}

async fn choose(
    job: &Job,
    place: &Place,
    profile_name: &str,
    profile: &Profile,
    text: String,
    told_to_wait: bool,
) -> Result<Choice, StoreError> {
    let (job, place, profile) = (job.clone(), place.clone(), profile.clone());
    let profile_name = profile_name.to_owned();
    let store = job.context.store.clone();
    store
        .write(move |tx| {
            let claim = job.claim;
            let delivery = job.delivery.as_ref().map(|delivery| delivery.id.as_str());
            let envelope = envelope_of(&job);
            let last = tx.last_session(job.item.id)?;
            if let Some(row) = &last
                && let Some(carried) = already_handed(tx, row, delivery)?
            {
                return Ok(carried);
            }
            let action = envelope.action.as_deref();
            if let Some(row) = last.as_ref().filter(|row| row.state.is_live()) {
                tx.add_input(claim, &row.id, delivery, &envelope.event, action, &text)?;
                tx.append(&job.entry(LogEvent::SessionDelivered {
                    session: row.id.clone(),
                    how: "waits for the end of the run".to_owned(),
                }))?;
                return Ok(Choice::Handed);
            }
            let told_to_wait = told_to_wait || last.as_ref().is_some_and(is_queued);
            let session = session_for(tx, &job, last.as_ref(), &place, &profile_name, &profile)?;
            tx.add_input(claim, &session.0, delivery, &envelope.event, action, &text)?;
            begin(
                tx,
                &job,
                &place,
                &profile_name,
                &profile,
                session,
                told_to_wait,
            )
        })
        .await
}

/// Returns what became of the delivery's text if it was handed over before a
/// crash.
fn already_handed(
    tx: &Tx<'_>,
    row: &SessionRow,
    delivery: Option<&str>,
) -> Result<Option<Choice>, StoreError> {
    let Some(delivery) = delivery else {
        return Ok(None);
    };
    Ok(match tx.has_input_of(&row.id, delivery)? {
        Some(Some(run)) if run == row.run && row.state == SessionState::Starting => {
            Some(Choice::Launch(Planned {
                session: row.id.clone(),
                profile: row.profile.clone(),
                run,
                resumes: tx.was_started_before(&row.id, run)?,
            }))
        }
        Some(Some(_)) => Some(Choice::Handed),
        Some(None) if row.state.is_live() => Some(Choice::Handed),
        Some(None) | None => None,
    })
}

/// Returns the session that the next run belongs to, and whether the run
/// resumes it: the last one if it is still to be started or can be resumed, else
/// a new one in the same place.
fn session_for(
    tx: &mut Tx<'_>,
    job: &Job,
    last: Option<&SessionRow>,
    place: &Place,
    profile_name: &str,
    profile: &Profile,
) -> Result<(String, bool), StoreError> {
    if let Some(row) = last {
        let same_profile = row.profile == profile_name;
        // One whose starts all failed has nothing that could be resumed.
        let started = tx.was_started_before(&row.id, row.run + 1)?;
        if same_profile && !started && row.state != SessionState::Closed {
            return Ok((row.id.clone(), false));
        }
        if same_profile && started && profile.spec.resume.is_some() {
            return Ok((row.id.clone(), true));
        }
    }
    let id = uuid::Uuid::now_v7().to_string();
    let directory = place.directory.display().to_string();
    tx.plan_session(job.claim, &id, place.checkout, profile_name, &directory)?;
    if let Some(row) = last {
        tx.move_waiting_inputs(&row.id, &id)?;
        if row.state != SessionState::Closed {
            tx.set_session_state(&row.id, SessionState::Closed, None)?;
            tx.append(&job.entry(LogEvent::SessionClosed {
                session: row.id.clone(),
                reason: "a new one takes its place".to_owned(),
            }))?;
        }
    }
    Ok((id, false))
}

/// Returns whether it was said of a session that it waits for its first place:
/// also before a restart.
fn is_queued(row: &SessionRow) -> bool {
    row.state == SessionState::Queued
}

/// Begins the next run if a place is free.
fn begin(
    tx: &mut Tx<'_>,
    job: &Job,
    place: &Place,
    profile_name: &str,
    profile: &Profile,
    (session, resumes): (String, bool),
    told_to_wait: bool,
) -> Result<Choice, StoreError> {
    let (all, of_profile) = tx.live_session_counts(profile_name)?;
    let full = if all >= job.settings.sessions {
        Some(format!(
            "{all} sessions run, which is sessions.maxConcurrent"
        ))
    } else {
        profile
            .sessions
            .filter(|limit| of_profile >= *limit)
            .map(|_| {
                format!("{of_profile} sessions of `{profile_name}` run, which is its maxConcurrent")
            })
    };
    if let Some(reason) = full {
        if !told_to_wait {
            tx.append(&job.entry(LogEvent::SessionQueued {
                profile: profile_name.to_owned(),
                session,
                reason,
            }))?;
        }
        return Ok(Choice::Full);
    }
    let directory = place.directory.display().to_string();
    let run = tx.begin_run(job.claim, &session, place.checkout, &directory)?;
    Ok(Choice::Launch(Planned {
        session,
        profile: profile_name.to_owned(),
        run,
        resumes,
    }))
}

/// Starts a planned run, or finds that it was started, and finishes the job.
async fn launch(
    job: &Job,
    place: &Place,
    profile: &Profile,
    planned: &Planned,
) -> Result<(), Stop> {
    CrashPoint::SessionPlanned.pass();
    let launched = match launching::spec(job, place, profile, planned).await {
        Ok(spec) => {
            CrashPoint::SessionPrompt.pass();
            let launched = crate::session::launch(&spec).await;
            launched.map(|_| spec.files).map_err(|error| {
                let code = error.code();
                Failure::new(code, format!("{:#}", anyhow::Error::from(error)))
            })
        }
        Err(failure) => Err(failure),
    };
    CrashPoint::SessionLaunched.pass();
    let (session, run) = (planned.session.clone(), planned.run);
    match launched {
        Ok(files) => {
            let entry = job.entry(started_event(planned, place));
            job.finish(move |tx| {
                tx.set_session_state(&session, SessionState::Running, None)?;
                tx.append(&entry)
            })
            .await?;
            watch(job, files, profile.timeout);
            Ok(())
        }
        Err(failure) => {
            // Whatever is on its way must not start this run any more: the next
            // attempt is another one.
            if let Ok(files) = launching::files(&job.context, &session, run) {
                crate::session::end(&files, Duration::ZERO).await;
            }
            let claim = job.claim;
            let entry = job.entry(LogEvent::SessionSpawnFailed {
                error: failure.message.clone(),
                retryable: failure.code.retry() == Retry::Later,
            });
            job.context
                .store
                .write(move |tx| {
                    tx.run_not_started(claim, &session, run)?;
                    tx.append(&entry)
                })
                .await?;
            job.context.send(Message::PlaceFree);
            Err(failure.into())
        }
    }
}

fn started_event(planned: &Planned, place: &Place) -> LogEvent {
    let (session, profile) = (planned.session.clone(), planned.profile.clone());
    let directory = place.directory.display().to_string();
    if planned.resumes {
        LogEvent::SessionResumed {
            session,
            profile,
            directory,
        }
    } else {
        LogEvent::SessionStarted {
            session,
            profile,
            directory,
        }
    }
}

/// Waits in the background for the end of a run, and has its lane look then.
fn watch(job: &Job, files: RunFiles, timeout: Option<Duration>) {
    let context = Arc::clone(&job.context);
    let grace = job.settings.kill_grace;
    let (lane, repository) = (job.item.slug.clone(), repository_key(&job.item.name));
    let watching = context.watching.clone();
    context.watchers.clone().spawn(async move {
        let limit = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = crate::session::wait(&files, &watching) => {}
            () = limit => {
                tracing::warn!(session = files.session(), "A session has used up its time and is ended.");
                crate::session::end(&files, grace).await;
            }
        }
        if !watching.is_cancelled() {
            let session = files.session().to_owned();
            let work = RequestWork::Settle {
                session,
                told_to_wait: false,
            };
            context.send(Message::Request { lane, repository, work });
        }
    });
}

/// Looks what became of a session's run, stores it, and starts the next run if
/// texts wait for one.
pub(super) async fn settle(
    context: &Arc<Context>,
    session: &str,
    told_to_wait: bool,
) -> Result<(), Stop> {
    let (id, owner) = (session.to_owned(), context.owner.clone());
    let found = context
        .store
        .write(move |tx| {
            let Some(row) = tx.session(&id)? else {
                return Ok(None);
            };
            let claim = tx.claim_item(row.item, &owner, LEASE_MS, true)?;
            Ok(Some((tx.item(row.item)?, claim, row)))
        })
        .await?;
    let Some((item, claim, row)) = found else {
        return Ok(());
    };
    let job = Job {
        context: Arc::clone(context),
        settings: context.settings(),
        item,
        claim,
        delivery: None,
        source: Source::Webhook,
        last_attempt: true,
    };
    if row.state.is_live() && !settle_run(&job, &row).await? {
        return Ok(());
    }
    follow_up(&job, told_to_wait).await
}

/// Stores how a run stands. Returns whether it is over.
async fn settle_run(job: &Job, row: &SessionRow) -> Result<bool, Stop> {
    let files = launching::files(&job.context, &row.id, row.run)?;
    let (id, run) = (row.id.clone(), row.run);
    let resumes = job
        .context
        .store
        .read(move |reader| reader.was_started_before(&id, run))
        .await?;
    let planned = Planned {
        session: row.id.clone(),
        profile: row.profile.clone(),
        run: row.run,
        resumes,
    };
    let profile = job.settings.profiles.get(&row.profile).cloned();
    let place = place_of_row(job, row).await?;
    // A daemon that died right after the start could not tell of it.
    let untold =
        (row.state == SessionState::Starting).then(|| job.entry(started_event(&planned, &place)));
    let (claim, id, run) = (job.claim, row.id.clone(), row.run);
    let store = &job.context.store;
    match crate::session::observe(&files) {
        RunState::NotClaimed => {
            if let Some(profile) = &profile {
                launch(job, &place, profile, &planned).await?;
            } else {
                store
                    .write(move |tx| tx.run_not_started(claim, &id, run))
                    .await?;
                job.context.send(Message::PlaceFree);
            }
            Ok(false)
        }
        RunState::Starting | RunState::Running { .. } => {
            if let Some(untold) = untold {
                store
                    .write(move |tx| {
                        tx.set_session_state(&id, SessionState::Running, None)?;
                        tx.append(&untold)
                    })
                    .await?;
            }
            watch(job, files, profile.and_then(|profile| profile.timeout));
            Ok(false)
        }
        RunState::Exited { status, .. } => {
            run_over(job, row, untold, Some(status)).await?;
            Ok(true)
        }
        RunState::Lost => {
            run_over(job, row, untold, None).await?;
            Ok(true)
        }
        RunState::FailedToStart(error) => {
            let entry = job.entry(LogEvent::SessionSpawnFailed {
                error,
                retryable: true,
            });
            store
                .write(move |tx| {
                    tx.run_not_started(claim, &id, run)?;
                    tx.append(&entry)
                })
                .await?;
            job.context.send(Message::PlaceFree);
            // The texts wait for the next event; a command that cannot be started
            // is not tried over and over.
            Ok(false)
        }
    }
}

/// Stores that a run is over: it exited with a status, or it was lost.
async fn run_over(
    job: &Job,
    row: &SessionRow,
    untold: Option<crate::domain::log_event::Entry>,
    status: Option<ExitStatus>,
) -> Result<(), StoreError> {
    CrashPoint::SessionEnded.pass();
    let session = row.id.clone();
    let (state, event) = match status {
        Some(_) => (
            SessionState::Exited,
            LogEvent::SessionExited {
                session: session.clone(),
                status,
            },
        ),
        None => (
            SessionState::Lost,
            LogEvent::SessionLost {
                session: session.clone(),
            },
        ),
    };
    let entry = job.entry(event);
    job.context
        .store
        .write(move |tx| {
            if let Some(untold) = untold {
                tx.append(&untold)?;
            }
            tx.set_session_state(&session, state, status)?;
            tx.append(&entry)
        })
        .await?;
    CrashPoint::SessionOver.pass();
    job.context.send(Message::PlaceFree);
    Ok(())
}

/// Returns where a session's run takes place, as the store knows it.
async fn place_of_row(job: &Job, row: &SessionRow) -> Result<Place, StoreError> {
    let item = job.item.id;
    let checkout = job
        .context
        .store
        .read(move |reader| reader.live_checkout(item))
        .await?;
    let checkout = checkout.filter(|checkout| Some(checkout.id) == row.checkout);
    Ok(Place {
        checkout: row.checkout,
        record: checkout.and_then(|checkout| checkout.record),
        directory: PathBuf::from(&row.directory),
    })
}

/// Starts the next run of the item's session if none runs, with everything that
/// waits for it.
async fn follow_up(job: &Job, told_to_wait: bool) -> Result<(), Stop> {
    // Not the one whose run ended: while every place was taken, another may have
    // been planned in its stead, with the texts that waited.
    let Some(row) = current(job).await? else {
        return Ok(());
    };
    let id = row.id.clone();
    let waiting = job
        .context
        .store
        .read(move |reader| reader.inputs(&id, None))
        .await?;
    if waiting.is_empty() || row.state.is_live() || !job.item.open {
        return Ok(());
    }
    let Some(profile) = job.settings.profiles.get(&row.profile).cloned() else {
        return Ok(());
    };
    let place = place_of_row(job, &row).await?;
    if place.checkout.is_some() && place.record.is_none() {
        // Its checkout is gone; the next event prepares it again.
        return Ok(());
    }
    let (planning, target, chosen) = (job.clone(), place.clone(), profile.clone());
    let choice = job
        .context
        .store
        .write(move |tx| {
            let told_to_wait = told_to_wait || is_queued(&row);
            let session = session_for(tx, &planning, Some(&row), &target, &row.profile, &chosen)?;
            begin(
                tx,
                &planning,
                &target,
                &row.profile,
                &chosen,
                session,
                told_to_wait,
            )
        })
        .await?;
    match choice {
        Choice::Handed => Ok(()),
        Choice::Full => Err(Stop::ForPlace),
        Choice::Launch(planned) => launch(job, &place, &profile, &planned).await,
    }
}

/// Ends the running command of the item's session; the session can be resumed.
/// Returns whether one ran.
pub(super) async fn end(job: &Job) -> Result<bool, Stop> {
    let Some(row) = current(job).await? else {
        return Ok(false);
    };
    end_run(job, &row).await
}

async fn end_run(job: &Job, row: &SessionRow) -> Result<bool, Stop> {
    if row.run == 0 {
        return Ok(false);
    }
    let files = launching::files(&job.context, &row.id, row.run)?;
    CrashPoint::SessionEnding.pass();
    // Also of a run that is over: what it left behind ends with it.
    let ended = crate::session::end(&files, job.settings.kill_grace).await;
    if !ended.remaining.is_empty() {
        let names: Vec<_> = ended
            .remaining
            .iter()
            .map(|process| format!("{} {}", process.pid, process.name))
            .collect();
        tracing::warn!(session = row.id, processes = ?names, "Processes of the session cannot be ended.");
    }
    if !row.state.is_live() {
        return Ok(false);
    }
    match ended.state {
        RunState::Exited { status, .. } => run_over(job, row, None, Some(status)).await?,
        RunState::NotClaimed | RunState::FailedToStart(_) => {
            let (claim, id, run) = (job.claim, row.id.clone(), row.run);
            job.context
                .store
                .write(move |tx| tx.run_not_started(claim, &id, run))
                .await?;
            job.context.send(Message::PlaceFree);
        }
        RunState::Starting | RunState::Running { .. } | RunState::Lost => {
            run_over(job, row, None, None).await?;
        }
    }
    Ok(true)
}

/// Ends the item's session for good, with everything it started. A reopened
/// item resumes it where its profile can. Returns whether there was one.
pub(super) async fn close(job: &Job, reason: &str) -> Result<bool, Stop> {
    let Some(row) = current(job).await? else {
        return Ok(false);
    };
    end_run(job, &row).await?;
    let entry = job.entry(LogEvent::SessionClosed {
        session: row.id.clone(),
        reason: reason.to_owned(),
    });
    job.context
        .store
        .write(move |tx| {
            tx.set_session_state(&row.id, SessionState::Closed, None)?;
            tx.append(&entry)
        })
        .await?;
    CrashPoint::SessionClosed.pass();
    Ok(true)
}
