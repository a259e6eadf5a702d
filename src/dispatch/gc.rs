//! Giving back what nobody needs, and accounting for every byte below the root.
//!
//! Store and disk are compared first, so that what is told is true. What may go
//! is decided in `domain::reclaim` and done by the workspace; what is inside a
//! checkout takes its turn in the item's lane, so that no session starts there
//! meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::actor::RequestWork;
use super::asked::job_for;
use super::failure::{Failure, Stop};
use super::{Context, Dispatcher, breaker, judging, rounds};
use crate::domain::breaker::Halt;
use crate::domain::checkout::CheckoutState;
use crate::domain::code::FailureCode;
use crate::domain::log_event::Source;
use crate::domain::reclaim::{Fate, Holding};
use crate::domain::reconcile::Tally;
use crate::store::{CheckoutRow, ItemRow, StoreError};
use crate::workspace::{Reclaiming, WorkspaceError};

/// How long a lane that is busy is waited for.
const LANE_PATIENCE: Duration = Duration::from_secs(60);

/// How it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcRequest {
    /// Change nothing, only say what would go.
    pub dry_run: bool,
    /// First let removals go on that were halted.
    pub resume_removals: bool,
}

/// What stands below the roots, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The roots that were looked at.
    pub roots: Vec<PathBuf>,
    /// Everything below them: each byte is in one of these.
    pub holdings: Vec<Holding>,
    /// Bytes that are there.
    pub total_bytes: u64,
    /// Of those: what could be given back.
    pub reclaimable_bytes: u64,
    /// Bytes that were given back.
    pub reclaimed_bytes: u64,
    /// What the comparison found that came first; a dry run has none.
    pub reconciled: Option<Tally>,
    /// What halts removals, if they are halted.
    pub halted: Option<Halt>,
    /// What had halted removals until now.
    pub resumed: Option<Halt>,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// The root could not be used.
    #[error("{message}")]
    Workspace {
        /// Why, for programs.
        code: FailureCode,
        /// Why, for people.
        message: String,
    },
    /// The state could not be read or written.
    #[error("the daemon's state could not be read or written")]
    Store(#[from] StoreError),
}

impl From<WorkspaceError> for GcError {
    fn from(error: WorkspaceError) -> Self {
        let Failure { code, message } = Failure::of_workspace(error);
        Self::Workspace { code, message }
    }
}

/// The checkouts below one root, with their items.
type Checkouts = Vec<(CheckoutRow, ItemRow)>;

impl Dispatcher {
    /// Compares store and disk, gives back what nobody needs, and accounts for
    /// the rest. A dry run only accounts.
    ///
    /// # Errors
    ///
    /// Returns [`GcError`] if a root or the state cannot be read; what was given
    /// back until then is.
    pub async fn gc(&self, asked: GcRequest) -> Result<GcReport, GcError> {
        let context = &self.context;
        let _one = context.reclaiming.lock().await;
        let resumed = if asked.resume_removals {
            breaker::resume(context).await?
        } else {
            None
        };
        let reconciled = if asked.dry_run {
            None
        } else {
            Some(rounds::round(context).await?)
        };
        let halted = breaker::read(context).await?.halted;
        let mut report = GcReport {
            dry_run: asked.dry_run,
            reconciled,
            resumed,
            ..GcReport::default()
        };
        for (root, checkouts) in by_root(context).await? {
            let how = Reclaiming {
                dry_run: asked.dry_run,
                halted: halted.is_some(),
            };
            let found = below(context, &root, checkouts, how).await?;
            report.holdings.extend(found);
            report.roots.push(root);
        }
        for one in &report.holdings {
            match one.fate {
                Fate::Reclaimed => report.reclaimed_bytes += one.bytes,
                Fate::Reclaimable => {
                    report.reclaimable_bytes += one.bytes;
                    report.total_bytes += one.bytes;
                }
                Fate::Stays => report.total_bytes += one.bytes,
            }
        }
        report.halted = halted;
        Ok(report)
    }
}

