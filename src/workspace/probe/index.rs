//! Git's index file, read in process: which entries are hidden from status,
//! which are submodules, and whether the file is whole.
//!
//! `git status` believes two marks: an entry that is *assumed unchanged* is
//! never looked at, and one that is *skip-worktree* is not looked at unless a
//! sparse checkout is on. The copy that status gets has the first mark taken
//! away; the private configuration sees to the second. Git does not verify the
//! checksum of an index, so it is done here.
//!
//! Versions 2 to 4 are read. With a split index most entries are in a second
//! file, which is read in the same way.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// What is wrong with an index.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadIndex {
    /// Its format is not one of git's.
    #[error("the index was not understood: {0}")]
    NotUnderstood(&'static str),
    /// Its last bytes are not the hash of the others.
    #[error("the checksum of the index does not match")]
    Checksum,
}

/// One entry. Of a split index's own entries that replace others only the
/// marks are known, and the path is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path relative to the checkout.
    pub path: Vec<u8>,
    /// File mode.
    pub mode: u32,
    /// Object id, in hex.
    pub id: String,
    /// 0, or 1 to 3 in a conflict.
    pub stage: u8,
    /// Whether the mark `assume-unchanged` is set.
    pub assumed: bool,
    /// Whether the mark `skip-worktree` is set.
    pub skipped: bool,
}

impl Entry {
    /// Whether it is a submodule.
    pub fn is_submodule(&self) -> bool {
        self.mode & 0o170_000 == 0o160_000
    }

    /// Whether status may not look at the file.
    pub fn is_hidden(&self) -> bool {
        self.assumed || self.skipped
    }
}

/// A parsed index, and the bytes it came from with the marks `assume-unchanged`
/// taken away; the checksum at the end is left as it was, because a split index
/// is found by it.
#[derive(Clone, Debug)]
pub struct Index {
    /// Its entries, in order.
    pub entries: Vec<Entry>,
    /// The name of the second file of a split index.
    pub shared: Option<String>,
    /// The bytes for the copy.
    pub unmarked: Vec<u8>,
}

const ASSUMED: u8 = 0x80;
const EXTENDED: u8 = 0x40;
const SKIPPED: u8 = 0x40;
/// Seconds, nanoseconds, device, inode, mode, owner, group, size.
const STAT_BYTES: usize = 40;
const MODE_AT: usize = 24;

/// Reads an index whose object ids have `id_bytes` bytes (20 or 32).
///
/// # Errors
///
/// If it is damaged or of a version that is not known.
pub fn parse_index(bytes: &[u8], id_bytes: usize) -> Result<Index, BadIndex> {
    if bytes.len() < 12 + id_bytes || &bytes[..4] != b"DIRC" {
        return Err(BadIndex::NotUnderstood("it is no index"));
    }
    let (body, sum) = bytes.split_at(bytes.len() - id_bytes);
    // All zeros is what `index.skipHash` writes.
    if sum.iter().any(|byte| *byte != 0) && !sums_to(body, sum) {
        return Err(BadIndex::Checksum);
    }
    let version = number(body, 4)?;
    if !(2..=4).contains(&version) {
        return Err(BadIndex::NotUnderstood("its version is not known"));
    }
    let count = number(body, 8)? as usize;
    let mut reader = Reader {
        body,
        id_bytes,
        version,
        at: 12,
        previous: Vec::new(),
    };
    let mut entries = Vec::with_capacity(count.min(body.len() / 32));
    let mut unmarked = bytes.to_vec();
    for _ in 0..count {
        let (entry, flags_at) = reader.entry()?;
        unmarked[flags_at] &= !ASSUMED;
        entries.push(entry);
    }
    let shared = shared_index(body, reader.at, id_bytes)?;
    Ok(Index {
        entries,
        shared,
        unmarked,
    })
}

