//! The parts of preparing, and small questions, for tests and for programs that
//! embed a workspace.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::fetch::{self, Want};
use super::identity;
use super::layout::{Layout, RepoPath};
use super::{PrepareOptions, Prepared, Workspace, WorkspaceError, blocking, facts, survey};
use crate::domain::checkout::{CheckoutRecord, Strategy, Wanted};
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;
use crate::domain::work_item::ItemKind;
use crate::git::{GitError, Version};

/// What is where a checkout should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryState {
    /// The checkout.
    Present,
    /// Nothing.
    Missing,
    /// Something else, or it cannot be told, and why.
    Foreign(String),
}

impl Workspace {
    /// Returns whether git can be run and is not too old.
    pub async fn is_available(&self) -> bool {
        self.version(&CancellationToken::new()).await.is_ok()
    }

    /// Returns git's version.
    pub async fn version(&self, cancel: &CancellationToken) -> Result<Version, GitError> {
        let git = match self.inner.git() {
            Ok(git) => git.clone(),
            Err(_) => self.inner.git_for(&Layout::new(&self.inner.options.root)),
        };
        git.version(cancel).await
    }

    /// Returns the layout; with its links resolved once the root is open.
    pub fn layout(&self) -> Layout {
        match self.inner.layout() {
            Ok(layout) => layout.clone(),
            Err(_) => Layout::new(&self.inner.options.root),
        }
    }

    /// Returns where the shared clone of a repository is.
    pub fn repo_dir(&self, target: &RepoTarget) -> Result<PathBuf, WorkspaceError> {
        Ok(self.layout().repo_dir(&self.names(target)?))
    }

    /// Returns where a work item's worktree is.
    pub fn worktree_dir(&self, target: &RepoTarget, slug: &str) -> Result<PathBuf, WorkspaceError> {
        Ok(self.layout().worktree_dir(&self.names(target)?, slug))
    }

    /// Returns what holds a work item's clones.
    pub fn workitem_dir(&self, slug: &str) -> PathBuf {
        self.layout().workitem_dir(slug)
    }

    /// Returns where a work item's clone of a repository is.
    pub fn clone_dir(&self, target: &RepoTarget, slug: &str) -> Result<PathBuf, WorkspaceError> {
        Ok(self.layout().clone_dir(&self.names(target)?, slug))
    }

    fn names(&self, target: &RepoTarget) -> Result<RepoPath, WorkspaceError> {
        let wanted = RepoPath::of(target)?;
        Ok(self.layout().known_spelling(&wanted).unwrap_or(wanted))
    }

    /// Makes sure that vault and shared clone are there, and returns where the
    /// shared clone is.
    pub async fn ensure_clone(
        &self,
        target: &RepoTarget,
        cancel: &CancellationToken,
    ) -> Result<PathBuf, WorkspaceError> {
        let inner = self.opened(cancel).await?;
        let repository = inner.repository(target).await?;
        inner.require_space().await?;
        repository.ensure(&inner, target, cancel).await?;
        Ok(repository.shared.clone())
    }

    /// Asks the remote for its default branch, and fetches its tip if it is not
    /// here.
    pub async fn default_branch(
        &self,
        target: &RepoTarget,
        cancel: &CancellationToken,
    ) -> Result<String, WorkspaceError> {
        let inner = self.opened(cancel).await?;
        let repository = inner.repository(target).await?;
        repository.ensure(&inner, target, cancel).await?;
        let got = fetch::obtain(&inner, &repository, target, Want::Default, cancel).await?;
        got.default_branch.ok_or_else(|| {
            WorkspaceError::new(
                FailureCode::BaseUnresolvable,
                "the remote's HEAD names no branch",
            )
        })
    }

    /// Prepares a worktree; see [`Workspace::prepare`].
    pub async fn ensure_worktree(
        &self,
        target: &RepoTarget,
        slug: &str,
        item: (ItemKind, u64),
        wanted: &Wanted,
        cancel: &CancellationToken,
    ) -> Result<Prepared, WorkspaceError> {
        let options = PrepareOptions {
            strategy: Some(Strategy::Worktree),
            ..PrepareOptions::default()
        };
        self.prepare(target, slug, item, wanted, options, cancel)
            .await
    }

    /// Prepares a clone; see [`Workspace::prepare`].
    pub async fn ensure_workitem_clone(
        &self,
        target: &RepoTarget,
        slug: &str,
        item: (ItemKind, u64),
        wanted: &Wanted,
        cancel: &CancellationToken,
    ) -> Result<Prepared, WorkspaceError> {
        let options = PrepareOptions {
            strategy: Some(Strategy::Clone),
            ..PrepareOptions::default()
        };
        self.prepare(target, slug, item, wanted, options, cancel)
            .await
    }

    /// Asks the remote for all of its branches, so that what was pushed counts
    /// as being there. Old tips stay pinned.
    pub async fn refresh_heads(
        &self,
        target: &RepoTarget,
        cancel: &CancellationToken,
    ) -> Result<(), WorkspaceError> {
        let inner = self.opened(cancel).await?;
        let repository = inner.repository(target).await?;
        repository.ensure(&inner, target, cancel).await?;
        fetch::refresh_heads(&inner, &repository, target, cancel).await
    }

    /// Returns whether a commit is HEAD of the checkout, or in its reflog.
    pub async fn knows_commit(&self, record: &CheckoutRecord, commit: &str) -> bool {
        let Ok(inner) = self.opened(&CancellationToken::new()).await else {
            return false;
        };
        let (record, commit) = (record.clone(), commit.to_owned());
        blocking(move || {
            let located = identity::locate(inner.layout()?, &record);
            Ok(located.is_ok_and(|located| facts::knows_commit(&located, &commit)))
        })
        .await
        .unwrap_or(false)
    }

    /// Returns what is where the checkout should be.
    pub async fn directory_state(&self, record: &CheckoutRecord) -> DirectoryState {
        let inner = match self.opened(&CancellationToken::new()).await {
            Ok(inner) => inner,
            Err(error) => return DirectoryState::Foreign(error.to_string()),
        };
        let (inner, record) = (Arc::clone(&inner), record.clone());
        blocking(move || Ok(survey::state_of(inner.layout()?, &record)))
            .await
            .unwrap_or_else(|error| DirectoryState::Foreign(error.to_string()))
    }
}
