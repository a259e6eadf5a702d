//! Workspaces: checkouts of work items, made and moved without losing work.
//!
//! # What this module promises
//!
//! [`Workspace::prepare`] returns a checkout of the wanted commit, made if
//! there is none. It can be called again after a crash at any point, and
//! converges: what was half-made is undone, what is there is verified and left
//! as it is. Nothing that Innkeeper did not make is touched, and nothing of an
//! agent's is ever reset.
//!
//! # Three git directories
//!
//! The *vault* is the daemon's own: all fetches land there. The *shared clone*
//! is the agents': worktrees are linked to it, it borrows the vault's objects,
//! and its configuration is never read by the daemon. Where the daemon has to
//! act on it, it does so through a private view ([`crate::git::ctl`]). Paths are
//! in [`layout`], and what is in the making is in [`journal`].
//!
//! # Invariants
//!
//! 1. One process holds the root's lock; within it one task at a time fetches
//!    or writes shared refs of a repository. Making records and files needs no
//!    lock but that of the slug.
//! 2. A journal is written, durably, before anything is made, and removed after
//!    everything is undone.
//! 3. A directory or record is taken away only if its inode or nonce is the one
//!    in the journal.
//! 4. A commit counts as the remote's only if a ref of the vault reaches it.

pub mod archive;
mod clone;
mod error;
pub mod facts;
pub mod fetch;
pub mod gate;
mod ghosts;
mod health;
pub mod identity;
pub mod journal;
mod landed;
pub mod layout;
pub mod locks;
mod maintain;
mod mend;
mod open;
mod options;
mod parts;
mod prepare;
pub mod probe;
mod questions;
mod rawrefs;
mod read_through;
mod rebuild;
mod reclaim;
mod remove;
pub mod repository;
pub mod shared;
mod survey;
mod trash;
mod update;
pub mod vault;
mod worktree;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

pub use archive::Restored;
pub use error::WorkspaceError;
pub use gate::{Facts, Inspection};
pub use layout::{Layout, RepoPath};
pub use maintain::Maintained;
pub use open::OpenReport;
pub use options::{MissingBranch, PrepareOptions, WorkspaceOptions};
pub use parts::DirectoryState;
pub use prepare::Prepared;
pub use reclaim::Reclaiming;
pub use remove::Cleanup;
pub use survey::Survey;
pub use update::Updated;

use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::code::FailureCode;
use crate::domain::log_event::LogEvent;
use crate::domain::repo_target::RepoTarget;
use crate::files::LockFile;
use crate::git::{Git, GitOptions};
use repository::Repository;

/// All checkouts below one root. Cheap to clone; clones are the same workspace.
#[derive(Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

/// What the parts of a workspace share.
pub struct Inner {
    pub(crate) options: WorkspaceOptions,
    environment: Vec<(OsString, OsString)>,
    git: OnceLock<Git>,
    held: Arc<Held>,
}

/// What stays the same however a workspace is made to behave.
#[derive(Default)]
struct Held {
    opened: OnceLock<Opened>,
    /// Held while the root is opened and put in order.
    opening: tokio::sync::Mutex<()>,
    repositories: Mutex<HashMap<String, Arc<Repository>>>,
    slugs: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

/// A root that is held.
struct Opened {
    layout: Layout,
    /// When it was taken, milliseconds since 1970; every git of an earlier daemon
    /// had ended then.
    at_ms: i64,
    /// Set once what a crash left has been put in order.
    in_order: std::sync::atomic::AtomicBool,
    _lock: LockFile,
}

impl Workspace {
    /// Returns the workspace below `root`. Touches nothing yet.
    pub fn new(
        root: impl Into<PathBuf>,
        strategy: Strategy,
        git_binary: impl Into<PathBuf>,
    ) -> Self {
        Self::with_options(WorkspaceOptions {
            strategy,
            git_binary: git_binary.into(),
            ..WorkspaceOptions::new(root)
        })
    }

