//! A pull request has a new head: move the checkout, or leave it and say so.
//!
//! A checkout is moved only when nobody works in it, nothing in it was touched,
//! and its HEAD is the commit that was put there. Everything else only makes
//! sure that the new commit is here. The old commit stays pinned either way.
//!
//! Moving is written to the journal first. After a crash it is gone through
//! again: writing the files is a two-way merge that accepts what is done
//! already, and refuses to overwrite what it does not know.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::facts::{self, HeadState};
use super::fetch;
use super::identity::{self, IdentityError, Located};
use super::journal::{Journal, Phase};
use super::prepare::want_of;
use super::probe::asked::{self, Form};
use super::probe::index::Entry;
use super::probe::private::Private;
use super::probe::status::{self, Kind};
use super::repository::Repository;
use super::worktree::{append, reflog_line, write_head};
use super::{Inner, Workspace, WorkspaceError, blocking, mend, rebuild, vault};
use crate::clock;
use crate::domain::checkout::{CheckoutRecord, Strategy, Wanted};
use crate::domain::code::{FailureCode, Retry};
use crate::domain::log_event::LogEvent;
use crate::domain::repo_target::RepoTarget;
use crate::git::{GitError, ctl};
use crate::process::CrashPoint;

/// What became of it.
#[derive(Clone, Debug)]
pub struct Updated {
    /// The checkout is at the new commit.
    pub moved: bool,
    /// The commit that was put there before.
    pub from: String,
    /// The new head, which is here and pinned.
    pub to: String,
    /// What is to be remembered of the checkout.
    pub record: CheckoutRecord,
}

impl Workspace {
    /// Brings a new head to a checkout. `idle` says that no session runs in it.
    ///
    /// # Errors
    ///
    /// `path_occupied` if the directory is not the one any more; otherwise as
    /// for [`Workspace::prepare`]. The checkout is then as it was.
    pub async fn update(
        &self,
        record: &CheckoutRecord,
        target: &RepoTarget,
        wanted: &Wanted,
        idle: bool,
        cancel: &CancellationToken,
    ) -> Result<Updated, WorkspaceError> {
        let cancel = cancel.child_token();
        let _cancelled_when_dropped = cancel.clone().drop_guard();
        let inner = self.opened(&cancel).await?;
        let (record, target, wanted) = (record.clone(), target.clone(), wanted.clone());
        let work = async move {
            match run(&inner, record.clone(), &target, &wanted, idle, &cancel).await {
                Err(error) if error.code() == FailureCode::Corrupt => {
                    tracing::warn!(%error, "Git says that something is corrupt.");
                    let repository = inner.repository_of(&record)?;
                    if !rebuild::heal(&inner, &repository, &target, &cancel).await? {
                        return Err(error);
                    }
                    run(&inner, record, &target, &wanted, idle, &cancel).await
                }
                outcome => outcome,
            }
        };
        super::joined(tokio::spawn(work)).await
    }
}

async fn run(
    inner: &Arc<Inner>,
    record: CheckoutRecord,
    target: &RepoTarget,
    wanted: &Wanted,
    idle: bool,
    cancel: &CancellationToken,
) -> Result<Updated, WorkspaceError> {
    let want = want_of(wanted)?;
    let repository = inner.repository_of(&record)?;
    let _one = inner.slug_lock(&repository, &record.slug, cancel).await?;
    repository.ensure(inner, target, cancel).await?;
    if record.strategy == Strategy::Worktree {
        let keys = repository.restore_drift(target).await?;
        if !keys.is_empty() {
            inner.tell(LogEvent::SharedCloneDrift { keys });
        }
    }
    let got = fetch::obtain(inner, &repository, target, want, cancel).await?;
    let to = got.commit.to_string();
    let updated = move_or_leave(inner, &repository, record, &to, idle, cancel).await?;
    if !updated.moved && updated.record.strategy == Strategy::Clone {
        hand_in(inner, &repository, &updated, cancel).await?;
    }
    Ok(updated)
}

