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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::fetch::{self, Fetcher, Remote};
use super::layout::RepoPath;
use super::vault::{self, Marker};
use super::{Inner, WorkspaceError, blocking, shared};
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;
use crate::files;

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
        })
    }

    /// Returns a path for a private view of a checkout that nobody else has.
    pub(super) fn scratch_view(&self, slug: &str) -> PathBuf {
        self.vault
            .join("innkeeper/views")
            .join(format!("{SCRATCH_VIEW}{slug}-{}", super::nonce()))
    }

    /// Waits for the one writer's place.
    pub(super) async fn write_lock(
        &self,
        inner: &Inner,
        cancel: &CancellationToken,
    ) -> Result<tokio::sync::MutexGuard<'_, ()>, WorkspaceError> {
        let limit = inner.options.git_timeout;
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

    /// Makes sure that vault and shared clone are there, cloning if need be.
    pub(super) async fn ensure(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        target: &RepoTarget,
        cancel: &CancellationToken,
    ) -> Result<Ensured, WorkspaceError> {
        let this = Arc::clone(self);
        if blocking(move || Ok(this.is_whole())).await? {
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
        self.require_ours()?;
        let remote = Remote::of(inner, target)?;
        let mut cloned = false;
        if !vault::marker_path(&self.vault).exists() {
            self.make_vault(inner, &remote, cancel).await?;
            cloned = true;
        }
        self.make_shared(inner, target).await?;
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
                put_in_place(&dir, &target)
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
                put_in_place(&dir, &to)
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
