//! The effect "the item is over": its session ends with everything it started,
//! and its checkout goes, if nothing in it exists only there or if that was
//! archived.
//!
//! Cleaning up never breaks closing: whatever stands in the way is told as a
//! reason to keep the checkout, and the close is done.

use tokio_util::sync::CancellationToken;

use super::checkout::target;
use super::failure::{Failure, Stop};
use super::job::Job;
use super::{breaker, reconcile, session};
use crate::domain::archive::AtRisk;
use crate::domain::checkout::{CheckoutRecord, CheckoutState};
use crate::domain::log_event::LogEvent;
use crate::domain::reason::{KeepReason, Kept};
use crate::domain::repo_target::RepoTarget;
use crate::process::CrashPoint;
use crate::store::{CheckoutRow, StoreError};
use crate::workspace::{Cleanup, DirectoryState, Facts};

/// What became of the checkout.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// There was none.
    None,
    /// It is gone; what existed only there is in the archive, if there is one.
    Removed {
        checkout: String,
        archive: Option<String>,
    },
    /// It stays.
    Kept {
        checkout: String,
        reasons: Vec<Kept>,
        /// What a consent to archiving and removing it has to name.
        token: Option<String>,
    },
}

/// Ends the item of this job, whose close has come.
pub(super) async fn close(job: &Job) -> Result<Outcome, Stop> {
    session::close(job, "closed").await?;
    let keep = job
        .settings
        .workspace
        .as_ref()
        .is_some_and(|workspace| workspace.keep_on_close);
    remove(job, keep, &job.settings.removal.at_risk).await
}

/// Ends the item of this job because a person asks for it; the configuration
/// does not keep the checkout then.
pub(super) async fn clean_up(job: &Job) -> Result<Outcome, Stop> {
    session::close(job, "cleanup").await?;
    remove(job, false, &job.settings.removal.at_risk).await
}

/// Returns what becomes of work at risk when nobody is there who asks: that of
/// an item that is open was to go because somebody wished it, who would be asked.
pub(super) fn at_risk_unasked(job: &Job) -> &AtRisk {
    if job.item.open {
        &AtRisk::Keep
    } else {
        &job.settings.removal.at_risk
    }
}

/// Removes the item's checkout, if nothing is at risk or if that may be archived
/// and was, and finishes the job.
pub(super) async fn remove(job: &Job, keep: bool, at_risk: &AtRisk) -> Result<Outcome, Stop> {
    let item = job.item.id;
    let row = job
        .context
        .store
        .read(move |reader| reader.live_checkout(item))
        .await?;
    let Some(row) = row else {
        job.finish(|_tx| Ok(())).await?;
        return Ok(Outcome::None);
    };
    let Some(record) = recorded(job, &row).await? else {
        // Nothing was made of it; preparing undid itself.
        let (claim, id) = (job.claim, row.id);
        job.finish(move |tx| tx.set_checkout_state(claim, id, CheckoutState::Removed))
            .await?;
        return Ok(Outcome::None);
    };
    if keep {
        let reasons = vec![Kept::new(
            KeepReason::Configured,
            ["keepCheckoutOnClose is on".to_owned()],
        )];
        return Ok(kept(job, &row, &record, reasons, None).await?);
    }
    if let Some(reasons) = gone_with_others(job, &row, &record).await? {
        return Ok(stays_missing(job, &row, &record, reasons).await?);
    }
    let (claim, id) = (job.claim, row.id);
    job.context
        .store
        .write(move |tx| tx.set_checkout_state(claim, id, CheckoutState::Removing))
        .await?;
    CrashPoint::RemovalBegun.pass();
    let facts = facts_of(job);
    let workspace = job.context.workspace(&record.root);
    // Nothing cancels a removal; it is short, and each state of it is recovered.
    let outcome = workspace
        .cleanup(&record, &facts, at_risk, &CancellationToken::new())
        .await;
    CrashPoint::RemovalDone.pass();
    let checkout = record.path.display().to_string();
    match outcome {
        Ok(Cleanup::Cleaned { archive, bytes }) => {
            let created = archive.as_ref().map(|archive| {
                job.entry(LogEvent::ArchiveCreated {
                    archive: archive.id.clone(),
                    bytes: archive.bytes,
                })
            });
            let archive = archive.map(|archive| archive.id);
            let cleaned = job.entry(LogEvent::WorkspaceCleaned {
                strategy: record.strategy.as_str().to_owned(),
                checkout: checkout.clone(),
                archive: archive.clone(),
                bytes,
            });
            job.finish(move |tx| {
                tx.set_checkout_state(claim, id, CheckoutState::Removed)?;
                for entry in created.iter().chain([&cleaned]) {
                    tx.append(entry)?;
                }
                Ok(())
            })
            .await?;
            Ok(Outcome::Removed { checkout, archive })
        }
        // It was on its way out when a daemon ended, and is out: nobody told.
        Ok(Cleanup::AlreadyGone) if row.state == CheckoutState::Removing => {
            let cleaned = job.entry(LogEvent::WorkspaceCleaned {
                strategy: record.strategy.as_str().to_owned(),
                checkout: checkout.clone(),
                archive: None,
                bytes: None,
            });
            job.finish(move |tx| {
                tx.set_checkout_state(claim, id, CheckoutState::Removed)?;
                tx.append(&cleaned)
            })
            .await?;
            let archive = None;
            Ok(Outcome::Removed { checkout, archive })
        }
        Ok(Cleanup::AlreadyGone) => {
            let entry = job.entry(LogEvent::WorkspaceMissing {
                checkout: checkout.clone(),
            });
            job.finish(move |tx| {
                tx.set_checkout_state(claim, id, CheckoutState::Removed)?;
                tx.append(&entry)
            })
            .await?;
            let archive = None;
            Ok(Outcome::Removed { checkout, archive })
        }
        Ok(Cleanup::Kept { reasons, token }) => Ok(kept(job, &row, &record, reasons, token).await?),
        Err(error) => {
            let Failure { code, message } = Failure::of_workspace(error);
            let reasons = vec![Kept::new(
                KeepReason::ProbeFailed,
                [format!("{code}: {message}")],
            )];
            Ok(kept(job, &row, &record, reasons, None).await?)
        }
    }
}