/// Gives a clone that is left alone the new commit, so that whoever works there
/// can bring the two together. A worktree has it already.
async fn hand_in(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    updated: &Updated,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let (layout, record) = (inner.layout()?.clone(), updated.record.clone());
    let located = blocking(move || Ok(identity::locate(&layout, &record).ok())).await?;
    let Some(located) = located else {
        return Ok(());
    };
    let brought = bring_objects(
        inner,
        repository,
        &located,
        &updated.from,
        &updated.to,
        cancel,
    )
    .await;
    match brought {
        Err(error) if error.code().retry() == Retry::Never => {
            // The clone is in a state that only its agent can explain; it is told
            // of the commit and can fetch it.
            tracing::warn!(slug = updated.record.slug, %error, "The new commit was not put into the clone.");
            Ok(())
        }
        brought => brought,
    }
}

async fn move_or_leave(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    record: CheckoutRecord,
    to: &str,
    idle: bool,
    cancel: &CancellationToken,
) -> Result<Updated, WorkspaceError> {
    let (vault, old) = (repository.vault.clone(), record.commit.clone());
    let slug = record.slug.clone();
    let journal = blocking(move || {
        let opened = vault::open(&vault)?;
        let old = vault::parse_oid(&old)?;
        if vault::has_commit(&opened, old) {
            vault::pin(&opened, old)?;
        }
        Journal::read(&vault, &slug)
    })
    .await?;
    let left_alone = |record: CheckoutRecord| Updated {
        moved: false,
        from: record.commit.clone(),
        to: to.to_owned(),
        record,
    };
    let Some(journal) = journal else {
        return Ok(left_alone(record));
    };
    let stored = record.commit.clone();
    // What the journal knows is newer if a crash came between it and the store.
    let record = match journal.phase {
        Phase::Ready if journal.record.nonce == record.nonce => journal.record,
        Phase::Moving { .. } if idle => {
            match finish_move(inner, repository, &record.slug, true, cancel).await? {
                Some(Journal {
                    phase: Phase::Ready,
                    record,
                    ..
                }) => record,
                _ => return Ok(left_alone(record)),
            }
        }
        _ => return Ok(left_alone(record)),
    };
    if record.commit == to && stored != to {
        // By an attempt that a crash kept from telling.
        return Ok(Updated {
            moved: true,
            from: stored,
            to: to.to_owned(),
            record,
        });
    }
    if record.commit == to || !idle {
        return Ok(left_alone(record));
    }
    let Some(located) = movable(inner, &record).await? else {
        return Ok(left_alone(record));
    };
    if !is_untouched(inner, repository, &located, &record.slug, cancel).await? {
        return Ok(left_alone(record));
    }
    let from = record.commit.clone();
    let journal = Journal::new(
        Phase::Moving {
            from: from.clone(),
            to: to.to_owned(),
        },
        record.clone(),
    );
    let vault = repository.vault.clone();
    blocking(move || journal.write(&vault)).await?;
    match finish_move(inner, repository, &record.slug, false, cancel).await? {
        Some(Journal {
            phase: Phase::Ready,
            record,
            ..
        }) if record.commit == to => Ok(Updated {
            moved: true,
            from,
            to: to.to_owned(),
            record,
        }),
        _ => Ok(left_alone(record)),
    }
}

/// Returns whether index and files are those of HEAD, and nothing is beside them
/// but ignored files. What cannot be answered is a no.
async fn is_untouched(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    located: &Located,
    slug: &str,
    cancel: &CancellationToken,
) -> Result<bool, WorkspaceError> {
    let (scratch, place) = (repository.scratch_view(slug), located.clone());
    let made = blocking(move || Ok(Private::make(&scratch, &place.common, &place.admin))).await?;
    let Ok(private) = made else {
        return Ok(false);
    };
    if private.entries.iter().any(Entry::is_hidden) {
        return Ok(false);
    }
    let status = asked::status(inner.git()?, &private, &located.path, Form::Normal, cancel).await;
    if cancel.is_cancelled() {
        return Err(WorkspaceError::Cancelled);
    }
    let untouched = |entry: &status::Entry| entry.kind == Kind::Ignored;
    Ok(status.is_ok_and(|status| status.entries.iter().all(untouched)))
}

