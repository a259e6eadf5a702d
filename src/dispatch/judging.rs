//! What a comparison of store and disk asks of an item's lane: to finish what
//! is half-done, and to judge a kept checkout again.
//!
//! The comparison was made a while ago, so each looks first whether it is still
//! so. Everything here can be done again and then changes nothing.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::asked::job_for;
use super::closing::{self, Outcome};
use super::failure::{Failure, Stop};
use super::job::Job;
use super::{Context, breaker, checkout, session};
use crate::domain::checkout::{CheckoutRecord, CheckoutState};
use crate::domain::gate::Verdict;
use crate::domain::log_event::{LogEvent, Source};
use crate::domain::reason::{KeepReason, Kept};
use crate::domain::reconcile::Step;
use crate::domain::removal::{Fate, fate};
use crate::store::{CheckoutRow, StoreError};
use crate::workspace::DirectoryState;

/// Does one step for an item; returns whether a checkout was adopted.
pub(super) async fn carry_out(context: &Arc<Context>, item: i64, step: Step) -> Result<bool, Stop> {
    let job = job_for(context, item, Source::Cli).await?;
    let row = context
        .store
        .read(move |reader| reader.live_checkout(item))
        .await?;
    let Some(row) = row else {
        return Ok(false);
    };
    match (step, row.state) {
        (Step::FinishPreparing, CheckoutState::Preparing) => {
            return finish_preparing(&job, &row).await;
        }
        (Step::FinishRemoval, CheckoutState::Removing) => {
            session::close(&job, "closed").await?;
            closing::remove(&job, false, closing::at_risk_unasked(&job)).await?;
        }
        (Step::JudgeAgain, CheckoutState::Ready) if row.kept.is_some() => {
            judge_again(&job, &row).await?;
        }
        (Step::JudgeAgain, CheckoutState::Missing) => forget_missing(&job, &row).await?,
        // Somebody was faster, or it is nothing for a lane.
        _ => {}
    }
    Ok(false)
}

/// A checkout whose preparation was interrupted: its delivery takes it up again;
/// without one it is adopted if it was complete, else nothing is left of it.
async fn finish_preparing(job: &Job, row: &CheckoutRow) -> Result<bool, Stop> {
    let item = job.item.id;
    let waits = job
        .context
        .store
        .read(move |reader| reader.has_pending_delivery(item))
        .await?;
    if waits {
        return Ok(false);
    }
    let recorded = match checkout::target(job) {
        Ok(target) => {
            let workspace = job.context.workspace(Path::new(&row.root));
            workspace.recorded(&target, &job.item.slug).await
        }
        Err(_not_served) => None,
    };
    let (claim, id, adopted) = (job.claim, row.id, recorded.is_some());
    job.context
        .store
        .write(move |tx| match recorded {
            Some(record) => tx.checkout_ready(claim, id, &record),
            None => tx.set_checkout_state(claim, id, CheckoutState::Failed),
        })
        .await?;
    Ok(adopted)
}

/// Asks the removal gate again about a kept checkout of a closed item. It goes
/// if nothing is at risk any more, or may be archived, and the breaker admits it;
/// else the reasons are stored, and told if they are others than before.
async fn judge_again(job: &Job, row: &CheckoutRow) -> Result<(), Stop> {
    let Some(record) = &row.record else {
        return Ok(());
    };
    if !may_be_judged(job).await? {
        return Ok(());
    }
    let inspected = job
        .context
        .workspace(&record.root)
        .inspect(record, &closing::facts_of(job), &CancellationToken::new())
        .await;
    let reasons = match inspected {
        Ok(inspection) => {
            let fate = fate(&inspection.verdict, job.settings.removal.on_close);
            // What could not be archived is tried again when somebody asks, or an
            // event comes: it takes its time.
            let may_go = match fate {
                Fate::Removed => true,
                Fate::Archived => !was_not_archived(row.kept.as_deref().unwrap_or_default()),
                Fate::Kept => false,
            };
            if may_go {
                if breaker::admit(&job.context).await? {
                    closing::remove(job, false, closing::at_risk_unasked(job)).await?;
                }
                return Ok(());
            }
            match inspection.verdict {
                Verdict::Keep(reasons) if fate == Fate::Kept => reasons,
                Verdict::Keep(_) | Verdict::Removable => return Ok(()),
            }
        }
        Err(error) => {
            let Failure { code, message } = Failure::of_workspace(error);
            vec![Kept::new(
                KeepReason::ProbeFailed,
                [format!("{code}: {message}")],
            )]
        }
    };
    Ok(still_kept(job, row, record, reasons).await?)
}

