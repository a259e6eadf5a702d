//! Removing a checkout, if the gate says that nothing in it is at risk.
//!
//! | step | journal | directory | git's record |
//! | --- | --- | --- | --- |
//! | look, every file hashed | ready | in place | in place |
//! | say that it goes | removing | in place | in place |
//! | rename the directory | removing | `.trash/<id>` | in place |
//! | look again; put back if anything is another | removing | `.trash/<id>` | in place |
//! | rename the record | removing | `.trash/<id>` | `innkeeper-trash/<id>` |
//! | branch, by compare and delete | removing | `.trash/<id>` | `innkeeper-trash/<id>` |
//! | mark the directory, delete the record | removing | `.trash/<id>.deleting` | gone |
//! | see that everything is gone | none | deleted in the background | gone |
//!
//! A clone has no record; for it the mark takes the place of that rename. Up to
//! that rename a crash is undone, from it on it is gone through with: both are
//! done by whoever comes next, [`Workspace::cleanup`] or
//! [`Workspace::recover_removals`].
//!
//! If something is at risk and may be archived, that is done after the first
//! look; the archive is there for good once the removal is gone through with, and
//! is taken away again if it is undone ([`super::archive`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::archive::{Refusal, Subject};
use super::gate::{
    Answer, Facts, Gate, Seen, Sight, fingerprint, inside, is_same, reasons, require_names,
};
use super::identity::{Located, NONCE_FILE, read_line};
use super::journal::{Journal, Phase};
use super::landed::Landed;
use super::layout::Layout;
use super::probe::asked::{Form, Status};
use super::probe::operation::operations;
use super::probe::private::Private;
use super::probe::read::{SMALL_BYTES_MAX, read_if_present};
use super::probe::status::Entry;
use super::probe::submodule::{self, Asker};
use super::probe::tips;
use super::probe::walk::walk_git_dir;
use super::repository::Repository;
use super::worktree::{self, holder_of};
use super::{Inner, Workspace, WorkspaceError, archive, blocking, shared, trash, vault};
use crate::domain::archive::{ArchiveSummary, AtRisk, Decision, decide};
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::code::FailureCode;
use crate::domain::gate::Verdict;
use crate::domain::reason::{KeepReason, Kept};
use crate::domain::repo_target::RepoTarget;
use crate::files;
use crate::git::ctl;

/// What became of a checkout that was to go.
#[allow(clippy::large_enum_variant)] // it is made once a removal, and never kept
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Directory, record and branch are gone.
    Cleaned {
        /// The archive of what existed only there.
        archive: Option<ArchiveSummary>,
        /// How many bytes it took, if that is known.
        bytes: Option<u64>,
    },
    /// It stays as it is.
    Kept {
        /// Why.
        reasons: Vec<Kept>,
        /// The fingerprint of what was seen, which [`AtRisk::Consent`] takes;
        /// none if consent would not help.
        token: Option<String>,
    },
    /// There was nothing left to remove.
    AlreadyGone,
}

/// A change this recent may have the time stamp of an earlier look: kernels
/// take a file's time from a clock that goes on every 10 ms at the slowest.
const RECENT_NS: i128 = 50_000_000;
/// The same on file systems that keep whole seconds.
const RECENT_COARSE_NS: i128 = 2_000_000_000;

impl Workspace {
    /// Removes a checkout if nothing in it is at risk, or if what is at risk
    /// may be archived and was.
    ///
    /// Can be called again at any time: what an earlier call or a crash left
    /// half-done is first undone or gone through with.
    ///
    /// # Errors
    ///
    /// If it could be neither removed nor put back, or was cancelled. Nothing
    /// is lost; a later call goes on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels it; what was begun is put back or finished
    /// in the background.
    pub async fn cleanup(
        &self,
        record: &CheckoutRecord,
        facts: &Facts,
        at_risk: &AtRisk,
        cancel: &CancellationToken,
    ) -> Result<Cleanup, WorkspaceError> {
        let cancel = cancel.child_token();
        let _cancelled_when_dropped = cancel.clone().drop_guard();
        let inner = self.opened(&cancel).await?;
        let (this, record, facts, at_risk) =
            (self.clone(), record.clone(), facts.clone(), at_risk.clone());
        let work = async move {
            let outcome = remove(&inner, &record, &facts, &at_risk, &cancel).await?;
            if let Cleanup::Cleaned { .. } = outcome {
                tokio::spawn(async move {
                    // Told in the log; the next sweep tries again.
                    let _ = this.sweep_trash().await;
                });
            }
            Ok(outcome)
        };
        super::joined(tokio::spawn(work)).await
    }

