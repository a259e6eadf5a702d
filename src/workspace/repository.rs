//! One repository: its vault, its shared clone, and who may write there.
//!
//! # Invariants
//!
//! 1. Vault and shared clone are made in `.staging`, with a marker inside, and
//!    renamed into place; what stands there without our marker is not touched.
//! 2. Fetches, shared refs and maintenance happen under [`Repository::writer`].
//!    Waiting for it has a deadline, and never ends with going on without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::fetch::{self, Fetcher, Remote};
use super::identity::{NONCE_FILE, read_line};
use super::journal::Journal;
use super::layout::RepoPath;
use super::locks::{self, Removed};
use super::vault::{self, Marker};
use super::{Inner, WorkspaceError, blocking, health, rebuild, shared};
use crate::clock;
use crate::domain::code::FailureCode;
use crate::domain::log_event::LogEvent;
use crate::domain::repo_target::RepoTarget;
use crate::files;
use crate::process::CrashPoint;

/// How the names of private views begin that are made for one question.
pub(super) const SCRATCH_VIEW: &str = "gate-";

/// One repository of a workspace.
pub struct Repository {
    /// Its names as they stand in paths.
    pub names: RepoPath,
    /// The daemon's own copy.
    pub vault: PathBuf,
    /// The agents' clone.
    pub shared: PathBuf,
    /// The private view of the shared clone.
    pub ctl: PathBuf,
    /// Held by whoever fetches or writes shared refs.
    pub(super) writer: tokio::sync::Mutex<()>,
    /// Collects what is missing, so that everybody who waits shares one fetch.
    pub(super) fetcher: Fetcher,
    branches: Mutex<()>,
    /// Packs that were found whole.
    pub(super) whole: health::Whole,
    /// When everything was last read through and found in order.
    found_whole: Mutex<Option<Instant>>,
    /// When anything was last done here, milliseconds since 1970; 0 if never.
    used: AtomicI64,
    /// Stops the maintenance that holds the writer's lock.
    maintenance: Mutex<Option<CancellationToken>>,
    /// How many wait for the writer's lock.
    waiting: AtomicUsize,
}

/// What making sure of a repository took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ensured {
    /// This caller cloned it.
    pub cloned: bool,
    /// Another caller did, and this one waited.
    pub waited: bool,
}

