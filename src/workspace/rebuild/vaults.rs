//! Making a vault anew: everything readable, and everything the remote still
//! has.
//!
//! The shared clone borrows from it, so no object may be missing that was there
//! and can be read. Refs whose history is not whole afterwards would make every
//! fetch fail; they are told and left out. What they named stays as an object.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use git2::Oid;
use tokio_util::sync::CancellationToken;

use super::{Journal, refs, salvage, told, write_frame};
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;
use crate::workspace::fetch::{self, Remote};
use crate::workspace::rawrefs::{RawRefs, Value};
use crate::workspace::repository::Repository;
use crate::workspace::vault::{self, HEADS, PULLS, SEEN};
use crate::workspace::{Inner, WorkspaceError, blocking, read_through};

/// How many single things the remote is asked for, one by one.
const ASKED_MAX: usize = 100;

pub(super) async fn stage(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    journal: &Journal,
    target: Option<&RepoTarget>,
    cancel: &CancellationToken,
) -> Result<Vec<String>, WorkspaceError> {
    let target = target.ok_or_else(|| {
        WorkspaceError::new(FailureCode::Corrupt, "nothing says where its remote is")
    })?;
    let staged = journal.staged(repository);
    let dir = staged.clone();
    blocking(move || write_frame(&dir, None)).await?;
    let objects = repository.vault.join("objects");
    let scratch = staged.join("scratch");
    let salvaged = salvage::salvage(inner, &objects, &staged, &scratch, cancel).await?;
    let remote = Remote::of(inner, target)?;
    let fetched = fetch::clone_heads(inner, &staged, &remote, cancel).await;
    if let Err(error) = &fetched {
        if error.is_cancelled() || error.code() == FailureCode::DiskFull {
            return Err(error.clone());
        }
        tracing::warn!(%error, "The remote could not be asked for a damaged vault's branches.");
    } else {
        ask_for_missing(inner, repository, &staged, &remote, cancel).await?;
    }
    let (repo, dir, has_heads) = (Arc::clone(repository), staged.clone(), fetched.is_ok());
    let carried = blocking(move || {
        let from = to_be_carried(&repo.vault, &dir, has_heads)?;
        refs::carry(&from, &repo.vault.join("logs"), &dir, &|_| None)
    })
    .await?;
    let mut lost = carried.told;
    if read_through::damaged_content(inner, &staged, cancel)
        .await?
        .is_some()
    {
        // Without the remote it may be less than it could be.
        fetched?;
        lost.extend(leave_out_broken(inner, &staged, &remote, cancel).await?);
    }
    Ok(told(salvaged, lost))
}

/// The old refs, but the remote's branches as they are now; where one has moved
/// its old tip is pinned.
fn to_be_carried(old: &Path, new: &Path, has_heads: bool) -> Result<RawRefs, WorkspaceError> {
    let mut from = RawRefs::read(old)?;
    if !has_heads {
        return Ok(from);
    }
    let fetched = RawRefs::read(new)?;
    let is_head = |name: &[u8]| name.starts_with(HEADS.as_bytes());
    let old_heads: Vec<Value> = from
        .refs
        .iter()
        .filter(|(name, value)| is_head(name) && fetched.refs.get(*name) != Some(value))
        .map(|(_, value)| value.clone())
        .collect();
    from.refs.retain(|name, _| !is_head(name));
    for value in old_heads {
        if let Value::Id(id) | Value::Broken(Some(id)) = value {
            from.refs
                .insert(format!("{SEEN}{id}").into_bytes(), Value::Id(id));
        }
    }
    from.refs.extend(fetched.refs);
    Ok(from)
}

/// Asks for heads of pull requests and single commits that could not be read.
async fn ask_for_missing(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    staged: &Path,
    remote: &Remote,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let (old, new) = (repository.vault.clone(), staged.to_owned());
    let wanted = blocking(move || {
        let here = vault::open(&new)?;
        let mut wanted = Vec::new();
        for (name, value) in RawRefs::read(&old)?.refs {
            let Ok(name) = String::from_utf8(name) else {
                continue;
            };
            let is_here = matches!(value, Value::Id(id) if vault::has_commit(&here, id));
            if is_here {
                continue;
            }
            if let Some(number) = name.strip_prefix(PULLS) {
                wanted.push((format!("refs/pull/{number}/head"), name));
            } else if let Some(id) = name.strip_prefix(SEEN) {
                wanted.push((id.to_owned(), name));
            }
        }
        Ok(wanted)
    })
    .await?;
    for (source, place) in wanted.into_iter().take(ASKED_MAX) {
        match fetch::fetch_one(inner, staged, remote, &source, &place, cancel).await {
            Err(error) if error.is_cancelled() => return Err(error),
            // The remote may not have it any more.
            Err(_) | Ok(()) => {}
        }
    }
    Ok(())
}

/// Takes refs out whose history is not whole and cannot be had from the remote;
/// returns which.
async fn leave_out_broken(
    inner: &Arc<Inner>,
    staged: &Path,
    remote: &Remote,
    cancel: &CancellationToken,
) -> Result<Vec<String>, WorkspaceError> {
    let dir = staged.to_owned();
    let all = blocking(move || Ok(RawRefs::read(&dir)?.refs)).await?;
    let mut whole: BTreeMap<Oid, bool> = BTreeMap::new();
    let (mut kept, mut lost) = (BTreeMap::new(), Vec::new());
    let mut asked = 0;
    for (name, value) in all {
        let Value::Id(id) = value else { continue };
        let has_all = match whole.get(&id) {
            Some(known) => *known,
            None => {
                let mut found = is_whole(inner, staged, id, cancel).await?;
                if !found && asked < ASKED_MAX {
                    asked += 1;
                    let source = id.to_string();
                    let place = format!("{SEEN}{id}");
                    let had = fetch::fetch_one(inner, staged, remote, &source, &place, cancel);
                    found = had.await.is_ok() && is_whole(inner, staged, id, cancel).await?;
                }
                whole.insert(id, found);
                found
            }
        };
        if has_all {
            kept.insert(name, id);
        } else {
            lost.push(format!(
                "{} named {id}, which is not whole",
                String::from_utf8_lossy(&name)
            ));
        }
    }
    let dir = staged.to_owned();
    blocking(move || {
        crate::files::remove_tree(&dir.join("refs"))?;
        crate::files::create_dirs(&dir.join("refs/heads"))?;
        crate::files::create_dirs(&dir.join("refs/innkeeper"))?;
        refs::write_packed(&dir.join("packed-refs"), &kept)
    })
    .await?;
    Ok(lost)
}

/// Whether everything that a commit reaches is there.
async fn is_whole(
    inner: &Arc<Inner>,
    dir: &Path,
    id: Oid,
    cancel: &CancellationToken,
) -> Result<bool, WorkspaceError> {
    let output = inner
        .git()?
        .command("rev-list")
        .git_dir(dir)
        .args(["--objects", "--quiet", &id.to_string()])
        .run_to_end(cancel)
        .await?;
    Ok(output.status.success())
}
