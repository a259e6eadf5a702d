//! Is a checkout exactly the commit that was put there?
//!
//! Asked of git through a private directory: our configuration, the vault's
//! objects, a copy of the index that keeps its time. Nothing that an agent
//! planted runs, and whatever cannot be answered counts as "no".

use std::fs;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::identity::Located;
use super::repository::Repository;
use super::{Inner, WorkspaceError, blocking};
use crate::files;

/// Returns whether index and files are those of `commit`, and nothing
/// untracked is there but ignored files.
pub(super) async fn is_untouched(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    located: &Located,
    commit: &str,
    cancel: &CancellationToken,
) -> Result<bool, WorkspaceError> {
    let private = repository
        .vault
        .join("innkeeper/views")
        .join(format!("status-{}", super::nonce()));
    let asked = async {
        let (dir, vault, index, head) = (
            private.clone(),
            repository.vault.clone(),
            located.admin.join("index"),
            commit.to_owned(),
        );
        blocking(move || {
            files::create_dirs(&dir.join("refs"))?;
            files::create_new(
                &dir.join("commondir"),
                format!("{}\n", vault.display()).as_bytes(),
            )?;
            files::create_new(&dir.join("HEAD"), format!("{head}\n").as_bytes())?;
            if fs::symlink_metadata(&index).is_ok_and(|stat| stat.is_file()) {
                files::copy_with_times(&index, &dir.join("index"))?;
            }
            Ok(())
        })
        .await?;
        let git = inner.git()?;
        let command = |name: &str| {
            git.command(name)
                .git_dir(&private)
                .work_tree(&located.path)
                .env("GIT_OPTIONAL_LOCKS", "0")
        };
        let tags = command("ls-files").args(["-v", "-z"]).run(cancel).await?;
        let hidden = tags
            .stdout
            .split(|byte| *byte == 0)
            .any(|entry| entry.first().is_some_and(|tag| *tag != b'H'));
        if hidden {
            return Ok(false);
        }
        let status = command("status")
            .args([
                "--porcelain=v2",
                "-z",
                "--untracked-files=all",
                "--ignore-submodules=dirty",
                "--no-renames",
            ])
            .run(cancel)
            .await?;
        Ok(status.stdout.is_empty() && status.stderr.is_empty())
    }
    .await;
    let dir = private.clone();
    let _ = blocking(move || Ok(files::remove_tree(&dir)?)).await;
    asked
}
