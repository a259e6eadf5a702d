//! Is this directory the one?
//!
//! Record, directory and git's own record must agree before anything is changed
//! or removed: the directory is where and what was stored (real path, inode,
//! and within one boot the device), its `.git` names the record, the record
//! names the directory, and the nonce is in it. Nothing is reached through a
//! link.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::layout::{Layout, RepoPath};
use crate::domain::checkout::{CheckoutRecord, Strategy};

/// Holds the nonce, in git's record of a worktree or in a clone's `.git`.
pub const NONCE_FILE: &str = "innkeeper-nonce";

/// A checkout whose identity was proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The directory.
    pub path: PathBuf,
    /// Where its `HEAD`, index and reflog are: the record, or the `.git`.
    pub admin: PathBuf,
    /// Where its refs and objects are: the shared clone, or the `.git`.
    pub common: PathBuf,
}

/// Why a directory is not the one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Nothing is there.
    #[error("`{}` is gone", path.display())]
    Missing {
        /// Where it was.
        path: PathBuf,
    },
    /// Something is there that does not agree.
    #[error("`{}` is not the checkout that was made: {why}", path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
        /// What does not agree.
        why: String,
    },
}

/// Returns the names of the repository that a record is of.
pub fn repo_of(record: &CheckoutRecord) -> RepoPath {
    RepoPath {
        host: record.host.clone(),
        owner: record.owner.clone(),
        repo: record.repo.clone(),
    }
}

/// Returns the kernel's id of this boot; device numbers hold within one.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// Proves that the directory of a record is the one. Blocking.
pub fn locate(layout: &Layout, record: &CheckoutRecord) -> Result<Located, IdentityError> {
    let foreign = |why: String| IdentityError::Foreign {
        path: record.path.clone(),
        why,
    };
    let repo = repo_of(record);
    let (expected, common, admin) = match record.strategy {
        Strategy::Worktree => {
            let common = layout.repo_dir(&repo);
            let name = record
                .record
                .as_deref()
                .ok_or_else(|| foreign("no record of git's was stored".into()))?;
            let admin = common.join("worktrees").join(name);
            (layout.worktree_dir(&repo, &record.slug), common, admin)
        }
        Strategy::Clone => {
            let path = layout.clone_dir(&repo, &record.slug);
            let git = path.join(".git");
            (path, git.clone(), git)
        }
    };
    if record.path != expected {
        return Err(foreign(format!("its place is `{}`", expected.display())));
    }
    let stat = match fs::symlink_metadata(&record.path) {
        Ok(stat) => stat,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(IdentityError::Missing {
                path: record.path.clone(),
            });
        }
        Err(error) => return Err(foreign(error.to_string())),
    };
    if !stat.is_dir() {
        return Err(foreign("it is no directory".into()));
    }
    let real = fs::canonicalize(&record.path).map_err(|error| foreign(error.to_string()))?;
    if real != record.path || !real.starts_with(layout.root()) {
        return Err(foreign(format!("it leads to `{}`", real.display())));
    }
    if stat.ino() != record.inode {
        return Err(foreign("it is another directory of that name".into()));
    }
    if boot_id() == record.boot_id && stat.dev() != record.device {
        return Err(foreign("it is on another device".into()));
    }
    let root = fs::metadata(layout.root()).map_err(|error| foreign(error.to_string()))?;
    if root.dev() != stat.dev() {
        return Err(foreign("something is mounted there".into()));
    }
    for dir in [&common, &admin] {
        let real = fs::canonicalize(dir)
            .map_err(|error| foreign(format!("`{}`: {error}", dir.display())))?;
        if real != *dir {
            return Err(foreign(format!(
                "`{}` is reached through a link",
                dir.display()
            )));
        }
    }
    if record.strategy == Strategy::Worktree {
        let names = read_line(&record.path.join(".git")).map_err(&foreign)?;
        if names.strip_prefix("gitdir: ").map(Path::new) != Some(&admin) {
            return Err(foreign("its `.git` names another record".into()));
        }
        let back = read_line(&admin.join("gitdir")).map_err(&foreign)?;
        if Path::new(&back) != record.path.join(".git") {
            return Err(foreign("git's record names another directory".into()));
        }
    }
    let nonce = read_line(&admin.join(NONCE_FILE)).map_err(&foreign)?;
    if nonce != record.nonce {
        return Err(foreign("git's record was made for another checkout".into()));
    }
    Ok(Located {
        path: record.path.clone(),
        admin,
        common,
    })
}

/// Reads a small file of one line, without following a link.
pub(super) fn read_line(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("`{}`: {error}", path.display());
    let stat = fs::symlink_metadata(path).map_err(failed)?;
    if !stat.is_file() || stat.len() > 64 * 1024 {
        return Err(format!("`{}` is not what it should be", path.display()));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    Ok(text.trim_end_matches('\n').to_owned())
}
