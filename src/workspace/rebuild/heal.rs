//! When a damaged repository is made anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Which, dir_of, rebuild};
use crate::domain::repo_target::RepoTarget;
use crate::files;
use crate::git::ctl;
use crate::workspace::rawrefs::{RawRefs, Value, path_below};
use crate::workspace::repository::Repository;
use crate::workspace::vault::{self, SEEN};
use crate::workspace::{Inner, WorkspaceError, blocking, health, nonce, read_through};

/// How long a repository that was found in order is not read through again.
const FOUND_WHOLE_FOR: Duration = Duration::from_mins(1);

/// After git has said that something is corrupt: reads vault and shared clone
/// through, and makes anew what is damaged. Returns whether anything was.
pub(in crate::workspace) async fn heal(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    target: &RepoTarget,
    cancel: &CancellationToken,
) -> Result<bool, WorkspaceError> {
    let _writer = repository.write_lock(inner, cancel).await?;
    let found_whole = repository.found_whole(None);
    if found_whole.is_some_and(|then| then.elapsed() < FOUND_WHOLE_FOR) {
        return Ok(false);
    }
    let repo = Arc::clone(repository);
    let mut healed = blocking(move || mend_vault_refs(&repo)).await?;
    for which in [Which::Vault, Which::Shared] {
        if let Some(reason) = damage(inner, repository, which, cancel).await? {
            healed |= replace(inner, repository, which, Some(target), &reason, cancel).await?;
        }
    }
    if !healed {
        repository.found_whole(Some(Instant::now()));
    }
    Ok(healed)
}

/// Makes anew what is damaged so that it shows without reading anything through:
/// at start, and before each use. Without a target a vault is left to whoever
/// knows its remote; returns what is wrong with it then.
pub(in crate::workspace) async fn heal_shown(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    target: Option<&RepoTarget>,
    cancel: &CancellationToken,
) -> Result<Option<String>, WorkspaceError> {
    let _writer = repository.write_lock(inner, cancel).await?;
    let repo = Arc::clone(repository);
    blocking(move || mend_vault_refs(&repo)).await?;
    for which in [Which::Vault, Which::Shared] {
        let repo = Arc::clone(repository);
        let damage = blocking(move || Ok(shown(&repo, dir_of(&repo, which)))).await?;
        let Some(reason) = damage else {
            continue;
        };
        if which == Which::Vault && target.is_none() {
            return Ok(Some(reason));
        }
        replace(inner, repository, which, target, &reason, cancel).await?;
    }
    Ok(None)
}

/// During a maintenance, which has the writer's lock: makes a shared clone anew
/// if an object of its own cannot be read.
pub(in crate::workspace) async fn heal_shared(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let repo = Arc::clone(repository);
    let mut found = blocking(move || {
        ctl::ensure(&repo.ctl, &repo.shared)?;
        Ok(shown(&repo, &repo.shared))
    })
    .await?;
    if found.is_none() {
        let (shared, ctl) = (&repository.shared, &repository.ctl);
        found = read_through::damaged_own_objects(inner, shared, ctl, cancel).await?;
    }
    if let Some(reason) = found {
        replace(inner, repository, Which::Shared, None, &reason, cancel).await?;
    }
    Ok(())
}

/// What shows of damage without reading anything through. Blocking.
fn shown(repository: &Repository, dir: &Path) -> Option<String> {
    if fs::symlink_metadata(dir).is_err() {
        return None;
    }
    health::damaged_pack(&dir.join("objects"), &repository.whole)
        .or_else(|| health::damaged_files(dir))
}

/// Makes one anew, unless what is wrong with it was wrong after the last time
/// as well: what is lost for good must not have it made again and again.
async fn replace(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    which: Which,
    target: Option<&RepoTarget>,
    reason: &str,
    cancel: &CancellationToken,
) -> Result<bool, WorkspaceError> {
    if is_known(repository, which, reason) {
        return Ok(false);
    }
    rebuild(inner, repository, which, target, reason, cancel).await?;
    let left = damage(inner, repository, which, cancel).await?;
    let path = known_path(repository, which);
    blocking(move || {
        let left = left.unwrap_or_default();
        Ok(files::atomic_write(&path, left.as_bytes(), true)?)
    })
    .await?;
    Ok(true)
}

/// What was still wrong after the last time it was made anew.
fn known_path(repository: &Repository, which: Which) -> PathBuf {
    repository.vault.join(match which {
        Which::Shared => "innkeeper/shared-is-known-to-lack",
        Which::Vault => "innkeeper/vault-is-known-to-lack",
    })
}

fn is_known(repository: &Repository, which: Which, reason: &str) -> bool {
    fs::read_to_string(known_path(repository, which)).is_ok_and(|known| known == reason)
}

async fn damage(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    which: Which,
    cancel: &CancellationToken,
) -> Result<Option<String>, WorkspaceError> {
    let repo = Arc::clone(repository);
    let (quick, git_dir) = blocking(move || {
        let quick = shown(&repo, dir_of(&repo, which));
        let git_dir = match which {
            Which::Shared => {
                ctl::ensure(&repo.ctl, &repo.shared)?;
                repo.ctl.clone()
            }
            Which::Vault => repo.vault.clone(),
        };
        Ok((quick, git_dir))
    })
    .await?;
    match quick {
        Some(why) => Ok(Some(why)),
        None => read_through::damaged_content(inner, &git_dir, cancel).await,
    }
}

/// A ref of the vault that says nothing blocks every fetch. A pin has the commit
/// in its name; what the remote gave, the next fetch gives again. The broken
/// file is set aside. Returns whether there was one. Blocking.
fn mend_vault_refs(repository: &Repository) -> Result<bool, WorkspaceError> {
    let found = RawRefs::read(&repository.vault)?;
    let broken: Vec<Vec<u8>> = found.broken().map(<[u8]>::to_vec).collect();
    if broken.is_empty() {
        return Ok(false);
    }
    let aside = repository
        .vault
        .join("innkeeper/set-aside")
        .join(format!("refs-{}", nonce()));
    files::create_dirs(&aside)?;
    for (n, name) in broken.iter().enumerate() {
        let Some(path) = path_below(&repository.vault, name) else {
            continue;
        };
        let shown = String::from_utf8_lossy(name).into_owned();
        files::rename_noreplace(&path, &aside.join(n.to_string()))?;
        tracing::warn!(
            name = shown,
            "A ref of the vault said nothing; it was set aside."
        );
        if matches!(found.refs.get(name), Some(Value::Broken(Some(_)))) {
            continue;
        }
        if let Some(id) = shown.strip_prefix(SEEN)
            && let Ok(id) = vault::parse_oid(id)
        {
            let opened = vault::open(&repository.vault)?;
            if vault::has_commit(&opened, id) {
                vault::pin(&opened, id)?;
            }
        }
    }
    Ok(true)
}
