//! Archives: made of what exists only in a checkout, read back, restored.
//!
//! ```text
//! <root>/.archive/<slug>/<id>/
//!     objects.bundle      commits, trees and blobs that no remote has; `git fetch` takes it
//!     content.tar.zst     contents of files that git does not hold, byte for byte
//!     files.jsonl.zst     every file, directory and link, with mode, time and hash
//!     manifest.json       what it was, what it needs, and the hash of each part
//!     manifest.sha256     the hash of the manifest, for `sha256sum --check`
//! ```
//!
//! In the vault the objects are pinned below `refs/innkeeper/archive/<id>/`. The
//! bundle holds them a second time: with it an archive outlives the vault, and
//! needs of the remote only what was on the remote.
//!
//! # What is promised
//!
//! 1. An archive is either whole and read back, or not there. What a crash left
//!    of one is taken away at the next start ([`undecided`]).
//! 2. Nothing of the checkout is run or converted: contents are copied as they
//!    are, and git sees them only as blobs that it wrote itself.
//! 3. What cannot be held is a reason to keep the checkout: fifos, sockets and
//!    devices, a nested repository of which a part is elsewhere, more bytes than
//!    an archive may take.
//! 4. A restore brings everything back as it was, but for configuration that
//!    could run something, and hooks: they are in the archive, and stay there.
//!
//! Not held: ignored files that can be made again, owners, extended attributes,
//! and which names were one file.

mod bundle;
mod choose;
mod content;
mod copy;
mod listing;
mod make;
mod manifest;
mod name;
mod pins;
mod restore;
mod shelf;
mod undecided;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub(super) use make::Subject;
pub(super) use undecided::{marks_of, settle};

use super::layout::{Layout, RepoPath};
use super::{Workspace, WorkspaceError, blocking};
use crate::domain::archive::ArchiveSummary;
use crate::domain::checkout::CheckoutRecord;
use crate::domain::reason::{KeepReason, Kept};
use crate::domain::repo_target::RepoTarget;
use undecided::{Mark, State};

/// What came of restoring an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The new checkout of the item; none for a standalone repository.
    pub record: Option<CheckoutRecord>,
    /// Where it is.
    pub path: PathBuf,
    /// What is not as the archive has it, in words. Empty if all of it is.
    pub differs: Vec<String>,
}

/// Why there is no archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It would take more than it may.
    TooBig,
    /// Something cannot be held, or could not be read or written.
    Failed(String),
}

fn too_big() -> Refusal {
    Refusal::TooBig
}

impl Refusal {
    /// Returns it as a reason to keep the checkout.
    pub fn kept(self, bytes_max: u64) -> Kept {
        match self {
            Self::TooBig => Kept::new(
                KeepReason::ArchiveTooBig,
                [format!("it would take more than {bytes_max} bytes")],
            ),
            Self::Failed(why) => Kept::new(KeepReason::ArchiveFailed, [why]),
        }
    }
}

/// Returns where the branches were that an archive holds; none if it cannot be
/// read. Blocking.
pub(super) fn branches(layout: &Layout, id: &str) -> BTreeMap<String, String> {
    match shelf::find(layout, id) {
        Ok((_, manifest)) => manifest.branches,
        Err(error) => {
            tracing::warn!(%error, "The branches of an archive are not known.");
            BTreeMap::new()
        }
    }
}

/// Makes sure that an archive is in its place and its objects are pinned.
/// Blocking.
pub(super) fn require(layout: &Layout, vault: &Path, id: &str) -> Result<(), WorkspaceError> {
    let (_, manifest) = shelf::find(layout, id)?;
    bundle::require_pinned(vault, id, &manifest.pins, &manifest.objects)
}

/// Returns the slugs of which an archive is neither there for good nor gone.
/// Blocking.
pub(super) fn undecided_slugs(vault: &Path) -> BTreeSet<String> {
    let marks = undecided::all(vault).into_iter();
    marks.map(|mark| mark.slug).collect()
}

/// Returns what an archive says of itself. Blocking.
pub(super) fn summary(layout: &Layout, id: &str) -> Result<ArchiveSummary, WorkspaceError> {
    let (dir, manifest) = shelf::find(layout, id)?;
    Ok(shelf::summary(&dir, manifest))
}

/// Returns the archive that was made of a checkout when it was removed.
/// Blocking.
pub(super) fn of_checkout(layout: &Layout, record: &CheckoutRecord) -> Option<ArchiveSummary> {
    super::layout::names_in(&layout.archives().join(&record.slug))
        .into_iter()
        .filter(|id| shelf::is_id(id))
        .filter_map(|id| summary(layout, &id).ok())
        .find(|archive| archive.record.nonce == record.nonce)
}

