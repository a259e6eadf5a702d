//! The worktree strategy: a linked worktree of the shared clone.
//!
//! Git's record is written by hand, outside `worktrees/`, and renamed in whole,
//! locked from birth: no git ever sees a half-made one, so neither making it
//! nor filling the directory needs a lock. The directory is made in the staging
//! area and renamed into place, so that its inode is in the journal before it
//! has a name that others know. Files are written by `read-tree -m -u` through
//! the vault, whose configuration and objects no agent writes. The branch comes
//! last.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::Oid;
use tokio_util::sync::CancellationToken;

use super::identity::{self, NONCE_FILE, boot_id, read_line};
use super::journal::{Journal, Phase};
use super::layout::Layout;
use super::prepare::{Order, told_by_disk};
use super::repository::Repository;
use super::{Inner, WorkspaceError, blocking, fetch, locks, shared, vault};
use crate::clock;
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::code::FailureCode;
use crate::files;
use crate::git::{ctl, quoted};
use crate::process::CrashPoint;

/// Where a push of a fork's head goes: nowhere, and git says the name.
pub(super) const PUSH_OFF_URL: &str = "pushing-is-off://the-head-is-a-fork";

/// A checkout that was made, and why it is not on a branch if it was to be.
pub(super) struct Made {
    pub record: CheckoutRecord,
    pub detached_because: Option<String>,
}

/// Makes a worktree. On failure nothing of it is left.
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
    let made = async {
        let repo = Arc::clone(repository);
        let (record, place) = (begun.clone(), layout.clone());
        blocking(move || put_in_place(&place, &repo, &record)).await?;
        // What there should be is counted while git writes it.
        let (vault, commit) = (repository.vault.clone(), order.commit);
        let (filled, entries) = tokio::join!(
            fill(inner, repository, &begun, cancel),
            blocking(move || tree_entries(&vault, commit)),
        );
        filled?;
        let entries = entries?;
        let (repo, what, record) = (Arc::clone(repository), order.clone(), begun.clone());
        let one = Arc::clone(inner);
        if cancel.is_cancelled() {
            return Err(WorkspaceError::Cancelled);
        }
        blocking(move || finish(&one, &repo, &what, record, entries)).await
    }
    .await
    .map_err(|error| told_by_disk(error, root));
    if let Err(error) = &made {
        let (repo, slug) = (Arc::clone(repository), order.slug.clone());
        let undone = blocking(move || undo(&layout, &repo, &slug)).await;
        if let Err(left) = undone {
            tracing::warn!(%error, %left, slug = order.slug, "A preparation could not be undone; it is at the next start.");
        }
    }
    made.map_err(|error| error.at(&begun.path))
}

