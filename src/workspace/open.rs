//! Opening a root: one daemon at a time, and nothing half-made.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::identity::{NONCE_FILE, read_line};
use super::journal::{self, Journal, Phase};
use super::layout::{Layout, names_in};
use super::locks::{self, Removed};
use super::repository::{Repository, SCRATCH_VIEW};
use super::{
    Inner, Opened, Workspace, WorkspaceError, archive, blocking, ghosts, rebuild, shared, update,
    vault, worktree,
};
use crate::clock;
use crate::domain::checkout::Strategy;
use crate::domain::code::FailureCode;
use crate::files::{self, LockError, LockFile};
use crate::git::{self, MARK, ctl};
use crate::process;

/// What opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Processes that an earlier daemon left, and that were ended.
    pub ended: usize,
    /// Slugs of half-made checkouts that were undone.
    pub undone: Vec<String>,
    /// Slugs of checkouts whose move was gone through.
    pub moved: Vec<String>,
    /// Lock files of ours that a killed git left, and that were removed.
    pub locks: Vec<Removed>,
    /// Foreign records that broke every git in a shared clone, set aside.
    pub ghosts: Vec<PathBuf>,
    /// What could not be put right, for people.
    pub problems: Vec<String>,
    /// Keys taken from the operator's git configuration.
    pub git_config: Vec<String>,
}

impl Workspace {
    /// Takes the root, makes it if it is missing, and clears what a crash left:
    /// processes, the staging area, half-made checkouts, temporary files and
    /// locks. Called once is enough; every operation does it if it was not.
    ///
    /// # Errors
    ///
    /// `lock_timeout` if another daemon has the root (the message says which
    /// process), `git_missing`, `git_too_old`, or what is wrong with the root.
    pub async fn open(&self, cancel: &CancellationToken) -> Result<OpenReport, WorkspaceError> {
        Ok(self.opened_with_report(cancel).await?.1)
    }
}

pub(super) async fn open(
    inner: &Arc<Inner>,
    cancel: &CancellationToken,
) -> Result<(Opened, OpenReport), WorkspaceError> {
    let wanted = inner.options.root.clone();
    let (layout, lock) = blocking(move || take_root(&wanted)).await?;
    let git = inner.git_for(&layout);
    let mark = layout.root().to_owned();
    let ended =
        blocking(move || Ok(process::end_marked(MARK, &mark, Duration::from_secs(5)))).await?;
    git.version(cancel).await?;
    let git_config =
        git::operator_config(&git, &inner.environment, &layout.git_config(), cancel).await?;
    let report = OpenReport {
        ended,
        git_config,
        ..OpenReport::default()
    };
    Ok((
        Opened {
            layout,
            at_ms: clock::now_ms(),
            in_order: std::sync::atomic::AtomicBool::new(false),
            _lock: lock,
        },
        report,
    ))
}

