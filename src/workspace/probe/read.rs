//! Reading a small file that somebody else may have put there.
//!
//! It is opened without following a link and without waiting (a fifo in its
//! place would hold a plain open for ever), must be a regular file, and is read
//! up to a bound.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// The most that is read of a record's small files.
pub const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// The most that is read of a reflog or an index.
pub const LARGE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Opens a regular file for reading.
///
/// # Errors
///
/// Also for a link, a fifo, a directory or a device.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let fd: OwnedFd = rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    if kind == FileType::RegularFile {
        Ok(File::from(fd))
    } else {
        Err(io::Error::other(format!(
            "{} is not a regular file",
            path.display()
        )))
    }
}

/// Returns the content of a regular file of at most `most` bytes.
///
/// # Errors
///
/// As [`open_regular`], and if it is larger.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!(
            "{} is larger than {most} bytes",
            path.display()
        )));
    }
    Ok(bytes)
}

/// As [`read_regular`], with none for a file that is not there.
///
/// # Errors
///
/// For everything but absence.
pub fn read_if_present(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    match read_regular(path, most) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_fifos_and_directories_are_refused_and_nothing_waits() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("f"), "text").expect("written");
        std::os::unix::fs::symlink(at("f"), at("link")).expect("linked");
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0)
            .expect("a fifo");
        assert_eq!(read_regular(&at("f"), 4).expect("a file"), b"text");
        assert!(read_regular(&at("f"), 3).is_err(), "too large");
        for name in ["link", "fifo", "."] {
            assert!(read_regular(&at(name), 100).is_err(), "{name}");
        }
        assert_eq!(read_if_present(&at("none"), 9).expect("absent"), None);
    }
}