fn sums_to(body: &[u8], sum: &[u8]) -> bool {
    if sum.len() == 20 {
        Sha1::digest(body).as_slice() == sum
    } else {
        Sha256::digest(body).as_slice() == sum
    }
}

fn number(bytes: &[u8], at: usize) -> Result<u32, BadIndex> {
    bytes
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok())
        .map(u32::from_be_bytes)
        .ok_or(BadIndex::NotUnderstood("it ends too early"))
}

struct Reader<'a> {
    body: &'a [u8],
    id_bytes: usize,
    version: u32,
    at: usize,
    previous: Vec<u8>,
}

impl Reader<'_> {
    /// Returns the next entry, and where its flags stand.
    fn entry(&mut self) -> Result<(Entry, usize), BadIndex> {
        const SHORT: BadIndex = BadIndex::NotUnderstood("it ends too early");
        let start = self.at;
        let mode = number(self.body, start + MODE_AT)?;
        let id_at = start + STAT_BYTES;
        let flags_at = id_at + self.id_bytes;
        let id = hex::encode(self.body.get(id_at..flags_at).ok_or(SHORT)?);
        let flags = self.body.get(flags_at..flags_at + 2).ok_or(SHORT)?;
        let extended = flags[0] & EXTENDED != 0;
        if extended && self.version < 3 {
            return Err(BadIndex::NotUnderstood("version 2 has no more flags"));
        }
        let skipped = extended && self.body.get(flags_at + 2).ok_or(SHORT)? & SKIPPED != 0;
        let name_at = flags_at + if extended { 4 } else { 2 };
        let path = if self.version == 4 {
            self.compressed_path(name_at)?
        } else {
            let length = zero_at(self.body, name_at)? - name_at;
            // One to eight zeros, up to a multiple of eight from its start.
            let size = (name_at - start + length + 8) & !7;
            self.at = start + size;
            if self.at > self.body.len() {
                return Err(SHORT);
            }
            self.body[name_at..name_at + length].to_vec()
        };
        let entry = Entry {
            path,
            mode,
            id,
            stage: (flags[0] >> 4) & 3,
            assumed: flags[0] & ASSUMED != 0,
            skipped,
        };
        Ok((entry, flags_at))
    }

    /// Version 4: how many bytes of the previous path to drop, then the rest.
    fn compressed_path(&mut self, at: usize) -> Result<Vec<u8>, BadIndex> {
        let mut at = at;
        let mut drop = 0usize;
        loop {
            let byte = *self
                .body
                .get(at)
                .ok_or(BadIndex::NotUnderstood("it ends too early"))?;
            at += 1;
            drop = (drop << 7) | usize::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                break;
            }
            drop += 1;
            if drop > self.body.len() {
                return Err(BadIndex::NotUnderstood("a path is impossible"));
            }
        }
        let keep = self
            .previous
            .len()
            .checked_sub(drop)
            .ok_or(BadIndex::NotUnderstood("a path is impossible"))?;
        let end = zero_at(self.body, at)?;
        self.previous.truncate(keep);
        self.previous.extend_from_slice(&self.body[at..end]);
        self.at = end + 1;
        Ok(self.previous.clone())
    }
}

fn zero_at(body: &[u8], from: usize) -> Result<usize, BadIndex> {
    body.get(from..)
        .and_then(|rest| rest.iter().position(|byte| *byte == 0))
        .map(|length| from + length)
        .ok_or(BadIndex::NotUnderstood("a path has no end"))
}

