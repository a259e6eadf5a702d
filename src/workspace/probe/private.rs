//! A private git directory for one checkout, through which git may be asked
//! about it.
//!
//! ```text
//! <scratch>/ctl/         view of the refs and objects, with our own configuration
//! <scratch>/objects/     what git writes while it is asked
//! <scratch>/git/         commondir, HEAD, refs -> the checkout's own refs, index
//! ```
//!
//! Nothing that git or libgit2 would execute or believe comes from a place an
//! agent can write, but for refs, objects, and the copies of `HEAD` and `index`.
//! The copy of the index keeps its time: git looks again at every file that is
//! not older than it. With [`Private::distrust`] the time is set so that git
//! looks at all of them.

use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::index::{self, BadIndex, Entry};
use super::read::{LARGE_BYTES_MAX, SMALL_BYTES_MAX, open_regular, read_if_present, read_regular};
use crate::files;
use crate::git::ctl;

/// Where HEAD is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// On a branch, or another ref, by its full name.
    Ref(String),
    /// At a commit.
    Commit(String),
}

/// Why there is no private directory.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// A file could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The index is not one.
    #[error(transparent)]
    Index(#[from] BadIndex),
    /// HEAD is neither a ref nor a commit.
    #[error("HEAD is neither a branch nor a commit")]
    Head,
}

/// A private git directory; removed when it is dropped.
#[derive(Debug)]
pub struct Private {
    scratch: PathBuf,
    index_time: Option<SystemTime>,
    /// What the copied index says, with the second file of a split one.
    pub entries: Vec<Entry>,
    /// Where HEAD was when it was copied.
    pub head: Head,
    /// Whether the index is in two files: the entries then hold some that others
    /// replace.
    pub is_split: bool,
}

impl Private {
    /// Makes `scratch`, which must not exist, for the checkout whose own git
    /// directory is `admin` and whose refs and objects are in `common`.
    ///
    /// # Errors
    ///
    /// If anything that is copied is not as git writes it. Nothing is left.
    pub fn make(scratch: &Path, common: &Path, admin: &Path) -> Result<Self, PrivateError> {
        let head = parse_head(&read_regular(&admin.join("HEAD"), SMALL_BYTES_MAX)?)?;
        fs::create_dir_all(scratch.parent().unwrap_or(scratch))?;
        fs::create_dir(scratch)?;
        let mut private = Self {
            scratch: scratch.to_owned(),
            index_time: None,
            entries: Vec::new(),
            head,
            is_split: false,
        };
        ctl::ensure(&private.ctl(), common)?;
        fs::create_dir(private.scratch_objects())?;
        private.fill(admin)?;
        Ok(private)
    }

    fn fill(&mut self, admin: &Path) -> Result<(), PrivateError> {
        let dir = self.git_dir();
        fs::create_dir(&dir)?;
        let mut commondir = self.ctl().into_os_string();
        commondir.push("\n");
        fs::write(dir.join("commondir"), commondir.as_encoded_bytes())?;
        fs::write(
            dir.join("HEAD"),
            match &self.head {
                Head::Ref(name) => format!("ref: {name}\n"),
                Head::Commit(id) => format!("{id}\n"),
            },
        )?;
        symlink(admin.join("refs"), dir.join("refs"))?;
        // Cone patterns tell which directories are left out on purpose; without
        // them git would not know a sparse checkout from deleted files.
        if let Some(patterns) =
            read_if_present(&admin.join("info/sparse-checkout"), SMALL_BYTES_MAX)?
        {
            fs::create_dir(dir.join("info"))?;
            fs::write(dir.join("info/sparse-checkout"), patterns)?;
        }
        let Some(bytes) = read_if_present(&admin.join("index"), LARGE_BYTES_MAX)? else {
            // Everything then shows as deleted, which is loud enough.
            return Ok(());
        };
        let id_bytes = self.id_bytes();
        let index = index::parse_index(&bytes, id_bytes)?;
        let time = open_regular(&admin.join("index"))?.metadata()?.modified()?;
        write_with_time(&self.index_file(), &index.unmarked, time)?;
        self.index_time = Some(time);
        self.entries = index.entries;
        if let Some(name) = index.shared {
            self.is_split = true;
            let second = admin.join(&name);
            let bytes = read_regular(&second, LARGE_BYTES_MAX)?;
            let index = index::parse_index(&bytes, id_bytes)?;
            let time = open_regular(&second)?.metadata()?.modified()?;
            write_with_time(&dir.join(&name), &index.unmarked, time)?;
            self.entries.extend(index.entries);
        }
        Ok(())
    }

