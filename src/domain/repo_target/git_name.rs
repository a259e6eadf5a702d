//! Names that git gets: commit ids and branches.

use super::shown;

/// The text is not a full commit id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a full commit id: 40 or 64 hexadecimal digits are needed")]
pub struct BadCommit(String);

/// Refuses everything but a full object id: 40 (SHA-1) or 64 (SHA-256)
/// hexadecimal digits. Returns it in lower case, as git prints it.
///
/// The id of nothing, all zeros, which stands for "no commit" in payloads, is
/// refused as well.
///
/// # Errors
///
/// Returns [`BadCommit`]; an abbreviation is never completed, since it may mean
/// another commit tomorrow.
pub fn check_commit(text: &str) -> Result<String, BadCommit> {
    let full = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !full || text.bytes().all(|b| b == b'0') {
        return Err(BadCommit(shown(text)));
    }
    Ok(text.to_ascii_lowercase())
}

/// The longest component of a branch name: git writes `<component>.lock` beside
/// it, and a directory entry may have 255 bytes.
pub const BRANCH_COMPONENT_BYTES_MAX: usize = 250;

/// The longest branch name as a whole: as a path below a repository it stays
/// under the system's limit of 4096.
pub const BRANCH_BYTES_MAX: usize = 1024;

/// The text is not a branch's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a branch name: {why}")]
pub struct BadBranch {
    text: String,
    why: &'static str,
}

/// Refuses what `git check-ref-format refs/heads/<name>` refuses, and
/// components too long for a lock file beside them.
///
/// A leading dash is a legal name and accepted; a branch is therefore only ever
/// handed to git as a full ref, `refs/heads/<name>`.
///
/// # Errors
///
/// Returns [`BadBranch`] with what is wrong.
pub fn check_branch(name: &str) -> Result<(), BadBranch> {
    match fault(name) {
        Some(why) => Err(BadBranch {
            text: shown(name),
            why,
        }),
        None => Ok(()),
    }
}

fn fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.len() > BRANCH_BYTES_MAX {
        return Some("it is longer than 1024 bytes");
    }
    if name.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Some("it holds a control character");
    }
    if name
        .bytes()
        .any(|b| matches!(b, b' ' | b'~' | b'^' | b':' | b'?' | b'*' | b'[' | b'\\'))
    {
        return Some("it holds a space or one of ~ ^ : ? * [ \\");
    }
    if name.contains("..") || name.contains("@{") {
        return Some("it holds `..` or `@{`");
    }
    if name.ends_with('.') {
        return Some("it ends with a dot");
    }
    for component in name.split('/') {
        if component.is_empty() {
            return Some("one of its components is empty");
        }
        if component.starts_with('.') {
            return Some("one of its components begins with a dot");
        }
        // To the letter, as git has it: `.LOCK` is a name like any other.
        if component.as_bytes().ends_with(b".lock") {
            return Some("one of its components ends in `.lock`");
        }
        if component.len() > BRANCH_COMPONENT_BYTES_MAX {
            return Some("one of its components is longer than 250 bytes");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_commit_ids_are_accepted() {
        let (sha1, sha256) = ("0a".repeat(20), "0A".repeat(32));
        assert_eq!(check_commit(&sha1), Ok(sha1.clone()));
        assert_eq!(check_commit(&sha256), Ok("0a".repeat(32)));
        for bad in [
            "",
            "HEAD",
            "0a0a0a0",
            &sha1[1..],
            &format!("{sha1}a"),
            &format!("-{}", &sha1[1..]),
            &"g".repeat(40),
            &"0".repeat(40),
            &"0".repeat(64),
            &format!("{}\n", &sha1[1..]),
        ] {
            assert!(check_commit(bad).is_err(), "{bad:?}");
        }
    }

    /// The verdicts are git's own (`git check-ref-format refs/heads/<name>`);
    /// `tests/payloads.rs` asks the installed git about the same table.
    #[test]
    fn branches_are_judged_as_git_judges_them() {
        for good in [
            "main",
            "feature/x",
            "-x",
            "--upload-pack=touch x".replace(' ', "-").as_str(),
            "@",
            "a@b",
            "ünïcode/分支",
            "a.b",
            "x.lockx",
            "$(touch-x)",
            "`x`",
            "a;b",
            "a'b\"",
            "#1",
            "%2e%2e",
            "HEAD",
            "{",
            "a{b",
            &"x".repeat(250),
            &vec!["y".repeat(200); 4].join("/"),
        ] {
            assert_eq!(check_branch(good), Ok(()), "{good:?}");
        }
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a..b",
            "a.",
            "a.lock",
            "a.lock/b",
            "a b",
            "a~b",
            "a^b",
            "a:b",
            "a?b",
            "a*b",
            "a[b",
            "a\\b",
            "a@{b",
            "@{",
            "a\nb",
            "a\0b",
            "a\u{7f}",
            "..",
            "../x",
            "a/../b",
            ".",
            &"x".repeat(251),
            &vec!["y".repeat(250); 5].join("/"),
        ] {
            assert!(check_branch(bad).is_err(), "{bad:?}");
        }
    }
}
