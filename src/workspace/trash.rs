//! What was removed and is not deleted yet.
//!
//! ```text
//! <root>/.trash/<id>             renamed, and still to be looked at a second time
//! <root>/.trash/<id>.deleting    nothing in it was at risk; it may be deleted
//! ```
//!
//! Only names with the ending are ever deleted, so a directory that is here
//! because a crash came between two steps is safe whatever else was lost.
//! Deleting is done by one thread of low priority, below opened directories,
//! without following links; what a crash leaves is taken up by the next sweep.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Workspace, WorkspaceError, blocking};
use crate::domain::code::FailureCode;
use crate::files;
use crate::process::CrashPoint;

/// The ending of what may be deleted.
pub(super) const DELETING: &str = ".deleting";

/// How much nicer than the daemon the deleting thread is.
const NICER: i32 = 15;

/// One sweep at a time, in the whole process: more would only compete for the
/// same disk.
static SWEEPING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

impl Workspace {
    /// Deletes what may be deleted, and returns how many bytes that were.
    ///
    /// # Errors
    ///
    /// The first thing that could not be deleted; the rest is, all the same,
    /// and a later sweep tries again.
    pub async fn sweep_trash(&self) -> Result<u64, WorkspaceError> {
        sweep_waiting(self.inner.layout()?.trash()).await
    }
}

/// Deletes what may be deleted once nobody else does.
pub(super) async fn sweep_waiting(trash: PathBuf) -> Result<u64, WorkspaceError> {
    let _one = SWEEPING.lock().await;
    blocking(move || sweep(trash)).await
}

/// Returns what may be deleted, with the bytes that it takes. Blocking.
pub(super) fn listed(trash: &Path) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(trash) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.ends_with(DELETING))
        })
        .map(|entry| {
            let path = entry.path();
            let bytes = files::allocated_bytes(&path, &BTreeSet::new()).unwrap_or(0);
            (path, bytes)
        })
        .collect()
}

/// Returns the name under which `<id>` may be deleted.
pub(super) fn deleting(trash: &Path, id: &str) -> PathBuf {
    trash.join(format!("{id}{DELETING}"))
}

fn sweep(trash: PathBuf) -> Result<u64, WorkspaceError> {
    // A thread of its own, because its niceness cannot be taken back.
    std::thread::Builder::new()
        .name("trash".to_owned())
        .spawn(move || delete_all(&trash))
        .map_err(|error| WorkspaceError::new(FailureCode::Internal, error.to_string()))?
        .join()
        .map_err(|_| WorkspaceError::new(FailureCode::Internal, "deleting ended abnormally"))?
}

fn delete_all(trash: &Path) -> Result<u64, WorkspaceError> {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICER);
    let entries = match fs::read_dir(trash) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(WorkspaceError::io("list", trash, &error)),
    };
    let (mut bytes, mut failed) = (0, None);
    for entry in entries.flatten() {
        let is_done = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.ends_with(DELETING));
        if !is_done {
            continue;
        }
        match files::remove_tree(&entry.path()) {
            Ok(removed) => {
                CrashPoint::TrashSwept.pass();
                bytes += removed.bytes;
            }
            Err(error) => {
                tracing::warn!(path = %entry.path().display(), %error, "Could not delete all of a removed checkout.");
                failed.get_or_insert(error);
            }
        }
    }
    match failed {
        None => Ok(bytes),
        Some(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_marked_is_deleted_and_links_are_not_followed() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| root.path().join(name);
        for dir in ["trash/undecided", "trash/gone.deleting/d", "outside"] {
            fs::create_dir_all(at(dir)).expect("made");
            fs::write(at(dir).join("f"), "12345").expect("written");
        }
        std::os::unix::fs::symlink(at("outside"), at("trash/link.deleting")).expect("linked");
        std::os::unix::fs::symlink(at("outside"), at("trash/gone.deleting/link")).expect("linked");
        let bytes = sweep(at("trash")).expect("swept");
        assert!(bytes >= 5);
        assert!(at("outside/f").exists() && at("trash/undecided/f").exists());
        assert!(!at("trash/gone.deleting").exists());
        assert_eq!(sweep(at("nowhere")).expect("nothing there"), 0);
    }
}