impl Repository {
    pub(super) fn new(inner: &Inner, names: RepoPath) -> Result<Self, WorkspaceError> {
        let layout = inner.layout()?;
        let vault = layout.vault_dir(&names);
        Ok(Self {
            shared: layout.repo_dir(&names),
            ctl: vault.join("innkeeper/ctl"),
            vault,
            names,
            writer: tokio::sync::Mutex::new(()),
            fetcher: Fetcher::default(),
            branches: Mutex::new(()),
            whole: health::Whole::default(),
            found_whole: Mutex::new(None),
            used: AtomicI64::new(0),
            maintenance: Mutex::new(None),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Returns a path for a private view of a checkout that nobody else has.
    pub(super) fn scratch_view(&self, slug: &str) -> PathBuf {
        self.vault
            .join("innkeeper/views")
            .join(format!("{SCRATCH_VIEW}{slug}-{}", super::nonce()))
    }

    /// Notes that something is done here now.
    pub(super) fn note_use(&self) {
        self.used.store(clock::now_ms(), Ordering::Relaxed);
    }

    /// Returns when anything was last done here.
    pub(super) fn last_used(&self) -> Option<i64> {
        Some(self.used.load(Ordering::Relaxed)).filter(|used| *used > 0)
    }

    /// Returns when everything was last found in order, after setting it if
    /// `now` is given.
    pub(super) fn found_whole(&self, now: Option<Instant>) -> Option<Instant> {
        let mut found = self
            .found_whole
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if now.is_some() {
            *found = now;
        }
        *found
    }

    /// Lets whoever waits for the writer's lock stop the maintenance that has
    /// it, until the guard is dropped.
    pub(super) fn give_way(&self, stop: CancellationToken) -> GivesWay<'_> {
        // Whoever comes later finds the token; who came before is counted.
        *self.maintenance_lock() = Some(stop.clone());
        if self.waiting.load(Ordering::SeqCst) > 0 {
            stop.cancel();
        }
        GivesWay(self)
    }

    fn maintenance_lock(&self) -> MutexGuard<'_, Option<CancellationToken>> {
        self.maintenance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes locks that nobody holds in the shared clone. Blocking.
    pub(super) fn sweep_shared_locks(&self, inner: &Inner) -> Result<Vec<Removed>, WorkspaceError> {
        let any = inner.layout()?.worktree_dir(&self.names, "any");
        let checkouts = any.parent().unwrap_or(&any);
        Ok(locks::sweep_shared(
            &self.shared,
            checkouts,
            inner.opened_at()?,
        ))
    }

    /// Does something in the shared clone that a lock may stand in the way of.
    /// Blocking.
    ///
    /// # Errors
    ///
    /// `lock_timeout` if somebody holds it for long.
    pub(super) fn patiently<T>(
        &self,
        inner: &Inner,
        attempt: impl FnMut() -> Result<T, WorkspaceError>,
    ) -> Result<T, WorkspaceError> {
        let sweep = || match self.sweep_shared_locks(inner) {
            Ok(removed) => inner.tell_removed(removed),
            Err(error) => tracing::warn!(%error, "Locks could not be looked at."),
        };
        locks::patiently(sweep, attempt)
    }

    /// Waits for the one writer's place.
    pub(super) async fn write_lock(
        &self,
        inner: &Inner,
        cancel: &CancellationToken,
    ) -> Result<tokio::sync::MutexGuard<'_, ()>, WorkspaceError> {
        let limit = inner.options.git_timeout;
        let _counted = Waits::new(&self.waiting);
        if let Some(stop) = self.maintenance_lock().as_ref() {
            stop.cancel();
        }
        tokio::select! {
            guard = self.writer.lock() => Ok(guard),
            () = cancel.cancelled() => Err(WorkspaceError::Cancelled),
            () = tokio::time::sleep(limit) => Err(WorkspaceError::new(
                FailureCode::LockTimeout,
                format!(
                    "waited {limit:?} for other work on `{}` to end",
                    self.names.rel().display()
                ),
            )),
        }
    }

    /// Branches of the shared clone are given to checkouts one at a time: two
    /// that want the same must not both see it free.
    pub(super) fn branch_lock(&self) -> MutexGuard<'_, ()> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_whole(&self) -> bool {
        let marker = Some(Marker::of(&self.names));
        Marker::read(&vault::marker_path(&self.vault)) == marker
            && Marker::read(&self.shared.join(shared::MARKER)) == marker
            && self.vault.join("objects/pack").is_dir()
            && self.shared.join("HEAD").is_file()
            && self.shared.join("objects").is_dir()
    }

    /// What can be told of damage without reading through anything. Blocking.
    fn damage(&self) -> Option<String> {
        health::damaged_pack(&self.vault.join("objects"), &self.whole)
            .or_else(|| health::damaged_pack(&self.shared.join("objects"), &self.whole))
            .or_else(|| health::damaged_branch(&self.shared))
    }

    async fn remember_url(&self, target: &RepoTarget) -> Result<(), WorkspaceError> {
        let (vault, url) = (self.vault.clone(), target.clone_url.clone());
        blocking(move || vault::set_clone_url(&vault, &url)).await
    }

    /// Puts back what drifted, by the URL that was last used, and tells.
    /// Blocking.
    pub(super) fn restore_known_drift(&self, inner: &Inner) -> Result<(), WorkspaceError> {
        let Some(url) = vault::clone_url(&self.vault) else {
            return Ok(());
        };
        if !self.is_whole() {
            return Ok(());
        }
        let keys = shared::restore_drift(&self.shared, &self.names, &url, &self.vault)?;
        if !keys.is_empty() {
            inner.tell(LogEvent::SharedCloneDrift { keys });
        }
        Ok(())
    }

