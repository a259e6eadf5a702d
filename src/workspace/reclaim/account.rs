//! The account of the root: every byte in exactly one row.
//!
//! A row takes everything below its path that no other row's path is above; the
//! last one takes the rest.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::domain::checkout::CheckoutRecord;
use crate::domain::reclaim::{Fate, Holding, HoldingKind};
use crate::files;
use crate::workspace::journal::Journal;
use crate::workspace::layout::Layout;
use crate::workspace::survey::{entries, strangers};
use crate::workspace::{Workspace, WorkspaceError, blocking, shared};

const ARCHIVE: &str =
    "an archive; it goes when its days are over, `innkeeper archive list` tells more";
const ASIDE: &str = "a damaged shared clone that was set aside; delete it if nothing is missed";
const UNSETTLED: &str =
    "a checkout that the state does not tell of; the next event of its item does";
const STRANGER: &str = "Innkeeper did not make it and leaves it alone";
const OWN: &str = "the daemon's own files, and the directories between all the others";

impl Workspace {
    /// Completes `found`, which [`Workspace::reclaim`] and
    /// [`Workspace::reclaim_regenerable`] gave, with everything else that stands
    /// below the root, and measures it. `checkouts` come with the reason for
    /// which each stays.
    ///
    /// # Errors
    ///
    /// If the root cannot be opened.
    pub async fn account(
        &self,
        found: Vec<Holding>,
        checkouts: Vec<(CheckoutRecord, String)>,
    ) -> Result<Vec<Holding>, WorkspaceError> {
        let inner = self.opened(&CancellationToken::new()).await?;
        blocking(move || {
            let layout = inner.layout()?;
            let mut rows = found;
            complete(layout, &mut rows, checkouts);
            measure(layout.root(), &mut rows);
            Ok(rows)
        })
        .await
    }
}

fn complete(layout: &Layout, rows: &mut Vec<Holding>, checkouts: Vec<(CheckoutRecord, String)>) {
    let mut stays = |kind, path: PathBuf, reason: &str| {
        let is_told = rows.iter().any(|row| row.path == path);
        if !is_told && fs::symlink_metadata(&path).is_ok() {
            rows.push(Holding {
                kind,
                path,
                bytes: 0,
                fate: Fate::Stays,
                reason: reason.to_owned(),
            });
        }
    };
    let (records, reasons): (Vec<_>, Vec<_>) = checkouts.into_iter().unzip();
    for (record, reason) in records.iter().zip(&reasons) {
        if is_below(layout.root(), &record.path) {
            stays(HoldingKind::Checkout, record.path.clone(), reason);
        }
    }
    for names in layout.known_repositories() {
        let vault = layout.vault_dir(&names);
        for slug in Journal::slugs(&vault) {
            if let Ok(Some(journal)) = Journal::read(&vault, &slug) {
                stays(HoldingKind::Checkout, journal.record.path, UNSETTLED);
            }
        }
    }
    for path in strangers(layout, &records) {
        stays(HoldingKind::Foreign, path, STRANGER);
    }
    for slug in entries(&layout.archives()) {
        let dir = layout.archives().join(slug);
        for id in entries(&dir) {
            stays(HoldingKind::Archive, dir.join(id), ARCHIVE);
        }
    }
    for name in entries(&layout.trash()) {
        let why = "on its way out; its removal is gone on with, or undone";
        stays(HoldingKind::Trash, layout.trash().join(name), why);
    }
    for aside in set_aside(layout) {
        stays(HoldingKind::SetAside, aside, ASIDE);
    }
}

/// Whether a path is of something below the root: the store may have been
/// tampered with, and nothing else is to be walked.
fn is_below(root: &Path, path: &Path) -> bool {
    let goes_up = |part| matches!(part, Component::ParentDir);
    path != root && path.starts_with(root) && !path.components().any(goes_up)
}

/// Shared clones of ours without a vault of that name.
fn set_aside(layout: &Layout) -> Vec<PathBuf> {
    let known: BTreeSet<PathBuf> = layout
        .known_repositories()
        .iter()
        .map(|names| layout.repo_dir(names))
        .collect();
    let mut found = Vec::new();
    for host in entries(layout.root()) {
        if host.starts_with('.') {
            continue;
        }
        let host = layout.root().join(host);
        for owner in entries(&host) {
            let owner = host.join(owner);
            for repo in entries(&owner) {
                let dir = owner.join(repo);
                if !known.contains(&dir) && dir.join(shared::MARKER).is_file() {
                    found.push(dir);
                }
            }
        }
    }
    found
}

/// Measures what is on disk, and adds a row for what no other row tells of.
fn measure(root: &Path, rows: &mut Vec<Holding>) {
    let paths: BTreeSet<PathBuf> = rows
        .iter()
        .filter(|row| row.fate != Fate::Reclaimed)
        .map(|row| row.path.clone())
        .collect();
    for row in rows.iter_mut().filter(|row| row.fate != Fate::Reclaimed) {
        row.bytes = files::allocated_bytes(&row.path, &paths).unwrap_or(0);
    }
    rows.push(Holding {
        kind: HoldingKind::Own,
        path: root.to_owned(),
        bytes: files::allocated_bytes(root, &paths).unwrap_or(0),
        fate: Fate::Stays,
        reason: OWN.to_owned(),
    });
    rows.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
}
