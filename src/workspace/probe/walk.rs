//! A walk over a checkout that sees what git's status never lists: fifos,
//! sockets, devices, unreadable directories, repositories of their own, also in
//! ignored directories, and other file systems mounted inside.
//!
//! Nothing is followed: every directory is opened below the one that lists it,
//! never through a symbolic link, never across a mount. The top's own `.git`
//! is left out. The fingerprint covers each entry's name, kind, mode, inode,
//! size and both times, so that two equal ones around a rename of the top prove
//! that nothing inside was changed between them. Nested repositories are part
//! of it, whole.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

/// Directories deeper than this are not entered, and count as unreadable: each
/// level holds a descriptor.
pub const DEPTH_MAX: usize = 256;

/// What a walk saw. Paths are relative to its top.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Everything but the top itself.
    pub entries: u64,
    /// Allocated bytes.
    pub bytes: u64,
    /// Fifos, sockets and devices.
    pub specials: Vec<PathBuf>,
    /// Directories with nothing in them.
    pub empty: Vec<PathBuf>,
    /// Directories that could not be read to the end, each with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Repositories of their own; what is nested in one of them is not told.
    pub nested: Vec<PathBuf>,
    /// Names, kinds, inodes, sizes and times of everything.
    pub fingerprint: [u8; 32],
    /// The newest change of anything inside, in nanoseconds since 1970.
    pub newest_ns: i128,
}

/// Walks `top`. `submodules` are paths whose repository is asked about
/// elsewhere: they are entered and do not count as nested.
///
/// # Errors
///
/// If the top itself cannot be opened as a directory.
pub fn walk(top: &Path, submodules: &BTreeSet<PathBuf>) -> io::Result<Walk> {
    walk_as(top, submodules, Place::Own)
}

/// Walks a checkout's own git directory, but for objects: git sets their times
/// when it would write them again, also while it is only asked, and an object
/// says nothing unless a ref or a log names it.
///
/// # Errors
///
/// If the top itself cannot be opened as a directory.
pub fn walk_git_dir(top: &Path) -> io::Result<Walk> {
    walk_as(top, &BTreeSet::new(), Place::GitDir)
}

fn walk_as(top: &Path, submodules: &BTreeSet<PathBuf>, place: Place) -> io::Result<Walk> {
    let fd = rustix::fs::open(
        top,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let device = rustix::fs::fstat(&fd)?.st_dev;
    let mut walker = Walker {
        seen: Walk::default(),
        hash: Sha256::new(),
        submodules,
        device,
    };
    walker.directory(&fd, &PathBuf::new(), 0, place)?;
    walker.seen.fingerprint = walker.hash.finalize().into();
    Ok(walker.seen)
}

/// Opens the directory `name` below `parent`: not through a link, and not a
/// mount point.
///
/// # Errors
///
/// `XDEV` for a mount point, `LOOP` or `NOTDIR` for what is no directory.
pub fn open_below(parent: impl AsFd, name: &OsStr, device: u64) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat2(
        &parent,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    ) {
        // Kernels before 5.6 and some sandboxes have no openat2.
        Err(Errno::NOSYS | Errno::PERM) => {
            let fd = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
            if rustix::fs::fstat(&fd)?.st_dev == device {
                Ok(fd)
            } else {
                Err(Errno::XDEV)
            }
        }
        other => other,
    }
}

/// What kind of directory is being walked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// One of the checkout, or of a submodule.
    Own,
    /// One inside a nested repository.
    Nested,
    /// One inside a checkout's own git directory.
    GitDir,
    /// One inside a submodule's `.git`, which is asked about elsewhere.
    SubmoduleGit,
}

struct Walker<'a> {
    seen: Walk,
    hash: Sha256,
    submodules: &'a BTreeSet<PathBuf>,
    device: u64,
}

