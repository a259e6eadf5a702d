//! Does a repository of ours show damage?
//!
//! What can be told by reading small files, and the ends of large ones, is looked
//! at before each use. It finds what a loss of power and a full disk leave;
//! everything else is found by reading it through.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::layout::names_in;
use super::rawrefs::RawRefs;

/// Packs that were found whole, by name, size and time: what has not changed is
/// not read again.
#[derive(Default)]
pub(super) struct Whole(Mutex<HashSet<(OsString, u64, i64)>>);

/// Returns what is wrong with the packs below `objects`, as far as their sizes
/// and checksums tell. Blocking.
pub(super) fn damaged_pack(objects: &Path, whole: &Whole) -> Option<String> {
    let dir = objects.join("pack");
    let mut known = whole.0.lock().unwrap_or_else(PoisonError::into_inner);
    for entry in fs::read_dir(&dir).ok()?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|ext| ext != "pack") {
            continue;
        }
        let Ok(stat) = entry.metadata() else {
            continue;
        };
        let key = (
            entry.file_name(),
            stat.len(),
            stat.mtime_nsec() ^ stat.mtime(),
        );
        if known.contains(&key) {
            continue;
        }
        match ends_fit(&path) {
            Ok(None) => {
                known.insert(key);
            }
            Ok(Some(why)) => return Some(format!("`{}` {why}", path.display())),
            // Gone meanwhile, or its index is not there yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Some(format!("`{}`: {error}", path.display())),
        }
    }
    None
}

/// Whether a pack begins as one and ends with the checksum that its index has;
/// says what does not fit.
fn ends_fit(pack: &Path) -> io::Result<Option<&'static str>> {
    let mut index = File::open(pack.with_extension("idx"))?;
    let mut file = File::open(pack)?;
    if file.metadata()?.len() < 32 || index.metadata()?.len() < 1064 {
        return Ok(Some("is cut short"));
    }
    let mut begin = [0; 4];
    file.read_exact(&mut begin)?;
    if &begin != b"PACK" {
        return Ok(Some("is no pack"));
    }
    let fits = before_end(&mut file, 20)? == before_end(&mut index, 40)?;
    Ok((!fits).then_some("does not end as its index says"))
}

/// Returns the checksum at the end of a pack.
pub(super) fn checksum_of(pack: &Path) -> io::Result<[u8; 20]> {
    before_end(&mut File::open(pack)?, 20)
}

/// Returns the checksum that an index says its pack ends with.
pub(super) fn checksum_told_by(index: &Path) -> io::Result<[u8; 20]> {
    before_end(&mut File::open(index)?, 40)
}

fn before_end(file: &mut File, bytes: i64) -> io::Result<[u8; 20]> {
    let mut found = [0; 20];
    file.seek(SeekFrom::End(-bytes))?;
    file.read_exact(&mut found)?;
    Ok(found)
}

/// Returns what is wrong with the loose refs of agents. Blocking.
pub(super) fn damaged_branch(shared: &Path) -> Option<String> {
    let refs = RawRefs::of_agents(shared).ok()?;
    let name = refs.broken().next()?;
    Some(says_nothing(name))
}

fn says_nothing(name: &[u8]) -> String {
    format!("`{}` says nothing", String::from_utf8_lossy(name))
}

/// Returns what is wrong with refs and loose objects, as far as reading the
/// refs and looking at sizes tells. Blocking.
pub(super) fn damaged_files(dir: &Path) -> Option<String> {
    match RawRefs::read(dir) {
        Ok(refs) => {
            if let Some(name) = refs.broken().next() {
                return Some(says_nothing(name));
            }
            if refs.packed_is_broken {
                return Some("the packed refs cannot be read".to_owned());
            }
        }
        Err(error) => return Some(error.to_string()),
    }
    let objects = dir.join("objects");
    for name in names_in(&objects) {
        if name.len() != 2 {
            continue;
        }
        for entry in fs::read_dir(objects.join(name)).ok()?.flatten() {
            let is_object = entry.file_name().len() == 38;
            if is_object && entry.metadata().is_ok_and(|stat| stat.len() == 0) {
                return Some(format!("`{}` is empty", entry.path().display()));
            }
        }
    }
    None
}
