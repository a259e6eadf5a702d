//! Putting new parts of a git directory in the place of damaged ones.
//!
//! The parts are what git itself writes into: objects and refs. Everything else
//! (records of worktrees, reflogs, configuration, what an agent put there) stays
//! where it is, and so do the names that checkouts know. Each part is two
//! renames; what was there goes to a directory that is never swept. Done again
//! after a crash at any point, the outcome is the same: a part whose new form is
//! still in the making has not been put in place.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files;
use crate::workspace::WorkspaceError;

/// What is replaced.
pub(super) const PARTS: [&str; 3] = ["objects", "refs", "packed-refs"];

/// Replaces the parts of `dir` with those in `staged`; what was there goes to
/// `aside`. Blocking.
pub(super) fn swap(dir: &Path, staged: &Path, aside: &Path) -> Result<(), WorkspaceError> {
    files::create_dirs(aside)?;
    for part in PARTS {
        let (new, here) = (staged.join(part), dir.join(part));
        if fs::symlink_metadata(&new).is_err() {
            continue;
        }
        // Again if somebody's git makes the directory anew in between.
        while fs::symlink_metadata(&here).is_ok() {
            files::rename_noreplace(&here, &free_name(aside, part))?;
        }
        files::rename_noreplace(&new, &here)?;
    }
    files::sync_dir(dir)?;
    files::sync_dir(aside)?;
    Ok(())
}

/// Returns every directory or file that stood in the place of a part.
pub(super) fn set_aside(aside: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut path = numbered(aside, part, 0);
    while fs::symlink_metadata(&path).is_ok() {
        found.push(path);
        path = numbered(aside, part, found.len());
    }
    found
}

fn free_name(aside: &Path, part: &str) -> PathBuf {
    let mut n = 0;
    loop {
        let path = numbered(aside, part, n);
        if fs::symlink_metadata(&path).is_err() {
            return path;
        }
        n += 1;
    }
}

fn numbered(aside: &Path, part: &str, n: usize) -> PathBuf {
    match n {
        0 => aside.join(part),
        n => aside.join(format!("{part}~{n}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The renames of a swap, one after the other.
    fn renames(top: &Path) -> Vec<(PathBuf, PathBuf)> {
        PARTS
            .iter()
            .flat_map(|part| {
                [
                    (top.join("dir").join(part), top.join("aside").join(part)),
                    (top.join("staged").join(part), top.join("dir").join(part)),
                ]
            })
            .collect()
    }

    #[test]
    fn after_a_crash_between_any_two_renames_the_next_one_finishes() {
        for done in 0..=PARTS.len() * 2 {
            for intruder in [false, true] {
                let temporary = tempfile::tempdir().expect("a temporary directory");
                let top = temporary.path();
                for (dir, text) in [("dir", "old"), ("staged", "new")] {
                    for part in ["objects", "refs"] {
                        fs::create_dir_all(top.join(dir).join(part)).expect("made");
                        fs::write(top.join(dir).join(part).join("f"), text).expect("written");
                    }
                    fs::write(top.join(dir).join("packed-refs"), text).expect("written");
                    fs::write(top.join(dir).join("config"), text).expect("written");
                }
                fs::create_dir(top.join("aside")).expect("made");
                for (from, to) in renames(top).into_iter().take(done) {
                    fs::rename(from, to).expect("renamed");
                }
                let refs = top.join("dir/refs");
                let intrudes = intruder && !refs.exists();
                if intrudes {
                    fs::create_dir(&refs).expect("made");
                    fs::write(refs.join("late"), "kept").expect("written");
                }
                swap(&top.join("dir"), &top.join("staged"), &top.join("aside")).expect("swapped");
                let read = |path: &str| fs::read_to_string(top.join(path)).unwrap_or_default();
                for path in ["objects/f", "refs/f", "packed-refs"] {
                    assert_eq!(read(&format!("dir/{path}")), "new", "{path} after {done}");
                    assert_eq!(read(&format!("aside/{path}")), "old", "{path} after {done}");
                }
                assert_eq!(read("dir/config"), "old");
                let asides = set_aside(&top.join("aside"), "refs");
                assert_eq!(asides.len(), 1 + usize::from(intrudes));
                if intrudes {
                    assert_eq!(read("aside/refs~1/late"), "kept");
                }
            }
        }
    }
}