/// Returns why nothing is concluded from a directory that is gone: many others
/// went with it, or everything that is known of its repository, as when a disk
/// is not mounted. An operator may say that it is gone all the same.
async fn gone_with_others(
    job: &Job,
    row: &CheckoutRow,
    record: &CheckoutRecord,
) -> Result<Option<Vec<Kept>>, StoreError> {
    let workspace = job.context.workspace(&record.root);
    let state = workspace.directory_state(record).await;
    if !matches!(state, DirectoryState::Missing) {
        return Ok(None);
    }
    let halt = reconcile::look_for_vanished(&job.context).await?;
    let resumed_at = breaker::read(&job.context).await?.resumed_at;
    let is_given_up = row.state == CheckoutState::Missing && row.updated_at <= resumed_at;
    let why = match halt {
        Some(halt) => format!("removals are halted: {}", halt.sentence()),
        None if row.state == CheckoutState::Removing || is_given_up => return Ok(None),
        None if workspace.has_vault(record).await => return Ok(None),
        None => "so is all that was fetched of its repository, as if a disk were not mounted; \
                 `innkeeper gc --resume-removals` says that it is gone for good"
            .to_owned(),
    };
    let why = format!("its directory is gone, and {why}");
    Ok(Some(vec![Kept::new(KeepReason::ProbeFailed, [why])]))
}

/// Finishes the job and leaves a missing checkout what it is.
async fn stays_missing(
    job: &Job,
    row: &CheckoutRow,
    record: &CheckoutRecord,
    reasons: Vec<Kept>,
) -> Result<Outcome, StoreError> {
    let checkout = record.path.display().to_string();
    let entry = job.entry(LogEvent::WorkspaceKept {
        checkout: checkout.clone(),
        reasons: reasons.clone(),
    });
    // One that is on its way out is tried again in every round.
    let is_news = row.state != CheckoutState::Removing;
    let (claim, id, stored) = (job.claim, row.id, reasons.clone());
    job.finish(move |tx| {
        if is_news {
            tx.note_kept(claim, id, &stored)?;
            tx.append(&entry)?;
        }
        Ok(())
    })
    .await?;
    Ok(Outcome::Kept {
        checkout,
        reasons,
        token: None,
    })
}

/// Returns what authentic payloads said that bears on whether work has landed.
pub(super) fn facts_of(job: &Job) -> Facts {
    let name = &job.item.name;
    Facts {
        merged: job.item.facts.merged,
        heads: job.item.facts.heads.clone(),
        // A host that is not served any more cannot be asked; what is known of
        // its remote stands.
        target: target(job).unwrap_or_else(|_not_served| RepoTarget {
            host: name.host.clone(),
            owner: name.owner.clone(),
            repo: name.repo.clone(),
            clone_url: String::new(),
        }),
        own_processes: Vec::new(),
    }
}

/// Returns the identity of a checkout: the store's, or for one whose
/// preparation was interrupted the workspace's own.
async fn recorded(job: &Job, row: &CheckoutRow) -> Result<Option<CheckoutRecord>, Stop> {
    if row.record.is_some() {
        return Ok(row.record.clone());
    }
    let target = target(job)?;
    let workspace = job.context.workspace(std::path::Path::new(&row.root));
    Ok(workspace.recorded(&target, &job.item.slug).await)
}

async fn kept(
    job: &Job,
    row: &CheckoutRow,
    record: &CheckoutRecord,
    reasons: Vec<Kept>,
    token: Option<String>,
) -> Result<Outcome, StoreError> {
    let checkout = record.path.display().to_string();
    let entry = job.entry(LogEvent::WorkspaceKept {
        checkout: checkout.clone(),
        reasons: reasons.clone(),
    });
    let (claim, id) = (job.claim, row.id);
    let (stored, record) = (reasons.clone(), record.clone());
    let unknown = row.record.is_none();
    job.finish(move |tx| {
        if unknown {
            tx.checkout_ready(claim, id, &record)?;
        }
        tx.checkout_kept(claim, id, &stored)?;
        tx.append(&entry)
    })
    .await?;
    Ok(Outcome::Kept {
        checkout,
        reasons,
        token,
    })
}