    /// Removes a checkout that is a worktree; see [`Workspace::cleanup`].
    ///
    /// # Errors
    ///
    /// `bad_input` for one that is none; otherwise as for `cleanup`.
    pub async fn remove_worktree(
        &self,
        record: &CheckoutRecord,
        facts: &Facts,
        at_risk: &AtRisk,
        cancel: &CancellationToken,
    ) -> Result<Cleanup, WorkspaceError> {
        require_strategy(record, Strategy::Worktree)?;
        self.cleanup(record, facts, at_risk, cancel).await
    }

    /// Removes a checkout that is a clone; see [`Workspace::cleanup`].
    ///
    /// # Errors
    ///
    /// `bad_input` for one that is none; otherwise as for `cleanup`.
    pub async fn remove_workitem_clone(
        &self,
        record: &CheckoutRecord,
        facts: &Facts,
        at_risk: &AtRisk,
        cancel: &CancellationToken,
    ) -> Result<Cleanup, WorkspaceError> {
        require_strategy(record, Strategy::Clone)?;
        self.cleanup(record, facts, at_risk, cancel).await
    }

    /// Undoes or finishes the removals that a crash interrupted, and returns
    /// the slugs of those that were undone: they are ready again, and to be
    /// judged again.
    ///
    /// # Errors
    ///
    /// If the root is not open. What cannot be settled is logged and left.
    pub async fn recover_removals(&self) -> Result<Vec<String>, WorkspaceError> {
        recover(&self.inner).await
    }
}

/// See [`Workspace::recover_removals`].
pub(super) async fn recover(inner: &Arc<Inner>) -> Result<Vec<String>, WorkspaceError> {
    let shared = Arc::clone(inner);
    blocking(move || {
        let layout = shared.layout()?;
        let mut undone = Vec::new();
        for names in layout.known_repositories() {
            let repository = shared.repository_named(names)?;
            for slug in Journal::slugs(&repository.vault) {
                let Ok(Some(journal)) = Journal::read(&repository.vault, &slug) else {
                    continue;
                };
                if !matches!(journal.phase, Phase::Removing { .. }) {
                    continue;
                }
                match settle(layout, &repository, journal, &[]) {
                    Ok(Settled::PutBack(_)) => undone.push(slug),
                    Ok(Settled::Finished(_)) => {}
                    Err(error) => {
                        tracing::warn!(slug, %error, "A removal that was interrupted could not be settled.");
                    }
                }
            }
            archive::settle(layout, &repository.vault, None);
        }
        Ok(undone)
    })
    .await
}

fn require_strategy(record: &CheckoutRecord, strategy: Strategy) -> Result<(), WorkspaceError> {
    if record.strategy == strategy {
        return Ok(());
    }
    Err(WorkspaceError::new(
        FailureCode::BadInput,
        format!("`{}` is no {}", record.slug, strategy.as_str()),
    ))
}

fn kept(code: KeepReason, why: impl Into<String>) -> Cleanup {
    Cleanup::Kept {
        reasons: vec![Kept::new(code, [why.into()])],
        token: None,
    }
}

