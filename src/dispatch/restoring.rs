//! The effect "an archive is restored": as the checkout of its item, where the
//! item's session can go on, or as a repository that stands alone.

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::archives::{self, Archived};
use super::asked::Asked;
use super::checkout::target;
use super::failure::{Failure, Stop};
use super::job::Job;
use super::request::{Answer, RequestError};
use super::{Context, checkout};
use crate::domain::checkout::CheckoutState;
use crate::domain::code::FailureCode;
use crate::domain::log_event::LogEvent;
use crate::process::CrashPoint;
use crate::store::{CheckoutRow, StoreError};
use crate::workspace::Restored;

/// Restores an archive as the checkout of this job's item.
pub(super) async fn into_item(job: &Job, archived: &Archived, cancel: &CancellationToken) -> Asked {
    let id = &archived.summary.id;
    let target = target(job)?;
    let row = match begin(job, archived).await? {
        Ok(row) => row,
        Err(refused) => return Ok(Err(refused)),
    };
    CrashPoint::RestoreBegun.pass();
    let restored = job
        .context
        .workspace(&archived.root)
        .restore(id, &target, cancel)
        .await;
    CrashPoint::RestoreDone.pass();
    let (claim, row) = (job.claim, row.id);
    let restored = match restored {
        Ok(Restored {
            record: Some(record),
            differs,
            ..
        }) => Ok((record, differs)),
        Ok(Restored { record: None, .. }) => Err(Failure::new(
            FailureCode::Internal,
            format!("archive {id} was restored, and nothing tells the checkout apart"),
        )),
        Err(error) => Err(Failure::of_workspace(error)),
    };
    let (record, differs) = match restored {
        Ok(restored) => restored,
        Err(failure) => {
            job.context
                .store
                .write(move |tx| tx.set_checkout_state(claim, row, CheckoutState::Failed))
                .await?;
            return Err(if cancel.is_cancelled() {
                Stop::Superseded
            } else {
                failure.into()
            });
        }
    };
    let checkout = record.path.display().to_string();
    let entry = archived.entry(LogEvent::ArchiveRestored {
        archive: id.clone(),
        checkout: checkout.clone(),
    });
    job.context
        .store
        .write(move |tx| {
            tx.checkout_ready(claim, row, &record)?;
            tx.append(&entry)
        })
        .await?;
    CrashPoint::RestoreStored.pass();
    Ok(Ok(Answer::Restored {
        archive: id.clone(),
        checkout,
        alone: false,
        differs,
    }))
}

/// Stores that the checkout is being made, unless the item has one.
async fn begin(job: &Job, archived: &Archived) -> Result<Result<CheckoutRow, RequestError>, Stop> {
    let record = &archived.summary.record;
    let repository = format!("{}/{}/{}", record.host, record.owner, record.repo);
    let root = archived.root.display().to_string();
    let (claim, strategy) = (job.claim, record.strategy);
    let settings = job.settings.workspace.as_ref();
    let most = settings.map(|workspace| workspace.checkouts);
    let begun = job
        .context
        .store
        .write(move |tx| {
            if let Some(present) = tx.live_checkout(claim.item)? {
                return Ok(Err(Hindrance::Present(Box::new(present))));
            }
            let count = tx.live_checkout_count()?;
            if most.is_some_and(|most| count >= most) {
                return Ok(Err(Hindrance::Quota(count)));
            }
            tx.begin_checkout(claim, &repository, &root, strategy)
                .map(Ok)
        })
        .await?;
    Ok(begun.map_err(|hindrance| hindrance.refusal(job)))
}

/// What stands in the way of another checkout.
enum Hindrance {
    Present(Box<CheckoutRow>),
    Quota(u64),
}

impl Hindrance {
    fn refusal(self, job: &Job) -> RequestError {
        match self {
            Self::Present(row) => {
                let place = row.record.map_or_else(String::new, |record| {
                    format!(" at {}", record.path.display())
                });
                RequestError::Failed {
                    code: FailureCode::PathOccupied,
                    message: format!(
                        "{} has a checkout{place} ({}), which is never replaced; remove it first, or restore into a directory (--to)",
                        job.item.reference,
                        row.state.as_str()
                    ),
                }
            }
            Self::Quota(present) => {
                let Failure { code, message } = checkout::no_more(present);
                RequestError::Failed { code, message }
            }
        }
    }
}

/// Restores an archive as a repository that stands alone, outside of every
/// workspace root.
pub(super) async fn alone(context: &Context, archived: &Archived, to: &Path) -> Asked {
    if is_below_a_root(context, to).await? {
        return Ok(Err(RequestError::Failed {
            code: FailureCode::BadInput,
            message: format!(
                "{} is below a workspace root, where only checkouts stand; choose a directory elsewhere",
                to.display()
            ),
        }));
    }
    let id = &archived.summary.id;
    let restored = context
        .workspace(&archived.root)
        .restore_to(id, to, &CancellationToken::new())
        .await
        .map_err(Failure::of_workspace)?;
    let checkout = restored.path.display().to_string();
    let event = LogEvent::ArchiveRestored {
        archive: id.clone(),
        checkout: checkout.clone(),
    };
    context.store.tell(archived.entry(event)).await?;
    Ok(Ok(Answer::Restored {
        archive: id.clone(),
        checkout,
        alone: true,
        differs: restored.differs,
    }))
}

/// Returns whether a directory is below a root of ours, or would be.
async fn is_below_a_root(context: &Context, directory: &Path) -> Result<bool, StoreError> {
    let roots = archives::roots(context).await?;
    let directory = directory.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let real = resolved(&directory);
        roots
            .iter()
            .any(|root| directory.starts_with(root) || real.starts_with(resolved(root)))
    });
    // A question that cannot be answered is answered with yes.
    Ok(asked.await.unwrap_or(true))
}

/// Returns a path with the links of what is there of it resolved.
fn resolved(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let Ok(real) = there.canonicalize() {
            let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
            return real.join(rest);
        }
    }
    path.to_owned()
}
