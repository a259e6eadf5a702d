//! What an archive says about itself.
//!
//! `manifest.json` is written last but for `manifest.sha256`, which holds its
//! hash in the form that `sha256sum --check` takes; it holds those of all other
//! parts. The list of files is a part of its own, because it can be long and is
//! not needed to tell one archive from another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::name::Name;
use crate::domain::archive::ArchiveSummary;

/// Format of what is written here.
pub(super) const FORMAT: u32 = 1;
/// The manifest.
pub(super) const MANIFEST: &str = "manifest.json";
/// Its hash.
pub(super) const SUM: &str = "manifest.sha256";
/// Every commit, tree and blob that no remote has, as a bundle of git's.
pub(super) const OBJECTS: &str = "objects.bundle";
/// Contents of files that git does not hold, as a compressed tar.
pub(super) const CONTENT: &str = "content.tar.zst";
/// Every file, directory and link, one JSON value a line, compressed.
pub(super) const FILES: &str = "files.jsonl.zst";
/// The parts, in the order in which they are written.
pub(super) const PARTS: [&str; 3] = [OBJECTS, CONTENT, FILES];

/// The checkout's own files stand below this in the list and in the tar.
pub(super) const TREE: &str = "files";
/// Its git directory's, without objects.
pub(super) const STATE: &str = "git";
/// Reflogs of its branches, from the shared clone.
pub(super) const LOGS: &str = "logs";

/// Everything but the list of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: u32,
    pub summary: ArchiveSummary,
    /// Where the remote was.
    pub clone_url: String,
    /// Whether the directory was there; if not, only git's record was.
    pub has_directory: bool,
    /// The commit of HEAD, if it had one.
    pub head_commit: Option<String>,
    /// Branches made or moved here, and where they were.
    pub branches: BTreeMap<String, String>,
    /// Stash entries made here, newest first.
    pub stash: Vec<StashEntry>,
    /// Settings that the checkout had, that run nothing and lead nowhere else.
    pub settings: String,
    /// Refs in the bundle, by the end of their names in the vault.
    pub pins: BTreeMap<String, String>,
    /// Objects that the pins hold, by their ids.
    pub objects: BTreeSet<String>,
    /// Commits of the remote that the bundle was made on.
    pub prerequisites: BTreeSet<String>,
    /// Tracked files that were not there.
    pub deleted: Vec<Name>,
    pub parts: Vec<Part>,
}

/// A file of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// A stash entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StashEntry {
    pub commit: String,
    pub seconds: i64,
    pub message: String,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Below [`TREE`], [`STATE`] or [`LOGS`]; the three themselves too.
    pub path: Name,
    /// Permission bits.
    pub mode: u32,
    /// Modification time in seconds since 1970, and the nanoseconds beside.
    pub mtime: (i64, u32),
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Directory,
    Link { target: Name },
    File { bytes: u64, content: Content },
}

/// How a file's content is told, and so where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content {
    /// It is, to the byte, this blob of git's.
    Blob(String),
    /// It is in the tar and has this hash.
    Sha256(String),
}

impl Entry {
    /// Returns the path below an area, if it is in that one; empty for the
    /// area itself.
    pub fn below(&self, area: &str) -> Option<&[u8]> {
        let rest = self.path.0.strip_prefix(area.as_bytes())?;
        if rest.is_empty() {
            Some(rest)
        } else {
            rest.strip_prefix(b"/")
        }
    }
}

impl Manifest {
    /// Writes it with its hash, flushed.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let sum = format!("{}  {MANIFEST}\n", hex::encode(Sha256::digest(&text)));
        for (name, bytes) in [(MANIFEST, text.as_slice()), (SUM, sum.as_bytes())] {
            let mut file = File::create_new(dir.join(name))?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// In words, if it is not what was written or of a format that is not known.
    pub fn read(dir: &Path) -> Result<Self, String> {
        let read = |name: &str| {
            fs::read(dir.join(name)).map_err(|error| format!("`{name}` cannot be read: {error}"))
        };
        let text = read(MANIFEST)?;
        let sum = format!("{}  {MANIFEST}\n", hex::encode(Sha256::digest(&text)));
        if read(SUM)? != sum.as_bytes() {
            return Err(format!("`{MANIFEST}` is not what was written"));
        }
        let manifest: Self = serde_json::from_slice(&text)
            .map_err(|error| format!("`{MANIFEST}` was not understood: {error}"))?;
        if manifest.format != FORMAT {
            return Err(format!("its format {} is not known", manifest.format));
        }
        Ok(manifest)
    }

    /// Compares every part with its hash.
    ///
    /// # Errors
    ///
    /// In words, for the first that is not what was written.
    pub fn verify_parts(&self, dir: &Path) -> Result<(), String> {
        let names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        if names != PARTS {
            return Err("its parts are not those of an archive".to_owned());
        }
        for part in &self.parts {
            let found = Part::of(dir, &part.name)
                .map_err(|error| format!("`{}` cannot be read: {error}", part.name))?;
            if found != *part {
                return Err(format!("`{}` is not what was written", part.name));
            }
        }
        Ok(())
    }
}

impl Part {
    /// Reads a part from the disk.
    pub fn of(dir: &Path, name: &str) -> io::Result<Self> {
        let (bytes, sha256) = hash_of(File::open(dir.join(name))?)?;
        Ok(Self {
            name: name.to_owned(),
            bytes,
            sha256,
        })
    }
}

/// Reads to the end; returns how much that was, and its hash.
pub(super) fn hash_of(mut from: impl Read) -> io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 128 * 1024];
    let mut bytes = 0;
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, hex::encode(hash.finalize())));
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// Writes the list of files, flushed.
pub(super) fn write_files(dir: &Path, entries: &[Entry]) -> io::Result<()> {
    let file = File::create_new(dir.join(FILES))?;
    let mut out = BufWriter::new(zstd::Encoder::new(file, 1)?);
    for entry in entries {
        serde_json::to_writer(&mut out, entry)?;
        out.write_all(b"\n")?;
    }
    let encoder = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    encoder.finish()?.sync_all()
}

/// Reads the list of files; the path of each stays below its area.
///
/// # Errors
///
/// In words.
pub(super) fn read_files(dir: &Path) -> Result<Vec<Entry>, String> {
    let bad = |why: String| format!("`{FILES}` was not understood: {why}");
    let mut text = Vec::new();
    File::open(dir.join(FILES))
        .and_then(zstd::Decoder::new)
        .and_then(|mut decoder| decoder.read_to_end(&mut text))
        .map_err(|error| bad(error.to_string()))?;
    let mut entries = Vec::new();
    for line in text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let entry: Entry = serde_json::from_slice(line).map_err(|error| bad(error.to_string()))?;
        let in_area = [TREE, STATE, LOGS]
            .iter()
            .any(|area| entry.below(area).is_some());
        if !in_area || !entry.path.stays_below() {
            return Err(bad(format!("`{}` leads elsewhere", entry.path.shown())));
        }
        entries.push(entry);
    }
    Ok(entries)
}