/// Takes the lock, trying again for a moment: a process that is just being
/// forked holds every lock of its parent until it runs its program.
fn acquire(path: &std::path::Path) -> Result<LockFile, LockError> {
    const TRIES: u32 = 25;
    let mut tries = 0;
    loop {
        match LockFile::acquire(path) {
            Err(LockError::Held { .. }) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

fn take_root(wanted: &std::path::Path) -> Result<(Layout, LockFile), WorkspaceError> {
    let unusable = |error: &std::io::Error| {
        let code = match WorkspaceError::io("use", wanted, error).code() {
            FailureCode::DiskFull => FailureCode::DiskFull,
            _ => FailureCode::BadInput,
        };
        WorkspaceError::new(
            code,
            format!(
                "the workspace root `{}` cannot be used: {error}",
                wanted.display()
            ),
        )
    };
    fs::create_dir_all(wanted).map_err(|error| unusable(&error))?;
    let root = fs::canonicalize(wanted).map_err(|error| unusable(&error))?;
    if root.parent().is_none() {
        let error = std::io::Error::other("it is not a directory of its own");
        return Err(unusable(&error));
    }
    let layout = Layout::new(root);
    for dir in [layout.vaults(), layout.staging(), layout.trash()] {
        fs::create_dir_all(&dir).map_err(|error| unusable(&error))?;
        let is_own = fs::symlink_metadata(&dir).is_ok_and(|stat| stat.is_dir());
        if !is_own {
            return Err(WorkspaceError::new(
                FailureCode::PathOccupied,
                format!("`{}` is no directory of the workspace root", dir.display()),
            ));
        }
    }
    let lock = acquire(&layout.lock_file()).map_err(|error| match error {
        LockError::Held { pid, .. } => WorkspaceError::new(
            FailureCode::LockTimeout,
            format!(
                "the workspace root `{}` is held by {}",
                layout.root().display(),
                pid.map_or("another process".into(), |pid| format!("pid {pid}"))
            ),
        ),
        LockError::Io { source, .. } => unusable(&source),
    })?;
    Ok((layout, lock))
}

/// Clears what a crash left. The root's lock is held and nothing runs yet.
pub(super) async fn recover(
    inner: &Arc<Inner>,
    report: &mut OpenReport,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let layout = inner.layout()?.clone();
    let known = {
        let layout = layout.clone();
        blocking(move || {
            files::sweep_temporary(&layout.vaults());
            Ok(layout.known_repositories())
        })
        .await?
    };
    for names in known {
        let repository = inner.repository_named(names)?;
        if let Err(error) = rebuild::recover(inner, &repository).await {
            report.problems.push(format!(
                "`{}` could not be put in order: {error}",
                repository.vault.display()
            ));
        }
        let (repo, one) = (Arc::clone(&repository), Arc::clone(inner));
        let (found, moving) = blocking(move || recover_one(&one, &repo)).await?;
        match rebuild::heal_shown(inner, &repository, None, cancel).await {
            Ok(None) => {}
            Ok(Some(why)) => report.problems.push(format!(
                "the vault `{}` is damaged, and is made anew at its next use: {why}",
                repository.vault.display()
            )),
            Err(WorkspaceError::Cancelled) => return Err(WorkspaceError::Cancelled),
            Err(error) => report.problems.push(error.to_string()),
        }
        report.undone.extend(found.undone);
        report.locks.extend(found.locks);
        report.ghosts.extend(found.ghosts);
        report.problems.extend(found.problems);
        for slug in moving {
            match update::finish_move(inner, &repository, &slug, true, cancel).await {
                Ok(_) => report.moved.push(slug),
                Err(WorkspaceError::Cancelled) => return Err(WorkspaceError::Cancelled),
                Err(error) => report.problems.push(format!("{slug}: {error}")),
            }
        }
    }
    let problems = blocking(move || {
        let mut problems = Vec::new();
        let Ok(entries) = fs::read_dir(layout.staging()) else {
            return Ok(problems);
        };
        for entry in entries.flatten() {
            if let Err(error) = files::remove_tree(&entry.path()) {
                problems.push(error.to_string());
            }
        }
        Ok(problems)
    })
    .await?;
    report.problems.extend(problems);
    Ok(())
}

/// Puts one repository in order, and returns the slugs whose move is to be
/// gone through.
fn recover_one(
    inner: &Inner,
    repository: &Repository,
) -> Result<(OpenReport, Vec<String>), WorkspaceError> {
    let layout = inner.layout()?;
    let mut report = OpenReport::default();
    let mut moving = Vec::new();
    let vault = &repository.vault;
    report.locks = locks::sweep_vault(vault, inner.opened_at()?);
    report.locks.extend(repository.sweep_shared_locks(inner)?);
    vault::sweep_temporary(vault);
    let written = [
        vault.clone(),
        vault.join("innkeeper"),
        journal::dir_of(vault),
        archive::marks_of(vault),
        repository.shared.clone(),
    ];
    for dir in &written {
        files::sweep_temporary(dir);
    }
    for slug in Journal::slugs(vault) {
        match Journal::read(vault, &slug) {
            Ok(Some(Journal {
                phase: Phase::Preparing { .. },
                ..
            })) => match worktree::undo(layout, repository, &slug) {
                Ok(()) => report.undone.push(slug),
                Err(error) => report.problems.push(format!("{slug}: {error}")),
            },
            Ok(Some(Journal {
                phase: Phase::Moving { .. },
                ..
            })) => moving.push(slug),
            Ok(Some(Journal {
                phase: Phase::Ready,
                record,
                ..
            })) => {
                if record.strategy == Strategy::Worktree
                    && let Err(error) = mend_record(repository, &record)
                {
                    report.problems.push(format!("{slug}: {error}"));
                }
            }
            Ok(Some(_) | None) => {}
            Err(error) => report.problems.push(error.to_string()),
        }
    }
    let new = repository.shared.join(shared::NEW);
    for name in names_in(&new) {
        // Made before a crash, never renamed in; its journal is gone by now, or
        // could not be undone and will be.
        if let Err(error) = files::remove_tree(&new.join(name)) {
            report.problems.push(error.to_string());
        }
    }
    let views = vault.join("innkeeper/views");
    for name in names_in(&views) {
        // Nothing looks at a checkout yet.
        if name.starts_with(SCRATCH_VIEW) {
            let _ = files::remove_tree(&views.join(name));
        }
    }
    let view = ctl::ensure(&repository.ctl, &repository.shared)
        .ok()
        .and_then(|()| vault::open(&repository.ctl).ok());
    for ghost in ghosts::half_made_records(&repository.shared, view.as_ref(), ghosts::AGE) {
        match shared::set_aside(&repository.shared, &ghost) {
            Ok(()) => report.ghosts.push(ghost),
            Err(error) => report.problems.push(error.to_string()),
        }
    }
    if let Err(error) = repository.restore_known_drift(inner) {
        report.problems.push(error.to_string());
    }
    Ok((report, moving))
}

/// A loss of power can empty files that were just written. What git needs to
/// find a worktree is known, and an empty `commondir` would break every git in
/// the shared clone.
fn mend_record(
    repository: &Repository,
    record: &crate::domain::checkout::CheckoutRecord,
) -> Result<(), WorkspaceError> {
    let admin = worktree::admin_dir(repository, &record.slug);
    let is_ours = read_line(&admin.join(NONCE_FILE))
        .is_ok_and(|nonce| nonce.is_empty() || nonce == record.nonce);
    if !is_ours {
        return Ok(());
    }
    for (name, text) in [
        ("commondir", "../..\n".to_owned()),
        (
            "gitdir",
            format!("{}\n", record.path.join(".git").display()),
        ),
        ("HEAD", format!("{}\n", record.commit)),
        (NONCE_FILE, format!("{}\n", record.nonce)),
    ] {
        let path = admin.join(name);
        if fs::metadata(&path).is_ok_and(|stat| stat.is_file() && stat.len() == 0) {
            files::atomic_write(&path, text.as_bytes(), true)?;
        }
    }
    Ok(())
}