/// Returns the checkout if its HEAD is where it was put, on its own branch or
/// on none.
async fn movable(
    inner: &Arc<Inner>,
    record: &CheckoutRecord,
) -> Result<Option<Located>, WorkspaceError> {
    let (layout, record) = (inner.layout()?.clone(), record.clone());
    blocking(move || {
        let located = match identity::locate(&layout, &record) {
            Ok(located) => located,
            Err(IdentityError::Missing { .. }) => return Ok(None),
            Err(error @ IdentityError::Foreign { .. }) => {
                return Err(WorkspaceError::new(
                    FailureCode::PathOccupied,
                    error.to_string(),
                ));
            }
        };
        let in_progress = [
            "rebase-merge",
            "rebase-apply",
            "MERGE_HEAD",
            "CHERRY_PICK_HEAD",
            "REVERT_HEAD",
            "BISECT_LOG",
            "sequencer",
            "index.lock",
            "HEAD.lock",
        ]
        .iter()
        .any(|name| fs::symlink_metadata(located.admin.join(name)).is_ok());
        let is_there =
            facts::head_of(&located).is_ok_and(|head| is_put_at(&head, &record, &record.commit));
        Ok((is_there && !in_progress).then_some(located))
    })
    .await
}

fn is_put_at(head: &HeadState, record: &CheckoutRecord, commit: &str) -> bool {
    let own = match (&head.branch, &record.branch) {
        (None, _) => true,
        (Some(name), Some(branch)) => name.strip_prefix("refs/heads/") == Some(branch),
        (Some(_), None) => false,
    };
    own && head.commit.as_deref() == Some(commit)
}

