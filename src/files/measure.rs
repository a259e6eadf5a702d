//! How much of the disk something takes.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes in a block of `st_blocks`, whatever the file system's own block is.
const BLOCK_BYTES: u64 = 512;

/// Returns the bytes allocated for `root` and everything below it but
/// `without`: each file once, following no link, entering no other file system.
/// What cannot be read counts as nothing; none if `root` is not there.
pub fn allocated_bytes(root: &Path, without: &BTreeSet<PathBuf>) -> Option<u64> {
    let mut seen = HashSet::new();
    let top = fs::symlink_metadata(root).ok()?;
    let mut total = top.blocks() * BLOCK_BYTES;
    let mut waiting = Vec::new();
    if top.is_dir() {
        waiting.push(root.to_owned());
    }
    while let Some(dir) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if !without.is_empty() && without.contains(&entry.path()) {
                continue;
            }
            if metadata.is_dir() {
                if metadata.dev() != top.dev() {
                    continue;
                }
                waiting.push(entry.path());
            } else if metadata.nlink() > 1 && !seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            total += metadata.blocks() * BLOCK_BYTES;
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_two_names_counts_once_and_a_link_out_is_not_followed() {
        let everything = BTreeSet::new();
        let dir = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        fs::write(outside.path().join("big"), vec![1; 1 << 20]).expect("written");
        fs::write(dir.path().join("a"), vec![1; 1 << 16]).expect("written");
        let before = allocated_bytes(dir.path(), &everything).expect("there");
        fs::hard_link(dir.path().join("a"), dir.path().join("b")).expect("linked");
        std::os::unix::fs::symlink(outside.path(), dir.path().join("out")).expect("linked");
        let after = allocated_bytes(dir.path(), &everything).expect("there");
        assert!(before >= 1 << 16, "{before}");
        assert!(after < before + (1 << 16), "{before} {after}");
        assert_eq!(allocated_bytes(&dir.path().join("gone"), &everything), None);
    }

    #[test]
    fn what_is_left_out_and_the_rest_make_the_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["a/one", "a/b/two", "c/three"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, vec![1; 1 << 16]).expect("written");
        }
        let whole = allocated_bytes(dir.path(), &BTreeSet::new()).expect("there");
        let apart = BTreeSet::from([dir.path().join("a/b"), dir.path().join("c")]);
        let rest = allocated_bytes(dir.path(), &apart).expect("there");
        let parts: u64 = apart
            .iter()
            .filter_map(|path| allocated_bytes(path, &BTreeSet::new()))
            .sum();
        assert_eq!(rest + parts, whole);
        assert!(parts >= 2 << 16);
    }
}