/// Makes an empty directory in the staging area and writes the journal: from
/// here on, a crash leaves something that is known to be ours.
fn begin(
    layout: &Layout,
    repository: &Repository,
    order: &Order,
) -> Result<CheckoutRecord, WorkspaceError> {
    let path = layout.worktree_dir(&repository.names, &order.slug);
    let nonce = super::nonce();
    let staged = layout.staging().join(&nonce);
    let admin = admin_dir(repository, &order.slug);
    let prepare = || -> Result<CheckoutRecord, WorkspaceError> {
        files::create_dirs(&layout.staging())?;
        fs::create_dir(&staged).map_err(|error| WorkspaceError::io("create", &staged, &error))?;
        files::create_new(
            &staged.join(".git"),
            format!("gitdir: {}\n", admin.display()).as_bytes(),
        )?;
        let stat = fs::symlink_metadata(&staged)
            .map_err(|error| WorkspaceError::io("examine", &staged, &error))?;
        let branch_before = match &order.branch {
            Some(branch) => {
                ctl::ensure(&repository.ctl, &repository.shared)?;
                let view = vault::open(&repository.ctl)?;
                // An agent may have made this ref unreadable; the branch step
                // then says so.
                vault::tip(&view, &format!("refs/heads/{branch}"))
                    .ok()
                    .flatten()
                    .map(|oid| oid.to_string())
            }
            None => None,
        };
        let commit = order.commit.to_string();
        let record = CheckoutRecord {
            slug: order.slug.clone(),
            host: repository.names.host.clone(),
            owner: repository.names.owner.clone(),
            repo: repository.names.repo.clone(),
            kind: order.item.0,
            number: order.item.1,
            strategy: Strategy::Worktree,
            root: layout.root().to_owned(),
            path: path.clone(),
            record: Some(order.slug.clone()),
            nonce: nonce.clone(),
            inode: stat.ino(),
            device: stat.dev(),
            boot_id: boot_id(),
            commit: commit.clone(),
            base: commit,
            branch: order.branch.clone(),
            branch_created: order.branch.is_some() && branch_before.is_none(),
            push_off: order.push_off,
            created_at: clock::now_ms(),
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

/// Gives directory and record their names.
fn put_in_place(
    layout: &Layout,
    repository: &Repository,
    record: &CheckoutRecord,
) -> Result<(), WorkspaceError> {
    let new = new_dir(repository, record);
    let admin = admin_dir(repository, &record.slug);
    write_record(&new, &admin, record)?;
    CrashPoint::RecordWritten.pass();
    if let Some(parent) = record.path.parent() {
        files::create_dirs(parent)?;
    }
    // An empty directory is nobody's work.
    let _ = fs::remove_dir(&record.path);
    files::rename_noreplace(&layout.staging().join(&record.nonce), &record.path)?;
    CrashPoint::DirectoryPlaced.pass();
    // Git removes an empty `worktrees` when it prunes.
    files::create_dirs(&repository.shared.join("worktrees"))?;
    files::rename_noreplace(&new, &admin)?;
    CrashPoint::RecordPlaced.pass();
    Ok(())
}

/// Writes git's record of the worktree, outside `worktrees/`.
pub(super) fn write_record(
    new: &Path,
    admin: &Path,
    record: &CheckoutRecord,
) -> Result<(), WorkspaceError> {
    debug_assert!(!admin.starts_with(new), "the record is made elsewhere");
    files::create_dirs(&new.join("refs"))?;
    files::create_dirs(&new.join("logs"))?;
    let put = |name: &str, text: String| files::create_new(&new.join(name), text.as_bytes());
    put("commondir", "../..\n".into())?;
    put(
        "gitdir",
        format!("{}\n", record.path.join(".git").display()),
    )?;
    put("HEAD", format!("{}\n", record.commit))?;
    put(
        "locked",
        format!(
            "Innkeeper's checkout of {} #{} (nonce {})\n",
            record.slug, record.number, record.nonce
        ),
    )?;
    put(NONCE_FILE, format!("{}\n", record.nonce))?;
    put("config.worktree", worktree_config(record))?;
    put(
        "logs/HEAD",
        reflog_line(
            &Oid::ZERO_SHA1.to_string(),
            &record.commit,
            record.created_at,
            "worktree: created",
        ),
    )?;
    Ok(())
}

/// What only this worktree needs: fetching, pulling and pushing as in a clone.
fn worktree_config(record: &CheckoutRecord) -> String {
    let mut text = String::from(
        "[push]\n\tdefault = current\n\
         [remote]\n\tpushDefault = origin\n\
         [remote \"origin\"]\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\tprune = true\n\ttagOpt = --no-tags\n",
    );
    if record.push_off {
        text.push_str("\tpushurl = ");
        text.push_str(&quoted(PUSH_OFF_URL));
        text.push('\n');
    }
    if let Some(branch) = &record.branch {
        text.push_str(&tracking(branch));
    }
    text
}

/// The section that makes a local branch follow the remote's of that name.
pub(super) fn tracking(branch: &str) -> String {
    format!(
        "[branch {}]\n\tremote = origin\n\tmerge = {}\n",
        quoted(branch),
        quoted(&format!("refs/heads/{branch}"))
    )
}

/// One line of a reflog.
pub(super) fn reflog_line(old: &str, new: &str, at_ms: i64, message: &str) -> String {
    format!(
        "{old} {new} Innkeeper <innkeeper@localhost> {} +0000\t{message}\n",
        at_ms / 1000
    )
}

/// Writes the files.
async fn fill(
    inner: &Arc<Inner>,
    repository: &Repository,
    record: &CheckoutRecord,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    inner
        .git()?
        .command("read-tree")
        .git_dir(&repository.vault)
        .work_tree(&record.path)
        .index_file(&admin_dir(repository, &record.slug).join("index"))
        .args(["-m", "-u", &record.commit])
        .run(cancel)
        .await?;
    CrashPoint::FilesWritten.pass();
    Ok(())
}

/// Verifies, gives it its branch, and says that it is ready.
fn finish(
    inner: &Inner,
    repository: &Repository,
    order: &Order,
    mut record: CheckoutRecord,
    entries: u64,
) -> Result<Made, WorkspaceError> {
    let admin = admin_dir(repository, &record.slug);
    verify_filled(&admin, order.commit, entries)?;
    let mut detached_because = None;
    if let Some(branch) = record.branch.clone() {
        if let Err(why) = take_branch(inner, repository, &admin, &record, &branch, order.commit)? {
            detached_because = Some(why);
            record.branch = None;
            record.branch_created = false;
        } else {
            fetch::show_branch_if_absent(repository, &branch, order.commit);
        }
    }
    Journal::new(Phase::Ready, record.clone()).write(&repository.vault)?;
    Ok(Made {
        record,
        detached_because,
    })
}

/// HEAD is the commit, and the index has as many entries as its tree
/// ([`tree_entries`]): not a second status, but enough to tell a half-written checkout.
pub(super) fn verify_filled(admin: &Path, commit: Oid, in_tree: u64) -> Result<(), WorkspaceError> {
    let head = read_line(&admin.join("HEAD"))
        .map_err(|why| WorkspaceError::new(FailureCode::Internal, why))?;
    if head != commit.to_string() {
        return Err(WorkspaceError::new(
            FailureCode::CommitMismatch,
            format!("HEAD is {head} and not {commit}"),
        ));
    }
    let in_index = index_entries(&admin.join("index"))?;
    if in_index != in_tree {
        return Err(WorkspaceError::new(
            FailureCode::Internal,
            format!("the index has {in_index} entries and the commit {in_tree}"),
        ));
    }
    Ok(())
}

/// Reads how many entries an index says it has.
fn index_entries(index: &Path) -> Result<u64, WorkspaceError> {
    let failed = |error: io::Error| WorkspaceError::io("read", index, &error);
    let mut header = [0; 12];
    match fs::File::open(index) {
        Ok(mut file) => io::Read::read_exact(&mut file, &mut header).map_err(failed)?,
        // Git writes none for an empty tree.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(error)),
    }
    if &header[..4] != b"DIRC" {
        return Err(WorkspaceError::new(
            FailureCode::Corrupt,
            format!("`{}` is no index", index.display()),
        ));
    }
    let count = [header[8], header[9], header[10], header[11]];
    Ok(u64::from(u32::from_be_bytes(count)))
}

/// Counts what the tree of a commit holds, as an index would.
pub(super) fn tree_entries(vault: &Path, commit: Oid) -> Result<u64, WorkspaceError> {
    let vault = vault::open(vault)?;
    let mut count = 0;
    let mut trees = vec![vault.find_commit(commit)?.tree_id()];
    while let Some(tree) = trees.pop() {
        for entry in &vault.find_tree(tree)? {
            match entry.kind() {
                Some(git2::ObjectType::Tree) => trees.push(entry.id()),
                _ => count += 1,
            }
        }
    }
    Ok(count)
}

/// Puts a checkout on a branch, if that takes nothing from anybody: the branch
/// is new, or nobody's and at, or strictly behind, the commit. Returns why not
/// otherwise.
fn take_branch(
    inner: &Inner,
    repository: &Repository,
    admin: &Path,
    record: &CheckoutRecord,
    branch: &str,
    commit: Oid,
) -> Result<Result<(), String>, WorkspaceError> {
    let _one = repository.branch_lock();
    let name = format!("refs/heads/{branch}");
    if let Some(holder) = holder_of(&repository.shared, &name, Some(&record.slug)) {
        return Ok(Err(format!(
            "branch `{branch}` is checked out in `{holder}`"
        )));
    }
    ctl::ensure(&repository.ctl, &repository.shared)?;
    let view = vault::open(&repository.ctl)?;
    match vault::tip(&view, &name) {
        Ok(Some(tip)) if tip == commit => {}
        Ok(Some(tip)) => {
            // Asked of the vault: an agent can make the shared clone say what it likes.
            let behind = vault::open(&repository.vault)?
                .graph_descendant_of(commit, tip)
                .unwrap_or(false);
            if !behind {
                return Ok(Err(format!(
                    "branch `{branch}` exists at {tip}, which is not behind {commit}"
                )));
            }
            let moved = repository.patiently(inner, || {
                view.reference_matching(&name, commit, true, tip, "innkeeper: forward")?;
                Ok(())
            });
            match moved {
                Ok(()) => {}
                Err(error) if error.code() == FailureCode::LockTimeout => return Err(error),
                Err(_) => {
                    return Ok(Err(format!("branch `{branch}` is being moved by another")));
                }
            }
        }
        Ok(None) => {
            if let Some(hindrance) = vault::in_the_way(&view, "refs/heads/", branch)?.first() {
                return Ok(Err(format!(
                    "branch `{branch}` cannot stand beside `{hindrance}`"
                )));
            }
            let made = repository.patiently(inner, || {
                match view.reference(&name, commit, false, "innkeeper: created") {
                    Ok(_) => Ok(true),
                    Err(error) if error.code() == git2::ErrorCode::Exists => Ok(false),
                    Err(error) => Err(error.into()),
                }
            });
            match made {
                Ok(true) => {}
                Ok(false) => {
                    return Ok(Err(format!("branch `{branch}` was just made by another")));
                }
                Err(error)
                    if matches!(
                        error.code(),
                        FailureCode::DiskFull | FailureCode::LockTimeout | FailureCode::Corrupt
                    ) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    return Ok(Err(format!("branch `{branch}` cannot be made: {error}")));
                }
            }
        }
        Err(error) if error.code() == FailureCode::Corrupt => return Err(error),
        Err(error) => return Ok(Err(format!("branch `{branch}` cannot be read: {error}"))),
    }
    CrashPoint::BranchCreated.pass();
    set_head(admin, &name, record, commit)?;
    CrashPoint::HeadSet.pass();
    Ok(Ok(()))
}

/// Points HEAD at a branch, under git's own lock.
fn set_head(
    admin: &Path,
    name: &str,
    record: &CheckoutRecord,
    commit: Oid,
) -> Result<(), WorkspaceError> {
    write_head(admin, &format!("ref: {name}\n"))?;
    let line = reflog_line(
        &record.commit,
        &commit.to_string(),
        clock::now_ms(),
        &format!("checkout: moving from {} to {name}", record.commit),
    );
    append(&admin.join("logs/HEAD"), &line)
}

/// Replaces HEAD under git's own lock.
pub(super) fn write_head(admin: &Path, text: &str) -> Result<(), WorkspaceError> {
    let (lock, head) = (admin.join("HEAD.lock"), admin.join("HEAD"));
    match files::create_new(&lock, text.as_bytes()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(WorkspaceError::new(
                FailureCode::LockTimeout,
                format!("`{}` is held", lock.display()),
            ));
        }
        Err(error) => {
            let _ = fs::remove_file(&lock);
            return Err(error.into());
        }
    }
    fs::rename(&lock, &head).map_err(|error| {
        let _ = fs::remove_file(&lock);
        WorkspaceError::io("replace", &head, &error)
    })
}

/// Adds a line to a reflog.
pub(super) fn append(log: &Path, line: &str) -> Result<(), WorkspaceError> {
    append_bytes(log, line.as_bytes())
}

/// Adds bytes to a file.
pub(super) fn append_bytes(file: &Path, bytes: &[u8]) -> Result<(), WorkspaceError> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .and_then(|mut opened| opened.write_all(bytes))
        .map_err(|error| WorkspaceError::io("append to", file, &error))
}

