//! The bundle of an archive, and its pins in the vault.
//!
//! The bundle holds what the knot ties and no ref of the remote reaches. It is
//! read into the vault from the archive's own file: git then checks every object
//! in it and that nothing is missing, so what is pinned is what was written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::manifest::{Manifest, OBJECTS};
use crate::domain::code::FailureCode;
use crate::workspace::probe::private::Private;
use crate::workspace::repository::Repository;
use crate::workspace::{Inner, WorkspaceError, blocking, vault};

/// Refs of archives in a vault.
pub(super) const ARCHIVES: &str = "refs/innkeeper/archive/";

/// Writes the bundle, flushed; returns the commits of the remote that it needs.
pub(super) async fn write(
    inner: &Arc<Inner>,
    repository: &Repository,
    private: &Private,
    remote: &BTreeSet<String>,
    dir: &Path,
    cancel: &CancellationToken,
) -> Result<BTreeSet<String>, WorkspaceError> {
    let mut alternates = private.ctl().join("objects").into_os_string();
    alternates.push(":");
    alternates.push(repository.vault.join("objects"));
    let mut without = String::new();
    for id in remote {
        // Writing to a string cannot fail.
        let _ = writeln!(without, "^{id}");
    }
    let file = dir.join(OBJECTS);
    inner
        .git()?
        .command("bundle")
        .git_dir(&private.knot())
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternates)
        .args(["create", "-q"])
        .arg(&file)
        .args(["--all", "--stdin"])
        .stdin(without.into_bytes())
        .run(cancel)
        .await?;
    blocking(move || {
        let needed = File::open(&file)
            .and_then(|opened| {
                opened.sync_all()?;
                prerequisites(BufReader::new(opened))
            })
            .map_err(|error| WorkspaceError::io("read", &file, &error))?;
        Ok(needed)
    })
    .await
}

/// Reads the head of a bundle.
fn prerequisites(mut bundle: impl BufRead) -> io::Result<BTreeSet<String>> {
    let mut needed = BTreeSet::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        bundle.read_until(b'\n', &mut line)?;
        if line.is_empty() || line == b"\n" {
            return Ok(needed);
        }
        if let Some(id) = line.strip_prefix(b"-").and_then(|rest| rest.get(..40)) {
            needed.insert(String::from_utf8_lossy(id).into_owned());
        }
    }
}

/// Reads a bundle into the vault and pins what is in it.
pub(super) async fn pin(
    inner: &Arc<Inner>,
    repository: &Repository,
    dir: &Path,
    id: &str,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let _writer = repository.write_lock(inner, cancel).await?;
    inner
        .git()?
        .command("fetch")
        .git_dir(&repository.vault)
        .protocols(&["file"])
        .args([
            "-q",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
            "--refmap=",
            "--",
        ])
        .arg(dir.join(OBJECTS))
        .arg(format!("+refs/knot/*:{ARCHIVES}{id}/*"))
        .run(cancel)
        .await?;
    Ok(())
}

/// Makes sure that the pins are what the manifest says, and that every object
/// that they are there for is in the vault. Blocking.
///
/// # Errors
///
/// In words.
pub(super) fn require_pinned(
    vault: &Path,
    id: &str,
    pins: &BTreeMap<String, String>,
    objects: &BTreeSet<String>,
) -> Result<(), WorkspaceError> {
    let missing = |what: String| WorkspaceError::new(FailureCode::Corrupt, what);
    let vault = vault::open(vault)?;
    for (name, wanted) in pins {
        let found = vault::tip(&vault, &format!("{ARCHIVES}{id}/{name}"))?;
        if found != Some(vault::parse_oid(wanted)?) {
            return Err(missing(format!("the vault's pin `{name}` is not {wanted}")));
        }
    }
    let odb = vault.odb()?;
    for object in objects {
        if !odb.exists(vault::parse_oid(object)?) {
            return Err(missing(format!("object {object} is not in the vault")));
        }
    }
    Ok(())
}

/// Returns which commits that a bundle needs are not in the vault. Blocking.
pub(super) fn missing_prerequisites(
    vault: &Path,
    manifest: &Manifest,
) -> Result<Vec<String>, WorkspaceError> {
    let vault = vault::open(vault)?;
    let mut missing = Vec::new();
    for id in &manifest.prerequisites {
        if !vault::has_commit(&vault, vault::parse_oid(id)?) {
            missing.push(id.clone());
        }
    }
    Ok(missing)
}

/// Returns the names of the refs that pin an archive. Blocking.
pub(super) fn pins_of(vault: &git2::Repository, id: &str) -> Result<Vec<String>, WorkspaceError> {
    let mut names = Vec::new();
    for name in vault.references_glob(&format!("{ARCHIVES}{id}/*"))?.names() {
        names.push(name?.to_owned());
    }
    Ok(names)
}

/// Drops the pins of an archive. Blocking.
pub(super) fn unpin(vault: &Path, id: &str) -> Result<(), WorkspaceError> {
    if !vault.is_dir() {
        return Ok(());
    }
    let vault = vault::open(vault)?;
    for name in pins_of(&vault, id)? {
        match vault.find_reference(&name) {
            Ok(mut reference) => reference.delete()?,
            Err(error) if error.code() == git2::ErrorCode::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_bundle_needs_is_read_from_its_head_only() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let text = format!("# v2 git bundle\n-{a} subject\n{b} refs/knot/all\n\n-{b} data\n");
        let needed = prerequisites(text.as_bytes()).expect("read");
        assert_eq!(needed, BTreeSet::from([a]));
    }
}