    /// Compares the shared clone with what was written; puts back and returns
    /// what could run code or redirect an agent.
    pub(super) async fn restore_drift(
        self: &Arc<Self>,
        target: &RepoTarget,
    ) -> Result<Vec<String>, WorkspaceError> {
        let (this, url) = (Arc::clone(self), target.clone_url.clone());
        let drift =
            blocking(move || shared::restore_drift(&this.shared, &this.names, &url, &this.vault))
                .await?;
        if !drift.is_empty() {
            tracing::warn!(keys = ?drift, "The shared clone was changed; what matters is restored.");
        }
        Ok(drift)
    }

    /// Gives a shared clone of ours back what tells that it is one. Only if
    /// records of our checkouts are in it: nothing else proves it. Blocking.
    fn mend_frame(&self) -> Result<(), WorkspaceError> {
        let marker = Marker::of(&self.names);
        let is_ours = Marker::read(&vault::marker_path(&self.vault)).as_ref() == Some(&marker)
            && self.holds_our_records();
        if !is_ours {
            return Ok(());
        }
        let path = self.shared.join(shared::MARKER);
        if Marker::read(&path).as_ref() != Some(&marker) {
            files::atomic_write(&path, marker.text().as_bytes(), false)?;
        }
        let head = self.shared.join("HEAD");
        if fs::symlink_metadata(&head).is_err() {
            let default = vault::default_branch(&self.vault);
            let text = shared::head(default.as_deref().unwrap_or("main"));
            files::atomic_write(&head, text.as_bytes(), false)?;
        }
        // What they held is told to be missing by whoever needs it.
        for sub in ["objects/info", "objects/pack", "refs/heads"] {
            files::create_dirs(&self.shared.join(sub))?;
        }
        Ok(())
    }

    fn holds_our_records(&self) -> bool {
        Journal::slugs(&self.vault).into_iter().any(|slug| {
            let Ok(Some(journal)) = Journal::read(&self.vault, &slug) else {
                return false;
            };
            let nonce = self.shared.join("worktrees").join(&slug).join(NONCE_FILE);
            read_line(&nonce).is_ok_and(|nonce| nonce == journal.record.nonce)
        })
    }

    /// Makes sure that vault and shared clone are there, cloning if need be.
    pub(super) async fn ensure(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        target: &RepoTarget,
        cancel: &CancellationToken,
    ) -> Result<Ensured, WorkspaceError> {
        let this = Arc::clone(self);
        let (is_whole, damage) = blocking(move || Ok((this.is_whole(), this.damage()))).await?;
        if let Some(why) = damage {
            tracing::warn!(why, "A repository of ours is damaged.");
            rebuild::heal_shown(inner, self, Some(target), cancel).await?;
        }
        if is_whole {
            self.remember_url(target).await?;
            return Ok(Ensured::default());
        }
        let _writer = self.write_lock(inner, cancel).await?;
        let this = Arc::clone(self);
        if blocking(move || Ok(this.is_whole())).await? {
            return Ok(Ensured {
                cloned: false,
                waited: true,
            });
        }
        let this = Arc::clone(self);
        blocking(move || this.mend_frame()).await?;
        self.require_ours()?;
        let remote = Remote::of(inner, target)?;
        let mut cloned = false;
        if !vault::marker_path(&self.vault).exists() {
            self.make_vault(inner, &remote, cancel).await?;
            cloned = true;
        }
        self.make_shared(inner, target).await?;
        self.remember_url(target).await?;
        Ok(Ensured {
            cloned,
            waited: false,
        })
    }

