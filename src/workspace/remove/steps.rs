//! The steps of a removal; each can be done again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::settle::{exists, is_ours, put_back};
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::code::FailureCode;
use crate::files;
use crate::git::ctl;
use crate::process::CrashPoint;
use crate::workspace::journal::{Journal, Phase};
use crate::workspace::landed::Landed;
use crate::workspace::layout::Layout;
use crate::workspace::repository::Repository;
use crate::workspace::update;
use crate::workspace::worktree::{self, holder_of};
use crate::workspace::{WorkspaceError, archive, shared, trash, vault};

/// Writes the journal and renames the directory into the trash. Blocking.
pub(super) fn take_away(
    repository: &Repository,
    record: &CheckoutRecord,
    in_trash: &Path,
    phase: Phase,
) -> Result<(), WorkspaceError> {
    Journal::new(phase, record.clone()).write(&repository.vault)?;
    let renamed = rename_the_one(record, in_trash);
    if renamed.is_err() {
        Journal::new(Phase::Ready, record.clone()).write(&repository.vault)?;
    }
    renamed
}

pub(super) fn rename_the_one(
    record: &CheckoutRecord,
    in_trash: &Path,
) -> Result<(), WorkspaceError> {
    let trash = in_trash.parent().unwrap_or(in_trash);
    if !fs::symlink_metadata(trash).is_ok_and(|stat| stat.is_dir()) {
        return Err(WorkspaceError::new(
            FailureCode::PathOccupied,
            format!("`{}` is no directory", trash.display()),
        ));
    }
    files::rename_noreplace(&record.path, in_trash)?;
    // Between the look and the rename somebody may have exchanged it.
    let is_it = fs::symlink_metadata(in_trash)
        .is_ok_and(|stat| stat.is_dir() && stat.ino() == record.inode);
    if is_it {
        return Ok(());
    }
    put_back(in_trash, record)?;
    Err(WorkspaceError::new(
        FailureCode::PathOccupied,
        format!(
            "`{}` was exchanged while it was looked at",
            record.path.display()
        ),
    ))
}

/// A record without its lock is deleted by anybody's `git worktree prune` as
/// soon as its directory is away.
pub(super) fn keep_locked(admin: &Path, record: &CheckoutRecord) -> Result<(), WorkspaceError> {
    let locked = admin.join("locked");
    if !is_ours(admin, record) || exists(&locked)? {
        return Ok(());
    }
    let text = format!(
        "Innkeeper is removing {} (nonce {})\n",
        record.slug, record.nonce
    );
    Ok(files::create_new(&locked, text.as_bytes())?)
}

/// The step after which a removal is gone through with: the record leaves
/// `worktrees/`; of a clone, the directory gets its mark. Blocking.
pub(super) fn commit(
    layout: &Layout,
    repository: &Repository,
    record: &CheckoutRecord,
    id: &str,
) -> Result<(), WorkspaceError> {
    match record.strategy {
        Strategy::Worktree => drop_record(repository, record, id),
        Strategy::Clone => {
            let trash = layout.trash();
            Ok(files::rename_noreplace(
                &trash.join(id),
                &trash::deleting(&trash, id),
            )?)
        }
    }
}

pub(super) fn drop_record(
    repository: &Repository,
    record: &CheckoutRecord,
    id: &str,
) -> Result<(), WorkspaceError> {
    let aside = records_trash(repository)?.join(id);
    let admin = worktree::admin_dir(repository, &record.slug);
    assert!(is_ours(&admin, record), "only a record of ours is renamed");
    Ok(files::rename_noreplace(&admin, &aside)?)
}

pub(super) fn records_trash(repository: &Repository) -> Result<PathBuf, WorkspaceError> {
    let dir = repository.shared.join(shared::TRASH);
    files::create_dirs(&dir)?;
    if fs::symlink_metadata(&dir).is_ok_and(|stat| stat.is_dir()) {
        return Ok(dir);
    }
    Err(WorkspaceError::new(
        FailureCode::PathOccupied,
        format!("`{}` is no directory", dir.display()),
    ))
}

