//! Leftovers of the staging area.
//!
//! Everything there is ours, and is swept when the root is opened; what is made
//! there since then is finished or taken away by whoever makes it. Only if that
//! failed is something left.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::{carried_out, seconds_since};
use crate::domain::reclaim::{Holding, HoldingKind, judge_unfinished};
use crate::files;
use crate::process::inside::processes_inside;
use crate::workspace::layout::Layout;
use crate::workspace::{Inner, WorkspaceError, blocking};

/// Returns what is in the staging area, and what became of it.
pub(super) async fn staging(
    inner: &Arc<Inner>,
    dry_run: bool,
) -> Result<Vec<Holding>, WorkspaceError> {
    let (layout, limit) = (inner.layout()?.clone(), inner.options.git_timeout.as_secs());
    blocking(move || Ok(sweep(&layout, limit, dry_run))).await
}

fn sweep(layout: &Layout, git_seconds: u64, dry_run: bool) -> Vec<Holding> {
    let Ok(entries) = fs::read_dir(layout.staging()) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| {
            let path = entry.path();
            let age = newest(&path).and_then(seconds_since);
            let is_open = processes_inside(&[&path], &[]).map_or(true, |found| !found.is_empty());
            let judged = judge_unfinished(age, git_seconds, is_open);
            carried_out(HoldingKind::Staging, &path, judged, dry_run, || {
                files::remove_tree(&path)
                    .map(drop)
                    .map_err(|error| error.to_string())
            })
        })
        .collect()
}

/// Returns when anything in a tree was changed last; none if any of it cannot
/// be asked.
fn newest(top: &Path) -> Option<SystemTime> {
    let stat = fs::symlink_metadata(top).ok()?;
    let mut newest = stat.modified().ok()?;
    if stat.is_dir() {
        for entry in fs::read_dir(top).ok()? {
            newest = newest.max(self::newest(&entry.ok()?.path())?);
        }
    }
    Some(newest)
}