async fn by_root(context: &Context) -> Result<BTreeMap<PathBuf, Checkouts>, StoreError> {
    let rows = context
        .store
        .read(|reader| {
            let rows = reader.live_checkouts()?;
            rows.into_iter()
                .map(|row| Ok((reader.item(row.item)?, row)))
                .collect::<Result<Vec<_>, StoreError>>()
        })
        .await?;
    let mut roots: BTreeMap<PathBuf, Checkouts> = BTreeMap::new();
    if let Some(workspace) = &context.settings().workspace {
        roots.entry(workspace.root.clone()).or_default();
    }
    for (item, row) in rows {
        let root = roots.entry(PathBuf::from(&row.root)).or_default();
        root.push((row, item));
    }
    Ok(roots)
}

async fn below(
    context: &Arc<Context>,
    root: &std::path::Path,
    checkouts: Checkouts,
    how: Reclaiming,
) -> Result<Vec<Holding>, GcError> {
    let workspace = context.workspace(root);
    // First, as what goes below comes by there too.
    let mut found = workspace.reclaim_trash(how.dry_run).await?;
    for (row, item) in &checkouts {
        if !item.open && row.kept.is_some() && row.state == CheckoutState::Ready && !how.halted {
            found.extend(regenerable(context, item, how.dry_run).await?);
        }
    }
    found.extend(workspace.reclaim(how).await?);
    if !how.dry_run
        && let Err(error) = workspace.sweep_trash().await
    {
        tracing::warn!(%error, "Not all that was given back could be deleted; the next sweep tries again.");
    }
    let reasons = checkouts
        .into_iter()
        .filter_map(|(row, item)| Some((row.record.clone()?, why_it_stays(&row, &item))))
        .collect();
    Ok(workspace.account(found, reasons).await?)
}

/// Asks the item's lane to give back what can be made again. A dry run changes
/// nothing and need not wait.
async fn regenerable(
    context: &Arc<Context>,
    item: &ItemRow,
    dry_run: bool,
) -> Result<Vec<Holding>, StoreError> {
    if dry_run {
        return match tidy(context, item.id, true).await {
            Ok(found) => Ok(found),
            Err(Stop::Store(error)) => Err(error),
            Err(_told) => Ok(Vec::new()),
        };
    }
    let (answer, answered) = oneshot::channel();
    let work = RequestWork::Tidy {
        item: item.id,
        answer,
    };
    rounds::ask(context, item, work);
    match tokio::time::timeout(LANE_PATIENCE, answered).await {
        Ok(Ok(found)) => Ok(found),
        // It could not be done, which is logged, or the lane is busy: it is done
        // when its turn comes.
        Ok(Err(_)) | Err(_) => Ok(Vec::new()),
    }
}

/// Gives back what can be made again in a kept checkout of a closed item in
/// which nobody works.
pub(super) async fn tidy(
    context: &Arc<Context>,
    item: i64,
    dry_run: bool,
) -> Result<Vec<Holding>, Stop> {
    let job = job_for(context, item, Source::Cli).await?;
    let row = context
        .store
        .read(move |reader| reader.live_checkout(item))
        .await?;
    let Some(record) = row
        .filter(|row| row.state == CheckoutState::Ready && row.kept.is_some())
        .and_then(|row| row.record)
    else {
        return Ok(Vec::new());
    };
    if !judging::is_abandoned(&job).await? {
        return Ok(Vec::new());
    }
    let found = context
        .workspace(&record.root)
        .reclaim_regenerable(&record, dry_run, &CancellationToken::new())
        .await;
    Ok(found.unwrap_or_else(|error| {
        tracing::warn!(
            work_item = job.item.reference,
            %error,
            "What can be made again in this checkout could not be looked for."
        );
        Vec::new()
    }))
}

fn why_it_stays(row: &CheckoutRow, item: &ItemRow) -> String {
    let reference = &item.reference;
    match row.state {
        CheckoutState::Preparing => format!("it is being prepared for {reference}"),
        CheckoutState::Removing => format!("it is on its way out; {reference} is over"),
        _ if item.open => format!("{reference} is open"),
        _ => match &row.kept {
            Some(kept) => {
                let words: Vec<String> = kept
                    .iter()
                    .map(|kept| format!("{} ({})", kept.code, kept.count))
                    .collect();
                format!("{reference} is closed, kept for: {}", words.join(", "))
            }
            None => format!("{reference} is closed; nobody has asked for its removal since"),
        },
    }
}
