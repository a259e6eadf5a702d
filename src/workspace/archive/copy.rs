//! Copying files into an archive, and comparing the copy with them.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};
use tokio_util::sync::CancellationToken;

use super::choose::{Choice, Chooser};
use super::content::{self, Writer};
use super::listing::{Found, Kind, Top};
use super::manifest::{Content, Entry, LOGS, STATE, TREE, What};
use super::name::Name;
use super::{Refusal, too_big};
use crate::domain::checkout::Strategy;
use crate::workspace::identity::{Located, NONCE_FILE};
use crate::workspace::probe::index::Entry as IndexEntry;
use crate::workspace::probe::read::{LARGE_BYTES_MAX, read_if_present};
use crate::workspace::probe::regenerable::Regenerable;
use crate::workspace::probe::status::Entry as StatusEntry;

/// What is copied, and how it is known.
pub(super) struct Source {
    pub located: Located,
    pub strategy: Strategy,
    pub index: Vec<IndexEntry>,
    /// Whether that has entries that others replace.
    pub is_split: bool,
    /// What the closest look said; none if the directory is gone.
    pub status: Option<Vec<StatusEntry>>,
    /// Nested repositories and submodules.
    pub whole: Vec<PathBuf>,
    pub regenerable: Regenerable,
    /// Branches whose reflogs are in the shared clone.
    pub branches: Vec<String>,
}

/// What was copied.
pub(super) struct Copied {
    pub entries: Vec<Entry>,
    /// Tracked files that are not there.
    pub deleted: Vec<Name>,
}

/// Content is read up to this many times what an archive may take on disk: it
/// is compressed, but reading has to end.
const RAW_FACTOR: u64 = 8;

/// Writes the tar and returns the list. Blocking.
pub(super) fn copy(
    source: &Source,
    dir: &Path,
    bytes_max: u64,
    cancel: &CancellationToken,
) -> Result<Copied, Refusal> {
    let failed = |why: String| Refusal::Failed(why);
    let writer = Writer::create(dir, bytes_max).map_err(|error| failed(error.to_string()))?;
    let mut copier = Copier {
        writer,
        entries: Vec::new(),
        left: bytes_max.saturating_mul(RAW_FACTOR),
        cancel,
    };
    let mut deleted = Vec::new();
    if let Some(status) = &source.status {
        let top = Top::open(&source.located.path).map_err(|error| failed(error.to_string()))?;
        let found = top.list(&|path| path == b".git").map_err(failed)?;
        let chooser = Chooser::new(
            &source.index,
            status,
            &source.whole,
            &source.regenerable,
            &found,
            source.is_split,
        );
        let found = chooser.without_regenerable(found);
        deleted = missing(&source.index, &found);
        for one in &found {
            copier.add(TREE, &top, one, chooser.file(&one.path))?;
        }
    }
    let admin = Top::open(&source.located.admin).map_err(|error| failed(error.to_string()))?;
    let found = admin
        .list(&|path| is_not_state(source.strategy, path))
        .map_err(failed)?;
    for one in &found {
        copier.add(STATE, &admin, one, Choice::Take)?;
    }
    if source.strategy == Strategy::Worktree {
        for branch in &source.branches {
            copier.add_log(&source.located.common, branch)?;
        }
    }
    copier
        .writer
        .finish()
        .map_err(|error| refusal(b"", &error))?;
    Ok(Copied {
        entries: copier.entries,
        deleted,
    })
}

/// What of a checkout's own git directory is made anew by a restore.
fn is_not_state(strategy: Strategy, path: &[u8]) -> bool {
    let is_own = match strategy {
        Strategy::Worktree => matches!(
            path,
            b"gitdir" | b"commondir" | b"locked" | b"config.worktree"
        ),
        Strategy::Clone => path == b"objects",
    };
    is_own || path == NONCE_FILE.as_bytes() || path.ends_with(b".lock")
}

fn missing(index: &[IndexEntry], found: &[Found]) -> Vec<Name> {
    let there: std::collections::HashSet<&[u8]> =
        found.iter().map(|one| one.path.as_slice()).collect();
    let mut missing: Vec<Name> = index
        .iter()
        .filter(|entry| !entry.skipped && !entry.path.is_empty())
        .filter(|entry| !there.contains(entry.path.as_slice()))
        .map(|entry| Name(entry.path.clone()))
        .collect();
    missing.dedup();
    missing
}

struct Copier<'a> {
    writer: Writer,
    entries: Vec<Entry>,
    left: u64,
    cancel: &'a CancellationToken,
}