async fn remove(
    inner: &Arc<Inner>,
    record: &CheckoutRecord,
    facts: &Facts,
    at_risk: &AtRisk,
    cancel: &CancellationToken,
) -> Result<Cleanup, WorkspaceError> {
    if let Err(why) = require_names(record) {
        return Ok(kept(KeepReason::IdentityMismatch, why));
    }
    let layout = inner.layout()?.clone();
    if record.root != layout.root() {
        let why = format!("it belongs below `{}`", record.root.display());
        return Ok(kept(KeepReason::IdentityMismatch, why));
    }
    if !layout.vaults().is_dir() {
        // Not mounted, perhaps: then nothing is known to be gone.
        return Err(WorkspaceError::new(
            FailureCode::Internal,
            format!("`{}` is not there", layout.vaults().display()),
        ));
    }
    let repository = inner.repository_of(record)?;
    let _one = inner.slug_lock(&repository, &record.slug, cancel).await?;

    let (repo, place, stored, heads) = (
        Arc::clone(&repository),
        layout.clone(),
        record.clone(),
        facts.heads.clone(),
    );
    let start = blocking(move || start(&place, &repo, &stored, &heads)).await?;
    let record = match start {
        Start::Done(outcome) => return Ok(outcome),
        Start::Missing(record) => {
            let missing = Missing {
                inner,
                layout: &layout,
                repository: &repository,
                record: &record,
                facts,
            };
            let outcome = missing.remove(at_risk, cancel).await;
            settle_archives(&layout, &repository, &record).await?;
            return outcome;
        }
        Start::Ready(record) => record,
    };

    let gate = Gate::new(inner, &repository, facts)?;
    let Sight { inspection, seen } = gate.look(&record, Form::Paranoid, cancel).await?;
    let reasons = match inspection.verdict {
        Verdict::Removable => Vec::new(),
        Verdict::Keep(reasons) => reasons,
    };
    let fingerprint = seen.as_ref().map(|_| inspection.fingerprint.as_str());
    let archives = !reasons.is_empty();
    if archives && let Decision::Keep { token } = decide(at_risk, &reasons, fingerprint) {
        return Ok(Cleanup::Kept { reasons, token });
    }
    let Some(seen) = seen else {
        return Ok(kept(KeepReason::ProbeFailed, "it was not seen whole"));
    };
    if cancel.is_cancelled() {
        return Err(WorkspaceError::Cancelled);
    }
    let archive = if archives {
        let subject = Subject {
            gate: &gate,
            layout: &layout,
            record: &record,
            located: &seen.located,
            private: Arc::clone(&seen.private),
            status: Some(&seen.status.entries),
            nested: &seen.tree.nested,
            reasons: &reasons,
        };
        match subject.archive(cancel).await? {
            Ok(summary) => Some(summary),
            Err(refusal) => return Ok(refused(inner, reasons, refusal)),
        }
    } else {
        None
    };
    let removal = Removal {
        gate: &gate,
        layout: &layout,
        record: &record,
        id: format!("{}-{}", record.slug, super::nonce()),
        archive,
    };
    let outcome = removal.run(seen, cancel).await;
    settle_archives(&layout, &repository, &record).await?;
    outcome
}

/// What stays because no archive could be made of it.
fn refused(inner: &Inner, mut reasons: Vec<Kept>, refusal: Refusal) -> Cleanup {
    reasons.push(refusal.kept(inner.options.archive_max_bytes));
    Cleanup::Kept {
        reasons,
        token: None,
    }
}

/// Keeps the archive of a checkout that is gone, and takes that of one that
/// stays away: the journal says which.
async fn settle_archives(
    layout: &Layout,
    repository: &Arc<Repository>,
    record: &CheckoutRecord,
) -> Result<(), WorkspaceError> {
    let (layout, repository, slug) = (layout.clone(), Arc::clone(repository), record.slug.clone());
    blocking(move || {
        archive::settle(&layout, &repository.vault, Some(&slug));
        Ok(())
    })
    .await
}

/// Where a removal begins.
enum Start {
    /// There is nothing to do, or nothing may be done.
    Done(Cleanup),
    /// The directory is gone, what else there is of it is not.
    Missing(CheckoutRecord),
    /// It is in place.
    Ready(CheckoutRecord),
}

