//! Restoring an archive as a repository that stands alone.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::checkout::make_git_dir;
use super::unpack::{compare, set_directory, unpack};
use super::{Loaded, objects, order, placed, submodules};
use crate::domain::checkout::Strategy;
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;
use crate::files;
use crate::workspace::archive::Restored;
use crate::workspace::archive::manifest::{Entry, LOGS, STATE, TREE};
use crate::workspace::repository::Repository;
use crate::workspace::{Inner, WorkspaceError, blocking, clone, nonce, shared, vault};

/// Refuses a directory in which something is. Blocking.
pub(super) fn require_free(root: &Path, directory: &Path) -> Result<(), WorkspaceError> {
    let refused = |code: FailureCode, why: &str| {
        Err(WorkspaceError::new(
            code,
            format!("`{}` {why}", directory.display()),
        ))
    };
    if !directory.is_absolute() || directory.file_name().is_none() {
        return refused(FailureCode::BadInput, "is no absolute path of a directory");
    }
    if directory.starts_with(root) {
        return refused(FailureCode::BadInput, "is below the workspace root");
    }
    match fs::symlink_metadata(directory) {
        Ok(stat) if stat.is_dir() => {
            if fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none()) {
                Ok(())
            } else {
                refused(FailureCode::PathOccupied, "is not empty")
            }
        }
        Ok(_) => refused(FailureCode::PathOccupied, "is no directory"),
        Err(_) => Ok(()),
    }
}

/// Restores it beside and renames it into place.
pub(super) async fn restore(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    target: &RepoTarget,
    directory: &Path,
    cancel: &CancellationToken,
) -> Result<Restored, WorkspaceError> {
    let parent = directory.parent().unwrap_or(directory).to_owned();
    let beside = parent.join(format!(".innkeeper-restore-{}", nonce()));
    let made = fill(inner, repository, loaded, target, &beside, cancel).await;
    let (what, to, from) = (Arc::clone(loaded), directory.to_owned(), beside.clone());
    let placed = match made {
        Ok(()) => blocking(move || in_place(&what, &from, &to)).await,
        Err(error) => Err(error),
    };
    if placed.is_err() {
        let _ = blocking(move || Ok(files::remove_tree(&beside)?)).await;
    }
    let differs = placed.map_err(|error| error.at(directory))?;
    Ok(Restored {
        record: None,
        path: directory.to_owned(),
        differs,
    })
}

async fn fill(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    target: &RepoTarget,
    beside: &Path,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let git = beside.join(".git");
    make_git_dir(&git).await?;
    objects::copy_to(inner, repository, loaded, &git, cancel).await?;
    let config = clone::config(&order(loaded.record(), target)?);
    let (repo, what, tree) = (
        Arc::clone(repository),
        Arc::clone(loaded),
        beside.to_owned(),
    );
    blocking(move || {
        let place = places(&what, &tree, &git);
        for entry in &what.entries {
            // Logs of branches are listed without the directories above them.
            if entry.below(LOGS).is_some()
                && let Some(parent) = place(entry).as_deref().and_then(Path::parent)
            {
                files::create_dirs(parent)?;
            }
        }
        unpack(&what, &repo.vault, &place)?;
        if what.record().strategy == Strategy::Worktree {
            write_refs(&repo, &what, &git)?;
        }
        let kept = shared::harmless_settings(&what.manifest.settings, &config);
        files::create_new(&git.join("config"), format!("{config}{kept}").as_bytes())?;
        submodules::tame(&git.join("modules"))?;
        submodules::reconnect(&what, &tree, &git)
    })
    .await
}

fn places(loaded: &Loaded, tree: &Path, git: &Path) -> impl Fn(&Entry) -> Option<PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let strategy = loaded.record().strategy;
    let (tree, git) = (tree.to_owned(), git.to_owned());
    move |entry| match entry.below(LOGS) {
        Some(path) => Some(git.join("logs").join(OsStr::from_bytes(path))),
        None => placed(&tree, &git, strategy)(entry),
    }
}

/// Writes the refs that a worktree shared with others: its branches, the
/// remote's, its stash entries.
fn write_refs(repository: &Repository, loaded: &Loaded, git: &Path) -> Result<(), WorkspaceError> {
    let manifest = &loaded.manifest;
    let mut lines: Vec<(String, String)> = manifest
        .branches
        .iter()
        .map(|(branch, tip)| (format!("refs/heads/{branch}"), tip.clone()))
        .collect();
    for (branch, tip) in vault::heads(&vault::open(&repository.vault)?)? {
        lines.push((format!("refs/remotes/origin/{branch}"), tip.to_string()));
    }
    if let Some(top) = manifest.stash.first() {
        lines.push(("refs/stash".to_owned(), top.commit.clone()));
    }
    lines.sort_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
    let mut text = String::from("# pack-refs with: sorted \n");
    for (name, id) in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{id} {name}");
    }
    files::create_new(&git.join("packed-refs"), text.as_bytes())?;
    let mut log = String::new();
    let mut before = "0".repeat(40);
    for entry in manifest.stash.iter().rev() {
        let seconds = entry.seconds.clamp(0, i64::from(u32::MAX));
        let _ = writeln!(
            log,
            "{before} {} Innkeeper <innkeeper@localhost> {seconds} +0000\t{}",
            entry.commit, entry.message
        );
        before.clone_from(&entry.commit);
    }
    if !log.is_empty() {
        files::create_dirs(&git.join("logs/refs"))?;
        files::create_new(&git.join("logs/refs/stash"), log.as_bytes())?;
    }
    Ok(())
}

fn in_place(loaded: &Loaded, beside: &Path, to: &Path) -> Result<Vec<String>, WorkspaceError> {
    // An empty directory is what was asked for.
    let _ = fs::remove_dir(to);
    files::rename_noreplace(beside, to)?;
    if let Some(top) = loaded.top(TREE) {
        set_directory(to, top)?;
    }
    let git = to.join(".git");
    let place = places(loaded, to, &git);
    let place = |entry: &Entry| {
        let module = entry
            .below(STATE)
            .is_some_and(|path| path.starts_with(b"modules/") && path.ends_with(b"/config"));
        place(entry).filter(|_| !module && !submodules::is_rewritten(&entry.path.0))
    };
    let tree = loaded.manifest.has_directory.then_some(to);
    Ok(compare(loaded, &place, tree))
}