    /// Refuses what stands in the way and is not ours.
    fn require_ours(&self) -> Result<(), WorkspaceError> {
        let marker = Marker::of(&self.names);
        for (dir, file) in [
            (&self.vault, vault::marker_path(&self.vault)),
            (&self.shared, self.shared.join(shared::MARKER)),
        ] {
            if fs::symlink_metadata(dir).is_err() {
                continue;
            }
            if fs::symlink_metadata(dir).is_ok_and(|stat| !stat.is_dir()) {
                return Err(WorkspaceError::new(
                    FailureCode::PathOccupied,
                    format!("`{}` is no directory", dir.display()),
                ));
            }
            if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
                continue;
            }
            match Marker::read(&file) {
                Some(found) if found == marker => {}
                Some(_) => {
                    return Err(WorkspaceError::new(
                        FailureCode::PathOccupied,
                        format!("`{}` is of another repository", dir.display()),
                    ));
                }
                None => {
                    return Err(WorkspaceError::new(
                        FailureCode::PathOccupied,
                        format!("`{}` was not made by Innkeeper", dir.display()),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Clones into the staging area and renames into place.
    async fn make_vault(
        &self,
        inner: &Arc<Inner>,
        remote: &Remote,
        cancel: &CancellationToken,
    ) -> Result<(), WorkspaceError> {
        let staging = inner.layout()?.staging().join(super::nonce());
        let made = async {
            let (dir, names) = (staging.clone(), self.names.clone());
            blocking(move || vault::write_empty(&dir, &names)).await?;
            let default = fetch::clone_heads(inner, &staging, remote, cancel).await?;
            let (dir, target) = (staging.clone(), self.vault.clone());
            blocking(move || {
                if let Some(default) = default {
                    vault::set_default_branch(&dir, &default)?;
                }
                CrashPoint::VaultFetched.pass();
                put_in_place(&dir, &target)?;
                CrashPoint::VaultMade.pass();
                Ok(())
            })
            .await
        }
        .await;
        if made.is_err() {
            let staging = staging.clone();
            let _ = blocking(move || Ok(files::remove_tree(&staging)?)).await;
        }
        made.map_err(|error| error.at(&self.vault))
    }

    async fn make_shared(
        &self,
        inner: &Arc<Inner>,
        target: &RepoTarget,
    ) -> Result<(), WorkspaceError> {
        if Marker::read(&self.shared.join(shared::MARKER)).is_some()
            && self.shared.join("HEAD").is_file()
            && self.shared.join("objects").is_dir()
        {
            return Ok(());
        }
        let staging = inner.layout()?.staging().join(super::nonce());
        let (dir, to, vault) = (staging.clone(), self.shared.clone(), self.vault.clone());
        let (names, url) = (self.names.clone(), target.clone_url.clone());
        blocking(move || {
            let made = shared::write(&dir, &names, &url, &vault).and_then(|()| {
                if fs::symlink_metadata(&to).is_ok() {
                    set_aside_damaged(&to)?;
                }
                put_in_place(&dir, &to)?;
                CrashPoint::SharedMade.pass();
                Ok(())
            });
            if made.is_err() {
                let _ = files::remove_tree(&dir);
            }
            made
        })
        .await
        .map_err(|error| error.at(&self.shared))
    }
}

/// One that waits for the writer's lock.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// See [`Repository::give_way`].
pub(super) struct GivesWay<'a>(&'a Repository);

impl Drop for GivesWay<'_> {
    fn drop(&mut self) {
        *self.0.maintenance_lock() = None;
    }
}

/// A shared clone of ours that is damaged is set aside, unless records of
/// checkouts are in it.
fn set_aside_damaged(dir: &Path) -> Result<(), WorkspaceError> {
    if fs::remove_dir(dir).is_ok() {
        return Ok(());
    }
    let depends =
        fs::read_dir(dir.join("worktrees")).is_ok_and(|mut entries| entries.next().is_some());
    if depends {
        return Err(WorkspaceError::new(
            FailureCode::Corrupt,
            format!("`{}` is damaged, and checkouts depend on it", dir.display()),
        ));
    }
    let mut aside = dir.as_os_str().to_owned();
    aside.push(format!("~aside-{}", super::nonce()));
    Ok(files::rename_noreplace(dir, Path::new(&aside))?)
}

fn put_in_place(from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    if let Some(parent) = to.parent() {
        files::create_dirs(parent)?;
    }
    // An empty directory is nobody's work.
    let _ = fs::remove_dir(to);
    files::rename_noreplace(from, to)?;
    if let Some(parent) = to.parent() {
        let _ = files::sync_dir(parent);
    }
    Ok(())
}