/// Returns the slug of an archive, and the repository whose vault pins it; which
/// is known without believing the archive. Blocking.
fn owner(layout: &Layout, id: &str) -> Result<(String, Option<RepoPath>), WorkspaceError> {
    let slug = shelf::locate(layout, id)?;
    let pinned = layout.known_repositories().into_iter().find(|names| {
        let pins = super::vault::open(&layout.vault_dir(names))
            .and_then(|vault| bundle::pins_of(&vault, id));
        pins.is_ok_and(|pins| !pins.is_empty())
    });
    Ok((slug, pinned))
}

impl Workspace {
    /// Returns all archives, newest first. One that cannot be read is logged
    /// and left out.
    ///
    /// # Errors
    ///
    /// If the root cannot be opened.
    pub async fn archives(&self) -> Result<Vec<ArchiveSummary>, WorkspaceError> {
        let inner = self.opened(&CancellationToken::new()).await?;
        blocking(move || Ok(shelf::list(inner.layout()?))).await
    }

    /// Returns what an archive says of itself.
    ///
    /// # Errors
    ///
    /// `bad_input` if there is none of this id, `corrupt` if it cannot be read.
    pub async fn archive_summary(&self, id: &str) -> Result<ArchiveSummary, WorkspaceError> {
        let inner = self.opened(&CancellationToken::new()).await?;
        let id = id.to_owned();
        blocking(move || summary(inner.layout()?, &id)).await
    }

    /// Restores an archive as the checkout of its item, at the path of the one
    /// removed, by its strategy. `target` is where its remote is now. The
    /// archive stays.
    ///
    /// # Errors
    ///
    /// `path_occupied` if the item has a checkout; `bad_input` if there is no
    /// such archive; `corrupt` if it is not what was written. Nothing is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels; what was made is undone in the background.
    pub async fn restore(
        &self,
        id: &str,
        target: &RepoTarget,
        cancel: &CancellationToken,
    ) -> Result<Restored, WorkspaceError> {
        let cancel = cancel.child_token();
        let _cancelled_when_dropped = cancel.clone().drop_guard();
        let inner = self.opened(&cancel).await?;
        let (id, target) = (id.to_owned(), target.clone());
        let work = async move { restore::as_checkout(&inner, &id, &target, &cancel).await };
        super::joined(tokio::spawn(work)).await
    }

    /// Restores an archive as a repository that stands alone, into a directory
    /// that does not exist or is empty.
    ///
    /// # Errors
    ///
    /// As for [`Workspace::restore`]; `path_occupied` if something is in the
    /// directory, `bad_input` if its path is not absolute or below the root.
    pub async fn restore_to(
        &self,
        id: &str,
        directory: &Path,
        cancel: &CancellationToken,
    ) -> Result<Restored, WorkspaceError> {
        let cancel = cancel.child_token();
        let _cancelled_when_dropped = cancel.clone().drop_guard();
        let inner = self.opened(&cancel).await?;
        let (id, directory) = (id.to_owned(), directory.to_owned());
        let work = async move { restore::standalone(&inner, &id, &directory, &cancel).await };
        super::joined(tokio::spawn(work)).await
    }

    /// Deletes an archive with its pins, also one that cannot be read any more.
    /// Returns how many bytes it took.
    ///
    /// # Errors
    ///
    /// `bad_input` if there is none of this id.
    pub async fn purge_archive(&self, id: &str) -> Result<u64, WorkspaceError> {
        let cancel = CancellationToken::new();
        let inner = self.opened(&cancel).await?;
        let (name, at) = (id.to_owned(), Arc::clone(&inner));
        let (slug, names) = blocking(move || owner(at.layout()?, &name)).await?;
        let id = id.to_owned();
        let Some(names) = names else {
            // No vault pins it, so there is nothing but the directory.
            return blocking(move || {
                let layout = inner.layout()?;
                let mark = Mark::new(State::Purging, &slug, &id, "");
                mark.drop_directory(layout)
            })
            .await;
        };
        let repository = inner.repository_named(names)?;
        let _one = inner.slug_lock(&repository, &slug, &cancel).await?;
        blocking(move || {
            let mark = Mark::new(State::Purging, &slug, &id, "");
            mark.write(&repository.vault)?;
            mark.drop_archive(inner.layout()?, &repository.vault)
        })
        .await
    }
}
