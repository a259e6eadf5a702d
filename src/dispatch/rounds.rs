//! Rounds: store, disk, git's records and processes compared while the daemon
//! works, every so often and whenever somebody asks.
//!
//! A round holds up no lane. It looks at names and small files only, however
//! many checkouts there are; what follows is asked of lanes, one at a time, and
//! takes its turn there. Kept checkouts are judged again, those that were
//! judged longest ago first, and only so many in one round.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::actor::{Message, RequestWork};
use super::reconcile::{self, ForLane};
use super::{Context, launching, repository_key};
use crate::clock;
use crate::domain::log_event::{Entry, LogEvent};
use crate::domain::reconcile::{Occasion, Step, Tally, WORKED_ON_MS};
use crate::session::RunState;
use crate::store::{ItemRow, StoreError};

/// The most kept checkouts that are judged in one round: each is looked at
/// whole.
const JUDGED_MAX: usize = 32;

/// How long a round waits for one step in a lane that is busy; the step is done
/// when its turn comes, the round goes on.
const STEP_PATIENCE: Duration = Duration::from_secs(60);

/// Runs rounds until the dispatcher ends.
pub(super) async fn run(context: Arc<Context>) {
    let mut settings = context.settings.clone();
    let watching = context.watching.clone();
    let rounds = async {
        let mut last = tokio::time::Instant::now();
        loop {
            let every = settings
                .borrow_and_update()
                .workspace
                .as_ref()
                .map(|workspace| workspace.reconcile_every);
            let due = async {
                match every {
                    Some(every) => tokio::time::sleep_until(last + every).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                Ok(()) = settings.changed() => continue,
            }
            if let Err(error) = round(&context).await {
                tracing::warn!(
                    error = format!("{:#}", anyhow::Error::from(error)),
                    "A comparison of store and disk was not finished; the next one is."
                );
            }
            last = tokio::time::Instant::now();
        }
    };
    tokio::select! {
        () = rounds => {}
        () = watching.cancelled() => {}
    }
}

/// Compares everything once, waits for what follows, and returns what it found.
pub(super) async fn round(context: &Arc<Context>) -> Result<Tally, StoreError> {
    let _one = context.rounds.lock().await;
    let mut tally = Tally::default();
    sessions(context, &mut tally).await?;
    let mut steps = reconcile::compare(context, Occasion::Round, &mut tally).await?;
    // Those that were judged longest ago come first.
    steps.sort_by_key(|one| (one.step == Step::JudgeAgain, one.since));
    let unfinished = steps
        .iter()
        .filter(|one| one.step != Step::JudgeAgain)
        .count();
    steps.truncate(unfinished + JUDGED_MAX);
    tally.finished += unfinished as u64;
    for ForLane { item, step, .. } in steps {
        let (done, ended) = oneshot::channel();
        ask(
            context,
            &item,
            RequestWork::Reconcile {
                item: item.id,
                step,
                done,
            },
        );
        // It goes on when nobody waits any more.
        let _late_or_ended = tokio::time::timeout(STEP_PATIENCE, ended).await;
    }
    tell(context, tally).await?;
    Ok(tally)
}

/// Runs that are over though nobody noticed, as when whatever watched them
/// failed: they are settled in their lanes.
async fn sessions(context: &Arc<Context>, tally: &mut Tally) -> Result<(), StoreError> {
    let live = context
        .store
        .read(|reader| {
            let rows = reader.sessions(true, u32::MAX)?;
            rows.into_iter()
                .map(|row| Ok((reader.item(row.item)?, row)))
                .collect::<Result<Vec<_>, StoreError>>()
        })
        .await?;
    let now = clock::now_ms();
    for (item, row) in live {
        let is_fresh = now - row.updated_at < WORKED_ON_MS;
        if is_fresh || is_running(context, &row.id, row.run) {
            continue;
        }
        tally.finished += 1;
        ask(
            context,
            &item,
            RequestWork::Settle {
                session: row.id,
                told_to_wait: false,
            },
        );
    }
    Ok(())
}

/// Whether a session's command runs, by its own files and processes.
pub(super) fn is_running(context: &Context, session: &str, run: u32) -> bool {
    launching::files(context, session, run)
        .is_ok_and(|files| matches!(crate::session::observe(&files), RunState::Running { .. }))
}

/// Puts work into an item's lane.
pub(super) fn ask(context: &Context, item: &ItemRow, work: RequestWork) {
    context.send(Message::Request {
        lane: item.slug.clone(),
        repository: repository_key(&item.name),
        work,
    });
}

/// Tells what a comparison found.
pub(super) async fn tell(context: &Context, tally: Tally) -> Result<(), StoreError> {
    let Tally {
        adopted,
        finished,
        missing,
        foreign,
    } = tally;
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
