//! What an earlier attempt or a crash left of a removal, undone or gone through
//! with.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use tokio_util::sync::CancellationToken;

use super::steps::{finish, keep_locked};
use super::{Cleanup, kept};
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::reason::KeepReason;
use crate::files;
use crate::process::CrashPoint;
use crate::workspace::gate::is_same;
use crate::workspace::identity::{NONCE_FILE, read_line};
use crate::workspace::journal::{Journal, Phase};
use crate::workspace::layout::Layout;
use crate::workspace::repository::Repository;
use crate::workspace::worktree;
use crate::workspace::{Inner, WorkspaceError, archive, blocking, shared};

/// See [`crate::workspace::Workspace::recover_removals`]. What is being worked on is waited for.
pub(in crate::workspace) async fn recover(
    inner: &Arc<Inner>,
) -> Result<Vec<String>, WorkspaceError> {
    let shared = Arc::clone(inner);
    let unsettled = blocking(move || {
        let layout = shared.layout()?;
        let mut found = Vec::new();
        for names in layout.known_repositories() {
            let repository = shared.repository_named(names)?;
            let mut slugs = archive::undecided_slugs(&repository.vault);
            slugs.extend(
                Journal::slugs(&repository.vault)
                    .into_iter()
                    .filter(|slug| removing(&repository, slug).is_some()),
            );
            found.extend(
                slugs
                    .into_iter()
                    .map(|slug| (Arc::clone(&repository), slug)),
            );
        }
        Ok(found)
    })
    .await?;
    let mut undone = Vec::new();
    for (repository, slug) in unsettled {
        let _one = inner
            .slug_lock(&repository, &slug, &CancellationToken::new())
            .await?;
        let shared = Arc::clone(inner);
        let settled = blocking(move || {
            let layout = shared.layout()?;
            let mut put_back = None;
            if let Some(journal) = removing(&repository, &slug) {
                match settle(layout, &repository, journal, &[]) {
                    Ok(Settled::PutBack(_)) => put_back = Some(slug.clone()),
                    Ok(Settled::Finished(_)) => {}
                    Err(error) => {
                        tracing::warn!(slug, %error, "A removal that was interrupted could not be settled.");
                    }
                }
            }
            archive::settle(layout, &repository.vault, &slug);
            Ok(put_back)
        });
        undone.extend(settled.await?);
    }
    Ok(undone)
}

/// The journal of a checkout that is on its way out.
pub(super) fn removing(repository: &Repository, slug: &str) -> Option<Journal> {
    let journal = Journal::read(&repository.vault, slug).ok().flatten();
    journal.filter(|journal| matches!(journal.phase, Phase::Removing { .. }))
}

/// Keeps the archive of a checkout that is gone, and takes that of one that
/// stays away: the journal says which.
pub(super) async fn settle_archives(
    layout: &Layout,
    repository: &Arc<Repository>,
    record: &CheckoutRecord,
) -> Result<(), WorkspaceError> {
    let (layout, repository, slug) = (layout.clone(), Arc::clone(repository), record.slug.clone());
    blocking(move || {
        archive::settle(&layout, &repository.vault, &slug);
        Ok(())
    })
    .await
}

/// Where a removal begins.
pub(super) enum Start {
    /// There is nothing to do, or nothing may be done.
    Done(Cleanup),
    /// The directory is gone, what else there is of it is not.
    Missing(CheckoutRecord),
    /// It is in place.
    Ready(CheckoutRecord),
}

