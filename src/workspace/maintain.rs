//! Maintenance of vaults and shared clones while nobody needs them.
//!
//! Nothing is ever pruned: the shared clone borrows objects of the vault that no
//! ref of the vault reaches, and an agent's detached commits are on no ref at
//! all. So packs of the vault are put together with everything in them, loose
//! refs are packed, and of the shared clone, which is acted on through a view
//! that knows no worktrees, only the refs are.
//!
//! When a repository's turn is, is decided in [`crate::domain::maintenance`].
//! One is maintained at a time, under the writer's lock, by a thread of low
//! priority that gives way as soon as somebody else wants the lock.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::layout::RepoPath;
use super::repository::Repository;
use super::{Inner, Workspace, WorkspaceError, blocking, health, locks, rebuild, vault};
use crate::clock;
use crate::domain::code::FailureCode;
use crate::domain::maintenance::{self, Candidate};
use crate::domain::repo_target::RepoTarget;
use crate::files;

/// How much nicer than the daemon the maintaining thread is; git inherits it.
const NICER: i32 = 15;

/// One maintenance at a time in the whole process.
static MAINTAINING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// What a maintenance came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintained {
    /// It was gone through.
    Done,
    /// It gave way to other work, and is tried again when that is over.
    GaveWay,
}

impl Workspace {
    /// Maintains the repository whose turn it is, if there is one; returns
    /// where its vault is.
    ///
    /// # Errors
    ///
    /// If git failed; the repository's turn comes again in a day.
    pub async fn maintain_next(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Option<(PathBuf, Maintained)>, WorkspaceError> {
        let inner = self.opened(cancel).await?;
        let one = Arc::clone(&inner);
        let Some(repository) = blocking(move || due(&one)).await? else {
            return Ok(None);
        };
        let done = maintain(&inner, &repository, cancel).await?;
        Ok(Some((repository.vault.clone(), done)))
    }

    /// Maintains a repository now.
    ///
    /// # Errors
    ///
    /// If git failed; nothing is lost.
    pub async fn maintain(
        &self,
        target: &RepoTarget,
        cancel: &CancellationToken,
    ) -> Result<Maintained, WorkspaceError> {
        let inner = self.opened(cancel).await?;
        let repository = inner.repository(target).await?;
        maintain(&inner, &repository, cancel).await
    }
}

fn due(inner: &Arc<Inner>) -> Result<Option<Arc<Repository>>, WorkspaceError> {
    let known: Vec<RepoPath> = inner.layout()?.known_repositories();
    let mut repositories = Vec::new();
    let mut candidates = Vec::new();
    for names in known {
        let vault = inner.layout()?.vault_dir(&names);
        candidates.push(Candidate {
            used: inner.last_used(&names),
            maintained: last_maintained(&vault),
        });
        repositories.push(names);
    }
    let at = maintenance::next(clock::now_ms(), inner.opened_at_ms()?, &candidates);
    at.map(|at| inner.repository_unused(repositories.swap_remove(at)))
        .transpose()
}

fn stamp(vault: &Path) -> PathBuf {
    vault.join("innkeeper/maintained")
}

fn last_maintained(vault: &Path) -> Option<i64> {
    fs::read_to_string(stamp(vault)).ok()?.trim().parse().ok()
}

/// Runs one maintenance in a thread of its own, whose niceness cannot be taken
/// back and goes over to every git it starts.
async fn maintain(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    cancel: &CancellationToken,
) -> Result<Maintained, WorkspaceError> {
    let _one = MAINTAINING.lock().await;
    let (inner, repository) = (Arc::clone(inner), Arc::clone(repository));
    let cancel = cancel.child_token();
    let _cancelled_when_dropped = cancel.clone().drop_guard();
    let (answer, answered) = tokio::sync::oneshot::channel();
    let internal = |why: String| WorkspaceError::new(FailureCode::Internal, why);
    std::thread::Builder::new()
        .name("maintenance".to_owned())
        .spawn(move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICER);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let outcome = match runtime {
                Ok(runtime) => runtime.block_on(run(&inner, &repository, &cancel)),
                Err(error) => Err(internal(error.to_string())),
            };
            // Nobody waits any more when the daemon stops.
            let _ = answer.send(outcome);
        })
        .map_err(|error| internal(error.to_string()))?;
    answered
        .await
        .unwrap_or_else(|_| Err(internal("the maintenance ended abnormally".to_owned())))
}

async fn run(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    cancel: &CancellationToken,
) -> Result<Maintained, WorkspaceError> {
    let writer = repository.write_lock(inner, cancel).await?;
    let gives_way = cancel.child_token();
    let outcome = {
        let _shown = repository.give_way(gives_way.clone());
        steps(inner, repository, &gives_way).await
    };
    let repo = Arc::clone(repository);
    let gave_way = gives_way.is_cancelled();
    blocking(move || {
        if gave_way {
            vault::sweep_temporary(&repo.vault);
            return Ok(());
        }
        // Written also after a failure: it would fail again in a minute.
        let now = format!("{}\n", clock::now_ms());
        Ok(files::atomic_write(
            &stamp(&repo.vault),
            now.as_bytes(),
            false,
        )?)
    })
    .await?;
    drop(writer);
    match outcome {
        Ok(()) => Ok(Maintained::Done),
        Err(_) if cancel.is_cancelled() => Err(WorkspaceError::Cancelled),
        Err(_) if gave_way => Ok(Maintained::GaveWay),
        Err(error) => Err(error),
    }
}

async fn steps(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let (repo, one) = (Arc::clone(repository), Arc::clone(inner));
    let damage = blocking(move || {
        let started = one.opened_at()?;
        let mut removed = locks::sweep_vault(&repo.vault, started);
        removed.extend(repo.sweep_shared_locks(&one)?);
        one.tell_removed(removed);
        repo.restore_known_drift(&one)?;
        let in_vault = health::damaged_pack(&repo.vault.join("objects"), &repo.whole)
            .or_else(|| health::damaged_files(&repo.vault));
        Ok(in_vault)
    })
    .await?;
    if let Some(why) = damage {
        return Err(WorkspaceError::new(
            FailureCode::Corrupt,
            format!("`{}` is damaged: {why}", repository.vault.display()),
        ));
    }
    rebuild::heal_shared(inner, repository, cancel).await?;
    let git = |subcommand: &str, dir: &Path| -> Result<_, WorkspaceError> {
        Ok(inner.git()?.command(subcommand).git_dir(dir))
    };
    git("pack-refs", &repository.vault)?
        .arg("--all")
        .run(cancel)
        .await?;
    // Rolls small packs up with all they hold; what no ref reaches is kept.
    git("repack", &repository.vault)?
        .config("pack.writeBitmaps", "false")
        .config("repack.writeBitmaps", "false")
        .config("core.fsync", "all")
        .args(["-q", "-d", "-l", "--geometric=2"])
        .run(cancel)
        .await?;
    git("commit-graph", &repository.vault)?
        .args(["write", "--reachable", "--no-progress"])
        .run(cancel)
        .await?;
    if !repository.shared.is_dir() {
        return Ok(());
    }
    // The view shows no worktrees: nothing else may be done through it.
    git("pack-refs", &repository.ctl)?
        .arg("--all")
        .run(cancel)
        .await?;
    Ok(())
}
