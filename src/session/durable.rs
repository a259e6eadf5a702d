//! Small files that are whole or absent, and on disk when the call returns.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags};

/// Writes `content` to `path`, readable by the owner alone, in place of what
/// was there.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = write_beside(path, content)?;
    fs::rename(&beside, path)
        .and_then(|()| sync_directory(path))
        .inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Makes `path` with `content` if nothing is there, readable by the owner
/// alone; returns whether this call made it.
///
/// Of any number of callers at once exactly one gets `true`, and no reader ever
/// sees the file without its content.
pub(super) fn claim(path: &Path, content: &[u8]) -> io::Result<bool> {
    let beside = write_beside(path, content)?;
    let claimed = rename_exclusively(&beside, path);
    if !matches!(claimed, Ok(true)) {
        drop(fs::remove_file(&beside));
    }
    if claimed? {
        sync_directory(path)?;
        return Ok(true);
    }
    Ok(false)
}

fn rename_exclusively(from: &Path, to: &Path) -> io::Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // File systems that cannot rename so can make a second name.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match fs::hard_link(from, to) {
            Ok(()) => fs::remove_file(from).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        },
        Err(other) => Err(other.into()),
    }
}

fn write_beside(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(
        ".{}-{}.new",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    let beside = PathBuf::from(name);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        });
    match written {
        Ok(()) => Ok(beside),
        Err(error) => {
            drop(fs::remove_file(&beside));
            Err(error)
        }
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_granted_once_and_leaves_nothing_else_behind() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
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
        let names: Vec<_> = fs::read_dir(dir.path()).expect("readable").collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_file_is_replaced_whole_and_is_for_the_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("file");
        replace(&path, b"one").expect("written");
        replace(&path, b"two").expect("replaced");
        assert_eq!(fs::read(&path).expect("readable"), b"two");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