/// Brings what an earlier attempt left to one of a few states. Blocking.
pub(super) fn start(
    layout: &Layout,
    repository: &Repository,
    record: &CheckoutRecord,
    heads: &[String],
) -> Result<Start, WorkspaceError> {
    let Some(journal) = Journal::read(&repository.vault, &record.slug)? else {
        let outcome = if exists(&record.path)? {
            kept(
                KeepReason::IdentityMismatch,
                "the workspace does not know it",
            )
        } else {
            archive::settle(layout, &repository.vault, &record.slug);
            gone(layout, record)
        };
        return Ok(Start::Done(outcome));
    };
    if !is_same(&journal.record, record) {
        let why = "the workspace remembers another checkout under its name";
        return Ok(Start::Done(kept(KeepReason::IdentityMismatch, why)));
    }
    let record = match journal.phase.clone() {
        Phase::Ready => {
            archive::settle(layout, &repository.vault, &record.slug);
            journal.record
        }
        Phase::Preparing { .. } => {
            worktree::undo(layout, repository, &record.slug)?;
            return Ok(Start::Done(Cleanup::AlreadyGone));
        }
        Phase::Moving { .. } => {
            let why = "it is being moved to another commit";
            return Ok(Start::Done(kept(KeepReason::ProbeFailed, why)));
        }
        Phase::Removing { .. } => {
            let settled = settle(layout, repository, journal, heads)?;
            archive::settle(layout, &repository.vault, &record.slug);
            match settled {
                Settled::Finished(archive) => {
                    let archive = archive.and_then(|id| archive::summary(layout, &id).ok());
                    return Ok(Start::Done(Cleanup::Cleaned {
                        archive,
                        bytes: None,
                    }));
                }
                Settled::PutBack(record) => *record,
            }
        }
    };
    if !exists(&record.path)? {
        return Ok(Start::Missing(record));
    }
    if record.strategy == Strategy::Worktree {
        keep_locked(&worktree::admin_dir(repository, &record.slug), &record)?;
    }
    Ok(Start::Ready(record))
}

/// What is said of a checkout of which nothing is left: a removal that was
/// interrupted after its last step may not have told of its archive.
pub(super) fn gone(layout: &Layout, record: &CheckoutRecord) -> Cleanup {
    match archive::of_checkout(layout, record) {
        Some(archive) => Cleanup::Cleaned {
            archive: Some(archive),
            bytes: None,
        },
        None => Cleanup::AlreadyGone,
    }
}

/// What became of an interrupted removal.
pub(super) enum Settled {
    /// With the archive that holds what was in it.
    Finished(Option<String>),
    PutBack(Box<CheckoutRecord>),
}

/// Undoes a removal that was interrupted before its record was renamed, and
/// finishes any other. Blocking.
pub(super) fn settle(
    layout: &Layout,
    repository: &Repository,
    journal: Journal,
    heads: &[String],
) -> Result<Settled, WorkspaceError> {
    let Phase::Removing { trash: id, archive } = &journal.phase else {
        return Ok(Settled::PutBack(Box::new(journal.record)));
    };
    let record = &journal.record;
    let in_trash = layout.trash().join(id);
    let nowhere = !exists(&in_trash)? && !exists(&record.path)?;
    let goes_on = match record.strategy {
        Strategy::Worktree => {
            exists(&repository.shared.join(shared::TRASH).join(id))?
                || (nowhere && !is_ours(&worktree::admin_dir(repository, &record.slug), record))
        }
        Strategy::Clone => nowhere,
    };
    if goes_on {
        finish(layout, repository, record, id, heads, archive.as_deref())?;
        return Ok(Settled::Finished(archive.clone()));
    }
    if exists(&in_trash)? {
        put_back(&in_trash, record)?;
    }
    let record = journal.record;
    Journal::new(Phase::Ready, record.clone()).write(&repository.vault)?;
    Ok(Settled::PutBack(Box::new(record)))
}

pub(super) fn put_back(in_trash: &Path, record: &CheckoutRecord) -> Result<(), WorkspaceError> {
    if let Some(parent) = record.path.parent() {
        files::create_dirs(parent)?;
    }
    files::rename_noreplace(in_trash, &record.path)?;
    CrashPoint::RemovalTakenBack.pass();
    Ok(())
}

pub(super) fn is_ours(admin: &Path, record: &CheckoutRecord) -> bool {
    read_line(&admin.join(NONCE_FILE)).is_ok_and(|nonce| nonce == record.nonce)
}

pub(super) fn exists(path: &Path) -> Result<bool, WorkspaceError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(WorkspaceError::io("examine", path, &error)),
    }
}