/// Brings what an earlier attempt left to one of a few states. Blocking.
fn start(
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
            archive::settle(layout, &repository.vault, Some(&record.slug));
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
            archive::settle(layout, &repository.vault, Some(&record.slug));
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
            archive::settle(layout, &repository.vault, Some(&record.slug));
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
fn gone(layout: &Layout, record: &CheckoutRecord) -> Cleanup {
    match archive::of_checkout(layout, record) {
        Some(archive) => Cleanup::Cleaned {
            archive: Some(archive),
            bytes: None,
        },
        None => Cleanup::AlreadyGone,
    }
}

/// What became of an interrupted removal.
enum Settled {
    /// With the archive that holds what was in it.
    Finished(Option<String>),
    PutBack(Box<CheckoutRecord>),
}

/// Undoes a removal that was interrupted before its record was renamed, and
/// finishes any other. Blocking.
fn settle(
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

fn put_back(in_trash: &Path, record: &CheckoutRecord) -> Result<(), WorkspaceError> {
    if let Some(parent) = record.path.parent() {
        files::create_dirs(parent)?;
    }
    files::rename_noreplace(in_trash, &record.path)?;
    Ok(())
}

fn is_ours(admin: &Path, record: &CheckoutRecord) -> bool {
    read_line(&admin.join(NONCE_FILE)).is_ok_and(|nonce| nonce == record.nonce)
}

fn exists(path: &Path) -> Result<bool, WorkspaceError> {
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

/// One removal, from the first look to the end.
struct Removal<'a> {
    gate: &'a Gate<'a>,
    layout: &'a Layout,
    record: &'a CheckoutRecord,
    id: String,
    archive: Option<ArchiveSummary>,
}

impl Removal<'_> {
    async fn run(&self, seen: Seen, cancel: &CancellationToken) -> Result<Cleanup, WorkspaceError> {
        let bytes = seen.tree.bytes;
        let in_trash = self.layout.trash().join(&self.id);
        let repository = self.gate.repository;
        let archive = self.archive.as_ref().map(|archive| archive.id.clone());
        let (repo, record, to) = (
            Arc::clone(repository),
            self.record.clone(),
            in_trash.clone(),
        );
        let phase = Phase::Removing {
            trash: self.id.clone(),
            archive: archive.clone(),
        };
        blocking(move || take_away(&repo, &record, &to, phase)).await?;

        let again = self.look_again(seen, &in_trash, cancel).await;
        let stays = match again {
            Ok(reasons) if reasons.is_empty() => None,
            Ok(reasons) => Some(Ok(Cleanup::Kept {
                reasons,
                token: None,
            })),
            Err(error) => Some(Err(error)),
        };
        let (repo, layout, record, id, heads) = (
            Arc::clone(repository),
            self.layout.clone(),
            self.record.clone(),
            self.id.clone(),
            self.gate.facts.heads.clone(),
        );
        if let Some(outcome) = stays {
            blocking(move || {
                put_back(&in_trash, &record)?;
                Journal::new(Phase::Ready, record).write(&repo.vault)
            })
            .await?;
            return outcome;
        }
        blocking(move || {
            commit(&layout, &repo, &record, &id)?;
            finish(&layout, &repo, &record, &id, &heads, archive.as_deref())
        })
        .await?;
        Ok(Cleanup::Cleaned {
            archive: self.archive.clone(),
            bytes: Some(bytes),
        })
    }

    /// Looks at what was renamed: it must be what was judged, to the byte.
    async fn look_again(
        &self,
        seen: Seen,
        in_trash: &Path,
        cancel: &CancellationToken,
    ) -> Result<Vec<Kept>, WorkspaceError> {
        let is_clone = self.record.strategy == Strategy::Clone;
        let located = Located {
            path: in_trash.to_owned(),
            admin: if is_clone {
                in_trash.join(".git")
            } else {
                seen.located.admin.clone()
            },
            common: if is_clone {
                in_trash.join(".git")
            } else {
                seen.located.common.clone()
            },
        };
        let private = if is_clone {
            // The view of before leads to a path that is gone.
            let (scratch, place) = (self.gate.scratch(&self.record.slug), located.clone());
            let made = blocking(move || {
                Ok(Private::make(&scratch, &place.common, &place.admin)
                    .map_err(|error| error.to_string()))
            })
            .await?;
            match made {
                Ok(private) => Arc::new(private),
                Err(why) => return Ok(reasons([(KeepReason::ProbeFailed, vec![why])])),
            }
        } else {
            seen.private
        };
        // Equal times prove that nothing was written since the first look,
        // unless the last write came so shortly before it that the clock of the
        // file system had not gone on.
        let newest = seen.tree.newest_ns.max(seen.admin.newest_ns);
        let recent = if newest % 1_000_000_000 == 0 {
            RECENT_COARSE_NS
        } else {
            RECENT_NS
        };
        let form = if newest > seen.began_ns - recent {
            Form::Paranoid
        } else {
            Form::Normal
        };
        let submodules = submodule::paths(&private.entries);
        let (walks, asked) = self
            .gate
            .walk_and_ask(&located, &private, &submodules, form, cancel)
            .await;
        let (place, own) = (located.clone(), self.gate.facts.own_processes.clone());
        let processes = blocking(move || Ok(inside(&[&place.path, &place.admin], &own))).await?;
        if cancel.is_cancelled() {
            return Err(WorkspaceError::Cancelled);
        }
        let mut found = or_failed(processes);
        let inside_too: Vec<&PathBuf> = submodules.iter().chain(&seen.tree.nested).collect();
        match &asked {
            Ok(status) if is_same_status(status, &seen.status, &inside_too) => {}
            _ => {
                let files = self.gate.classify(&private, &asked, &walks);
                found.extend(or_failed(files.seen));
                found.extend(or_failed(files.hidden));
                if found.is_empty() {
                    found.extend(changed());
                }
            }
        }
        match &walks {
            Ok((tree, admin)) => {
                let same = tree.fingerprint == seen.tree.fingerprint
                    && admin.fingerprint == seen.admin.fingerprint;
                if !same && found.is_empty() {
                    found.extend(changed());
                }
            }
            Err(why) => found.extend(reasons([(KeepReason::ProbeFailed, vec![why.clone()])])),
        }
        Ok(found)
    }
}

/// Whether two looks at the same files said the same. A submodule or a nested
/// repository that is found by a path may not be found from the trash; what is in
/// it is compared by the walks.
fn is_same_status(one: &Status, other: &Status, inside: &[&PathBuf]) -> bool {
    let without = |status: &Status| -> Vec<Entry> {
        let is_inside = |entry: &Entry| {
            let path = Path::new(OsStr::from_bytes(&entry.path));
            inside.iter().any(|one| path.starts_with(one))
        };
        let entries = status.entries.iter();
        entries.filter(|one| !is_inside(one)).cloned().collect()
    };
    one == other || (!inside.is_empty() && without(one) == without(other))
}

fn changed() -> Vec<Kept> {
    let why = "it was changed while it was looked at".to_owned();
    reasons([(KeepReason::ProbeFailed, vec![why])])
}

fn or_failed(answer: Answer) -> Vec<Kept> {
    answer.unwrap_or_else(|why| reasons([(KeepReason::ProbeFailed, vec![why])]))
}

/// Writes the journal and renames the directory into the trash. Blocking.
fn take_away(
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

fn rename_the_one(record: &CheckoutRecord, in_trash: &Path) -> Result<(), WorkspaceError> {
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
fn keep_locked(admin: &Path, record: &CheckoutRecord) -> Result<(), WorkspaceError> {
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
fn commit(
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

fn drop_record(
    repository: &Repository,
    record: &CheckoutRecord,
    id: &str,
) -> Result<(), WorkspaceError> {
    let aside = records_trash(repository)?.join(id);
    let admin = worktree::admin_dir(repository, &record.slug);
    assert!(is_ours(&admin, record), "only a record of ours is renamed");
    Ok(files::rename_noreplace(&admin, &aside)?)
}

fn records_trash(repository: &Repository) -> Result<PathBuf, WorkspaceError> {
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
fn finish(
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
        if exists(&trash.join(id))? {
            files::rename_noreplace(&trash.join(id), &trash::deleting(&trash, id))?;
        }
        files::remove_tree(&records_trash(repository)?.join(id))?;
        let admin = worktree::admin_dir(repository, &record.slug);
        if is_ours(&admin, record) {
            return Err(left(&admin));
        }
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

fn left(path: &Path) -> WorkspaceError {
    WorkspaceError::new(
        FailureCode::Internal,
        format!("`{}` is still there", path.display()),
    )
}

/// Deletes the branch that the preparation made: only if nobody else has it,
/// it is not the default branch, and its commits are archived or not at risk; and
/// only at the commit of which that was found. Otherwise it stays.
fn drop_branch(
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

/// What is left of a checkout whose directory is gone.
struct Missing<'a> {
    inner: &'a Arc<Inner>,
    layout: &'a Layout,
    repository: &'a Arc<Repository>,
    record: &'a CheckoutRecord,
    facts: &'a Facts,
}

/// What git's record of a missing directory holds that is nowhere else.
struct Left {
    reasons: Vec<Kept>,
    /// None if it was not seen whole.
    seen: Option<(Arc<Private>, String)>,
}

impl Missing<'_> {
    /// Removes it, unless it holds what is nowhere else and may not be archived.
    async fn remove(
        &self,
        at_risk: &AtRisk,
        cancel: &CancellationToken,
    ) -> Result<Cleanup, WorkspaceError> {
        let (repository, record) = (self.repository, self.record);
        let admin = worktree::admin_dir(repository, &record.slug);
        if record.strategy == Strategy::Clone || !exists(&admin)? {
            let nonce = record.nonce.clone();
            self.finish(nonce, None, false).await?;
            return Ok(Cleanup::AlreadyGone);
        }
        if let Err(kept) = self.require_ours(&admin)? {
            return Ok(kept);
        }
        let gate = Gate::new(self.inner, repository, self.facts)?;
        let located = Located {
            path: record.path.clone(),
            admin,
            common: repository.shared.clone(),
        };
        let Left { reasons, seen } = left_in_record(&gate, &located, record, cancel).await?;
        let fingerprint = seen.as_ref().map(|(_, fingerprint)| fingerprint.as_str());
        let mut archive = None;
        if !reasons.is_empty() {
            if let Decision::Keep { token } = decide(at_risk, &reasons, fingerprint) {
                return Ok(Cleanup::Kept { reasons, token });
            }
            let Some((private, _)) = seen else {
                return Ok(kept(KeepReason::ProbeFailed, "it was not seen whole"));
            };
            let subject = Subject {
                gate: &gate,
                layout: self.layout,
                record,
                located: &located,
                private,
                status: None,
                nested: &[],
                reasons: &reasons,
            };
            match subject.archive(cancel).await? {
                Ok(summary) => archive = Some(summary),
                Err(refusal) => return Ok(refused(self.inner, reasons, refusal)),
            }
        }
        let id = format!("{}-{}", record.slug, super::nonce());
        self.finish(id, archive.as_ref().map(|one| one.id.clone()), true)
            .await?;
        Ok(match archive {
            Some(archive) => Cleanup::Cleaned {
                archive: Some(archive),
                bytes: None,
            },
            None => Cleanup::AlreadyGone,
        })
    }

    fn require_ours(&self, admin: &Path) -> Result<Result<(), Cleanup>, WorkspaceError> {
        let record = self.record;
        if !is_ours(admin, record) {
            let why = "its directory is gone, and git's record is another's";
            return Ok(Err(kept(KeepReason::IdentityMismatch, why)));
        }
        let back = read_line(&admin.join("gitdir")).unwrap_or_default();
        if Path::new(&back) != record.path.join(".git") {
            let why = format!("git's record says that it is at `{back}`");
            return Ok(Err(kept(KeepReason::IdentityMismatch, why)));
        }
        let lock = read_if_present(&admin.join("locked"), SMALL_BYTES_MAX)?.unwrap_or_default();
        let lock = String::from_utf8_lossy(&lock);
        if !lock.is_empty() && !lock.contains(&format!("(nonce {})", record.nonce)) {
            return Ok(Err(kept(KeepReason::Locked, lock.trim_end())));
        }
        Ok(Ok(()))
    }

    /// Takes the record away, if there is one, and forgets the checkout.
    async fn finish(
        &self,
        id: String,
        archive: Option<String>,
        has_record: bool,
    ) -> Result<(), WorkspaceError> {
        let (repo, place, stored, heads) = (
            Arc::clone(self.repository),
            self.layout.clone(),
            self.record.clone(),
            self.facts.heads.clone(),
        );
        blocking(move || {
            if has_record {
                let phase = Phase::Removing {
                    trash: id.clone(),
                    archive: archive.clone(),
                };
                Journal::new(phase, stored.clone()).write(&repo.vault)?;
                drop_record(&repo, &stored, &id)?;
            }
            finish(&place, &repo, &stored, &id, &heads, archive.as_deref())
        })
        .await
    }
}

async fn left_in_record(
    gate: &Gate<'_>,
    located: &Located,
    record: &CheckoutRecord,
    cancel: &CancellationToken,
) -> Result<Left, WorkspaceError> {
    let (scratch, place, stored) = (gate.scratch(&record.slug), located.clone(), record.clone());
    let asked = blocking(move || {
        let ask = || -> Result<_, String> {
            let walked = walk_git_dir(&place.admin).map_err(|error| error.to_string())?;
            let operations = operations(&place.admin).map_err(|error| error.to_string())?;
            let private = Private::make(&scratch, &place.common, &place.admin)
                .map_err(|error| error.to_string())?;
            let tips = tips::tips(&place, &stored, &private)?;
            let stash = tips::stashed(&place, &stored, &private, &tips)?;
            let staged = tips::staged(&private)?;
            let seen = fingerprint([walked.fingerprint].into_iter(), Some(&tips), &stash);
            Ok((operations, private, tips, stash, staged, seen))
        };
        Ok(ask())
    })
    .await?;
    let (operations, private, tips, stash, staged, seen) = match asked {
        Ok(asked) => asked,
        Err(why) => {
            return Ok(Left {
                reasons: reasons([(KeepReason::ProbeFailed, vec![why])]),
                seen: None,
            });
        }
    };
    let mut found = reasons([
        (
            KeepReason::OpInProgress,
            operations.into_iter().map(str::to_owned).collect(),
        ),
        (KeepReason::TrackedDirty, staged),
        (
            KeepReason::StashFromHere,
            stash.into_iter().map(|one| one.shown).collect(),
        ),
    ]);
    found.extend(or_failed(gate.commits(&private, &Ok(tips), cancel).await?));
    let asker = Asker {
        git: gate.inner.git()?,
        scratch: &gate.scratch(&record.slug),
        regenerable: &gate.regenerable,
        cancel,
    };
    let inside = asker
        .ask(&located.path, &located.admin, &private.entries)
        .await
        .map(|found| reasons([(KeepReason::SubmoduleUnlanded, found)]));
    let _ = fs::remove_dir(asker.scratch);
    found.extend(or_failed(inside));
    Ok(Left {
        reasons: found,
        seen: Some((Arc::new(private), seen)),
    })
}

/// Returns what the gate is told when nothing but the remote is known.
impl Facts {
    /// Returns facts without a payload.
    pub fn of(target: RepoTarget) -> Self {
        Self {
            merged: None,
            heads: Vec::new(),
            target,
            own_processes: Vec::new(),
        }
    }
}
