//! Submodules: each is a repository of its own, and for a worktree the only
//! place where its objects are is inside the record that a removal drops.
//!
//! Each is asked through a private git directory. What counts is anything that
//! status shows, and any commit on its HEAD, branches, stash or reflogs that
//! neither the commit recorded above it nor its remote-tracking refs reach.
//! (Nothing of ours fetches submodules, so those refs are all there is.)

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use git2::{Oid, Repository};
use tokio_util::sync::CancellationToken;

use super::asked::{self, Form};
use super::index::Entry;
use super::private::Private;
use super::read::{LARGE_BYTES_MAX, SMALL_BYTES_MAX, read_if_present, read_regular};
use super::reflog;
use super::regenerable::Regenerable;
use super::status::Kind;
use crate::git::Git;
use crate::workspace::landed;

/// How deeply submodules of submodules are asked.
const DEPTH_MAX: usize = 8;

/// What to ask with.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// The git program.
    pub git: &'a Git,
    /// Where private directories may be made.
    pub scratch: &'a Path,
    /// Ignored files that may go.
    pub regenerable: &'a Regenerable,
    /// Ends the asking.
    pub cancel: &'a CancellationToken,
}

/// One repository of a submodule.
#[derive(Debug, PartialEq, Eq)]
struct Submodule {
    /// Where its files are; none if only its repository is left.
    files: Option<PathBuf>,
    git_dir: PathBuf,
    /// The commit that the index above it records.
    recorded: Option<String>,
    name: String,
}

/// Returns the paths of submodules, from an index.
pub fn paths(entries: &[Entry]) -> BTreeSet<PathBuf> {
    entries
        .iter()
        .filter(|entry| entry.is_submodule())
        .map(|entry| PathBuf::from(std::ffi::OsStr::from_bytes(&entry.path)))
        .collect()
}

impl Asker<'_> {
    /// Returns what the submodules below `files`, whose own git directory is
    /// `admin`, hold that exists only there.
    ///
    /// # Errors
    ///
    /// What could not be asked, in words.
    pub async fn ask(
        &self,
        files: &Path,
        admin: &Path,
        entries: &[Entry],
    ) -> Result<Vec<String>, String> {
        let mut findings = Vec::new();
        let mut waiting = Vec::new();
        find(files, admin, entries, "", &mut waiting, &mut findings)
            .map_err(|error| error.to_string())?;
        let mut depth = 0;
        while !waiting.is_empty() {
            depth += 1;
            if depth > DEPTH_MAX {
                return Err("submodules are nested too deeply".to_owned());
            }
            for (n, submodule) in std::mem::take(&mut waiting).into_iter().enumerate() {
                let scratch = self.scratch.join(format!("submodule-{depth}-{n}"));
                let private = Private::make(&scratch, &submodule.git_dir, &submodule.git_dir)
                    .map_err(|error| format!("{}: {error}", submodule.name))?;
                if let Some(place) = &submodule.files {
                    let asked = asked::status(self.git, &private, place, Form::Normal, self.cancel)
                        .await
                        .map_err(|error| format!("{}: {error}", submodule.name))?;
                    findings.extend(
                        asked
                            .entries
                            .iter()
                            .filter(|entry| {
                                entry.kind != Kind::Ignored
                                    || !self.regenerable.matches(&entry.path)
                            })
                            .map(|entry| {
                                format!(
                                    "{}/{}",
                                    submodule.name,
                                    String::from_utf8_lossy(&entry.path)
                                )
                            }),
                    );
                    find(
                        place,
                        &submodule.git_dir,
                        &private.entries,
                        &submodule.name,
                        &mut waiting,
                        &mut findings,
                    )
                    .map_err(|error| error.to_string())?;
                }
                findings.extend(
                    commits(&submodule, &private)
                        .map_err(|error| format!("{}: {error}", submodule.name))?,
                );
            }
        }
        Ok(findings)
    }
}

