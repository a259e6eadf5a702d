//! Removing a tree without leaving it.
//!
//! Everything is done below directories that were opened, by name, without
//! following links and without entering another file system. Directories that
//! their owner cannot read or write are opened up first. What cannot be removed
//! is left and told; the rest is removed all the same.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many names.
    pub entries: u64,
    /// How many bytes of regular files that had no other name.
    pub bytes: u64,
}

/// Deeper directories are first moved up, so that the depth of a tree bounds
/// neither the stack nor the number of open descriptors.
const DEPTH_MAX: usize = 96;

/// Removes a file, a link, or a directory with everything below. Nothing there
/// is success.
///
/// # Errors
///
/// The first thing that could not be removed.
pub fn remove_tree(path: &Path) -> io::Result<Removed> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{}` names nothing that could be removed", path.display()),
        ));
    };
    let parent = match rustix::fs::openat(CWD, parent, dir_flags(), Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(Removed::default()),
        Err(errno) => return Err(errno.into()),
    };
    let mut removal = Removal {
        device: rustix::fs::fstat(&parent)?.st_dev,
        top: None,
        moved: 0,
        removed: Removed::default(),
        failed: None,
    };
    removal.entry(parent.as_fd(), &c_string(name)?, 0);
    match removal.failed {
        None => Ok(removal.removed),
        Some((name, errno)) => {
            let error = io::Error::from(errno);
            Err(io::Error::new(
                error.kind(),
                format!(
                    "could not remove `{}` below `{}`: {error}",
                    String::from_utf8_lossy(name.as_bytes()),
                    path.display()
                ),
            ))
        }
    }
}

/// Removes the directories above `path`, up to but without `stop`, as long as
/// they are empty.
pub fn remove_empty_parents(path: &Path, stop: &Path) {
    let mut dir = path.parent();
    while let Some(one) = dir {
        if one == stop || !one.starts_with(stop) || std::fs::remove_dir(one).is_err() {
            return;
        }
        dir = one.parent();
    }
}

struct Removal {
    device: u64,
    /// The topmost directory of the removal: where deep ones are moved to.
    top: Option<OwnedFd>,
    moved: u64,
    removed: Removed,
    failed: Option<(CString, Errno)>,
}

impl Removal {
    fn fail(&mut self, name: &CString, errno: Errno) {
        if self.failed.is_none() {
            self.failed = Some((name.clone(), errno));
        }
    }

    /// Removes one name of `parent`.
    fn entry(&mut self, parent: BorrowedFd<'_>, name: &CString, depth: usize) {
        let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return,
            Err(errno) => return self.fail(name, errno),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            match unlink(parent, name, AtFlags::empty()) {
                Ok(()) => {
                    self.removed.entries += 1;
                    if stat.st_nlink == 1 {
                        self.removed.bytes += u64::try_from(stat.st_size).unwrap_or(0);
                    }
                }
                Err(Errno::NOENT) => {}
                Err(errno) => self.fail(name, errno),
            }
            return;
        }
        if depth > DEPTH_MAX && self.move_up(parent, name) {
            return;
        }
        let dir = match open_dir(parent, name) {
            Ok(dir) => dir,
            Err(errno) => return self.fail(name, errno),
        };
        match rustix::fs::fstat(&dir) {
            Ok(stat) if stat.st_dev == self.device => {}
            Ok(_) => return self.fail(name, Errno::XDEV),
            Err(errno) => return self.fail(name, errno),
        }
        self.contents(&dir, depth);
        match unlink(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => self.removed.entries += 1,
            Err(Errno::NOENT) => {}
            Err(errno) => self.fail(name, errno),
        }
    }

    fn contents(&mut self, dir: &OwnedFd, depth: usize) {
        if depth == 0 {
            self.top = dir.try_clone().ok();
        }
        // Again until it stays empty: deep directories are moved up into the
        // topmost one, and something may still be writing here.
        for _ in 0..1000 {
            let names = match names(dir) {
                Ok(names) => names,
                Err(errno) => return self.fail(&CString::default(), errno),
            };
            let before = self.removed.entries + self.moved;
            for name in &names {
                self.entry(dir.as_fd(), name, depth + 1);
            }
            let progress = self.removed.entries + self.moved > before;
            if names.is_empty() || !progress {
                return;
            }
        }
    }

    /// Moves a deep directory into the topmost one; it is met again there.
    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CString) -> bool {
        let Some(top) = &self.top else {
            return false;
        };
        let Ok(new) = CString::new(format!(".innkeeper-deep-{}", self.moved)) else {
            return false;
        };
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let moved = rustix::fs::renameat_with(parent, name, top, &new, flags).is_ok();
        self.moved += u64::from(moved);
        moved
    }
}

fn names(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let again = rustix::fs::openat(dir, c".", dir_flags(), Mode::empty())?;
    let mut names = Vec::new();
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(again, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn unlink(parent: BorrowedFd<'_>, name: &CString, flags: AtFlags) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, flags) {
        Err(Errno::ACCESS | Errno::PERM) => {
            // The directory around it may not be written by us, its owner.
            rustix::fs::fchmod(parent, Mode::RWXU)?;
            rustix::fs::unlinkat(parent, name, flags)
        }
        unlinked => unlinked,
    }
}

/// Opens a directory without following a link, making it readable if need be.
fn open_dir(parent: BorrowedFd<'_>, name: &CString) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(parent, name, dir_flags(), Mode::empty()) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let found = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
                Err(Errno::ACCESS) => {
                    // The parent cannot be searched.
                    rustix::fs::fchmod(parent, Mode::RWXU)?;
                    rustix::fs::openat(parent, name, flags, Mode::empty())?
                }
                found => found?,
            };
            // By the descriptor, so that no link can come between.
            let by_descriptor = format!("/proc/self/fd/{}", found.as_raw_fd());
            rustix::fs::chmod(by_descriptor.as_str(), Mode::RWXU)?;
            rustix::fs::openat(parent, name, dir_flags(), Mode::empty())
        }
        opened => opened,
    }
}

const fn dir_flags() -> OFlags {
    OFlags::RDONLY
        .union(OFlags::DIRECTORY)
        .union(OFlags::NOFOLLOW)
        .union(OFlags::CLOEXEC)
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|nul| io::Error::new(io::ErrorKind::InvalidInput, nul))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_are_removed_and_not_followed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let outside = dir.path().join("outside");
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("kept"), "x").expect("written");
        fs::write(tree.join("a/f"), "12345").expect("written");
        symlink(&outside, tree.join("a/link")).expect("linked");
        let removed = remove_tree(&tree).expect("removed");
        assert!(!tree.exists() && outside.join("kept").exists());
        assert_eq!(removed.entries, 5);
        assert!(removed.bytes >= 5);
        assert_eq!(
            remove_tree(&tree).expect("nothing there"),
            Removed::default()
        );
    }

    #[test]
    fn a_link_in_the_place_of_the_tree_is_itself_removed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("kept"), "x").expect("written");
        symlink(&outside, dir.path().join("link")).expect("linked");
        remove_tree(&dir.path().join("link")).expect("removed");
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn directories_without_permissions_are_opened_up() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).expect("made");
        fs::write(tree.join("a/b/f"), "x").expect("written");
        for sealed in ["a/b", "a"] {
            fs::set_permissions(tree.join(sealed), fs::Permissions::from_mode(0o000))
                .expect("sealed");
        }
        remove_tree(&tree).expect("removed");
        assert!(!tree.exists());
    }

    #[test]
    fn a_tree_deeper_than_there_are_descriptors_is_removed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("made");
        let mut at = rustix::fs::open(&tree, dir_flags(), Mode::empty()).expect("opened");
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).expect("made");
            at = rustix::fs::openat(&at, "d", dir_flags(), Mode::empty()).expect("opened");
        }
        drop(at);
        remove_tree(&tree).expect("removed");
        assert!(!tree.exists());
    }

    #[test]
    fn empty_parents_go_up_to_where_it_stops() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(dir.path().join("a/b/c")).expect("made");
        fs::create_dir_all(dir.path().join("a/other")).expect("made");
        remove_empty_parents(&dir.path().join("a/b/c/gone"), dir.path());
        assert!(dir.path().join("a/other").exists() && !dir.path().join("a/b").exists());
        remove_empty_parents(&dir.path().join("x"), dir.path());
        assert!(dir.path().exists());
    }
}