    /// Returns a workspace that behaves as the options say. Touches nothing yet.
    pub fn with_options(options: WorkspaceOptions) -> Self {
        Self::over(options, Arc::default())
    }

    /// Returns the same workspace, its lock and its repositories, made to behave
    /// as other options say. The root stays what it is.
    #[must_use]
    pub fn reconfigured(&self, options: WorkspaceOptions) -> Self {
        let root = self.inner.options.root.clone();
        Self::over(
            WorkspaceOptions { root, ..options },
            Arc::clone(&self.inner.held),
        )
    }

    fn over(options: WorkspaceOptions, held: Arc<Held>) -> Self {
        let environment = options
            .environment
            .clone()
            .unwrap_or_else(|| std::env::vars_os().collect());
        Self {
            inner: Arc::new(Inner {
                options,
                environment,
                git: OnceLock::new(),
                held,
            }),
        }
    }

    /// Returns how it behaves.
    pub fn options(&self) -> &WorkspaceOptions {
        &self.inner.options
    }

    /// Returns what its parts share, opening the root if that was not done.
    pub(crate) async fn opened(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Arc<Inner>, WorkspaceError> {
        let in_order = self
            .inner
            .held
            .opened
            .get()
            .is_some_and(Opened::is_in_order);
        if !in_order {
            self.opened_with_report(cancel).await?;
        }
        Ok(Arc::clone(&self.inner))
    }

    async fn opened_with_report(
        &self,
        cancel: &CancellationToken,
    ) -> Result<(Arc<Inner>, OpenReport), WorkspaceError> {
        let inner = &self.inner;
        let _one = inner.held.opening.lock().await;
        let mut report = OpenReport::default();
        if inner.held.opened.get().is_none() {
            let (opened, found) = open::open(inner, cancel).await?;
            report = found;
            // Only set here, under the lock.
            let _ = inner.held.opened.set(opened);
        }
        let opened = inner.held.opened.get().ok_or_else(not_open)?;
        if !opened.is_in_order() {
            open::recover(inner, &mut report, cancel).await?;
            remove::recover(inner).await?;
            opened.in_order.store(true, Ordering::Release);
        }
        Ok((Arc::clone(inner), report))
    }
}

impl Opened {
    fn is_in_order(&self) -> bool {
        self.in_order.load(Ordering::Acquire)
    }
}

impl Inner {
    /// Returns where things stand.
    pub(crate) fn layout(&self) -> Result<&Layout, WorkspaceError> {
        self.held
            .opened
            .get()
            .map(|opened| &opened.layout)
            .ok_or_else(not_open)
    }

    /// Returns when the root was taken, milliseconds since 1970.
    pub(crate) fn opened_at_ms(&self) -> Result<i64, WorkspaceError> {
        self.held
            .opened
            .get()
            .map(|opened| opened.at_ms)
            .ok_or_else(not_open)
    }

    /// Returns when the root was taken, as files have their times.
    pub(crate) fn opened_at(&self) -> Result<SystemTime, WorkspaceError> {
        let ms = u64::try_from(self.opened_at_ms()?).unwrap_or(0);
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
    }

    /// Tells of something that was done without being asked.
    pub(crate) fn tell(&self, event: LogEvent) {
        if let Some(told) = &self.options.told {
            // Nobody listens any more when the daemon stops.
            let _ = told.send(event);
        }
    }

    /// Tells of locks that were removed.
    pub(crate) fn tell_removed(&self, removed: Vec<locks::Removed>) {
        for one in removed {
            self.tell(LogEvent::LockRemoved {
                path: one.path.display().to_string(),
                proof: one.proof,
            });
        }
    }

    /// Returns the git program.
    pub(crate) fn git(&self) -> Result<&Git, WorkspaceError> {
        let layout = self.layout()?;
        Ok(self.git.get_or_init(|| self.git_for(layout)))
    }