/// Returns which record has a branch: as its HEAD, or as what an operation in
/// progress will put back.
pub(super) fn holder_of(shared: &Path, name: &str, except: Option<&str>) -> Option<String> {
    let worktrees = shared.join("worktrees");
    super::layout::names_in(&worktrees)
        .into_iter()
        .filter(|holder| Some(holder.as_str()) != except)
        .find(|holder| {
            let admin = worktrees.join(holder);
            let is = |file: &str, text: &str| {
                read_line(&admin.join(file)).is_ok_and(|line| line == text)
            };
            is("HEAD", &format!("ref: {name}"))
                || is("rebase-merge/head-name", name)
                || is("rebase-apply/head-name", name)
                || is("BISECT_START", name.trim_start_matches("refs/heads/"))
        })
}

/// Returns git's record of a slug's worktree.
pub(super) fn admin_dir(repository: &Repository, slug: &str) -> PathBuf {
    repository.shared.join("worktrees").join(slug)
}

pub(super) fn new_dir(repository: &Repository, record: &CheckoutRecord) -> PathBuf {
    repository
        .shared
        .join(shared::NEW)
        .join(format!("{}~{}", record.slug, record.nonce))
}

/// Takes back everything that the journal says may have been made, and nothing
/// else: each thing is recognised by its nonce or inode, not by its name. Can
/// be called again after a crash.
pub(super) fn undo(
    layout: &Layout,
    repository: &Repository,
    slug: &str,
) -> Result<(), WorkspaceError> {
    let Some(Journal {
        phase: Phase::Preparing { branch_before },
        record,
        ..
    }) = Journal::read(&repository.vault, slug)?
    else {
        return Ok(());
    };
    files::remove_tree(&layout.staging().join(&record.nonce))?;
    if record.strategy == Strategy::Worktree {
        files::remove_tree(&new_dir(repository, &record))?;
        let admin = admin_dir(repository, slug);
        let ours = read_line(&admin.join(NONCE_FILE)).is_ok_and(|nonce| nonce == record.nonce);
        let gone = repository.shared.join(shared::TRASH).join(&record.nonce);
        if ours {
            if let Some(parent) = gone.parent() {
                files::create_dirs(parent)?;
            }
            files::rename_noreplace(&admin, &gone)?;
        }
        CrashPoint::UndoRecord.pass();
        undo_branch(repository, &record, branch_before.as_deref())?;
        CrashPoint::UndoBranch.pass();
        files::remove_tree(&gone)?;
    }
    let ours = fs::symlink_metadata(&record.path)
        .is_ok_and(|stat| stat.is_dir() && stat.ino() == record.inode);
    if ours {
        let trash = layout.trash().join(&record.nonce);
        files::create_dirs(&layout.trash())?;
        files::rename_noreplace(&record.path, &trash)?;
        CrashPoint::UndoDirectory.pass();
        files::remove_tree(&trash)?;
    }
    files::remove_tree(&layout.trash().join(&record.nonce))?;
    files::remove_empty_parents(&record.path, layout.root());
    Journal::remove(&repository.vault, slug)
}

