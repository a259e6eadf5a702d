//! The clone strategy: a repository of its own, which shares nothing.
//!
//! It is made whole in the staging area: objects as one pack written from the
//! vault (no links, no borrowing), an ordinary configuration with the remote as
//! origin, the files. Then it is renamed into place.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::identity::{NONCE_FILE, boot_id};
use super::journal::{Journal, Phase};
use super::layout::Layout;
use super::prepare::{Order, told_by_disk};
use super::repository::Repository;
use super::worktree::{
    self, Made, PUSH_OFF_URL, reflog_line, tracking, tree_entries, verify_filled,
};
use super::{Inner, WorkspaceError, blocking, shared, vault};
use crate::clock;
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::files;
use crate::git::quoted;
use crate::process::CrashPoint;

/// Makes a clone. On failure nothing of it is left.
pub(super) async fn make(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    order: &Order,
    cancel: &CancellationToken,
) -> Result<Made, WorkspaceError> {
    let layout = inner.layout()?.clone();
    let root = inner.layout()?.root();
    let (repo, what) = (Arc::clone(repository), order.clone());
    let begun = {
        let layout = layout.clone();
        blocking(move || begin(&layout, &repo, &what)).await?
    };
    let staged = layout.staging().join(&begun.nonce);
    let made = async {
        let refs = copy_objects(inner, repository, order, &staged, cancel).await?;
        CrashPoint::CloneObjects.pass();
        let (repo, what, record, dir) = (
            Arc::clone(repository),
            order.clone(),
            begun.clone(),
            staged.clone(),
        );
        blocking(move || write_refs(&repo, &what, &record, &dir, refs)).await?;
        CrashPoint::CloneRefs.pass();
        inner
            .git()?
            .command("read-tree")
            // Nobody but us has seen it yet.
            .git_dir(&staged.join(".git"))
            .work_tree(&staged)
            .args(["-m", "-u", &begun.commit])
            .run(cancel)
            .await?;
        CrashPoint::FilesWritten.pass();
        if cancel.is_cancelled() {
            return Err(WorkspaceError::Cancelled);
        }
        let (repo, what, record, dir) = (
            Arc::clone(repository),
            order.clone(),
            begun.clone(),
            staged.clone(),
        );
        blocking(move || finish(&repo, &what, record, &dir)).await
    }
    .await
    .map_err(|error| told_by_disk(error, root));
    if let Err(error) = &made {
        let (repo, slug) = (Arc::clone(repository), order.slug.clone());
        let undone = blocking(move || worktree::undo(&layout, &repo, &slug)).await;
        if let Err(left) = undone {
            tracing::warn!(%error, %left, slug = order.slug, "A preparation could not be undone; it is at the next start.");
        }
    }
    made.map_err(|error| error.at(&begun.path))
}

fn begin(
    layout: &Layout,
    repository: &Repository,
    order: &Order,
) -> Result<CheckoutRecord, WorkspaceError> {
    let nonce = super::nonce();
    let staged = layout.staging().join(&nonce);
    let git = staged.join(".git");
    let prepare = || -> Result<CheckoutRecord, WorkspaceError> {
        for sub in [
            "objects/info",
            "objects/pack",
            "refs/heads",
            "refs/tags",
            "refs/remotes/origin",
            "info",
            "logs",
        ] {
            files::create_dirs(&git.join(sub))?;
        }
        let stat = fs::symlink_metadata(&staged)
            .map_err(|error| WorkspaceError::io("examine", &staged, &error))?;
        let commit = order.commit.to_string();
        let record = CheckoutRecord {
            slug: order.slug.clone(),
            host: repository.names.host.clone(),
            owner: repository.names.owner.clone(),
            repo: repository.names.repo.clone(),
            kind: order.item.0,
            number: order.item.1,
            strategy: Strategy::Clone,
            root: layout.root().to_owned(),
            path: layout.clone_dir(&repository.names, &order.slug),
            record: None,
            nonce: nonce.clone(),
            inode: stat.ino(),
            device: stat.dev(),
            boot_id: boot_id(),
            commit: commit.clone(),
            base: commit,
            branch: order.branch.clone(),
            branch_created: order.branch.is_some(),
            push_off: order.push_off,
            created_at: clock::now_ms(),
        };
        files::create_new(&git.join("config"), config(order).as_bytes())?;
        files::create_new(&git.join("HEAD"), format!("{}\n", record.commit).as_bytes())?;
        files::create_new(&git.join(NONCE_FILE), format!("{nonce}\n").as_bytes())?;
        let phase = Phase::Preparing {
            branch_before: None,
        };
        Journal::new(phase, record.clone()).write(&repository.vault)?;
        Ok(record)
    };
    let begun = prepare();
    if begun.is_err() {
        let _ = files::remove_tree(&staged);
    }
    begun
}

