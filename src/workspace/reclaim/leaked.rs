//! Temporary packs and objects that a git which was killed left behind.
//!
//! A fetch that is given up leaves what it had received. In the vault only our
//! own git writes; in a shared clone agents do, whose processes are asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{carried_out, seconds_since};
use crate::domain::reclaim::{Holding, HoldingKind, Judged, judge_unfinished};
use crate::files;
use crate::process::inside::processes_inside;
use crate::workspace::repository::Repository;
use crate::workspace::{Inner, WorkspaceError, blocking};

/// Returns what is left over in every vault and shared clone, and what became of
/// it.
pub(super) async fn leaked(
    inner: &Arc<Inner>,
    dry_run: bool,
) -> Result<Vec<Holding>, WorkspaceError> {
    let layout = inner.layout()?.clone();
    let known = blocking(move || Ok(layout.known_repositories())).await?;
    let limit = inner.options.git_timeout.as_secs();
    let mut found = Vec::new();
    for names in known {
        let repository = inner.repository_unused(names)?;
        // Whoever holds it fetches, or is about to: what is there may be his.
        let writer = repository.writer.try_lock();
        let is_busy = writer.is_err();
        let repo = Arc::clone(&repository);
        found.extend(blocking(move || Ok(sweep(&repo, limit, is_busy, dry_run))).await?);
        drop(writer);
    }
    Ok(found)
}

fn sweep(repository: &Repository, git_seconds: u64, is_busy: bool, dry_run: bool) -> Vec<Holding> {
    let candidates: Vec<PathBuf> = [&repository.vault, &repository.shared]
        .into_iter()
        .flat_map(|common| temporary(&common.join("objects")))
        .collect();
    candidates
        .into_iter()
        .map(|path| {
            let judged = if is_busy {
                Err("its repository is being fetched or maintained".to_owned())
            } else {
                judge(&path, git_seconds)
            };
            carried_out(HoldingKind::LeakedPack, &path, judged, dry_run, || {
                files::remove_tree(&path)
                    .map(drop)
                    .map_err(|error| error.to_string())
            })
        })
        .collect()
}

fn judge(path: &Path, git_seconds: u64) -> Judged {
    let age = fs::symlink_metadata(path)
        .and_then(|stat| stat.modified())
        .ok()
        .and_then(seconds_since);
    let judged = judge_unfinished(age, git_seconds, false)?;
    let is_open = processes_inside(&[path], &[]).map_or(true, |found| !found.is_empty());
    judge_unfinished(age, git_seconds, is_open).map(|_| judged)
}

/// Returns what git names as temporary among objects, and in the directories
/// that git keeps them in. None of it is reached through a link.
fn temporary(objects: &Path) -> Vec<PathBuf> {
    let mut dirs = vec![objects.to_owned(), objects.join("pack")];
    if let Ok(entries) = fs::read_dir(objects) {
        dirs.extend(
            entries
                .flatten()
                .filter(|entry| entry.file_name().len() == 2)
                .map(|entry| entry.path()),
        );
    }
    dirs.retain(|dir| fs::canonicalize(dir).is_ok_and(|real| real == *dir));
    let mut found: Vec<PathBuf> = dirs
        .iter()
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flat_map(Iterator::flatten)
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("tmp_") || name.starts_with("tmp-")
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_found_where_git_keeps_objects_and_not_through_links() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let top = fs::canonicalize(dir.path()).expect("a real path");
        let objects = top.join("objects");
        for made in [
            "objects/pack",
            "objects/ab",
            "objects/tmp_objdir-incoming-x",
            "outside",
        ] {
            fs::create_dir_all(top.join(made)).expect("made");
        }
        for written in [
            "objects/pack/tmp_pack_1",
            "objects/pack/pack-1.pack",
            "objects/ab/tmp_obj_1",
            "objects/ab/cdef",
            "outside/tmp_pack_2",
        ] {
            fs::write(top.join(written), "x").expect("written");
        }
        std::os::unix::fs::symlink(top.join("outside"), objects.join("cd")).expect("linked");
        assert_eq!(
            temporary(&objects),
            ["ab/tmp_obj_1", "pack/tmp_pack_1", "tmp_objdir-incoming-x"]
                .map(|one| objects.join(one))
        );
    }
}
