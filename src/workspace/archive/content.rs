//! Contents of files: one tar, compressed, with what git does not hold.
//!
//! Links and directories are in it too, so that it can be unpacked by hand; a
//! restore takes them from the list of files, which has times to the nanosecond.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::manifest::{CONTENT, Content, Entry, What};

/// Writes contents.
pub(super) struct Writer {
    tar: Builder<zstd::Encoder<'static, BufWriter<Limited>>>,
}

/// The kind of error of a tar that grew beyond what it may take.
const TOO_BIG: io::ErrorKind = io::ErrorKind::FileTooLarge;

/// Returns whether an error says that the limit was reached.
pub(super) fn is_too_big(error: &io::Error) -> bool {
    error.kind() == TOO_BIG
}

impl Writer {
    /// Begins the tar in an archive's directory; on disk it takes at most
    /// `bytes_max`.
    pub fn create(dir: &Path, bytes_max: u64) -> io::Result<Self> {
        let file = Limited {
            file: File::create_new(dir.join(CONTENT))?,
            left: bytes_max,
        };
        let encoder = zstd::Encoder::new(BufWriter::new(file), 3)?;
        Ok(Self {
            tar: Builder::new(encoder),
        })
    }

    /// Adds a file of `bytes` bytes; returns the hash of its content.
    ///
    /// # Errors
    ///
    /// Also if it is not that long: it is being written to.
    pub fn add_file(
        &mut self,
        path: &[u8],
        mode: u32,
        mtime: i64,
        bytes: u64,
        content: impl Read,
    ) -> io::Result<String> {
        let mut header = header(EntryType::Regular, mode, mtime);
        header.set_size(bytes);
        let mut content = Hashing {
            from: content.take(bytes + 1),
            hash: Sha256::new(),
            read: 0,
        };
        // What is missing would shift everything after it.
        let mut whole = content.by_ref().take(bytes);
        self.tar
            .append_data(&mut header, as_path(path), &mut whole)?;
        let mut more = [0];
        if content.read != bytes || content.read(&mut more)? != 0 {
            return Err(io::Error::other("it changed while it was read"));
        }
        Ok(hex::encode(content.hash.finalize()))
    }

    /// Adds a directory.
    pub fn add_directory(&mut self, path: &[u8], mode: u32, mtime: i64) -> io::Result<()> {
        let mut header = header(EntryType::Directory, mode, mtime);
        header.set_size(0);
        self.tar
            .append_data(&mut header, as_path(path), io::empty())
    }

    /// Adds a link.
    pub fn add_link(&mut self, path: &[u8], mtime: i64, target: &[u8]) -> io::Result<()> {
        let mut header = header(EntryType::Symlink, 0o777, mtime);
        header.set_size(0);
        self.tar
            .append_link(&mut header, as_path(path), as_path(target))
    }

    /// Ends the tar and flushes it.
    pub fn finish(self) -> io::Result<()> {
        let encoder = self.tar.into_inner()?;
        let file = encoder
            .finish()?
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.file.sync_all()
    }
}

fn header(kind: EntryType, mode: u32, mtime: i64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(u64::try_from(mtime).unwrap_or(0));
    header
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// A file that takes a number of bytes and no more.
struct Limited {
    file: File,
    left: u64,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::new(TOO_BIG, "it takes more than it may"));
        }
        let written = self.file.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

struct Hashing<R> {
    from: R,
    hash: Sha256,
    read: u64,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.read += read as u64;
        Ok(read)
    }
}

/// Hands every file of a tar to `each`, with the entry that tells of it, in the
/// order in which they were written. Each content is compared with its hash.
///
/// # Errors
///
/// In words: the tar is not what `entries` tell, or what `each` said.
pub(super) fn read(
    dir: &Path,
    entries: &[Entry],
    mut each: impl FnMut(&Entry, &mut dyn Read) -> Result<(), String>,
) -> Result<(), String> {
    let bad = |why: &str| format!("`{CONTENT}` is not what was written: {why}");
    let mut expected = entries.iter().filter_map(|entry| match &entry.what {
        What::File {
            bytes,
            content: Content::Sha256(hash),
        } => Some((entry, *bytes, hash)),
        _ => None,
    });
    let decoder = File::open(dir.join(CONTENT))
        .and_then(zstd::Decoder::new)
        .map_err(|error| bad(&error.to_string()))?;
    let mut tar = tar::Archive::new(decoder);
    for found in tar.entries().map_err(|error| bad(&error.to_string()))? {
        let mut found = found.map_err(|error| bad(&error.to_string()))?;
        if found.header().entry_type() != EntryType::Regular {
            continue;
        }
        let (entry, bytes, hash) = expected
            .next()
            .ok_or_else(|| bad("it holds more than is listed"))?;
        if found.path_bytes().as_ref() != entry.path.0 || found.size() != bytes {
            return Err(bad(&format!(
                "`{}` is not in its place",
                entry.path.shown()
            )));
        }
        let mut content = Hashing {
            from: &mut found,
            hash: Sha256::new(),
            read: 0,
        };
        each(entry, &mut content)?;
        io::copy(&mut content, &mut io::sink()).map_err(|error| bad(&error.to_string()))?;
        if content.read != bytes || hex::encode(content.hash.finalize()) != *hash {
            return Err(bad(&format!("`{}` is another", entry.path.shown())));
        }
    }
    match expected.next() {
        None => Ok(()),
        Some((entry, _, _)) => Err(bad(&format!("`{}` is missing", entry.path.shown()))),
    }
}
