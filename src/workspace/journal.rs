//! The workspace's own memory of a checkout, one file each.
//!
//! A file is written before anything is made, and says what this attempt may
//! have made; it is removed after everything is undone or removed. So after a
//! crash at any point the files tell what is half-made, and by whom: a name
//! alone never proves that something is ours.
//!
//! ```text
//! <vault>/innkeeper/checkouts/<slug>.json = { "version": 1, "phase": …, "record": {…} }
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::WorkspaceError;
use crate::domain::checkout::CheckoutRecord;
use crate::domain::code::FailureCode;
use crate::files;
use crate::process::CrashPoint;

/// Format of the files.
const VERSION: u32 = 1;

/// Where a checkout is in its life, with what is needed to go on or back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Being made; to be undone.
    Preparing {
        /// Where the branch of the record pointed before, if it existed.
        branch_before: Option<String>,
    },
    /// There, and handed out.
    Ready,
    /// Being moved to another commit; to be finished.
    Moving {
        /// The commit it was at.
        from: String,
        /// The commit it is moved to.
        to: String,
    },
    /// On its way out under this id in the trash.
    Removing {
        /// Name below `.trash`, and of git's record below `innkeeper-trash`.
        trash: String,
        /// The archive of what existed only there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        archive: Option<String>,
    },
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    version: u32,
    /// Where it is in its life.
    pub phase: Phase,
    /// Everything that tells it apart.
    pub record: CheckoutRecord,
}

impl Journal {
    /// Returns a journal to be written.
    pub const fn new(phase: Phase, record: CheckoutRecord) -> Self {
        Self {
            version: VERSION,
            phase,
            record,
        }
    }

    /// Writes it, so that it survives a loss of power.
    pub fn write(&self, vault: &Path) -> Result<(), WorkspaceError> {
        let path = path_of(vault, &self.record.slug);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| WorkspaceError::new(FailureCode::Internal, error.to_string()))?;
        files::atomic_write(&path, &text, true)?;
        match &self.phase {
            Phase::Preparing { .. } => CrashPoint::JournalPreparing,
            Phase::Ready => CrashPoint::JournalReady,
            Phase::Moving { .. } => CrashPoint::JournalMoving,
            Phase::Removing { .. } => CrashPoint::JournalRemoving,
        }
        .pass();
        Ok(())
    }

    /// Reads the journal of a slug, if there is one.
    ///
    /// # Errors
    ///
    /// `corrupt` if there is one that cannot be understood; nothing may then be
    /// made or removed under that slug.
    pub fn read(vault: &Path, slug: &str) -> Result<Option<Self>, WorkspaceError> {
        let path = path_of(vault, slug);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(WorkspaceError::io("read", &path, &error)),
        };
        let damaged = |why: String| {
            WorkspaceError::new(
                FailureCode::Corrupt,
                format!("`{}` is damaged: {why}", path.display()),
            )
        };
        let journal: Self = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if journal.version != VERSION || journal.record.slug != slug {
            return Err(damaged("it is of another version or slug".into()));
        }
        Ok(Some(journal))
    }

    /// Forgets a slug: nothing of it is left.
    pub fn remove(vault: &Path, slug: &str) -> Result<(), WorkspaceError> {
        let path = path_of(vault, slug);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(WorkspaceError::io("remove", &path, &error))
            }
            _ => {
                CrashPoint::JournalRemoved.pass();
                Ok(())
            }
        }
    }

    /// Returns the slugs that have a journal.
    pub fn slugs(vault: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(dir_of(vault)) else {
            return Vec::new();
        };
        let mut slugs: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.'))
            .filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()))
            .collect();
        slugs.sort();
        slugs
    }
}

/// Returns what holds the journals of a vault.
pub(super) fn dir_of(vault: &Path) -> PathBuf {
    vault.join("innkeeper/checkouts")
}

fn path_of(vault: &Path, slug: &str) -> PathBuf {
    dir_of(vault).join(format!("{slug}.json"))
}
