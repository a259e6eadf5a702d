//! Giving back what is not needed, and accounting for all the rest.
//!
//! # What this module promises
//!
//! 1. Nothing that may be somebody's work is touched: what goes was removed
//!    already, was never finished, or can be made or fetched again, and each
//!    thing's fate is decided in `domain::reclaim`.
//! 2. What goes is named below opened directories or proved by its marker, never
//!    through a link, and never while a process has it open.
//! 3. Every byte below the root is in exactly one row of the account.
//!
//! # The order when the disk is too full
//!
//! Before a preparation is refused: the trash, then what is left over in the
//! staging area, then packs that a killed git left. It is looked after each
//! whether that is enough. Nothing else goes by itself.

mod account;
mod clones;
mod leaked;
mod regenerable;
mod staging;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use super::{Inner, Workspace, WorkspaceError, blocking, trash};
use crate::domain::reclaim::{Fate, Holding, HoldingKind, Judged};

/// How reclaiming is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaiming {
    /// Only look.
    pub dry_run: bool,
    /// Removals are halted: only what was removed or given up already goes.
    pub halted: bool,
}

impl Workspace {
    /// Gives back idle clones, packs that a killed git left, and leftovers of
    /// the staging area, or says what would go. What stays of these kinds is
    /// told with its reason, without its size. What goes by the trash is deleted
    /// by the next sweep.
    ///
    /// # Errors
    ///
    /// If the root cannot be opened. What cannot be removed is told as staying.
    pub async fn reclaim(&self, how: Reclaiming) -> Result<Vec<Holding>, WorkspaceError> {
        let inner = self.opened(&CancellationToken::new()).await?;
        let mut found = clones::clones(&inner, how).await?;
        found.extend(leaked::leaked(&inner, how.dry_run).await?);
        found.extend(staging::staging(&inner, how.dry_run).await?);
        Ok(found)
    }

    /// Empties the trash of what may be deleted, or says what that is.
    ///
    /// # Errors
    ///
    /// If the root cannot be opened. What cannot be deleted is told as staying.
    pub async fn reclaim_trash(&self, dry_run: bool) -> Result<Vec<Holding>, WorkspaceError> {
        let inner = self.opened(&CancellationToken::new()).await?;
        let dir = inner.layout()?.trash();
        let listed = {
            let dir = dir.clone();
            blocking(move || Ok(trash::listed(&dir))).await?
        };
        if !dry_run && !listed.is_empty() {
            // What cannot be deleted is logged, and found again below.
            let _ = self.sweep_trash().await;
        }
        blocking(move || {
            Ok(listed
                .into_iter()
                .map(|(path, bytes)| {
                    let left = path.symlink_metadata().is_ok();
                    let (fate, reason) = match (dry_run, left) {
                        (true, _) => (Fate::Reclaimable, "removed; nothing in it was at risk"),
                        (false, false) => (Fate::Reclaimed, "removed; nothing in it was at risk"),
                        (false, true) => (Fate::Stays, "not all of it could be deleted"),
                    };
                    Holding {
                        kind: HoldingKind::Trash,
                        path,
                        bytes,
                        fate,
                        reason: reason.to_owned(),
                    }
                })
                .collect())
        })
        .await
    }
}

impl Inner {
    /// Gives back what goes by itself, in the order of the module's document,
    /// until `is_enough` says so.
    pub(super) async fn relieve(
        self: &Arc<Self>,
        is_enough: impl Fn() -> bool,
    ) -> Result<(), WorkspaceError> {
        let trash = self.layout()?.trash();
        // What cannot be deleted is logged; the next step may be enough.
        let _ = trash::sweep_waiting(trash).await;
        if is_enough() {
            return Ok(());
        }
        staging::staging(self, false).await?;
        if is_enough() {
            return Ok(());
        }
        leaked::leaked(self, false).await?;
        Ok(())
    }
}

/// Returns the row of something that was judged, and removed if it may go and
/// this is no dry run.
fn carried_out(
    kind: HoldingKind,
    path: &Path,
    judged: Judged,
    dry_run: bool,
    remove: impl FnOnce() -> Result<(), String>,
) -> Holding {
    let row = |fate, reason, bytes| Holding {
        kind,
        path: path.to_owned(),
        bytes,
        fate,
        reason,
    };
    match judged {
        Err(why) => row(Fate::Stays, why, 0),
        Ok(why) if dry_run => row(Fate::Reclaimable, why, 0),
        Ok(why) => {
            let bytes = crate::files::allocated_bytes(path, &std::collections::BTreeSet::new());
            match remove() {
                Ok(()) => row(Fate::Reclaimed, why, bytes.unwrap_or(0)),
                Err(error) => row(Fate::Stays, format!("it could not be removed: {error}"), 0),
            }
        }
    }
}

/// Returns for how many seconds nothing was changed at a time.
fn seconds_since(then: SystemTime) -> Option<u64> {
    crate::clock::since(then).map(|passed: Duration| passed.as_secs())
}
