//! Restoring an archive as the checkout of its item.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::unpack::{compare, set_directory, unpack};
use super::{Loaded, objects, order, placed, refs, submodules};
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;
use crate::files;
use crate::process::CrashPoint;
use crate::workspace::archive::Restored;
use crate::workspace::archive::manifest::TREE;
use crate::workspace::identity::{NONCE_FILE, boot_id};
use crate::workspace::journal::{Journal, Phase};
use crate::workspace::layout::Layout;
use crate::workspace::repository::Repository;
use crate::workspace::worktree::{self, admin_dir, new_dir};
use crate::workspace::{Inner, WorkspaceError, blocking, clone, nonce, shared, vault};

/// Refuses if the item has a checkout, or something is in its place. What a
/// crash left half-made is undone. Blocking.
pub(super) fn require_free(
    layout: &Layout,
    repository: &Repository,
    record: &CheckoutRecord,
) -> Result<(), WorkspaceError> {
    let occupied = |path: &Path| {
        WorkspaceError::new(
            FailureCode::PathOccupied,
            format!(
                "`{}` is in the way: the item has a checkout",
                path.display()
            ),
        )
    };
    match Journal::read(&repository.vault, &record.slug)? {
        None => {}
        Some(Journal {
            phase: Phase::Preparing { .. },
            ..
        }) => worktree::undo(layout, repository, &record.slug)?,
        Some(journal) => return Err(occupied(&journal.record.path)),
    }
    let mut places = vec![path_of(layout, repository, record)];
    if record.strategy == Strategy::Worktree {
        places.push(admin_dir(repository, &record.slug));
    }
    for place in places {
        let is_taken = match fs::symlink_metadata(&place) {
            Ok(stat) if stat.is_dir() => {
                fs::read_dir(&place).map_or(true, |mut entries| entries.next().is_some())
            }
            Ok(_) => true,
            Err(_) => false,
        };
        if is_taken {
            return Err(occupied(&place));
        }
    }
    Ok(())
}

fn path_of(layout: &Layout, repository: &Repository, record: &CheckoutRecord) -> PathBuf {
    match record.strategy {
        Strategy::Worktree => layout.worktree_dir(&repository.names, &record.slug),
        Strategy::Clone => layout.clone_dir(&repository.names, &record.slug),
    }
}

/// Restores it. On failure nothing of it is left.
pub(super) async fn restore(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    target: &RepoTarget,
    cancel: &CancellationToken,
) -> Result<Restored, WorkspaceError> {
    let layout = inner.layout()?.clone();
    let (place, repo, what) = (layout.clone(), Arc::clone(repository), Arc::clone(loaded));
    let mut record = blocking(move || begin(&place, &repo, &what)).await?;
    let restored = fill(inner, repository, loaded, target, &mut record, cancel).await;
    match restored {
        Ok(differs) => Ok(Restored {
            path: record.path.clone(),
            record: Some(record),
            differs,
        }),
        Err(error) => {
            let (repo, slug) = (Arc::clone(repository), record.slug.clone());
            let undone = blocking(move || worktree::undo(&layout, &repo, &slug)).await;
            if let Err(left) = undone {
                tracing::warn!(%left, slug = record.slug, "A restore could not be undone; it is at the next start.");
            }
            Err(error.at(&record.path))
        }
    }
}