    fn id_bytes(&self) -> usize {
        match &self.head {
            Head::Commit(id) => id.len() / 2,
            Head::Ref(_) => 20,
        }
    }

    /// The git directory.
    pub fn git_dir(&self) -> PathBuf {
        self.scratch.join("git")
    }

    /// The view of refs and objects.
    pub fn ctl(&self) -> PathBuf {
        self.scratch.join("ctl")
    }

    /// Where git may write objects while it is asked.
    pub fn scratch_objects(&self) -> PathBuf {
        self.scratch.join("objects")
    }

    /// Where a repository may be made in which an archive's commits are tied
    /// together.
    pub fn knot(&self) -> PathBuf {
        self.scratch.join("knot")
    }

    /// The copy of the index.
    pub fn index_file(&self) -> PathBuf {
        self.git_dir().join("index")
    }

    /// Makes git hash every file, whatever the index says about it.
    ///
    /// # Errors
    ///
    /// If the time of the copy cannot be set.
    pub fn distrust(&self) -> io::Result<()> {
        // Not 0, which git takes for "unknown".
        self.set_time(UNIX_EPOCH + Duration::from_secs(1))
    }

    /// Makes git believe the index as it would normally.
    ///
    /// # Errors
    ///
    /// If the time of the copy cannot be set.
    pub fn trust(&self) -> io::Result<()> {
        match self.index_time {
            Some(time) => self.set_time(time),
            None => Ok(()),
        }
    }

    fn set_time(&self, time: SystemTime) -> io::Result<()> {
        if self.index_time.is_none() {
            return Ok(());
        }
        File::options()
            .write(true)
            .open(self.index_file())?
            .set_times(FileTimes::new().set_modified(time))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Err(error) = files::remove_tree(&self.scratch) {
            tracing::warn!(path = %self.scratch.display(), %error, "Left a private git directory behind.");
        }
    }
}

fn write_with_time(path: &Path, bytes: &[u8], time: SystemTime) -> io::Result<()> {
    fs::write(path, bytes)?;
    File::options()
        .write(true)
        .open(path)?
        .set_times(FileTimes::new().set_modified(time))
}

/// Reads a `HEAD` file.
///
/// # Errors
///
/// If it is neither `ref: <name of a ref>` nor an object id.
pub fn parse_head(bytes: &[u8]) -> Result<Head, PrivateError> {
    let text = std::str::from_utf8(bytes).map_err(|_| PrivateError::Head)?;
    let text = text.trim_end_matches('\n');
    if let Some(name) = text.strip_prefix("ref:") {
        let name = name.trim_start_matches([' ', '\t']);
        if name.starts_with("refs/") && git2::Reference::is_valid_name(name) {
            return Ok(Head::Ref(name.to_owned()));
        }
    } else if matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(Head::Commit(text.to_owned()));
    }
    Err(PrivateError::Head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_a_ref_a_commit_or_an_error() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(
            parse_head(b"ref: refs/heads/a/b\n").expect("a ref"),
            Head::Ref("refs/heads/a/b".to_owned())
        );
        assert_eq!(
            parse_head(format!("{id}\n").as_bytes()).expect("a commit"),
            Head::Commit(id.to_owned())
        );
        for bad in [
            &b""[..],
            b"ref: \n",
            b"ref: ../../x\n",
            b"ref: refs/heads/../../x\n",
            b"ref: HEAD\n",
            b"123\n",
            b"\xff",
        ] {
            assert!(parse_head(bad).is_err(), "{bad:?}");
        }
    }
}