/// The extension `link` names the second file of a split index.
fn shared_index(body: &[u8], from: usize, id_bytes: usize) -> Result<Option<String>, BadIndex> {
    let mut at = from;
    while at < body.len() {
        let name = body
            .get(at..at + 4)
            .ok_or(BadIndex::NotUnderstood("an extension is cut"))?;
        let size = number(body, at + 4)? as usize;
        let content = body
            .get(at + 8..at + 8 + size)
            .ok_or(BadIndex::NotUnderstood("an extension is cut"))?;
        if name == b"link"
            && let Some(id) = content.get(..id_bytes)
            && id.iter().any(|byte| *byte != 0)
        {
            return Ok(Some(format!("sharedindex.{}", hex::encode(id))));
        }
        at += 8 + size;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn git(dir: &Path, args: &[&str]) {
        let output = Command::new("git")
            .args(args)
            .current_dir(dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").expect("there is a path"))
            .env("HOME", dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .expect("git starts");
        assert!(output.status.success(), "{args:?}: {output:?}");
    }

    fn repository(init: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        git(dir.path(), &[&["init", "-q"], init].concat());
        for name in ["a", "dir/b", "dir/bc", "dir/with\nline", "z"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, name).expect("written");
        }
        git(dir.path(), &["add", "-A"]);
        dir
    }

    fn read(dir: &tempfile::TempDir, id_bytes: usize) -> Result<Index, BadIndex> {
        parse_index(
            &fs::read(dir.path().join(".git/index")).expect("there is an index"),
            id_bytes,
        )
    }

    #[test]
    fn marks_and_paths_are_read_in_every_version_and_both_hashes() {
        for (version, init, id_bytes) in [
            ("2", &[][..], 20),
            ("4", &[], 20),
            ("4", &["--object-format=sha256"], 32),
            ("2", &["--object-format=sha256"], 32),
        ] {
            let dir = repository(init);
            git(dir.path(), &["update-index", "--index-version", version]);
            git(dir.path(), &["update-index", "--assume-unchanged", "dir/b"]);
            git(dir.path(), &["update-index", "--skip-worktree", "z"]);
            let index = read(&dir, id_bytes).expect("a whole index");
            let seen: Vec<_> = index
                .entries
                .iter()
                .map(|one| {
                    (
                        String::from_utf8_lossy(&one.path).into_owned(),
                        one.assumed,
                        one.skipped,
                    )
                })
                .collect();
            let expected = [
                ("a", false, false),
                ("dir/b", true, false),
                ("dir/bc", false, false),
                ("dir/with\nline", false, false),
                ("z", false, true),
            ];
            assert_eq!(
                seen,
                expected.map(|(path, a, s)| (path.to_owned(), a, s)),
                "version {version}"
            );
            fs::write(dir.path().join(".git/index"), &index.unmarked).expect("written");
            fs::write(dir.path().join("dir/b"), "edited").expect("written");
            let after = Command::new("git")
                .args(["diff-files", "--name-only"])
                .current_dir(dir.path())
                .output()
                .expect("git starts");
            assert_eq!(after.stdout, b"dir/b\n", "version {version}");
        }
    }

    #[test]
    fn a_split_index_names_its_second_file() {
        let dir = repository(&[]);
        git(dir.path(), &["update-index", "--split-index"]);
        let index = read(&dir, 20).expect("a whole index");
        let shared = index.shared.expect("it is split");
        let second = fs::read(dir.path().join(".git").join(shared)).expect("it is there");
        let second = parse_index(&second, 20).expect("a whole index");
        assert_eq!(second.entries.len(), 5);
    }

    #[test]
    fn a_changed_or_cut_index_is_refused_and_never_panics() {
        let dir = repository(&[]);
        let whole = fs::read(dir.path().join(".git/index")).expect("there is an index");
        let mut junk = whole.clone();
        junk.extend_from_slice(b"junk");
        assert!(parse_index(&junk, 20).is_err());
        for at in 0..whole.len() {
            assert!(parse_index(&whole[..at], 20).is_err(), "cut at {at}");
            let mut flipped = whole.clone();
            flipped[at] ^= 0x55;
            assert!(parse_index(&flipped, 20).is_err(), "flipped at {at}");
            // The same without a checksum that would tell.
            let end = flipped.len() - 20;
            flipped[end..].fill(0);
            let _ = parse_index(&flipped, 20);
        }
    }
}