    fn git_for(&self, layout: &Layout) -> Git {
        Git::new(GitOptions {
            program: self.options.git_binary.clone(),
            environment: self.environment.clone(),
            global_config: layout.git_config(),
            mark: layout.root().to_owned(),
            timeout: self.options.git_timeout,
            grace: self.options.git_grace,
            low_speed_seconds: self.options.low_speed_seconds,
        })
    }

    /// Returns the repository of a target, under the spelling it was first seen
    /// with.
    pub(crate) async fn repository(
        self: &Arc<Self>,
        target: &RepoTarget,
    ) -> Result<Arc<Repository>, WorkspaceError> {
        let wanted = RepoPath::of(target)?;
        if let Some(known) = self.known(&wanted) {
            known.note_use();
            return Ok(known);
        }
        let inner = Arc::clone(self);
        blocking(move || {
            let names = inner.layout()?.known_spelling(&wanted).unwrap_or(wanted);
            inner.repository_named(names)
        })
        .await
    }

    /// Returns the repository that a record is of.
    pub(crate) fn repository_of(
        &self,
        record: &CheckoutRecord,
    ) -> Result<Arc<Repository>, WorkspaceError> {
        self.repository_named(identity::repo_of(record))
    }

    fn known(&self, names: &RepoPath) -> Option<Arc<Repository>> {
        let repositories = self
            .held
            .repositories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        repositories.get(&names.key()).cloned()
    }

    /// Returns when anything was last done in a repository, milliseconds since
    /// 1970; none if nothing was since the root was opened.
    pub(crate) fn last_used(&self, names: &RepoPath) -> Option<i64> {
        self.known(names)?.last_used()
    }

    pub(crate) fn repository_named(
        &self,
        names: RepoPath,
    ) -> Result<Arc<Repository>, WorkspaceError> {
        let one = self.repository_unused(names)?;
        one.note_use();
        Ok(one)
    }

    /// Returns a repository without counting that as a use of it.
    pub(crate) fn repository_unused(
        &self,
        names: RepoPath,
    ) -> Result<Arc<Repository>, WorkspaceError> {
        let new = Repository::new(self, names)?;
        let mut repositories = self
            .held
            .repositories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let one = repositories
            .entry(new.names.key())
            .or_insert_with(|| Arc::new(new));
        Ok(Arc::clone(one))
    }

    /// Waits until nobody else works on a slug of a repository.
    pub(crate) async fn slug_lock(
        &self,
        repository: &Repository,
        slug: &str,
        cancel: &CancellationToken,
    ) -> Result<tokio::sync::OwnedMutexGuard<()>, WorkspaceError> {
        let lock = {
            let mut slugs = self
                .held
                .slugs
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            slugs.retain(|_, lock| lock.strong_count() > 0);
            let key = format!("{}/{slug}", repository.names.key());
            let known = slugs.get(&key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                slugs.insert(key, Arc::downgrade(&lock));
                lock
            })
        };
        let limit = self.options.git_timeout;
        tokio::select! {
            guard = lock.lock_owned() => Ok(guard),
            () = cancel.cancelled() => Err(WorkspaceError::Cancelled),
            () = tokio::time::sleep(limit) => Err(WorkspaceError::new(
                FailureCode::LockTimeout,
                format!("waited {limit:?} for other work on `{slug}` to end"),
            )),
        }
    }
}

fn not_open() -> WorkspaceError {
    WorkspaceError::new(FailureCode::Internal, "the workspace is not open")
}

/// Runs file and libgit2 work off the runtime's own threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    joined(tokio::task::spawn_blocking(work)).await
}

async fn joined<T>(
    task: tokio::task::JoinHandle<Result<T, WorkspaceError>>,
) -> Result<T, WorkspaceError> {
    match task.await {
        Ok(outcome) => outcome,
        Err(error) => Err(WorkspaceError::new(
            FailureCode::Internal,
            format!("a task of the workspace ended abnormally: {error}"),
        )),
    }
}

/// Returns a name that nobody else has.
pub(crate) fn nonce() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}
