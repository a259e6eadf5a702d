//! Objects that a restore needs: in the vault, from the archive's bundle, or,
//! for what was on the remote, from there.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Loaded;
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;
use crate::domain::work_item::ItemKind;
use crate::workspace::archive::bundle;
use crate::workspace::fetch::{self, Want};
use crate::workspace::repository::Repository;
use crate::workspace::{Inner, WorkspaceError, blocking, vault};

/// Makes sure that everything the archive pins is in the vault.
pub(super) async fn ensure(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    target: &RepoTarget,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    if pinned(repository, loaded).await.is_ok() {
        return Ok(());
    }
    for id in missing(repository, loaded).await? {
        fetch_one(inner, repository, loaded, target, &id, cancel).await?;
    }
    let id = &loaded.manifest.summary.id;
    bundle::pin(inner, repository, &loaded.dir, id, cancel).await?;
    pinned(repository, loaded).await
}

async fn pinned(repository: &Arc<Repository>, loaded: &Arc<Loaded>) -> Result<(), WorkspaceError> {
    let (repo, what) = (Arc::clone(repository), Arc::clone(loaded));
    blocking(move || {
        let manifest = &what.manifest;
        let id = &manifest.summary.id;
        bundle::require_pinned(&repo.vault, id, &manifest.pins, &manifest.objects)
    })
    .await
}

async fn missing(
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
) -> Result<Vec<String>, WorkspaceError> {
    let (repo, what) = (Arc::clone(repository), Arc::clone(loaded));
    blocking(move || bundle::missing_prerequisites(&repo.vault, &what.manifest)).await
}

/// Gets a commit that was on the remote: from its branches, else by its id.
async fn fetch_one(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    target: &RepoTarget,
    id: &str,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    fetch::refresh_heads(inner, repository, target, cancel).await?;
    if !missing(repository, loaded)
        .await?
        .iter()
        .any(|one| one == id)
    {
        return Ok(());
    }
    let record = loaded.record();
    let want = Want::Commit {
        commit: vault::parse_oid(id)?,
        pull: (record.kind == ItemKind::PullRequest).then_some(record.number),
        branch: record.branch.clone(),
        base: None,
        gone: false,
    };
    fetch::obtain(inner, repository, target, want, cancel)
        .await
        .map(drop)
        .map_err(|error| match error {
            WorkspaceError::Cancelled => error,
            WorkspaceError::Failed { .. } => WorkspaceError::new(
                match error.code() {
                    FailureCode::RefNotYet => FailureCode::RefGone,
                    code => code,
                },
                format!("commit {id}, which was on the remote, is needed: {error}"),
            ),
        })
}

/// Writes one pack with everything that the archive pins, what it was made on,
/// and the remote's branches.
pub(super) async fn copy_to(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    git_dir: &Path,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let (repo, what) = (Arc::clone(repository), Arc::clone(loaded));
    let tips = blocking(move || {
        let mut tips = String::new();
        for (_, oid) in vault::heads(&vault::open(&repo.vault)?)? {
            // Writing to a string cannot fail.
            let _ = writeln!(tips, "{oid}");
        }
        let manifest = &what.manifest;
        for id in manifest.pins.values().chain(&manifest.prerequisites) {
            let _ = writeln!(tips, "{id}");
        }
        Ok(tips)
    })
    .await?;
    inner
        .git()?
        .command("pack-objects")
        .git_dir(&repository.vault)
        .args(["-q", "--revs", "--delta-base-offset"])
        .arg(git_dir.join("objects/pack/pack"))
        .stdin(tips.into_bytes())
        .run(cancel)
        .await?;
    Ok(())
}

/// Brings what a restored clone's tracking branches name and today's remote has
/// no more, as after a force push: git takes a ref without its object for damage.
pub(super) async fn complete(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    git_dir: &Path,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let (path, packed) = (repository.vault.clone(), git_dir.join("packed-refs"));
    let revisions = blocking(move || {
        let text = match std::fs::read_to_string(&packed) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(WorkspaceError::io("read", &packed, &error)),
        };
        let vault = vault::open(&path)?;
        let mut revisions = String::new();
        for line in text.lines() {
            let id = line.split(' ').next().unwrap_or_default();
            if let Ok(oid) = vault::parse_oid(id)
                && vault::has_commit(&vault, oid)
            {
                // Writing to a string cannot fail.
                let _ = writeln!(revisions, "{oid}");
            }
        }
        for (_, oid) in vault::heads(&vault)? {
            let _ = writeln!(revisions, "^{oid}");
        }
        Ok(Some(revisions))
    })
    .await?;
    let Some(revisions) = revisions else {
        return Ok(());
    };
    inner
        .git()?
        .command("pack-objects")
        .git_dir(&repository.vault)
        .args(["-q", "--revs", "--delta-base-offset", "--non-empty"])
        .arg(git_dir.join("objects/pack/pack"))
        .stdin(revisions.into_bytes())
        .run(cancel)
        .await?;
    Ok(())
}