impl Walker<'_> {
    fn directory(
        &mut self,
        fd: &OwnedFd,
        path: &Path,
        depth: usize,
        mut place: Place,
    ) -> Result<(), Errno> {
        let mut names: Vec<OsString> = Vec::new();
        for entry in Dir::read_from(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        names.sort_unstable();
        let has = |name: &str| {
            names
                .binary_search_by(|one| one.as_os_str().cmp(OsStr::new(name)))
                .is_ok()
        };
        let own = depth == 0 || self.submodules.contains(path);
        let bare = has("HEAD") && has("objects") && has("refs");
        let nested = depth > 0
            && match place {
                Place::Own => (has(".git") && !own) || (bare && !self.submodules.contains(path)),
                Place::GitDir => bare && !self.inside_one(path),
                Place::Nested | Place::SubmoduleGit => false,
            };
        if nested {
            self.seen.nested.push(path.to_owned());
            if place == Place::Own {
                place = Place::Nested;
            }
        }
        if place == Place::Own && depth > 0 && names.is_empty() {
            self.seen.empty.push(path.to_owned());
        }
        for name in &names {
            let left_out = match place {
                Place::Own => depth == 0 && name == ".git",
                Place::GitDir | Place::SubmoduleGit => name == "objects" && has("HEAD"),
                Place::Nested => false,
            };
            if left_out {
                continue;
            }
            let inside = if place == Place::Own && own && name == ".git" {
                Place::SubmoduleGit
            } else {
                place
            };
            self.entry(fd, path, name, depth, inside)?;
        }
        Ok(())
    }

    /// Whether a path is inside a nested repository that was told already.
    fn inside_one(&self, path: &Path) -> bool {
        self.seen.nested.iter().any(|one| path.starts_with(one))
    }

    fn entry(
        &mut self,
        parent: &OwnedFd,
        path: &Path,
        name: &OsStr,
        depth: usize,
        place: Place,
    ) -> Result<(), Errno> {
        let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It went while the directory was read: a change, but not an error.
            Err(Errno::NOENT) => {
                self.hash.update(b"gone");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.count(depth, name, &stat);
        let here = path.join(name);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => {}
            FileType::Directory if depth + 1 >= DEPTH_MAX => {
                self.unreadable(here, "nested too deeply".to_owned());
            }
            FileType::Directory => {
                let result = open_below(parent, name, self.device)
                    .and_then(|fd| self.directory(&fd, &here, depth + 1, place));
                if let Err(errno) = result {
                    let why = if errno == Errno::XDEV {
                        "another file system is mounted there".to_owned()
                    } else {
                        io::Error::from(errno).to_string()
                    };
                    self.unreadable(here, why);
                }
            }
            _ => self.seen.specials.push(here),
        }
        Ok(())
    }

    fn unreadable(&mut self, path: PathBuf, why: String) {
        self.seen.unreadable.push((path, why));
    }

    fn count(&mut self, depth: usize, name: &OsStr, stat: &Stat) {
        self.seen.entries += 1;
        self.seen.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        let change = nanoseconds(stat.st_ctime, stat.st_ctime_nsec.into());
        self.seen.newest_ns = self.seen.newest_ns.max(change);
        self.hash.update(depth.to_le_bytes());
        self.hash.update(name.len().to_le_bytes());
        self.hash.update(name.as_bytes());
        self.hash.update(stat.st_mode.to_le_bytes());
        self.hash.update(stat.st_ino.to_le_bytes());
        self.hash.update(stat.st_size.to_le_bytes());
        self.hash
            .update(nanoseconds(stat.st_mtime, stat.st_mtime_nsec.into()).to_le_bytes());
        self.hash.update(change.to_le_bytes());
    }
}