fn find(
    files: &Path,
    admin: &Path,
    entries: &[Entry],
    above: &str,
    submodules: &mut Vec<Submodule>,
    findings: &mut Vec<String>,
) -> io::Result<()> {
    let modules = admin.join("modules");
    let mut found = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.is_submodule()) {
        let path = files.join(std::ffi::OsStr::from_bytes(&entry.path));
        let shown = String::from_utf8_lossy(&entry.path);
        let name = if above.is_empty() {
            shown.into_owned()
        } else {
            format!("{above}/{shown}")
        };
        let names = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => fs::read_dir(&path)?.count(),
            // Missing, or something else in its place: status tells of it.
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if names == 0 {
            continue;
        }
        let dot_git = path.join(".git");
        let git_dir = match fs::symlink_metadata(&dot_git) {
            Ok(meta) if meta.is_dir() => dot_git,
            Ok(_) => {
                let Some(git_dir) = pointed_at(&path, &dot_git, &modules) else {
                    findings.push(format!("{name}: its repository is somewhere else"));
                    continue;
                };
                git_dir
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                findings.push(format!("{name}: files without a repository"));
                continue;
            }
            Err(error) => return Err(error),
        };
        found.insert(git_dir.clone());
        submodules.push(Submodule {
            files: Some(path),
            git_dir,
            recorded: Some(entry.id.clone()),
            name,
        });
    }
    let mut repositories = Vec::new();
    repositories_below(&modules, &mut repositories, 0)?;
    for git_dir in repositories {
        let git_dir = fs::canonicalize(git_dir)?;
        if !found.contains(&git_dir) {
            let name = git_dir
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            submodules.push(Submodule {
                files: None,
                git_dir,
                recorded: None,
                name: format!("{name} (its files are gone)"),
            });
        }
    }
    Ok(())
}

/// The git directory that a `.git` file names, if it is one of ours.
fn pointed_at(place: &Path, dot_git: &Path, modules: &Path) -> Option<PathBuf> {
    let text = read_regular(dot_git, SMALL_BYTES_MAX).ok()?;
    let target = text.strip_prefix(b"gitdir: ")?;
    let target = target.strip_suffix(b"\n").unwrap_or(target);
    let target = fs::canonicalize(place.join(std::ffi::OsStr::from_bytes(target))).ok()?;
    let modules = fs::canonicalize(modules).ok()?;
    (target.starts_with(&modules) && target != modules).then_some(target)
}

fn repositories_below(dir: &Path, found: &mut Vec<PathBuf>, depth: usize) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if depth > DEPTH_MAX {
        return Err(io::Error::other("modules are nested too deeply"));
    }
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        if path.join("HEAD").symlink_metadata().is_ok() {
            found.push(path);
        } else {
            repositories_below(&path, found, depth + 1)?;
        }
    }
    Ok(())
}

fn commits(submodule: &Submodule, private: &Private) -> Result<Vec<String>, String> {
    let words = |error: &git2::Error| error.message().to_owned();
    let repo = Repository::open(private.git_dir()).map_err(|error| words(&error))?;
    let view = Repository::open(private.ctl()).map_err(|error| words(&error))?;
    let mut tips = BTreeSet::new();
    let mut known = BTreeSet::new();
    match repo.refname_to_id("HEAD") {
        Ok(id) => {
            tips.insert(id);
        }
        Err(error) if error.code() == git2::ErrorCode::NotFound => {}
        Err(error) => return Err(words(&error)),
    }
    for reference in view.references().map_err(|error| words(&error))? {
        let reference = reference.map_err(|error| words(&error))?;
        let id = reference
            .peel_to_commit()
            .map_err(|error| words(&error))?
            .id();
        if reference.name_bytes().starts_with(b"refs/remotes/") {
            known.insert(id);
        } else if !reference.name_bytes().starts_with(b"refs/tags/") {
            tips.insert(id);
        }
    }
    for log in logs_below(&submodule.git_dir.join("logs")).map_err(|error| error.to_string())? {
        if !log.starts_with(submodule.git_dir.join("logs/refs/remotes")) {
            tips.extend(ids_of(&log)?);
        }
    }
    if let Some(recorded) = &submodule.recorded {
        known.insert(Oid::from_str(recorded).map_err(|error| words(&error))?);
    }
    let commits = landed::new_commits(&repo, &tips, &known).map_err(|error| error.to_string())?;
    Ok(commits
        .iter()
        .map(|id| format!("{}: commit {}", submodule.name, &id.to_string()[..10]))
        .collect())
}

fn ids_of(log: &Path) -> Result<Vec<Oid>, String> {
    let bytes = read_if_present(log, LARGE_BYTES_MAX)
        .map_err(|error| error.to_string())?
        .unwrap_or_default();
    let entries = reflog::parse_reflog(&bytes).map_err(|error| error.to_string())?;
    reflog::ids(&entries)
        .iter()
        .map(|id| Oid::from_str(id).map_err(|error| error.message().to_owned()))
        .collect()
}

/// Returns every file below a directory of reflogs.
///
/// # Errors
///
/// If a directory cannot be read.
pub fn logs_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}
