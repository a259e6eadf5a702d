//! Putting back what a move that was killed had half written.
//!
//! A move is a two-way merge. Killed in the middle of writing, it leaves some
//! files new, perhaps one of them cut short, and the index old; git then takes
//! the new ones for somebody's work. The checkout was untouched when the move
//! began, so a file of the difference that holds the new content, or the
//! beginning of it, is the move's. If all of them are explained that way they
//! are put back, and the move can begin again; one that is not is somebody's
//! work, and nothing is touched.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::{Oid, Repository as GitRepository};
use tokio_util::sync::CancellationToken;

use super::identity::Located;
use super::repository::Repository;
use super::{Inner, WorkspaceError, blocking, vault};

/// What has to be done to be at the old commit again.
#[derive(Default)]
struct Remedy {
    /// Paths that the old commit has, as git takes them.
    restore: Vec<u8>,
    /// Files that only the new commit has.
    remove: Vec<PathBuf>,
}

/// Puts the files of `from` back, where only a move to `to` has changed them.
/// Returns whether the move can begin again.
pub(super) async fn put_back(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    located: &Located,
    from: &str,
    to: &str,
    cancel: &CancellationToken,
) -> Result<bool, WorkspaceError> {
    let (path, dir) = (repository.vault.clone(), located.path.clone());
    let (old, new) = (vault::parse_oid(from)?, vault::parse_oid(to)?);
    let remedy = blocking(move || find_remedy(&vault::open(&path)?, &dir, old, new)).await?;
    let Some(remedy) = remedy else {
        return Ok(false);
    };
    let removed = remedy.remove;
    blocking(move || {
        for file in removed {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(WorkspaceError::io("remove", &file, &error));
                }
                _ => {}
            }
        }
        Ok(())
    })
    .await?;
    if !remedy.restore.is_empty() {
        inner
            .git()?
            .command("checkout-index")
            .git_dir(&repository.vault)
            .work_tree(&located.path)
            .index_file(&located.admin.join("index"))
            .args(["-f", "-u", "-z", "--stdin"])
            .stdin(remedy.restore)
            .run(cancel)
            .await?;
    }
    Ok(true)
}

fn find_remedy(
    vault: &GitRepository,
    dir: &Path,
    from: Oid,
    to: Oid,
) -> Result<Option<Remedy>, WorkspaceError> {
    let (old, new) = (
        vault.find_commit(from)?.tree()?,
        vault.find_commit(to)?.tree()?,
    );
    let diff = vault.diff_tree_to_tree(Some(&old), Some(&new), None)?;
    let mut remedy = Remedy::default();
    for delta in diff.deltas() {
        let (before, after) = (delta.old_file(), delta.new_file());
        let Some(name) = before.path_bytes().or_else(|| after.path_bytes()) else {
            return Ok(None);
        };
        let path = dir.join(OsStr::from_bytes(name));
        let blob = |id: Oid| -> Option<Vec<u8>> {
            (!id.is_zero())
                .then(|| vault.find_blob(id).ok())
                .flatten()
                .map(|blob| blob.content().to_vec())
        };
        let (before, after) = (blob(before.id()), blob(after.id()));
        match (content(dir, &path)?, &before, &after) {
            (None, None, _) => {}
            (Some(found), Some(before), _) if found == *before => {}
            (None, Some(_), _) => push(&mut remedy.restore, name),
            (Some(found), before, Some(after)) if after.starts_with(&found) => match before {
                Some(_) => push(&mut remedy.restore, name),
                None => remedy.remove.push(path),
            },
            (Some(_), _, _) => return Ok(None),
        }
    }
    Ok(Some(remedy))
}

fn push(list: &mut Vec<u8>, name: &[u8]) {
    list.extend_from_slice(name);
    list.push(0);
}

/// Reads a file or a link below `dir`, without following a link on the way.
fn content(dir: &Path, path: &Path) -> Result<Option<Vec<u8>>, WorkspaceError> {
    let absent = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    };
    let parent = path.parent().unwrap_or(dir);
    match fs::canonicalize(parent) {
        Ok(real) if real == parent => {}
        Ok(_) => return Ok(Some(b"\0reached through a link".to_vec())),
        Err(error) if absent(&error) => return Ok(None),
        Err(error) => return Err(WorkspaceError::io("examine", parent, &error)),
    }
    let read = match fs::symlink_metadata(path) {
        Ok(stat) if stat.is_symlink() => {
            fs::read_link(path).map(|target| target.as_os_str().as_bytes().to_vec())
        }
        Ok(stat) if stat.is_file() => fs::read(path),
        Ok(_) => return Ok(Some(b"\0neither file nor link".to_vec())),
        Err(error) if absent(&error) => return Ok(None),
        Err(error) => Err(error),
    };
    read.map(Some)
        .map_err(|error| WorkspaceError::io("read", path, &error))
}
