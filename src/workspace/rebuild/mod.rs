//! A damaged repository of ours is made anew beside, and put in its place.
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | make new objects and refs in `<vault>/innkeeper/rebuilding/<id>` | swept at the next start |
//! | write `<vault>/innkeeper/rebuild.json` | gone through with |
//! | put the parts in place ([`swap`]); the old ones are in `innkeeper/set-aside/<id>` | gone through with |
//! | carry over what was written meanwhile | gone through with |
//! | remove the journal, then what is left of the making | swept |
//!
//! # What is promised
//!
//! 1. Every object that can be read is in the new one ([`salvage`]); what cannot
//!    be is told. A damaged vault asks the remote for everything again.
//! 2. Every ref is there, at what it said or at the newest that can be read of
//!    it ([`refs`]).
//! 3. Checkouts keep their names and their records; no file of theirs is touched.
//! 4. What was damaged is kept, in a directory that nothing sweeps.

mod heal;
mod refs;
mod salvage;
mod swap;
mod vaults;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::rawrefs::RawRefs;
use super::repository::Repository;
use super::vault;
use super::{Inner, WorkspaceError, blocking};
use crate::domain::code::FailureCode;
use crate::domain::log_event::LogEvent;
use crate::domain::repo_target::RepoTarget;
use crate::files;
use crate::git::ctl;
use salvage::Salvaged;

pub(super) use heal::{heal, heal_shared, heal_shown};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Which {
    Shared,
    Vault,
}

/// A new repository that is whole and being put in place.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Journal {
    version: u32,
    which: Which,
    id: String,
    reason: String,
}

impl Journal {
    fn staged(&self, repository: &Repository) -> PathBuf {
        making(repository).join(&self.id)
    }

    fn aside(&self, repository: &Repository) -> PathBuf {
        repository.vault.join("innkeeper/set-aside").join(&self.id)
    }

    fn dir<'a>(&self, repository: &'a Repository) -> &'a Path {
        dir_of(repository, self.which)
    }
}

fn dir_of(repository: &Repository, which: Which) -> &Path {
    match which {
        Which::Shared => &repository.shared,
        Which::Vault => &repository.vault,
    }
}

fn journal_path(repository: &Repository) -> PathBuf {
    repository.vault.join("innkeeper/rebuild.json")
}

fn making(repository: &Repository) -> PathBuf {
    repository.vault.join("innkeeper/rebuilding")
}

/// Makes one anew. Under the writer's lock.
async fn rebuild(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    which: Which,
    target: Option<&RepoTarget>,
    why: &str,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let mut journal = Journal {
        version: 1,
        which,
        id: super::nonce(),
        reason: why.to_owned(),
    };
    tracing::error!(
        path = %journal.dir(repository).display(),
        why,
        "A repository is damaged; it is made anew from what can be read."
    );
    let staged = journal.staged(repository);
    let made = match which {
        Which::Shared => stage_shared(inner, repository, &journal, cancel).await,
        Which::Vault => vaults::stage(inner, repository, &journal, target, cancel).await,
    };
    let told = match made {
        Ok(told) => told,
        Err(error) => {
            let _ = blocking(move || Ok(files::remove_tree(&staged)?)).await;
            return Err(error);
        }
    };
    if !told.is_empty() {
        journal.reason = format!("{why}; {}", told.join("; "));
    }
    let (repo, written) = (Arc::clone(repository), journal.clone());
    blocking(move || {
        files::sync_file_system(&written.staged(&repo))?;
        let text = serde_json::to_vec_pretty(&written)
            .map_err(|error| WorkspaceError::new(FailureCode::Internal, error.to_string()))?;
        Ok(files::atomic_write(&journal_path(&repo), &text, true)?)
    })
    .await?;
    finish(inner, repository, journal).await
}

