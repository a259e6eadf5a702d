//! What a dispatcher asks beside preparing: what is recorded, what stands on
//! disk, whether a number is a pull request's.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::fetch::Remote;
use super::journal::{Journal, Phase};
use super::layout::names_in;
use super::{Workspace, WorkspaceError, blocking};
use crate::domain::checkout::CheckoutRecord;
use crate::domain::repo_target::RepoTarget;

impl Workspace {
    /// Returns the identity of a work item's checkout as the workspace itself
    /// recorded it, if one was completed.
    pub async fn recorded(&self, target: &RepoTarget, slug: &str) -> Option<CheckoutRecord> {
        let inner = self.opened(&CancellationToken::new()).await.ok()?;
        let repository = inner.repository(target).await.ok()?;
        let slug = slug.to_owned();
        let found = blocking(move || Journal::read(&repository.vault, &slug)).await;
        match found {
            Ok(Some(Journal {
                phase: Phase::Preparing { .. },
                ..
            })) => None,
            Ok(journal) => journal.map(|journal| journal.record),
            Err(error) => {
                tracing::warn!(%error, "What was recorded of a checkout cannot be read.");
                None
            }
        }
    }

    /// Returns every directory that stands where checkouts do, whoever made it.
    pub async fn checkout_directories(&self) -> Vec<PathBuf> {
        let Ok(inner) = self.opened(&CancellationToken::new()).await else {
            return Vec::new();
        };
        let listed = blocking(move || {
            let root = inner.layout()?.root().to_owned();
            let mut worktrees = vec![root.join(".worktrees")];
            let mut clones = vec![root.join(".work-items")];
            // host, owner, repository, slug; slug, host, owner, repository.
            for _ in 0..4 {
                worktrees = below(worktrees);
                clones = below(clones);
            }
            worktrees.extend(clones);
            Ok(worktrees)
        });
        listed.await.unwrap_or_default()
    }

    /// Returns whether there may be archives below the root. Does not open it:
    /// a root that nothing stands below any more is left alone.
    pub async fn may_have_archives(&self) -> bool {
        let archives = self.layout().archives();
        blocking(move || Ok(archives.is_dir()))
            .await
            .unwrap_or(false)
    }

    /// Asks the remote whether a number is that of a pull request.
    ///
    /// # Errors
    ///
    /// As for a fetch.
    pub async fn has_pull_request(
        &self,
        target: &RepoTarget,
        number: u64,
    ) -> Result<bool, WorkspaceError> {
        let cancel = CancellationToken::new();
        let inner = self.opened(&cancel).await?;
        let repository = inner.repository(target).await?;
        repository.ensure(&inner, target, &cancel).await?;
        let remote = Remote::of(&inner, target)?;
        let output = inner
            .git()?
            .command("ls-remote")
            .git_dir(&repository.vault)
            .protocols(remote.protocols())
            .args(["--", remote.url()])
            .arg(format!("refs/pull/{number}/head"))
            .run(&cancel)
            .await?;
        Ok(!output.stdout.is_empty())
    }
}

fn below(directories: Vec<PathBuf>) -> Vec<PathBuf> {
    directories
        .into_iter()
        .flat_map(|dir| {
            names_in(&dir)
                .into_iter()
                .filter(|name| name != ".children")
                .map(move |name| dir.join(name))
        })
        .filter(|path| std::fs::symlink_metadata(path).is_ok_and(|stat| stat.is_dir()))
        .collect()
}