/// Goes through a move that the journal tells of, from wherever it stopped.
/// Returns the journal as it is then.
///
/// If somebody has worked in the checkout since, it is left as it is.
pub(super) async fn finish_move(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    slug: &str,
    resumed: bool,
    cancel: &CancellationToken,
) -> Result<Option<Journal>, WorkspaceError> {
    let (vault, name) = (repository.vault.clone(), slug.to_owned());
    let journal = blocking(move || Journal::read(&vault, &name)).await?;
    let Some(Journal {
        phase: Phase::Moving { from, to },
        record,
        ..
    }) = journal.clone()
    else {
        return Ok(journal);
    };
    let layout = inner.layout()?.clone();
    let looked_at = record.clone();
    let (old, new) = (from.clone(), to.clone());
    let found = blocking(move || {
        let Ok(located) = identity::locate(&layout, &looked_at) else {
            return Ok(None);
        };
        if resumed {
            // Nobody else worked here when the move began, and no git of ours
            // runs: what holds the index is what was killed.
            let _ = fs::remove_file(located.admin.join("index.lock"));
            let _ = fs::remove_file(located.admin.join("HEAD.lock"));
        }
        let Ok(head) = facts::head_of(&located) else {
            return Ok(None);
        };
        if resumed && let Some(branch) = &head.branch {
            // A branch is locked for as long as it takes to write a line.
            let _ = fs::remove_file(located.common.join(format!("{branch}.lock")));
        }
        let at_old = is_put_at(&head, &looked_at, &old);
        let at_new = is_put_at(&head, &looked_at, &new);
        Ok((at_old || at_new).then_some((located, head, at_new)))
    })
    .await?;
    let Some((located, head, at_new)) = found else {
        return settle(repository, record, from).await;
    };
    if !at_new {
        if record.strategy == Strategy::Clone {
            bring_objects(inner, repository, &located, &from, &to, cancel).await?;
            CrashPoint::MoveObjects.pass();
        }
        let mut written = merge(inner, repository, &located, &from, &to, cancel).await;
        if resumed
            && written.as_ref().is_err_and(is_refusal)
            && mend::put_back(inner, repository, &located, &from, &to, cancel).await?
        {
            written = merge(inner, repository, &located, &from, &to, cancel).await;
        }
        match written {
            Ok(()) => CrashPoint::MoveFiles.pass(),
            Err(error) if error.is_cancelled() => return Err(error.into()),
            // Something is in the way: git has written nothing, and says what.
            Err(error) if is_refusal(&error) => {
                tracing::info!(slug, %error, "The checkout was not moved.");
                return settle(repository, record, from).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let (repository, moved_from, moved_to) = (Arc::clone(repository), from.clone(), to.clone());
    let one = Arc::clone(inner);
    let moved = blocking(move || {
        if !at_new {
            move_head(
                &one,
                &repository,
                &record,
                &located,
                &head,
                &moved_from,
                &moved_to,
            )?;
        }
        let mut record = record;
        record.commit = moved_to;
        let journal = Journal::new(Phase::Ready, record);
        journal.write(&repository.vault)?;
        Ok(journal)
    })
    .await?;
    Ok(Some(moved))
}

/// Writes files and index: the difference between two commits, nothing else.
async fn merge(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    located: &Located,
    from: &str,
    to: &str,
    cancel: &CancellationToken,
) -> Result<(), GitError> {
    let git = inner.git().map_err(|error| GitError::Failed {
        subcommand: "read-tree".into(),
        code: error.code(),
        status: None,
        message: error.to_string(),
    })?;
    git.command("read-tree")
        .git_dir(&repository.vault)
        .work_tree(&located.path)
        .index_file(&located.admin.join("index"))
        .args(["-m", "-u", from, to])
        .run(cancel)
        .await
        .map(drop)
}

/// Whether git looked first, and would not overwrite what it does not know.
fn is_refusal(error: &GitError) -> bool {
    let text = error.to_string();
    [
        "not uptodate",
        "would be overwritten",
        "would lose untracked",
        "would be removed",
    ]
    .iter()
    .any(|phrase| text.contains(phrase))
}

/// Ends a move that did not happen.
async fn settle(
    repository: &Arc<Repository>,
    record: CheckoutRecord,
    from: String,
) -> Result<Option<Journal>, WorkspaceError> {
    let repository = Arc::clone(repository);
    let settled = blocking(move || {
        let mut record = record;
        record.commit = from;
        let journal = Journal::new(Phase::Ready, record);
        journal.write(&repository.vault)?;
        Ok(journal)
    })
    .await?;
    Ok(Some(settled))
}

/// Moves the branch, compared with what it was, or a detached HEAD.
fn move_head(
    inner: &Inner,
    repository: &Repository,
    record: &CheckoutRecord,
    located: &Located,
    head: &HeadState,
    from: &str,
    to: &str,
) -> Result<(), WorkspaceError> {
    match &head.branch {
        Some(name) => {
            let view = view_of(repository, record);
            ctl::ensure(&view, &located.common)?;
            let view = vault::open(&view)?;
            let (from, to) = (vault::parse_oid(from)?, vault::parse_oid(to)?);
            repository.patiently(inner, || {
                view.reference_matching(name, to, true, from, "innkeeper: new head")?;
                Ok(())
            })?;
        }
        None => repository.patiently(inner, || write_head(&located.admin, &format!("{to}\n")))?,
    }
    CrashPoint::MoveRef.pass();
    let line = reflog_line(
        from,
        to,
        clock::now_ms(),
        "innkeeper: new head of the pull request",
    );
    append(&located.admin.join("logs/HEAD"), &line)?;
    CrashPoint::MoveHead.pass();
    Ok(())
}

/// Returns where the private view of a checkout's refs is.
pub(super) fn view_of(repository: &Repository, record: &CheckoutRecord) -> PathBuf {
    match record.strategy {
        Strategy::Worktree => repository.ctl.clone(),
        Strategy::Clone => repository.vault.join("innkeeper/views").join(&record.slug),
    }
}

/// Gives a clone the objects that it lacks, as one pack.
async fn bring_objects(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    located: &Located,
    from: &str,
    to: &str,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let pack = located.common.join("objects/pack");
    let (checked, expected) = (pack.clone(), pack.clone());
    blocking(move || {
        // An agent could have put a link there.
        match fs::canonicalize(&checked) {
            Ok(real) if real == expected => Ok(()),
            Ok(_) => Err(WorkspaceError::new(
                FailureCode::PathOccupied,
                format!("`{}` leads elsewhere", checked.display()),
            )),
            Err(error) => Err(WorkspaceError::io("enter", &checked, &error)),
        }
    })
    .await?;
    inner
        .git()?
        .command("pack-objects")
        .git_dir(&repository.vault)
        .args(["-q", "--revs", "--delta-base-offset", "--non-empty"])
        .arg(pack.join("pack"))
        .stdin(format!("{to}\n^{from}\n").into_bytes())
        .run(cancel)
        .await?;
    Ok(())
}
