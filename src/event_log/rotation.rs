//! Finished files: their names, and moving them up by one.
//!
//! Rotating is a list of removals and renames, each of which leaves a state from
//! which the list can be made again: a file that has not been moved up yet is
//! below the first free number, and only those are moved.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// Returns the directory that `path` stands in.
pub(super) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// Returns when the names in `directory` are on disk.
pub(super) fn flush_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the name of the finished file with this number.
pub(super) fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Returns the finished files, newest first.
pub(super) fn finished(path: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let base = path.file_name().unwrap_or_default().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir(directory_of(path))? {
        let name = entry?.file_name();
        let number = name
            .as_encoded_bytes()
            .strip_prefix(base)
            .and_then(|rest| rest.strip_prefix(b"."))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|digits| !digits.starts_with(['0', '+']))
            .and_then(|digits| digits.parse::<u32>().ok());
        if let Some(number) = number {
            found.push((number, numbered(path, number)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns what has to be done so that `path` is free and at most `keep` files
/// are finished, given the numbers that exist.
pub(super) fn steps(path: &Path, numbers: &[u32], keep: u32) -> Vec<Step> {
    let mut steps: Vec<_> = numbers
        .iter()
        .filter(|number| **number > keep)
        .map(|number| Step::Remove(numbered(path, *number)))
        .collect();
    if keep == 0 {
        steps.push(Step::Remove(path.to_owned()));
        return steps;
    }
    let free = (1..=keep).find(|number| !numbers.contains(number));
    let free = free.unwrap_or_else(|| {
        steps.push(Step::Remove(numbered(path, keep)));
        keep
    });
    for number in (1..free).rev() {
        steps.push(Step::Rename(
            numbered(path, number),
            numbered(path, number + 1),
        ));
    }
    steps.push(Step::Rename(path.to_owned(), numbered(path, 1)));
    steps
}

/// Does one step.
pub(super) fn take(step: &Step) -> io::Result<()> {
    match step {
        Step::Remove(path) => fs::remove_file(path),
        Step::Rename(from, to) => fs::rename(from, to),
    }
}

/// Makes `path` a finished file.
pub(super) fn rotate(path: &Path, keep: u32) -> io::Result<()> {
    if !path.try_exists()? {
        return Ok(());
    }
    let numbers: Vec<_> = finished(path)?
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    for step in steps(path, &numbers, keep) {
        take(&step)?;
    }
    flush_directory(directory_of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).expect("written");
    }

    fn contents(path: &Path) -> Vec<(u32, String)> {
        finished(path)
            .expect("listed")
            .into_iter()
            .map(|(number, path)| (number, fs::read_to_string(path).expect("read")))
            .collect()
    }

    #[test]
    fn a_kill_between_any_two_steps_is_made_good_by_rotating_again() {
        for keep in [1, 2, 3, 5] {
            for kill_after in 0..10 {
                let dir = tempfile::tempdir().expect("a directory");
                let path = dir.path().join("e.jsonl");
                for number in 1..=3 {
                    write(&numbered(&path, number), &format!("{number}"));
                }
                write(&path, "0");
                let plan = steps(&path, &[1, 2, 3], keep);
                for step in plan.iter().take(kill_after) {
                    take(step).expect("taken");
                }
                let was_done = !path.exists();
                rotate(&path, keep).expect("rotated");
                assert!(!path.exists());
                let want: Vec<_> = (0..=3)
                    .map(|n| (n + 1, n.to_string()))
                    .take(keep as usize)
                    .collect();
                assert_eq!(
                    contents(&path),
                    want,
                    "keep {keep}, {kill_after}, {was_done}"
                );
            }
        }
    }

    #[test]
    fn only_our_own_numbers_count_as_finished_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("e.jsonl");
        for name in [
            "e.jsonl.1",
            "e.jsonl.x",
            "e.jsonl.02",
            "f.jsonl.3",
            "e.jsonl.1.gz",
            "e.jsonl.10",
        ] {
            write(&dir.path().join(name), "");
        }
        let numbers: Vec<_> = finished(&path)
            .expect("listed")
            .into_iter()
            .map(|(n, _)| n)
            .collect();
        assert_eq!(numbers, [1, 10]);
    }
}
