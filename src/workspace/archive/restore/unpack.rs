//! Writing the files of an archive, and comparing them with its list.
//!
//! Files are written into directories that nobody else has seen yet: first the
//! directories, then the files, links last, so that nothing is ever written
//! through a link; then the modes and times of the directories, inside out.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use git2::Oid;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::Loaded;
use crate::domain::code::FailureCode;
use crate::workspace::archive::content;
use crate::workspace::archive::copy::blob_id;
use crate::workspace::archive::listing::Top;
use crate::workspace::archive::manifest::{Content, Entry, STATE, TREE, What, hash_of};
use crate::workspace::{WorkspaceError, vault};

/// Says where an entry goes; none if it is not restored.
pub(super) type Place<'a> = &'a dyn Fn(&Entry) -> Option<PathBuf>;

/// Writes everything that has a place. Blocking.
pub(super) fn unpack(
    loaded: &Loaded,
    objects: &Path,
    place: Place<'_>,
) -> Result<(), WorkspaceError> {
    for entry in &loaded.entries {
        if let (What::Directory, Some(path)) = (&entry.what, place(entry)) {
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(WorkspaceError::io("create", &path, &error));
                }
                _ => {}
            }
        }
    }
    let repository = vault::open(objects)?;
    let odb = repository.odb()?;
    for entry in &loaded.entries {
        if let What::File {
            content: Content::Blob(id),
            ..
        } = &entry.what
            && let Some(path) = place(entry)
        {
            let blob = odb.read(Oid::from_str(id)?)?;
            write_file(&path, entry, &mut blob.data())?;
        }
    }
    content::read(&loaded.dir, &loaded.entries, |entry, content| {
        match place(entry) {
            Some(path) => write_file(&path, entry, content).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    })
    .map_err(|why| WorkspaceError::new(FailureCode::Corrupt, why))?;
    for entry in &loaded.entries {
        if let (What::Link { target }, Some(path)) = (&entry.what, place(entry)) {
            symlink(target.as_path(), &path)
                .and_then(|()| set_link_time(&path, entry.mtime))
                .map_err(|error| WorkspaceError::io("create", &path, &error))?;
        }
    }
    for entry in loaded.entries.iter().rev() {
        if let (What::Directory, Some(path)) = (&entry.what, place(entry)) {
            // A checkout's top gets its own when it is in its place.
            if ![TREE, STATE]
                .map(str::as_bytes)
                .contains(&entry.path.0.as_slice())
            {
                set_directory(&path, entry)?;
            }
        }
    }
    Ok(())
}

/// Gives a directory its mode and its time.
pub(super) fn set_directory(path: &Path, entry: &Entry) -> Result<(), WorkspaceError> {
    let set = || {
        // The time first: without permission it could not be opened any more.
        File::open(path)?.set_times(FileTimes::new().set_modified(time(entry.mtime)))?;
        fs::set_permissions(path, Permissions::from_mode(entry.mode))
    };
    set().map_err(|error| WorkspaceError::io("set the mode of", path, &error))
}

fn write_file(path: &Path, entry: &Entry, from: &mut dyn Read) -> Result<(), WorkspaceError> {
    let mut write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        io::copy(from, &mut file)?;
        file.set_permissions(Permissions::from_mode(entry.mode))?;
        file.set_times(FileTimes::new().set_modified(time(entry.mtime)))
    };
    write().map_err(|error| WorkspaceError::io("write", path, &error))
}

fn time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let rest = Duration::from_nanos(nanoseconds.into());
    match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + rest,
        Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + rest,
    }
}

fn set_link_time(path: &Path, (seconds, nanoseconds): (i64, u32)) -> io::Result<()> {
    let at = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    };
    let times = Timestamps {
        last_access: at,
        last_modification: at,
    };
    Ok(rustix::fs::utimensat(
        CWD,
        path,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

/// Compares what has a place with the list; returns what is not the same, in
/// words. With `tree`, nothing else may stand below it. Blocking.
pub(super) fn compare(loaded: &Loaded, place: Place<'_>, tree: Option<&Path>) -> Vec<String> {
    let mut differs = Vec::new();
    for entry in &loaded.entries {
        if let Some(path) = place(entry)
            && let Err(why) = is_as_listed(entry, &path)
        {
            differs.push(format!("`{}`: {why}", entry.path.shown()));
        }
    }
    if let Some(tree) = tree {
        let listed: std::collections::HashSet<&[u8]> = loaded
            .entries
            .iter()
            .filter_map(|entry| entry.below(TREE))
            .collect();
        match Top::open(tree)
            .map_err(|error| error.to_string())
            .and_then(|top| top.list(&|path| path == b".git"))
        {
            Ok(found) => {
                for one in found {
                    if !listed.contains(one.path.as_slice()) {
                        let shown = OsStr::from_bytes(&one.path).to_string_lossy().into_owned();
                        differs.push(format!("`{shown}` was not in the checkout"));
                    }
                }
            }
            Err(why) => differs.push(why),
        }
    }
    differs
}

fn is_as_listed(entry: &Entry, path: &Path) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let stat = fs::symlink_metadata(path).map_err(words)?;
    let mtime = (
        stat.mtime(),
        u32::try_from(stat.mtime_nsec()).unwrap_or_default(),
    );
    let is_in_tree = entry.below(TREE).is_some();
    let same_mode = stat.mode() & 0o7777 == entry.mode;
    match &entry.what {
        What::Directory if !stat.is_dir() => return Err("it is no directory".to_owned()),
        What::Link { target } => {
            let found = fs::read_link(path).map_err(words)?;
            if found.as_os_str().as_bytes() != target.0 {
                return Err("it leads elsewhere".to_owned());
            }
        }
        What::File { bytes, content } => {
            if !stat.is_file() || stat.len() != *bytes {
                return Err("it is no file of that length".to_owned());
            }
            let same = match content {
                Content::Blob(id) => {
                    let file = File::open(path).map_err(words)?;
                    blob_id(*bytes, file).map_err(words)? == *id
                }
                Content::Sha256(hash) => {
                    let file = File::open(path).map_err(words)?;
                    hash_of(file).map_err(words)? == (*bytes, hash.clone())
                }
            };
            if !same {
                return Err("its content is another".to_owned());
            }
        }
        What::Directory => {}
    }
    let is_link = matches!(entry.what, What::Link { .. });
    if is_in_tree && ((!is_link && !same_mode) || mtime != entry.mtime) {
        return Err("its mode or time is another".to_owned());
    }
    Ok(())
}
