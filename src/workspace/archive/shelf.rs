//! Where archives stand, and finding one by its id.

use std::fs;
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use crate::domain::archive::ArchiveSummary;
use crate::domain::code::FailureCode;
use crate::workspace::WorkspaceError;
use crate::workspace::layout::{Layout, names_in};

/// Returns where an archive is.
pub(super) fn dir_of(layout: &Layout, slug: &str, id: &str) -> PathBuf {
    layout.archives().join(slug).join(id)
}

/// Whether a text can be the id of an archive: nothing else is ever made part
/// of a path or of a ref.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == 32
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Whether a text can be the slug of a checkout.
pub(super) fn is_slug(text: &str) -> bool {
    crate::workspace::prepare::require_slug(text).is_ok()
}

/// Makes the directory that holds the archives of a slug.
pub(super) fn ensure(layout: &Layout, slug: &str) -> Result<PathBuf, WorkspaceError> {
    let dir = layout.archives().join(slug);
    for one in [layout.archives(), dir.clone()] {
        // What is there is looked at before anything is made through it.
        if fs::symlink_metadata(&one).is_err() {
            crate::files::create_dirs(&one)?;
            crate::files::sync_dir(one.parent().unwrap_or(&one))?;
        }
        if !is_real_dir(&one) {
            return Err(WorkspaceError::new(
                FailureCode::PathOccupied,
                format!("`{}` is no directory", one.display()),
            ));
        }
    }
    Ok(dir)
}

/// Returns the slug whose archive an id is. Blocking.
///
/// # Errors
///
/// `bad_input` if there is none.
pub(super) fn locate(layout: &Layout, id: &str) -> Result<String, WorkspaceError> {
    let unknown = || {
        WorkspaceError::new(
            FailureCode::BadInput,
            format!("there is no archive `{}`", id.escape_default()),
        )
    };
    if !is_id(id) || !is_real_dir(&layout.archives()) {
        return Err(unknown());
    }
    names_in(&layout.archives())
        .into_iter()
        .find(|slug| is_slug(slug) && is_real_dir(&dir_of(layout, slug, id)))
        .ok_or_else(unknown)
}

/// Returns where the archive of an id is, and what it says. Blocking.
///
/// # Errors
///
/// `bad_input` if there is none, `corrupt` if it cannot be read.
pub(super) fn find(layout: &Layout, id: &str) -> Result<(PathBuf, Manifest), WorkspaceError> {
    let slug = locate(layout, id)?;
    let dir = dir_of(layout, &slug, id);
    let manifest = Manifest::read(&dir).map_err(|why| corrupt(id, &why))?;
    let names = &manifest.summary;
    if names.id != id || names.record.slug != slug {
        return Err(corrupt(id, "it is another archive's"));
    }
    crate::workspace::gate::require_names(&names.record).map_err(|why| corrupt(id, &why))?;
    Ok((dir, manifest))
}

/// Returns an error that says that an archive is not what was written.
pub(super) fn corrupt(id: &str, why: &str) -> WorkspaceError {
    WorkspaceError::new(
        FailureCode::Corrupt,
        format!("archive `{id}` cannot be used: {why}"),
    )
}

/// Returns what all archives say of themselves, newest first. Blocking.
pub(super) fn list(layout: &Layout) -> Vec<ArchiveSummary> {
    let mut found = Vec::new();
    if !is_real_dir(&layout.archives()) {
        return found;
    }
    for slug in names_in(&layout.archives()) {
        for id in names_in(&layout.archives().join(&slug)) {
            if !is_id(&id) || !is_slug(&slug) {
                continue;
            }
            match find(layout, &id) {
                Ok((dir, manifest)) => found.push(summary(&dir, manifest)),
                Err(error) => tracing::warn!(%error, "An archive cannot be listed."),
            }
        }
    }
    found.sort_by(|one, other| (other.created_at, &other.id).cmp(&(one.created_at, &one.id)));
    found
}

/// Returns what an archive says of itself, with what it takes on disk now.
pub(super) fn summary(dir: &Path, manifest: Manifest) -> ArchiveSummary {
    ArchiveSummary {
        bytes: bytes_in(dir),
        ..manifest.summary
    }
}

/// Returns how many bytes the files of an archive have.
pub(super) fn bytes_in(dir: &Path) -> u64 {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|stat| stat.len())
        .sum()
}

/// Whether what holds the archives of a slug is there, and no link.
pub(super) fn is_ours(layout: &Layout, slug: &str) -> bool {
    is_real_dir(&layout.archives()) && is_real_dir(&layout.archives().join(slug))
}

fn is_real_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|stat| stat.is_dir())
}
