//! What a dispatcher asks beside preparing: what is recorded, and whether a
//! number is a pull request's.

use tokio_util::sync::CancellationToken;

use super::fetch::Remote;
use super::journal::{Journal, Phase};
use super::{Workspace, WorkspaceError, blocking, vault};
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

    /// Returns whether there is a vault of the repository that a checkout is of.
    pub async fn has_vault(&self, record: &CheckoutRecord) -> bool {
        let Ok(inner) = self.opened(&CancellationToken::new()).await else {
            return false;
        };
        let Ok(repository) = inner.repository_of(record) else {
            return false;
        };
        blocking(move || Ok(vault::marker_path(&repository.vault).is_file()))
            .await
            .unwrap_or(false)
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
