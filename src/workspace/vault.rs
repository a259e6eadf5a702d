//! The daemon's own copy of a repository: made whole, asked in process.
//!
//! A vault's refs are all below `refs/innkeeper/`: `heads/` mirrors the
//! remote's branches, `pull/` holds heads of pull requests, `seen/` pins
//! single commits by their id. They are written only from what the remote
//! gave, so a commit that one of them reaches is on the remote, or was.

use std::fs;
use std::path::{Path, PathBuf};

use git2::{ErrorCode, Oid, Repository};
use serde::{Deserialize, Serialize};

use super::WorkspaceError;
use super::layout::RepoPath;
use crate::domain::code::FailureCode;
use crate::files;

/// Branches of the remote.
pub const HEADS: &str = "refs/innkeeper/heads/";
/// Heads of pull requests.
pub const PULLS: &str = "refs/innkeeper/pull/";
/// Single commits, by their id.
pub const SEEN: &str = "refs/innkeeper/seen/";

/// Configuration of a vault. Small fetches are kept as packs too: a pack
/// appears whole or not at all, loose objects one by one.
pub(super) const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\tlogAllRefUpdates = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tfsync = committed,reference
[gc]
\tauto = 0
\tpruneExpire = never
[maintenance]
\tauto = false
[fetch]
\tunpackLimit = 1
[transfer]
\tunpackLimit = 1
[uploadpack]
\tallowAnySHA1InWant = true
";

/// Format of what stands below a repository's directories.
const FORMAT: u32 = 1;

/// Says which repository a vault or a shared clone is of. Written before it is
/// renamed into place, so that its presence means "whole".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    format: u32,
    host: String,
    owner: String,
    repo: String,
}

impl Marker {
    /// Returns the marker of a repository.
    pub fn of(repo: &RepoPath) -> Self {
        Self {
            format: FORMAT,
            host: repo.host.clone(),
            owner: repo.owner.clone(),
            repo: repo.repo.clone(),
        }
    }