/// Puts the branch back to what it was, if it is where this attempt put it and
/// nobody has taken it since.
fn undo_branch(
    repository: &Repository,
    record: &CheckoutRecord,
    before: Option<&str>,
) -> Result<(), WorkspaceError> {
    let Some(branch) = &record.branch else {
        return Ok(());
    };
    let name = format!("refs/heads/{branch}");
    let _one = repository.branch_lock();
    if holder_of(&repository.shared, &name, None).is_some()
        || is_of_another(repository, record, branch)
    {
        return Ok(());
    }
    ctl::ensure(&repository.ctl, &repository.shared)?;
    let view = vault::open(&repository.ctl)?;
    let commit = vault::parse_oid(&record.commit)?;
    if vault::tip(&view, &name).ok().flatten() != Some(commit) {
        return Ok(());
    }
    match before.map(vault::parse_oid).transpose()? {
        None => {
            let mut reference = view.find_reference(&name)?;
            // Compared and deleted under the ref's lock.
            if reference.target() == Some(commit) {
                locks::patiently(|| (), || Ok(reference.delete()?))?;
            }
        }
        Some(before) if before != commit => {
            view.reference_matching(&name, before, true, commit, "innkeeper: taken back")?;
        }
        Some(_) => {}
    }
    Ok(())
}