fn nanoseconds(seconds: i64, rest: i128) -> i128 {
    i128::from(seconds) * 1_000_000_000 + rest
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let top = tempfile::tempdir().expect("a temporary directory");
        for file in files {
            let path = top.path().join(file);
            if file.ends_with('/') {
                fs::create_dir_all(&path).expect("made");
            } else {
                fs::create_dir_all(path.parent().expect("it has one")).expect("made");
                fs::write(&path, file).expect("written");
            }
        }
        top
    }

    fn look(top: &tempfile::TempDir) -> Walk {
        walk(top.path(), &BTreeSet::new()).expect("the top can be opened")
    }

    fn paths(list: &[&str]) -> Vec<PathBuf> {
        list.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn repositories_are_found_wherever_they_hide_and_the_own_one_is_not() {
        let top = tree(&[
            ".git/HEAD",
            "a/.git/HEAD",
            "b/.git",
            "node_modules/x/.git/HEAD",
            "bare/HEAD",
            "bare/objects/",
            "bare/refs/",
            "half/HEAD",
            "half/refs/",
        ]);
        assert_eq!(
            look(&top).nested,
            paths(&["a", "b", "bare", "node_modules/x"])
        );
    }

    #[test]
    fn a_submodule_is_entered_and_what_is_nested_in_it_is_found() {
        let top = tree(&[".git", "lib/.git", "lib/f", "lib/vendor/.git/HEAD"]);
        let walk = walk(top.path(), &BTreeSet::from([PathBuf::from("lib")]))
            .expect("the top can be opened");
        assert_eq!(walk.nested, paths(&["lib/vendor"]));
    }

    #[test]
    fn fifos_sockets_and_empty_directories_are_told_and_links_are_not_followed() {
        let top = tree(&["d/f", "none/"]);
        let elsewhere = tree(&["x/.git/HEAD"]);
        symlink(elsewhere.path(), top.path().join("link")).expect("linked");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            top.path().join("d/fifo"),
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .expect("a fifo");
        let _socket = UnixListener::bind(top.path().join("d/sock")).expect("bound");
        let walk = look(&top);
        assert_eq!(walk.specials, paths(&["d/fifo", "d/sock"]));
        assert_eq!(walk.empty, paths(&["none"]));
        assert_eq!(walk.nested, paths(&[]));
        assert_eq!(walk.entries, 6);
    }

    #[test]
    fn an_unreadable_directory_is_told_unless_nothing_is_unreadable_for_us() {
        let top = tree(&["secret/f"]);
        let secret = top.path().join("secret");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).expect("changed");
        let readable = fs::read_dir(&secret).is_ok();
        let walk = look(&top);
        assert_eq!(walk.unreadable.is_empty(), readable, "{walk:?}");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("changed back");
    }

    #[test]
    fn a_tree_that_is_too_deep_is_told_and_costs_no_more_descriptors() {
        let top = tree(&[]);
        let deep = top.path().join("d/".repeat(DEPTH_MAX + 5));
        fs::create_dir_all(deep).expect("made");
        assert_eq!(look(&top).unreadable.len(), 1);
    }

    #[test]
    fn a_change_inside_a_nested_repository_or_a_submodules_own_one_is_a_change() {
        let top = tree(&["n/.git/HEAD", "n/.git/refs/x", "lib/.git/HEAD", "lib/f"]);
        let look = || {
            walk(top.path(), &BTreeSet::from([PathBuf::from("lib")]))
                .expect("the top can be opened")
        };
        let mut before = look();
        assert_eq!(before.nested, paths(&["n"]));
        for file in ["n/.git/refs/x", "n/new", "lib/.git/HEAD", "lib/.git/index"] {
            fs::write(top.path().join(file), "a longer text than before").expect("written");
            let after = look();
            assert_ne!(before.fingerprint, after.fingerprint, "{file}");
            before = after;
        }
    }

    #[test]
    fn the_fingerprint_survives_a_rename_and_nothing_else() {
        let top = tree(&["co/a", "co/d/b"]);
        let first = walk(&top.path().join("co"), &BTreeSet::new()).expect("walked");
        fs::rename(top.path().join("co"), top.path().join("trash")).expect("renamed");
        let moved = top.path().join("trash");
        let second = walk(&moved, &BTreeSet::new()).expect("walked");
        assert_eq!(first, second);
        // Same length, and the modification time put back.
        let before = fs::metadata(moved.join("a")).expect("there");
        fs::write(moved.join("a"), "co/A").expect("written");
        fs::File::options()
            .write(true)
            .open(moved.join("a"))
            .expect("opened")
            .set_modified(before.modified().expect("known"))
            .expect("set");
        let third = walk(&moved, &BTreeSet::new()).expect("walked");
        assert_ne!(second.fingerprint, third.fingerprint);
    }
}