/// Lets go of a checkout of a closed item whose directory is gone for good, if
/// git's record of it holds nothing either.
async fn forget_missing(job: &Job, row: &CheckoutRow) -> Result<(), Stop> {
    let Some(record) = &row.record else {
        return Ok(());
    };
    let state = job
        .context
        .workspace(&record.root)
        .directory_state(record)
        .await;
    if !matches!(state, DirectoryState::Missing) || !may_be_judged(job).await? {
        return Ok(());
    }
    if breaker::admit(&job.context).await? {
        let outcome = closing::remove(job, false, closing::at_risk_unasked(job)).await?;
        debug_assert!(!matches!(outcome, Outcome::None), "there is a row");
    }
    Ok(())
}

/// Returns whether the item's checkout may be looked at again now: nobody wants
/// it, and nothing forbids that it goes.
async fn may_be_judged(job: &Job) -> Result<bool, StoreError> {
    let keeps = job
        .settings
        .workspace
        .as_ref()
        .is_some_and(|workspace| workspace.keep_on_close);
    Ok(!keeps && breaker::read(&job.context).await?.halted.is_none() && is_abandoned(job).await?)
}

/// Returns whether the item is closed and no session of it lives.
pub(super) async fn is_abandoned(job: &Job) -> Result<bool, StoreError> {
    let lives = session::current(job)
        .await?
        .is_some_and(|session| session.state.is_live());
    Ok(!job.item.open && !lives)
}

async fn still_kept(
    job: &Job,
    row: &CheckoutRow,
    record: &CheckoutRecord,
    reasons: Vec<Kept>,
) -> Result<(), StoreError> {
    let news = (!is_same(row.kept.as_deref().unwrap_or_default(), &reasons)).then(|| {
        job.entry(LogEvent::WorkspaceKept {
            checkout: record.path.display().to_string(),
            reasons: reasons.clone(),
        })
    });
    let (claim, id) = (job.claim, row.id);
    job.context
        .store
        .write(move |tx| {
            tx.checkout_kept(claim, id, &reasons)?;
            news.map_or(Ok(()), |entry| tx.append(&entry))
        })
        .await
}

/// Whether archiving was tried and failed.
fn was_not_archived(reasons: &[Kept]) -> bool {
    reasons.iter().any(|kept| {
        matches!(
            kept.code,
            KeepReason::ArchiveTooBig | KeepReason::ArchiveFailed
        )
    })
}

/// Whether two looks saw the same. Processes come and go; that some are there
/// is what counts.
fn is_same(one: &[Kept], other: &[Kept]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            one == other || (one.code == other.code && one.code == KeepReason::InUse)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_are_no_news_and_other_files_are() {
        let kept = |code, path: &str| Kept::new(code, [path]);
        let used = |pid: &str| kept(KeepReason::InUse, pid);
        let file = |path: &str| kept(KeepReason::Untracked, path);
        assert!(is_same(
            &[used("1 sh"), file("a")],
            &[used("2 sh"), file("a")]
        ));
        assert!(!is_same(&[file("a")], &[file("b")]));
        assert!(!is_same(&[file("a")], &[file("a"), used("1 sh")]));
        assert!(!is_same(&[], &[used("1 sh")]));
    }
}