/// Everything after the record is out of `worktrees/`; can be done again.
/// Blocking.
pub(super) fn finish(
    layout: &Layout,
    repository: &Repository,
    record: &CheckoutRecord,
    id: &str,
    heads: &[String],
    archive: Option<&str>,
) -> Result<(), WorkspaceError> {
    let trash = layout.trash();
    if record.strategy == Strategy::Worktree && exists(&repository.shared)? {
        let archived = archive.map(|id| archive::branches(layout, id));
        drop_branch(repository, record, heads, &archived.unwrap_or_default())?;
        CrashPoint::BranchDropped.pass();
        if exists(&trash.join(id))? {
            files::rename_noreplace(&trash.join(id), &trash::deleting(&trash, id))?;
        }
        CrashPoint::DirectoryMarked.pass();
        files::remove_tree(&records_trash(repository)?.join(id))?;
        CrashPoint::RecordDeleted.pass();
        let admin = worktree::admin_dir(repository, &record.slug);
        if is_ours(&admin, record) {
            return Err(left(&admin));
        }
    }
    if record.strategy == Strategy::Clone {
        // The view through which its branch was moved.
        files::remove_tree(&update::view_of(repository, record))?;
    }
    let stays = fs::symlink_metadata(&record.path).is_ok_and(|stat| {
        stat.is_dir() && stat.ino() == record.inode && stat.dev() == record.device
    });
    if stays {
        return Err(left(&record.path));
    }
    files::remove_empty_parents(&record.path, layout.root());
    Journal::remove(&repository.vault, &record.slug)
}

pub(super) fn left(path: &Path) -> WorkspaceError {
    WorkspaceError::new(
        FailureCode::Internal,
        format!("`{}` is still there", path.display()),
    )
}

/// Deletes the branch that the preparation made: only if nobody else has it,
/// it is not the default branch, and its commits are archived or not at risk; and
/// only at the commit of which that was found. Otherwise it stays.
pub(super) fn drop_branch(
    repository: &Repository,
    record: &CheckoutRecord,
    heads: &[String],
    archived: &BTreeMap<String, String>,
) -> Result<(), WorkspaceError> {
    let Some(branch) = record.branch.as_ref().filter(|_| record.branch_created) else {
        return Ok(());
    };
    let name = format!("refs/heads/{branch}");
    let _one = repository.branch_lock();
    let is_default = vault::default_branch(&repository.vault).as_ref() == Some(branch);
    let own = record.record.as_deref();
    if is_default
        || holder_of(&repository.shared, &name, own).is_some()
        || worktree::is_of_another(repository, record, branch)
    {
        return Ok(());
    }
    ctl::ensure(&repository.ctl, &repository.shared)?;
    let view = vault::open(&repository.ctl)?;
    let Some(tip) = vault::tip(&view, &name)? else {
        return Ok(());
    };
    let landed = Landed {
        ctl: &repository.ctl,
        vault: &repository.vault,
        heads,
    };
    let is_archived = archived.get(branch) == Some(&tip.to_string());
    let is_at_risk = !is_archived
        && !landed
            .at_risk(&BTreeSet::from([tip.to_string()]))
            .map_err(|error| WorkspaceError::new(FailureCode::Internal, error.to_string()))?
            .is_empty();
    if is_at_risk {
        tracing::info!(
            branch,
            "Kept a branch that moved while its checkout was removed."
        );
        return Ok(());
    }
    let mut reference = view.find_reference(&name)?;
    if reference.target() != Some(tip) {
        return Ok(());
    }
    match reference.delete() {
        // Moved meanwhile: it is somebody's.
        Err(error) if error.code() == git2::ErrorCode::Modified => Ok(()),
        deleted => Ok(deleted?),
    }
}