    /// Returns its text.
    pub fn text(&self) -> String {
        // A struct of numbers and strings always serialises.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Returns the marker in a file, if there is one that is understood.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

/// Returns where a vault's marker is.
pub fn marker_path(vault: &Path) -> PathBuf {
    vault.join("innkeeper/repository.json")
}

/// Writes an empty vault at `dir`, which does not exist. Blocking.
pub fn write_empty(dir: &Path, repo: &RepoPath) -> Result<(), WorkspaceError> {
    for sub in [
        "objects/info",
        "objects/pack",
        "refs/innkeeper",
        "refs/heads",
        "info",
        "innkeeper/checkouts",
        "innkeeper/views",
    ] {
        files::create_dirs(&dir.join(sub))?;
    }
    files::create_new(&dir.join("config"), CONFIG.as_bytes())?;
    files::create_new(&dir.join("HEAD"), b"ref: refs/innkeeper/none\n")?;
    files::create_new(&marker_path(dir), Marker::of(repo).text().as_bytes())?;
    Ok(())
}

/// Opens a vault, or a private view, in process. Blocking.
pub fn open(dir: &Path) -> Result<Repository, WorkspaceError> {
    Ok(Repository::open_bare(dir)?)
}

/// Parses a full object id.
pub fn parse_oid(text: &str) -> Result<Oid, WorkspaceError> {
    let fits = text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| Oid::from_str(text).ok())
        .flatten()
        .filter(|oid| !oid.is_zero())
        .ok_or_else(|| {
            WorkspaceError::new(
                FailureCode::BadInput,
                format!("{text:?} is no full commit id"),
            )
        })
}

/// Returns whether a commit is here.
pub fn has_commit(vault: &Repository, commit: Oid) -> bool {
    vault.find_commit(commit).is_ok()
}

/// Returns what a ref points at, if it exists.
pub fn tip(repository: &Repository, name: &str) -> Result<Option<Oid>, WorkspaceError> {
    match repository.refname_to_id(name) {
        Ok(oid) => Ok(Some(oid)),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes sure that a commit stays, whatever happens to the refs that led to it.
pub fn pin(vault: &Repository, commit: Oid) -> Result<(), WorkspaceError> {
    /// Somebody else who pins it holds the ref's lock for a moment.
    const TRIES: u32 = 50;
    let name = format!("{SEEN}{commit}");
    let mut tries = 0;
    loop {
        if tip(vault, &name)? == Some(commit) {
            return Ok(());
        }
        match vault.reference(&name, commit, true, "") {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == ErrorCode::Locked && tries < TRIES => {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes room for a branch of the remote: what stands in its way (`a` for
/// `a/b`, or the other way round) cannot exist there any more. It is pinned,
/// then dropped. The branch's own old tip is pinned as well.
pub fn make_room(vault: &Repository, branch: &str) -> Result<(), WorkspaceError> {
    let name = format!("{HEADS}{branch}");
    if let Some(old) = tip(vault, &name)? {
        pin(vault, old)?;
    }
    for hindrance in in_the_way(vault, HEADS, branch)? {
        if let Some(old) = tip(vault, &hindrance)? {
            pin(vault, old)?;
        }
        match vault.find_reference(&hindrance) {
            Ok(mut reference) => reference.delete()?,
            Err(error) if error.code() == ErrorCode::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the refs below `prefix` that cannot stand beside the branch.
pub fn in_the_way(
    repository: &Repository,
    prefix: &str,
    branch: &str,
) -> Result<Vec<String>, WorkspaceError> {
    let mut found = Vec::new();
    for (at, _) in branch.match_indices('/') {
        let parent = format!("{prefix}{}", &branch[..at]);
        if tip(repository, &parent)?.is_some() {
            found.push(parent);
        }
    }
    let below = format!("{prefix}{branch}/");
    // A glob would give branches with brackets in their names a meaning.
    for name in repository.references_glob(&format!("{prefix}*"))?.names() {
        let name = name?;
        if name.starts_with(&below) {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// Returns every branch of the remote as it was last seen.
pub fn heads(vault: &Repository) -> Result<Vec<(String, Oid)>, WorkspaceError> {
    let mut found = Vec::new();
    for reference in vault.references_glob(&format!("{HEADS}*"))? {
        let reference = reference?;
        if let (Ok(name), Some(oid)) = (reference.name(), reference.target())
            && let Some(branch) = name.strip_prefix(HEADS)
        {
            found.push((branch.to_owned(), oid));
        }
    }
    Ok(found)
}

/// Returns the remote's default branch as it was last seen.
pub fn default_branch(vault: &Path) -> Option<String> {
    let head = fs::read_to_string(vault.join("innkeeper/default-branch")).ok()?;
    let head = head.trim();
    (!head.is_empty()).then(|| head.to_owned())
}

/// Remembers the remote's default branch.
pub fn set_default_branch(vault: &Path, branch: &str) -> Result<(), WorkspaceError> {
    if default_branch(vault).as_deref() == Some(branch) {
        return Ok(());
    }
    let path = vault.join("innkeeper/default-branch");
    Ok(files::atomic_write(
        &path,
        format!("{branch}\n").as_bytes(),
        false,
    )?)
}

/// Returns the URL that the repository was last used with.
pub(super) fn clone_url(vault: &Path) -> Option<String> {
    let url = fs::read_to_string(vault.join("innkeeper/clone-url")).ok()?;
    let url = url.trim_end_matches('\n');
    (!url.is_empty()).then(|| url.to_owned())
}

/// Remembers the URL, for what is done when nobody names it.
pub(super) fn set_clone_url(vault: &Path, url: &str) -> Result<(), WorkspaceError> {
    if clone_url(vault).as_deref() == Some(url) {
        return Ok(());
    }
    let path = vault.join("innkeeper/clone-url");
    Ok(files::atomic_write(
        &path,
        format!("{url}\n").as_bytes(),
        false,
    )?)
}

/// Removes what a git that was killed left in the objects. Only while no git
/// of ours writes there.
pub fn sweep_temporary(vault: &Path) {
    let objects = vault.join("objects");
    let mut dirs = vec![objects.clone(), objects.join("pack")];
    if let Ok(entries) = fs::read_dir(&objects) {
        dirs.extend(
            entries
                .flatten()
                .filter(|entry| entry.file_name().len() == 2)
                .map(|entry| entry.path()),
        );
    }
    for dir in dirs {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("tmp_") || name.starts_with("tmp-") {
                let _ = files::remove_tree(&entry.path());
            }
        }
    }
}