/// Whether another checkout's journal has the branch: its own attempt may be
/// about to point HEAD at it.
pub(super) fn is_of_another(
    repository: &Repository,
    record: &CheckoutRecord,
    branch: &str,
) -> bool {
    Journal::slugs(&repository.vault)
        .into_iter()
        .filter(|slug| *slug != record.slug)
        .any(|slug| {
            Journal::read(&repository.vault, &slug)
                .ok()
                .flatten()
                .is_some_and(|other| {
                    matches!(other.phase, Phase::Ready | Phase::Moving { .. })
                        && other.record.strategy == Strategy::Worktree
                        && other.record.branch.as_deref() == Some(branch)
                })
        })
}

/// A record whose directory is gone is moved out of the way, and what it held
/// is pinned: its HEAD and reflog may name commits that are nowhere else.
pub(super) fn set_missing_aside(
    repository: &Repository,
    record: &CheckoutRecord,
) -> Result<(), WorkspaceError> {
    let admin = admin_dir(repository, &record.slug);
    if read_line(&admin.join(identity::NONCE_FILE)) != Ok(record.nonce.clone()) {
        return Ok(());
    }
    let back = read_line(&admin.join("gitdir")).unwrap_or_default();
    if !back.is_empty()
        && Path::new(&back) != record.path.join(".git")
        && fs::symlink_metadata(&back).is_ok()
    {
        return Err(WorkspaceError::new(
            FailureCode::PathOccupied,
            format!(
                "the checkout was moved to `{back}` by somebody; move it back, or remove it there"
            ),
        ));
    }
    ctl::ensure(&repository.ctl, &repository.shared)?;
    let view = vault::open(&repository.ctl)?;
    let log = fs::read_to_string(admin.join("logs/HEAD")).unwrap_or_default();
    let head = read_line(&admin.join("HEAD")).unwrap_or_default();
    for id in log
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .chain([head.as_str()])
    {
        if let Ok(oid) = vault::parse_oid(id)
            && view.find_commit(oid).is_ok()
        {
            let name = format!("refs/innkeeper/missing/{}/{oid}", record.slug);
            view.reference(&name, oid, true, "")?;
        }
    }
    let aside = repository
        .shared
        .join(shared::TRASH)
        .join(format!("missing-{}-{}", record.slug, record.nonce));
    Ok(files::rename_noreplace(&admin, &aside)?)
}