impl Copier<'_> {
    fn add(
        &mut self,
        area: &str,
        top: &Top,
        found: &Found,
        choice: Choice<'_>,
    ) -> Result<(), Refusal> {
        if self.cancel.is_cancelled() {
            return Err(Refusal::Failed("cancelled".to_owned()));
        }
        let path = in_area(area, &found.path);
        let failed = |error: io::Error| refusal(&found.path, &error);
        let what = match &found.kind {
            Kind::Directory => {
                self.writer
                    .add_directory(&path, found.mode, found.mtime.0)
                    .map_err(failed)?;
                What::Directory
            }
            Kind::Link(target) => {
                self.writer
                    .add_link(&path, found.mtime.0, target)
                    .map_err(failed)?;
                What::Link {
                    target: Name(target.clone()),
                }
            }
            Kind::Special => {
                let shown = String::from_utf8_lossy(&found.path);
                return Err(Refusal::Failed(format!(
                    "`{shown}` is a fifo, socket or device"
                )));
            }
            Kind::File => What::File {
                bytes: found.bytes,
                content: self.content(&path, top, found, choice)?,
            },
        };
        self.entries.push(Entry {
            path: Name(path),
            mode: found.mode,
            mtime: found.mtime,
            what,
        });
        Ok(())
    }

    fn content(
        &mut self,
        path: &[u8],
        top: &Top,
        found: &Found,
        choice: Choice<'_>,
    ) -> Result<Content, Refusal> {
        let failed = |error: io::Error| refusal(&found.path, &error);
        if let Choice::Blob(id) = choice {
            return Ok(Content::Blob(id.to_owned()));
        }
        self.left = self.left.checked_sub(found.bytes).ok_or_else(too_big)?;
        if let Choice::Compare(id) = choice {
            let file = top.open_file(&found.path).map_err(failed)?;
            if blob_id(found.bytes, file).map_err(failed)? == id {
                return Ok(Content::Blob(id.to_owned()));
            }
        }
        let file = top.open_file(&found.path).map_err(failed)?;
        self.writer
            .add_file(path, found.mode, found.mtime.0, found.bytes, file)
            .map(Content::Sha256)
            .map_err(failed)
    }

    /// Adds the reflog of a branch, if it has one.
    fn add_log(&mut self, common: &Path, branch: &str) -> Result<(), Refusal> {
        let name = format!("refs/heads/{branch}");
        let log = common.join("logs").join(&name);
        let failed = |error: io::Error| refusal(name.as_bytes(), &error);
        let is_there = fs::symlink_metadata(&log).is_ok_and(|stat| stat.is_file());
        let Some(text) = (if is_there {
            read_if_present(&log, LARGE_BYTES_MAX).map_err(failed)?
        } else {
            None
        }) else {
            return Ok(());
        };
        let bytes = text.len() as u64;
        self.left = self.left.checked_sub(bytes).ok_or_else(too_big)?;
        let path = in_area(LOGS, name.as_bytes());
        let hash = self
            .writer
            .add_file(&path, 0o644, 0, bytes, text.as_slice())
            .map_err(failed)?;
        self.entries.push(Entry {
            path: Name(path),
            mode: 0o644,
            mtime: (0, 0),
            what: What::File {
                bytes,
                content: Content::Sha256(hash),
            },
        });
        Ok(())
    }
}

fn in_area(area: &str, path: &[u8]) -> Vec<u8> {
    let mut full = area.as_bytes().to_vec();
    if !path.is_empty() {
        full.push(b'/');
        full.extend_from_slice(path);
    }
    full
}

fn refusal(path: &[u8], error: &io::Error) -> Refusal {
    if content::is_too_big(error) {
        return too_big();
    }
    let shown = String::from_utf8_lossy(path);
    Refusal::Failed(if path.is_empty() {
        error.to_string()
    } else {
        format!("`{shown}`: {error}")
    })
}

/// Returns the id that git would give to a content of so many bytes.
pub(super) fn blob_id(bytes: u64, mut content: impl Read) -> io::Result<String> {
    let mut hash = Sha1::new();
    hash.update(format!("blob {bytes}\0"));
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = content.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex::encode(hash.finalize()));
        }
        hash.update(&buffer[..read]);
    }
}

/// Reads the tar back and compares every content in it with the file it is of.
/// Blocking.
///
/// # Errors
///
/// In words, for the first that is another.
pub(super) fn compare(source: &Source, dir: &Path, entries: &[Entry]) -> Result<(), String> {
    let open = |path: &Path| Top::open(path).map_err(|error| error.to_string());
    let tree = match &source.status {
        Some(_) => Some(open(&source.located.path)?),
        None => None,
    };
    let admin = open(&source.located.admin)?;
    content::read(dir, entries, |entry, content| {
        let (top, path) = match (entry.below(TREE), entry.below(STATE)) {
            (Some(path), _) => (tree.as_ref(), path),
            (_, Some(path)) => (Some(&admin), path),
            // A copy of a log was taken from memory; its hash was compared.
            _ => return Ok(()),
        };
        let top = top.ok_or("it is not of this checkout")?;
        let file = top.open_file(path).map_err(|error| error.to_string())?;
        if is_same(content, file).map_err(|error| error.to_string())? {
            Ok(())
        } else {
            Err(format!(
                "`{}` changed while it was archived",
                entry.path.shown()
            ))
        }
    })
}

fn is_same(one: &mut dyn Read, mut other: impl Read) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let read = fill(one, &mut left)?;
        if read != fill(&mut other, &mut right)? || left[..read] != right[..read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
