//! Getting every object out of a damaged directory that can still be read.
//!
//! A pack that git finds whole is copied as it is, with a new index. Of any
//! other each object is read and checked for itself, and so is each loose one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use git2::{Odb, Oid};
use tokio_util::sync::CancellationToken;

use crate::files;
use crate::workspace::layout::names_in;
use crate::workspace::{Inner, WorkspaceError, blocking, health, read_through, vault, worktree};

/// The largest pack without a usable index that is read into memory.
const STREAM_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// How many ids of what could not be read are told.
const TOLD_MAX: usize = 5;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Salvaged {
    /// How many objects could not be read and are nowhere else.
    pub(super) unreadable: u64,
    /// The first of them, and packs whose objects could not even be listed.
    pub(super) told: Vec<String>,
}

impl Salvaged {
    fn lost(&mut self, what: impl Into<String>) {
        self.unreadable += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(what.into());
        }
    }

    fn add(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.told.extend(other.told);
        self.told.truncate(TOLD_MAX);
    }
}

/// Copies every readable object of the directory `from` into the repository
/// `to`, unless it has it or borrows it. `scratch` is made and taken away.
pub(super) async fn salvage(
    inner: &Inner,
    from: &Path,
    to: &Path,
    scratch: &Path,
    cancel: &CancellationToken,
) -> Result<Salvaged, WorkspaceError> {
    let mut salvaged = Salvaged::default();
    for pack in packs(from) {
        if copy_whole(inner, &pack, to, cancel).await? {
            continue;
        }
        let (one, target, place) = (pack.clone(), to.to_owned(), scratch.to_owned());
        let listed = blocking(move || by_object(&one, &target, &place)).await?;
        match listed {
            Some(found) => salvaged.add(found),
            None => {
                unpack(inner, &pack, to, cancel).await?;
                salvaged.lost(format!("some of `{}`", pack.display()));
            }
        }
    }
    let (source, target, place) = (from.to_owned(), to.to_owned(), scratch.to_owned());
    salvaged.add(blocking(move || loose(&source, &target, &place)).await?);
    Ok(salvaged)
}

fn packs(objects: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(objects.join("pack"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "pack"))
        .collect();
    found.sort();
    found
}

/// Copies a pack and has git index it, which reads all of it. Returns false,
/// with nothing left, if it is damaged.
async fn copy_whole(
    inner: &Inner,
    pack: &Path,
    to: &Path,
    cancel: &CancellationToken,
) -> Result<bool, WorkspaceError> {
    let target = to
        .join("objects/pack")
        .join(pack.file_name().unwrap_or_default());
    if target.with_extension("idx").exists() {
        return Ok(true);
    }
    let (source, copy) = (pack.to_owned(), target.clone());
    blocking(move || {
        let _ = fs::remove_file(&copy);
        Ok(files::copy_with_times(&source, &copy)?)
    })
    .await?;
    let indexed = inner
        .git()?
        .command("index-pack")
        .git_dir(to)
        .config("core.fsync", "all")
        .arg(&target)
        .run(cancel)
        .await;
    match indexed {
        Ok(_) => Ok(true),
        Err(error) => {
            for ending in ["pack", "idx", "rev"] {
                let _ = fs::remove_file(target.with_extension(ending));
            }
            let error = WorkspaceError::from(error);
            match error.code() {
                crate::domain::code::FailureCode::DiskFull => Err(error),
                _ if error.is_cancelled() => Err(error),
                _ => Ok(false),
            }
        }
    }
}

/// Reads each object that a pack's index lists. None if it cannot be listed.
fn by_object(pack: &Path, to: &Path, scratch: &Path) -> Result<Option<Salvaged>, WorkspaceError> {
    let dir = scratch.join("pack");
    files::remove_tree(scratch)?;
    files::create_dirs(&dir)?;
    let name = pack.file_name().unwrap_or_default();
    let copy = dir.join(name);
    files::copy_with_times(pack, &copy)?;
    let index = pack.with_extension("idx");
    let Ok(told) = health::checksum_told_by(&index) else {
        files::remove_tree(scratch)?;
        return Ok(None);
    };
    // A pack that does not end as its index says is not even opened.
    if health::checksum_of(&copy).ok() != Some(told) {
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))
            .map_err(|error| WorkspaceError::io("open up", &copy, &error))?;
        worktree::append_bytes(&copy, &told)?;
    }
    let link = copy.with_extension("idx");
    symlink(&index, &link).map_err(|error| WorkspaceError::io("link", &link, &error))?;
    let odb = Odb::new()?;
    odb.add_disk_alternate(&scratch.to_string_lossy())?;
    let mut ids = Vec::new();
    let listed = odb.foreach(|id| {
        ids.push(*id);
        true
    });
    let found = match listed {
        Ok(()) => Some(copy_each(&odb, &ids, to)?),
        Err(_) => None,
    };
    files::remove_tree(scratch)?;
    Ok(found)
}

/// Reads each loose object.
fn loose(from: &Path, to: &Path, scratch: &Path) -> Result<Salvaged, WorkspaceError> {
    files::remove_tree(scratch)?;
    files::create_dirs(scratch)?;
    for fan in names_in(from) {
        if fan.len() == 2 {
            let link = scratch.join(&fan);
            symlink(from.join(&fan), &link)
                .map_err(|error| WorkspaceError::io("link", &link, &error))?;
        }
    }
    let ids = read_through::loose_ids(from);
    let odb = Odb::new()?;
    odb.add_disk_alternate(&scratch.to_string_lossy())?;
    let found = copy_each(&odb, &ids, to)?;
    files::remove_tree(scratch)?;
    Ok(found)
}

fn copy_each(from: &Odb<'_>, ids: &[Oid], to: &Path) -> Result<Salvaged, WorkspaceError> {
    let repository = vault::open(to)?;
    let target = repository.odb()?;
    let mut salvaged = Salvaged::default();
    for id in ids {
        if target.exists(*id) {
            continue;
        }
        // Reading checks that the content has this id.
        match from.read(*id) {
            Ok(object) => {
                target.write(object.kind(), object.data())?;
            }
            Err(_) => salvaged.lost(id.to_string()),
        }
    }
    Ok(salvaged)
}

/// Has git unpack what it can of a pack whose index is of no use.
async fn unpack(
    inner: &Inner,
    pack: &Path,
    to: &Path,
    cancel: &CancellationToken,
) -> Result<(), WorkspaceError> {
    let source = pack.to_owned();
    let bytes = blocking(move || {
        let fits = fs::metadata(&source).is_ok_and(|stat| stat.len() <= STREAM_BYTES_MAX);
        Ok(fits.then(|| fs::read(&source).ok()).flatten())
    })
    .await?;
    let Some(bytes) = bytes else {
        return Ok(());
    };
    // It fails at what is damaged; what came before is there.
    inner
        .git()?
        .command("unpack-objects")
        .git_dir(to)
        .args(["-q", "-r"])
        .stdin(bytes)
        .run_to_end(cancel)
        .await?;
    Ok(())
}
