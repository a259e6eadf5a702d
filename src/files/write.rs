//! Writing files and directories.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::rename::rename_noreplace;

/// Tells temporary files of one process apart.
static TEMPORARY: AtomicU64 = AtomicU64::new(0);

/// Writes a file so that a reader, and a crash, sees the old content or the new
/// and nothing between. With `durable`, it survives a loss of power as well.
///
/// # Errors
///
/// The error names the file. Nothing is left beside it.
pub fn atomic_write(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    replace(path, bytes, durable, 0o666)
}

/// As [`atomic_write`], durable, and readable by the owner alone.
///
/// # Errors
///
/// The error names the file. Nothing is left beside it.
pub fn atomic_write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, true, 0o600)
}

/// Makes a durable file, readable by the owner alone, if nothing is there;
/// returns whether this call made it. Of any number of callers at once exactly
/// one gets `true`, and no reader ever sees the file without its content.
///
/// # Errors
///
/// The error names the file. Nothing is left beside it.
pub fn claim(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let temporary = write_beside(path, bytes, true, 0o600)?;
    let claimed = match rename_noreplace(&temporary, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
        Ok(()) => sync_dir(parent(path)).map(|()| true),
    };
    if !matches!(claimed, Ok(true)) {
        let _ = fs::remove_file(&temporary);
    }
    claimed.map_err(|error| named(&error, "make", path))
}

fn replace(path: &Path, bytes: &[u8], durable: bool, mode: u32) -> io::Result<()> {
    let temporary = write_beside(path, bytes, durable, mode)?;
    let renamed = fs::rename(&temporary, path);
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    renamed
        .and_then(|()| {
            if durable {
                sync_dir(parent(path))
            } else {
                Ok(())
            }
        })
        .map_err(|error| named(&error, "write", path))
}

/// Writes a file under a name beside `path` that nobody else has.
fn write_beside(path: &Path, bytes: &[u8], durable: bool, mode: u32) -> io::Result<PathBuf> {
    let temporary = beside(path)?;
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            if durable { file.sync_all() } else { Ok(()) }
        });
    match written {
        Ok(()) => Ok(temporary),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(named(&error, "write", path))
        }
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}

/// Removes what [`atomic_write`] left in a directory when its process was killed.
/// Only while nobody writes there.
pub fn sweep_temporary(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        if is_temporary(&entry.file_name().to_string_lossy()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a name is one that [`beside`] gives.
fn is_temporary(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.strip_prefix('.')
        .and_then(|name| name.strip_suffix(".new"))
        .and_then(|name| name.rsplit_once('.'))
        .and_then(|(_, numbers)| numbers.split_once('-'))
        .is_some_and(|(process, count)| is_number(process) && is_number(count))
}

/// Writes a file that must not exist yet.
pub fn create_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|error| named(&error, "create", path))
}

/// Flushes the names in a directory to the disk.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Flushes everything on the file system that holds `dir` to the disk.
pub fn sync_file_system(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// Creates a directory and those above it, where they do not exist.
pub fn create_dirs(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir).map_err(|error| named(&error, "create", dir))
}

/// Copies a file with its content, its permissions and its times, to the
/// nanosecond.
pub fn copy_with_times(from: &Path, to: &Path) -> io::Result<()> {
    let copy = || {
        let mut source = File::open(from)?;
        let metadata = source.metadata()?;
        let mut target = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(to)?;
        io::copy(&mut source, &mut target)?;
        target.set_permissions(metadata.permissions())?;
        target.set_times(
            fs::FileTimes::new()
                .set_accessed(metadata.accessed()?)
                .set_modified(metadata.modified()?),
        )
    };
    copy().map_err(|error: io::Error| named(&error, "copy to", to))
}

fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(
        ".{}-{}.new",
        std::process::id(),
        TEMPORARY.fetch_add(1, Ordering::Relaxed)
    ));
    Ok(path.with_file_name(temporary))
}

/// The same error, with what was tried and where; its kind stays.
pub(super) fn named(error: &io::Error, action: &str, path: &Path) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("could not {action} `{}`: {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("f");
        for durable in [false, true] {
            atomic_write(&file, b"one", durable).expect("written");
            atomic_write(&file, b"two", durable).expect("written");
            assert_eq!(fs::read(&file).expect("read"), b"two");
        }
        let error = atomic_write(&dir.path().join("no/f"), b"x", true).expect_err("no directory");
        assert!(error.to_string().contains("no/f"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
    }

    #[test]
    fn what_a_killed_writer_left_is_swept_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let names = [
            "f.json",
            ".f.json.new",
            ".f.json.1-x.new",
            ".git",
            "f.1-2.new",
        ];
        for name in names {
            fs::write(dir.path().join(name), "x").expect("written");
        }
        let left = beside(&dir.path().join("f.json")).expect("a name");
        fs::write(&left, "half").expect("written");
        sweep_temporary(dir.path());
        assert!(!left.exists());
        assert_eq!(
            fs::read_dir(dir.path()).expect("listed").count(),
            names.len()
        );
        sweep_temporary(&dir.path().join("not there"));
    }

    #[test]
    fn a_copy_keeps_the_time_of_its_source() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&from, "x").expect("written");
        let then = std::time::UNIX_EPOCH + std::time::Duration::new(7, 123_456_789);
        File::options()
            .write(true)
            .open(&from)
            .and_then(|file| file.set_modified(then))
            .expect("set");
        copy_with_times(&from, &to).expect("copied");
        assert_eq!(
            fs::metadata(&to).and_then(|m| m.modified()).expect("asked"),
            then
        );
    }

    #[test]
    fn a_claim_is_granted_once_and_leaves_nothing_else_behind() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("claim");
        let granted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|n| {
                    let path = &path;
                    scope.spawn(move || claim(path, format!("{n}").as_bytes()))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| usize::from(thread.join().expect("no panic").expect("no error")))
                .sum()
        });
        assert_eq!(granted, 1);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
    }

    #[test]
    fn what_is_private_is_for_the_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (claimed, written) = (dir.path().join("a"), dir.path().join("b"));
        assert!(claim(&claimed, b"x").expect("claimed"));
        atomic_write_private(&written, b"one").expect("written");
        atomic_write_private(&written, b"two").expect("replaced");
        assert_eq!(fs::read(&written).expect("read"), b"two");
        for path in [claimed, written] {
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
