//! Reading a repository of ours through: only when git has said that something
//! is corrupt, after it was made anew, and of what a shared clone has of its own
//! during its maintenance.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use git2::Oid;
use tokio_util::sync::CancellationToken;

use super::layout::names_in;
use super::{Inner, WorkspaceError, blocking, vault};
use crate::domain::code::FailureCode;

/// Reads the objects that a shared clone has of its own, through its private
/// view `ctl`; what it borrows is the vault's. Returns what cannot be read.
pub(super) async fn damaged_own_objects(
    inner: &Inner,
    shared: &Path,
    ctl: &Path,
    cancel: &CancellationToken,
) -> Result<Option<String>, WorkspaceError> {
    let objects = shared.join("objects");
    let dir = objects.clone();
    let (loose, packs) = blocking(move || Ok((unreadable_loose(&dir)?, indexes(&dir)))).await?;
    if loose.is_some() || packs.is_empty() {
        return Ok(loose);
    }
    let verified = inner
        .git()?
        .command("verify-pack")
        .git_dir(ctl)
        .arg("--")
        .args(packs)
        .run_to_end(cancel)
        .await?;
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    Ok((!verified.status.success()).then(|| {
        let first = said.lines().next().unwrap_or("a pack cannot be verified");
        first.to_owned()
    }))
}

fn indexes(objects: &Path) -> Vec<PathBuf> {
    fs::read_dir(objects.join("pack"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "idx"))
        .collect()
}

fn unreadable_loose(objects: &Path) -> Result<Option<String>, WorkspaceError> {
    let odb = git2::Odb::new()?;
    odb.add_disk_alternate(&objects.to_string_lossy())?;
    Ok(loose_ids(objects)
        .into_iter()
        .find(|id| odb.read(*id).is_err())
        .map(|id| format!("object {id} cannot be read")))
}

/// Returns the ids of loose objects below `objects`.
pub(super) fn loose_ids(objects: &Path) -> Vec<Oid> {
    let mut ids = Vec::new();
    for fan in names_in(objects) {
        if fan.len() != 2 || !fan.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        for entry in fs::read_dir(objects.join(&fan))
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = format!("{fan}{}", entry.file_name().to_string_lossy());
            ids.extend(vault::parse_oid(&name).ok());
        }
    }
    ids
}

/// Asks git to read everything that a git directory of ours, or a private view,
/// holds and borrows. Returns what it found damaged.
pub(super) async fn damaged_content(
    inner: &Inner,
    git_dir: &Path,
    cancel: &CancellationToken,
) -> Result<Option<String>, WorkspaceError> {
    let output = inner
        .git()?
        .command("fsck")
        .git_dir(git_dir)
        .args(["--full", "--no-dangling", "--no-progress", "--no-reflogs"])
        .deadline(inner.options.git_timeout.max(Duration::from_mins(30)))
        .run_to_end(cancel)
        .await?;
    if output.status.success() {
        return Ok(None);
    }
    let Some(code) = output.status.code() else {
        return Err(WorkspaceError::new(
            FailureCode::Internal,
            format!("git fsck ended with {}", output.status),
        ));
    };
    let said = [output.stdout, output.stderr].concat();
    Ok(what_is_damaged(code, &String::from_utf8_lossy(&said)))
}

/// Objects that are only written in an odd way are no damage: git reads them,
/// and the remote has them so.
fn what_is_damaged(code: i32, said: &str) -> Option<String> {
    /// Missing, in a pack, in a ref.
    const DAMAGED: i32 = 2 | 4 | 8;
    const SAYS_SO: [&str; 9] = [
        "missing ",
        "broken link",
        "corrupt",
        "hash mismatch",
        "unable to",
        "could not",
        "not a valid",
        "invalid sha1 pointer",
        "is empty",
    ];
    /// `HEAD` of our directories, and a ref to a branch that does not exist, as
    /// `origin/HEAD` is after a rename.
    const NO_DAMAGE: [&str; 2] = [
        "HEAD points to something strange",
        "invalid sha1 pointer 0000000000",
    ];
    let mut lines = said
        .lines()
        .filter(|line| !NO_DAMAGE.iter().any(|phrase| line.contains(phrase)));
    let told = lines
        .clone()
        .find(|line| SAYS_SO.iter().any(|phrase| line.contains(phrase)));
    let line = match told {
        Some(line) => line,
        // Git gave up before it was through.
        None if code >= 128 => lines.next().unwrap_or("git fsck failed and said nothing"),
        None if code & DAMAGED != 0 => lines.find(|line| line.starts_with("error"))?,
        None => return None,
    };
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_objects_are_no_damage_and_missing_ones_are() {
        let table = [
            (
                1,
                "error in commit ab: missingEmail: invalid author/committer line",
                None,
            ),
            (
                1,
                "warning in tree ab: zeroPaddedFilemode: contains zero-padded file modes",
                None,
            ),
            (
                2,
                "error: refs/remotes/origin/HEAD: invalid sha1 pointer 0000000000000000000000000000000000000000",
                None,
            ),
            (
                8,
                "error: HEAD points to something strange (refs/innkeeper/none)",
                None,
            ),
            (2, "missing blob ab", Some("missing blob ab")),
            (
                5,
                "error: packed ab from x.pack is corrupt",
                Some("error: packed ab from x.pack is corrupt"),
            ),
            (
                8,
                "error: refs/heads/x: badRefContent: y",
                Some("error: refs/heads/x: badRefContent: y"),
            ),
            (128, "", Some("git fsck failed and said nothing")),
        ];
        for (code, said, damage) in table {
            assert_eq!(what_is_damaged(code, said).as_deref(), damage, "{said}");
        }
    }
}
