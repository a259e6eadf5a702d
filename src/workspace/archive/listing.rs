//! What stands below a directory, to be archived or compared.
//!
//! Everything is opened below the top, never through a symbolic link, never
//! across a mount, and nothing that could wait is opened.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::workspace::probe::walk::{DEPTH_MAX, open_below};

/// One thing that was found; its path is relative to the top, which is the
/// first and has an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub path: Vec<u8>,
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// Of a file.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// With its target.
    Link(Vec<u8>),
    /// A fifo, socket or device.
    Special,
}

/// A directory that was opened.
pub(super) struct Top {
    fd: OwnedFd,
    device: u64,
}

impl Top {
    /// Opens a directory, which is no link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let device = rustix::fs::fstat(&fd)?.st_dev;
        Ok(Self { fd, device })
    }

    /// Opens a regular file below it for reading.
    pub fn open_file(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let name = OsStr::from_bytes(path);
        let fd = match rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), resolve) {
            // Kernels before 5.6 and some sandboxes have no openat2.
            Err(Errno::NOSYS | Errno::PERM) => self.open_stepwise(path, flags)?,
            opened => opened?,
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        if kind == FileType::RegularFile {
            Ok(File::from(fd))
        } else {
            Err(io::Error::other("it is no file any more"))
        }
    }

    fn open_stepwise(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let mut dir = self.fd.try_clone()?;
        let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            dir = open_below(&dir, OsStr::from_bytes(part), self.device)?;
        }
        Ok(rustix::fs::openat(
            &dir,
            OsStr::from_bytes(last),
            flags,
            Mode::empty(),
        )?)
    }

    /// Lists everything for which `leave_out`, asked with the path, says no;
    /// each directory comes before what is in it.
    ///
    /// # Errors
    ///
    /// In words, for the first thing that cannot be looked at.
    pub fn list(&self, leave_out: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Found>, String> {
        let mut lister = Lister {
            found: Vec::new(),
            leave_out,
            device: self.device,
        };
        let stat = rustix::fs::fstat(&self.fd).map_err(|errno| errno.to_string())?;
        lister.found.push(found(Vec::new(), Kind::Directory, &stat));
        lister.directory(&self.fd, &[], 1)?;
        Ok(lister.found)
    }
}

struct Lister<'a> {
    found: Vec<Found>,
    leave_out: &'a dyn Fn(&[u8]) -> bool,
    device: u64,
}

impl Lister<'_> {
    fn directory(&mut self, fd: &OwnedFd, path: &[u8], depth: usize) -> Result<(), String> {
        let failed = |at: &[u8], errno: Errno| format!("{}: {errno}", String::from_utf8_lossy(at));
        if depth > DEPTH_MAX {
            return Err(format!("{}: too deep", String::from_utf8_lossy(path)));
        }
        let mut names: Vec<OsString> = Vec::new();
        for entry in Dir::read_from(fd).map_err(|errno| failed(path, errno))? {
            let entry = entry.map_err(|errno| failed(path, errno))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        names.sort_unstable();
        for name in names {
            let mut here = path.to_vec();
            if !here.is_empty() {
                here.push(b'/');
            }
            here.extend_from_slice(name.as_bytes());
            if (self.leave_out)(&here) {
                continue;
            }
            let stat = rustix::fs::statat(fd.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| failed(&here, errno))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => self.found.push(found(here, Kind::File, &stat)),
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(fd, &name, Vec::new())
                        .map_err(|errno| failed(&here, errno))?;
                    let kind = Kind::Link(target.into_bytes());
                    self.found.push(found(here, kind, &stat));
                }
                FileType::Directory => {
                    self.found.push(found(here.clone(), Kind::Directory, &stat));
                    let inside =
                        open_below(fd, &name, self.device).map_err(|errno| failed(&here, errno))?;
                    self.directory(&inside, &here, depth + 1)?;
                }
                _ => self.found.push(found(here, Kind::Special, &stat)),
            }
        }
        Ok(())
    }
}

fn found(path: Vec<u8>, kind: Kind, stat: &rustix::fs::Stat) -> Found {
    Found {
        path,
        kind,
        mode: stat.st_mode & 0o7777,
        mtime: (
            stat.st_mtime,
            u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        ),
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
    }
}