/// Makes the directory in the staging area and writes the journal.
fn begin(
    layout: &Layout,
    repository: &Repository,
    loaded: &Loaded,
) -> Result<CheckoutRecord, WorkspaceError> {
    let nonce = nonce();
    let staged = layout.staging().join(&nonce);
    let old = loaded.record();
    let prepare = || {
        files::create_dirs(&layout.staging())?;
        fs::create_dir(&staged).map_err(|error| WorkspaceError::io("create", &staged, &error))?;
        let stat = fs::symlink_metadata(&staged)
            .map_err(|error| WorkspaceError::io("examine", &staged, &error))?;
        let mut branch_before = None;
        if let (Strategy::Worktree, Some(branch)) = (old.strategy, &old.branch) {
            crate::git::ctl::ensure(&repository.ctl, &repository.shared)?;
            let view = vault::open(&repository.ctl)?;
            let tip = vault::tip(&view, &format!("refs/heads/{branch}"))?;
            branch_before = tip.map(|tip| tip.to_string());
        }
        let record = CheckoutRecord {
            root: layout.root().to_owned(),
            path: path_of(layout, repository, old),
            record: (old.strategy == Strategy::Worktree).then(|| old.slug.clone()),
            nonce: nonce.clone(),
            inode: stat.ino(),
            device: stat.dev(),
            boot_id: boot_id(),
            ..old.clone()
        };
        Journal::new(Phase::Preparing { branch_before }, record.clone())
            .write(&repository.vault)?;
        Ok(record)
    };
    let begun = prepare();
    if begun.is_err() {
        let _ = files::remove_tree(&staged);
    }
    begun
}

async fn fill(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    target: &RepoTarget,
    record: &mut CheckoutRecord,
    cancel: &CancellationToken,
) -> Result<Vec<String>, WorkspaceError> {
    let layout = inner.layout()?.clone();
    let staged = layout.staging().join(&record.nonce);
    if record.strategy == Strategy::Clone {
        let git = staged.join(".git");
        make_git_dir(&git).await?;
        objects::copy_to(inner, repository, loaded, &git, cancel).await?;
    }
    if !loaded.manifest.has_directory {
        fill_from_commit(inner, repository, loaded, &staged, cancel).await?;
    }
    if cancel.is_cancelled() {
        return Err(WorkspaceError::Cancelled);
    }
    let (repo, what, of) = (Arc::clone(repository), Arc::clone(loaded), record.clone());
    let config = clone::config(&order(record, target)?);
    let (mut differs, is_on_its_branch) = blocking(move || match of.strategy {
        Strategy::Worktree => worktree_in_place(&layout, &repo, &what, &of),
        Strategy::Clone => clone_in_place(&layout, &repo, &what, &of, &config),
    })
    .await?;
    // A branch of that name which is somebody else's does not go with this one.
    record.branch_created &= is_on_its_branch;
    match record.strategy {
        Strategy::Worktree => refs::bring_back_stash(inner, repository, loaded, cancel).await?,
        Strategy::Clone => {
            let git = record.path.join(".git");
            objects::complete(inner, repository, &git, cancel).await?;
        }
    }
    let (repo, what, of) = (Arc::clone(repository), Arc::clone(loaded), record.clone());
    let detached = differs.iter().any(|why| why.starts_with("HEAD"));
    differs.extend(
        blocking(move || {
            if let Some(top) = what.top(TREE) {
                set_directory(&of.path, top)?;
            }
            let admin = admin_of(&repo, &of);
            let place = placed(&of.path, &admin, of.strategy);
            let head = admin.join("HEAD");
            let place = |entry: &_| place(entry).filter(|path| !detached || *path != head);
            let tree = what.manifest.has_directory.then_some(of.path.as_path());
            let differs = compare(&what, &place, tree);
            CrashPoint::RestorePlaced.pass();
            Journal::new(Phase::Ready, of.clone()).write(&repo.vault)?;
            Ok(differs)
        })
        .await?,
    );
    Ok(differs)
}

fn admin_of(repository: &Repository, record: &CheckoutRecord) -> PathBuf {
    match record.strategy {
        Strategy::Worktree => admin_dir(repository, &record.slug),
        Strategy::Clone => record.path.join(".git"),
    }
}

pub(super) async fn make_git_dir(git: &Path) -> Result<(), WorkspaceError> {
    let git = git.to_owned();
    blocking(move || {
        for sub in ["objects/info", "objects/pack", "refs", "info"] {
            files::create_dirs(&git.join(sub))?;
        }
        Ok(())
    })
    .await
}

