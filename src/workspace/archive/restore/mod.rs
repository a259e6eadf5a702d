//! Bringing an archive back.
//!
//! Everything is written where nobody sees it and renamed into place, under the
//! journal of a preparation: a crash is undone as that of a preparation is.
//! Configuration is ours, with what was harmless in the old one; hooks stay in
//! the archive. Nothing is run, and no operation in progress is continued.

mod checkout;
mod objects;
mod refs;
mod standalone;
mod submodules;
mod unpack;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::manifest::{Entry, Manifest, STATE, TREE, read_files};
use super::{Restored, shelf};
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::repo_target::RepoTarget;
use crate::workspace::layout::Layout;
use crate::workspace::prepare::{Order, told_by_disk};
use crate::workspace::{Inner, WorkspaceError, blocking, vault};

/// An archive of which every part was compared with its hash.
pub(super) struct Loaded {
    pub dir: PathBuf,
    pub manifest: Manifest,
    pub entries: Vec<Entry>,
}

impl Loaded {
    fn record(&self) -> &CheckoutRecord {
        &self.manifest.summary.record
    }

    /// The entry of an area itself.
    fn top(&self, area: &str) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|entry| entry.path.0 == area.as_bytes())
    }
}

/// Blocking.
fn load(layout: &Layout, id: &str) -> Result<Loaded, WorkspaceError> {
    let (dir, manifest) = shelf::find(layout, id)?;
    let corrupt = |why: String| shelf::corrupt(id, &why);
    manifest.verify_parts(&dir).map_err(corrupt)?;
    let entries = read_files(&dir).map_err(corrupt)?;
    Ok(Loaded {
        dir,
        manifest,
        entries,
    })
}

async fn loaded(inner: &Arc<Inner>, id: &str) -> Result<Arc<Loaded>, WorkspaceError> {
    let (at, id) = (Arc::clone(inner), id.to_owned());
    blocking(move || Ok(Arc::new(load(at.layout()?, &id)?))).await
}

/// See [`crate::workspace::Workspace::restore`].
pub(super) async fn as_checkout(
    inner: &Arc<Inner>,
    id: &str,
    target: &RepoTarget,
    cancel: &CancellationToken,
) -> Result<Restored, WorkspaceError> {
    let loaded = loaded(inner, id).await?;
    let repository = inner.repository_of(loaded.record())?;
    let _one = inner
        .slug_lock(&repository, &loaded.record().slug, cancel)
        .await?;
    let (at, repo, what) = (
        Arc::clone(inner),
        Arc::clone(&repository),
        Arc::clone(&loaded),
    );
    blocking(move || checkout::require_free(at.layout()?, &repo, what.record())).await?;
    inner.require_space().await?;
    repository.ensure(inner, target, cancel).await?;
    objects::ensure(inner, &repository, &loaded, target, cancel).await?;
    let root = inner.layout()?.root().to_owned();
    checkout::restore(inner, &repository, &loaded, target, cancel)
        .await
        .map_err(|error| told_by_disk(error, &root))
}

/// See [`crate::workspace::Workspace::restore_to`].
pub(super) async fn standalone(
    inner: &Arc<Inner>,
    id: &str,
    directory: &Path,
    cancel: &CancellationToken,
) -> Result<Restored, WorkspaceError> {
    let loaded = loaded(inner, id).await?;
    let root = inner.layout()?.root().to_owned();
    let at = directory.to_owned();
    blocking(move || standalone::require_free(&root, &at)).await?;
    let record = loaded.record();
    let repository = inner.repository_of(record)?;
    let target = RepoTarget {
        host: record.host.replace('+', ":"),
        owner: record.owner.clone(),
        repo: record.repo.clone(),
        clone_url: loaded.manifest.clone_url.clone(),
    };
    repository.ensure(inner, &target, cancel).await?;
    objects::ensure(inner, &repository, &loaded, &target, cancel).await?;
    standalone::restore(inner, &repository, &loaded, &target, directory, cancel).await
}

/// What a configuration of ours is made for. What branches follow is among the
/// settings that the archive has.
fn order(record: &CheckoutRecord, target: &RepoTarget) -> Result<Order, WorkspaceError> {
    Ok(Order {
        slug: record.slug.clone(),
        item: (record.kind, record.number),
        commit: vault::parse_oid(&record.commit)?,
        branch: None,
        push_off: record.push_off,
        clone_url: target.clone_url.clone(),
    })
}

/// Whether a path of a git directory's state is brought back: not what is
/// written anew, and nothing that runs.
fn is_restored_state(strategy: Strategy, path: &[u8]) -> bool {
    let is_below = |dir: &[u8]| {
        path.strip_prefix(dir)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let in_modules = is_below(b"modules")
        && path
            .split(|byte| *byte == b'/')
            .any(|part| part == b"hooks");
    let of_clone = strategy == Strategy::Clone
        && (matches!(path, b"config" | b"config.worktree") || is_below(b"hooks"));
    !in_modules && !of_clone
}

/// Returns where entries go: files below `tree`, state below `state`.
fn placed<'a>(
    tree: &'a Path,
    state: &'a Path,
    strategy: Strategy,
) -> impl Fn(&Entry) -> Option<PathBuf> + use<'a> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    move |entry| {
        let (top, path) = match (entry.below(TREE), entry.below(STATE)) {
            (Some(path), _) => (tree, path),
            (_, Some(path)) if is_restored_state(strategy, path) => (state, path),
            _ => return None,
        };
        Some(if path.is_empty() {
            top.to_owned()
        } else {
            top.join(OsStr::from_bytes(path))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_and_hooks_are_not_brought_back() {
        for (strategy, path, expected) in [
            (Strategy::Clone, "config", false),
            (Strategy::Clone, "hooks", false),
            (Strategy::Clone, "hooks/post-checkout", false),
            (Strategy::Clone, "hooks-of-mine", true),
            (Strategy::Clone, "refs/heads/hooks", true),
            (Strategy::Clone, "HEAD", true),
            (Strategy::Worktree, "modules/lib/hooks/update", false),
            (Strategy::Worktree, "modules/lib/config", true),
            (Strategy::Worktree, "rebase-merge/git-rebase-todo", true),
        ] {
            let path = path.as_bytes();
            assert_eq!(is_restored_state(strategy, path), expected, "{path:?}");
        }
    }
}