/// Puts what was made in place, from wherever that stopped.
async fn finish(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    journal: Journal,
) -> Result<(), WorkspaceError> {
    let cancel = CancellationToken::new();
    let (repo, one) = (Arc::clone(repository), journal.clone());
    let asides = blocking(move || {
        let _no_branch_moves = repo.branch_lock();
        swap::swap(one.dir(&repo), &one.staged(&repo), &one.aside(&repo))?;
        Ok(swap::set_aside(&one.aside(&repo), "objects"))
    })
    .await?;
    // Somebody's git may have written while the new one was made.
    let dir = journal.dir(repository).to_owned();
    let scratch = journal.staged(repository).join("scratch");
    for objects in asides {
        salvage::salvage(inner, &objects, &dir, &scratch, &cancel).await?;
    }
    let (repo, one) = (Arc::clone(repository), journal.clone());
    blocking(move || {
        let view = match one.which {
            Which::Shared => {
                ctl::ensure(&repo.ctl, &repo.shared)?;
                &repo.ctl
            }
            Which::Vault => &repo.vault,
        };
        refs::carry_late(&one.aside(&repo), &one.staged(&repo), view)?;
        let path = journal_path(&repo);
        fs::remove_file(&path).map_err(|error| WorkspaceError::io("remove", &path, &error))?;
        files::remove_tree(&making(&repo))?;
        Ok(())
    })
    .await?;
    inner.tell(LogEvent::SharedCloneRebuilt {
        path: dir.display().to_string(),
        reason: journal.reason,
    });
    Ok(())
}

/// Finishes what a crash interrupted, and sweeps what was not complete.
pub(super) async fn recover(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
) -> Result<(), WorkspaceError> {
    let repo = Arc::clone(repository);
    let journal = blocking(move || {
        let path = journal_path(&repo);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Journal>(&bytes)
                .map(Some)
                .map_err(|error| {
                    WorkspaceError::new(
                        FailureCode::Corrupt,
                        format!("`{}` is damaged: {error}", path.display()),
                    )
                }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files::remove_tree(&making(&repo))?;
                Ok(None)
            }
            Err(error) => Err(WorkspaceError::io("read", &path, &error)),
        }
    })
    .await?;
    match journal {
        Some(journal) => finish(inner, repository, journal).await,
        None => Ok(()),
    }
}

async fn stage_shared(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    journal: &Journal,
    cancel: &CancellationToken,
) -> Result<Vec<String>, WorkspaceError> {
    let staged = journal.staged(repository);
    let (dir, borrowed) = (staged.clone(), repository.vault.join("objects"));
    blocking(move || write_frame(&dir, Some(&borrowed))).await?;
    let scratch = staged.join("scratch");
    let objects = repository.shared.join("objects");
    let salvaged = salvage::salvage(inner, &objects, &staged, &scratch, cancel).await?;
    let repo = Arc::clone(repository);
    blocking(move || {
        let known = {
            let vault = vault::open(&repo.vault)?;
            let heads = vault::heads(&vault)?;
            heads.into_iter().collect::<BTreeMap<_, _>>()
        };
        let from = RawRefs::read(&repo.shared)?;
        let carried = refs::carry(&from, &repo.shared.join("logs"), &staged, &|name| {
            let branch = name.strip_prefix(b"refs/remotes/origin/")?;
            known.get(std::str::from_utf8(branch).ok()?).copied()
        })?;
        Ok(told(salvaged, carried.told))
    })
    .await
}

/// An empty repository, as far as git and libgit2 need it.
fn write_frame(dir: &Path, borrowed: Option<&Path>) -> Result<(), WorkspaceError> {
    for sub in [
        "objects/info",
        "objects/pack",
        "refs/heads",
        "refs/tags",
        "refs/innkeeper",
    ] {
        files::create_dirs(&dir.join(sub))?;
    }
    files::create_new(&dir.join("config"), vault::CONFIG.as_bytes())?;
    files::create_new(&dir.join("HEAD"), b"ref: refs/innkeeper/none\n")?;
    if let Some(objects) = borrowed {
        let text = format!("{}\n", objects.display());
        files::create_new(&dir.join("objects/info/alternates"), text.as_bytes())?;
    }
    Ok(())
}

fn told(salvaged: Salvaged, refs: Vec<String>) -> Vec<String> {
    /// Events are for reading.
    const REFS_MAX: usize = 20;
    let mut told = Vec::new();
    if salvaged.unreadable > 0 {
        told.push(format!(
            "{} objects could not be read: {}",
            salvaged.unreadable,
            salvaged.told.join(", ")
        ));
    }
    let more = refs.len().saturating_sub(REFS_MAX);
    told.extend(refs.into_iter().take(REFS_MAX));
    if more > 0 {
        told.push(format!("and {more} more refs"));
    }
    told
}