/// The directory was gone when the archive was made: its files are those of the
/// commit, which is the best that is known.
async fn fill_from_commit(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    loaded: &Arc<Loaded>,
    staged: &Path,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let Some(commit) = &loaded.manifest.head_commit else {
        return Ok(());
    };
    let scratch = staged.with_extension("index");
    let filled = inner
        .git()?
        .command("read-tree")
        .git_dir(&repository.vault)
        .work_tree(staged)
        .index_file(&scratch)
        .args(["-m", "-u", commit])
        .run(cancel)
        .await;
    blocking(move || Ok(files::remove_tree(&scratch)?)).await?;
    filled.map(drop).map_err(Into::into)
}

/// Writes record and files, and gives both their names. Returns what is not as
/// it was, and whether the checkout's branch is.
fn worktree_in_place(
    layout: &Layout,
    repository: &Repository,
    loaded: &Loaded,
    record: &CheckoutRecord,
) -> Result<(Vec<String>, bool), WorkspaceError> {
    let staged = layout.staging().join(&record.nonce);
    let new = new_dir(repository, record);
    let admin = admin_dir(repository, &record.slug);
    worktree::write_record(&new, &admin, record)?;
    for ours in ["HEAD", "logs/HEAD"] {
        files::remove_tree(&new.join(ours))?;
    }
    let place = placed(&staged, &new, record.strategy);
    unpack(loaded, &repository.vault, &place)?;
    let config = new.join("config.worktree");
    let ours =
        fs::read_to_string(&config).map_err(|error| WorkspaceError::io("read", &config, &error))?;
    let of_all = fs::read_to_string(repository.shared.join("config")).unwrap_or_default();
    let known = format!("{of_all}\n{ours}");
    let kept = shared::harmless_settings(&loaded.manifest.settings, &known);
    files::atomic_write(&config, format!("{ours}{kept}").as_bytes(), false)?;
    submodules::tame(&new.join("modules"))?;
    // Like the one that was removed, which had it since it was made.
    let dot_git = staged.join(".git");
    files::create_new(
        &dot_git,
        format!("gitdir: {}\n", admin.display()).as_bytes(),
    )?;

    let _one = repository.branch_lock();
    let mut differs = refs::bring_back_branches(repository, loaded)?;
    let is_on_its_branch = refs::has_its_branch(repository, loaded)?;
    if let Some((text, why)) = refs::head(repository, loaded, &new)? {
        files::atomic_write(&new.join("HEAD"), text.as_bytes(), false)?;
        differs.push(why);
    }
    put_in_place(&staged, &record.path)?;
    files::create_dirs(&repository.shared.join("worktrees"))?;
    files::rename_noreplace(&new, &admin)?;
    Ok((differs, is_on_its_branch))
}

fn clone_in_place(
    layout: &Layout,
    repository: &Repository,
    loaded: &Loaded,
    record: &CheckoutRecord,
    config: &str,
) -> Result<(Vec<String>, bool), WorkspaceError> {
    let staged = layout.staging().join(&record.nonce);
    let git = staged.join(".git");
    let place = placed(&staged, &git, record.strategy);
    unpack(loaded, &repository.vault, &place)?;
    let kept = shared::harmless_settings(&loaded.manifest.settings, config);
    files::create_new(&git.join("config"), format!("{config}{kept}").as_bytes())?;
    files::create_new(
        &git.join(NONCE_FILE),
        format!("{}\n", record.nonce).as_bytes(),
    )?;
    submodules::tame(&git.join("modules"))?;
    put_in_place(&staged, &record.path)?;
    Ok((Vec::new(), true))
}

fn put_in_place(staged: &Path, path: &Path) -> Result<(), WorkspaceError> {
    if let Some(parent) = path.parent() {
        files::create_dirs(parent)?;
    }
    // An empty directory is nobody's work.
    let _ = fs::remove_dir(path);
    Ok(files::rename_noreplace(staged, path)?)
}
