//! Archives that are neither there for good nor gone: being made, or purged.
//!
//! A mark is written, durably, before the first thing of an archive that is
//! outside the staging area, and removed when its fate is settled. So after a
//! crash it is known which pins and directories belong to one that nobody may
//! rely on; nothing is ever dropped that is not marked.
//!
//! ```text
//! <vault>/innkeeper/archives/<id>.json = { "version": 1, "state": …, "slug": …, "id": …, "nonce": … }
//! ```
//!
//! An archive being made is settled by the checkout's journal. If that still has
//! the checkout it was made of, the archive goes: the checkout stands, and its
//! next removal makes another. If the checkout is gone, the archive stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::shelf;
use crate::domain::code::FailureCode;
use crate::files;
use crate::process::CrashPoint;
use crate::workspace::journal::{Journal, Phase};
use crate::workspace::layout::Layout;
use crate::workspace::{WorkspaceError, trash};

const VERSION: u32 = 1;

/// One mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    version: u32,
    pub state: State,
    pub slug: String,
    pub id: String,
    /// The nonce of the checkout.
    pub nonce: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The checkout it is made of may still be there.
    Making,
    /// It is to go, whatever is left of it.
    Purging,
}

impl Mark {
    pub fn new(state: State, slug: &str, id: &str, nonce: &str) -> Self {
        Self {
            version: VERSION,
            state,
            slug: slug.to_owned(),
            id: id.to_owned(),
            nonce: nonce.to_owned(),
        }
    }

    /// Writes it, so that it survives a loss of power.
    pub fn write(&self, vault: &Path) -> Result<(), WorkspaceError> {
        let dir = marks_of(vault);
        files::create_dirs(&dir)?;
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| WorkspaceError::new(FailureCode::Internal, error.to_string()))?;
        Ok(files::atomic_write(&path_of(vault, &self.id), &text, true)?)
    }

    fn remove(&self, vault: &Path) -> Result<(), WorkspaceError> {
        remove(vault, &self.id)
    }

    /// Takes everything of the archive away, and the mark last. Blocking.
    pub fn drop_archive(&self, layout: &Layout, vault: &Path) -> Result<u64, WorkspaceError> {
        let bytes = self.drop_directory(layout)?;
        super::bundle::unpin(vault, &self.id)?;
        self.remove(vault)?;
        Ok(bytes)
    }

    /// Takes the directory away, out of the list first. Blocking.
    pub fn drop_directory(&self, layout: &Layout) -> Result<u64, WorkspaceError> {
        let dir = shelf::dir_of(layout, &self.slug, &self.id);
        let going = trash::deleting(&layout.trash(), &format!("archive-{}", self.id));
        // Never through a link in the place of one of ours.
        if shelf::is_ours(layout, &self.slug) {
            if fs::symlink_metadata(&dir).is_ok() {
                files::create_dirs(&layout.trash())?;
                files::rename_noreplace(&dir, &going)?;
            }
            files::remove_empty_parents(&dir, &layout.archives());
        }
        let staged = files::remove_tree(&layout.staging().join(&self.id))?;
        let removed = files::remove_tree(&going)?;
        Ok(removed.bytes + staged.bytes)
    }
}

/// Says that an archive is there for good.
pub(super) fn remove(vault: &Path, id: &str) -> Result<(), WorkspaceError> {
    let path = path_of(vault, id);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(WorkspaceError::io("remove", &path, &error))
        }
        _ => {
            CrashPoint::ArchiveSettled.pass();
            Ok(())
        }
    }
}

/// Settles what a crash left of the archives of a slug, whose lock is held.
/// Blocking.
pub(in crate::workspace) fn settle(layout: &Layout, vault: &Path, slug: &str) {
    for mark in all(vault) {
        if slug == mark.slug
            && let Err(error) = settle_one(layout, vault, &mark)
        {
            tracing::warn!(archive = mark.id, %error, "An unfinished archive could not be settled.");
        }
    }
}

fn settle_one(layout: &Layout, vault: &Path, mark: &Mark) -> Result<(), WorkspaceError> {
    if mark.state == State::Making {
        let journal = Journal::read(vault, &mark.slug)?;
        let of_this = journal.filter(|journal| journal.record.nonce == mark.nonce);
        match of_this.map(|journal| journal.phase) {
            // On its way out, with this archive: not settled yet.
            Some(Phase::Removing { archive, .. }) if archive.as_ref() == Some(&mark.id) => {
                return Ok(());
            }
            // The checkout is gone, and this is what it held.
            None if shelf::dir_of(layout, &mark.slug, &mark.id).is_dir() => {
                return mark.remove(vault);
            }
            Some(_) | None => {}
        }
    }
    mark.drop_archive(layout, vault).map(drop)
}

/// Returns the marks that are understood; others are left, and told.
pub(super) fn all(vault: &Path) -> Vec<Mark> {
    let Ok(entries) = fs::read_dir(marks_of(vault)) else {
        return Vec::new();
    };
    let mut marks = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_suffix(".json").filter(|id| shelf::is_id(id)) else {
            continue;
        };
        let read = fs::read(entry.path())
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                serde_json::from_slice::<Mark>(&bytes).map_err(|error| error.to_string())
            });
        match read {
            Ok(mark) if mark.version == VERSION && mark.id == id && shelf::is_slug(&mark.slug) => {
                marks.push(mark);
            }
            Ok(_) => tracing::warn!(archive = id, "The mark of an archive was not understood."),
            Err(error) => {
                tracing::warn!(archive = id, %error, "The mark of an archive was not understood.");
            }
        }
    }
    marks
}

/// Returns what holds the marks of a vault.
pub(in crate::workspace) fn marks_of(vault: &Path) -> PathBuf {
    vault.join("innkeeper/archives")
}

fn path_of(vault: &Path, id: &str) -> PathBuf {
    marks_of(vault).join(format!("{id}.json"))
}
