//! Operations that git has begun in a checkout and not ended: they hold work
//! that neither status nor a ref tells of.

use std::path::Path;

/// What an operation leaves in a checkout's own git directory.
const SIGNS: &[(&str, &str)] = &[
    ("MERGE_HEAD", "merge"),
    ("MERGE_AUTOSTASH", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply/applying", "am"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_START", "bisect"),
    ("BISECT_LOG", "bisect"),
    ("sequencer", "cherry-pick or revert"),
    ("NOTES_MERGE_REF", "notes merge"),
];

/// Returns the operations in progress, by name, for the checkout whose own git
/// directory (a worktree's record, a clone's `.git`) is `git_dir`.
///
/// # Errors
///
/// If it cannot be told whether a sign is there.
pub fn operations(git_dir: &Path) -> std::io::Result<Vec<&'static str>> {
    let mut found = Vec::new();
    for (sign, name) in SIGNS {
        match git_dir.join(sign).symlink_metadata() {
            Ok(_) => {
                // The signs of an am include those of a rebase.
                let twice = *sign == "rebase-apply" && found.contains(&"am");
                if !twice && !found.contains(name) {
                    found.push(*name);
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_operation_is_known_by_what_it_leaves() {
        for (signs, expected) in [
            (&["MERGE_HEAD"][..], &["merge"][..]),
            (&["rebase-merge/"], &["rebase"]),
            (&["rebase-apply/"], &["rebase"]),
            (&["rebase-apply/", "rebase-apply/applying"], &["am"]),
            (
                &["CHERRY_PICK_HEAD", "sequencer/"],
                &["cherry-pick", "cherry-pick or revert"],
            ),
            (&["REVERT_HEAD"], &["revert"]),
            (&["BISECT_LOG", "BISECT_START"], &["bisect"]),
            (&["ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG"], &[]),
        ] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            for sign in signs {
                let path = dir.path().join(sign);
                if sign.ends_with('/') {
                    fs::create_dir(path).expect("made");
                } else {
                    fs::write(path, "x").expect("written");
                }
            }
            assert_eq!(
                operations(dir.path()).expect("readable"),
                expected,
                "{signs:?}"
            );
        }
    }
}