pub(super) fn config(order: &Order) -> String {
    let mut text = format!(
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
         [remote \"origin\"]\n\turl = {}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
        quoted(&order.clone_url)
    );
    if order.push_off {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\tpushurl = {}", quoted(PUSH_OFF_URL));
    }
    if let Some(branch) = &order.branch {
        text.push_str(&tracking(branch));
    }
    text
}

/// Writes one pack with everything the clone's refs and commit reach, and
/// returns those refs: read once, as a fetch may bring others meanwhile.
async fn copy_objects(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    order: &Order,
    staged: &Path,
    cancel: &CancellationToken,
) -> Result<String, WorkspaceError> {
    let path = repository.vault.clone();
    let refs = blocking(move || shared::remote_refs(&vault::open(&path)?)).await?;
    let mut tips = format!("{}\n", order.commit);
    for line in refs.lines().filter(|line| !line.starts_with('#')) {
        let oid = line.split(' ').next().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(tips, "{oid}");
    }
    inner
        .git()?
        .command("pack-objects")
        .git_dir(&repository.vault)
        .args(["-q", "--revs", "--delta-base-offset"])
        .arg(staged.join(".git/objects/pack/pack"))
        .stdin(tips.into_bytes())
        .run(cancel)
        .await?;
    Ok(refs)
}

fn write_refs(
    repository: &Repository,
    order: &Order,
    record: &CheckoutRecord,
    staged: &Path,
    mut refs: String,
) -> Result<(), WorkspaceError> {
    let git = staged.join(".git");
    let vault = vault::open(&repository.vault)?;
    if let Some(branch) = &order.branch {
        let tracked = format!("refs/remotes/origin/{branch}");
        let known = refs
            .lines()
            .any(|line| line.ends_with(&format!(" {tracked}")));
        if !known && vault::in_the_way(&vault, vault::HEADS, branch)?.is_empty() {
            let file = git.join(&tracked);
            if let Some(parent) = file.parent() {
                files::create_dirs(parent)?;
            }
            files::create_new(&file, format!("{}\n", record.commit).as_bytes())?;
        }
    }
    if refs.lines().count() == 1 {
        refs.clear();
    }
    files::create_new(&git.join("packed-refs"), refs.as_bytes())?;
    if let Some(default) = vault::default_branch(&repository.vault) {
        files::create_new(
            &git.join("refs/remotes/origin/HEAD"),
            format!("ref: refs/remotes/origin/{default}\n").as_bytes(),
        )?;
    }
    let zero = git2::Oid::ZERO_SHA1.to_string();
    let line = reflog_line(
        &zero,
        &record.commit,
        record.created_at,
        "clone: by innkeeper",
    );
    worktree::append(&git.join("logs/HEAD"), &line)
}

fn finish(
    repository: &Repository,
    order: &Order,
    record: CheckoutRecord,
    staged: &Path,
) -> Result<Made, WorkspaceError> {
    let git = staged.join(".git");
    let entries = tree_entries(&repository.vault, order.commit)?;
    verify_filled(&git, order.commit, entries)?;
    if let Some(branch) = &record.branch {
        let name = format!("refs/heads/{branch}");
        let file = git.join(&name);
        if let Some(parent) = file.parent() {
            files::create_dirs(parent)?;
        }
        files::create_new(&file, format!("{}\n", record.commit).as_bytes())?;
        CrashPoint::BranchCreated.pass();
        worktree::write_head(&git, &format!("ref: {name}\n"))?;
    }
    if let Some(parent) = record.path.parent() {
        files::create_dirs(parent)?;
    }
    // An empty directory is nobody's work.
    let _ = fs::remove_dir(&record.path);
    files::rename_noreplace(staged, &record.path)?;
    CrashPoint::ClonePlaced.pass();
    Journal::new(Phase::Ready, record.clone()).write(&repository.vault)?;
    Ok(Made {
        record,
        detached_because: None,
    })
}
