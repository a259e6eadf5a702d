//! One segment of a path: an owner or a repository name.

use super::{BadTarget, shown};

/// The longest owner or name that is accepted. GitHub allows 39 and 100; a
/// directory entry, with what Innkeeper appends to it, may have 255.
pub const SEGMENT_BYTES_MAX: usize = 100;

/// Refuses an owner that must not become a path segment or an argument.
///
/// # Errors
///
/// Returns [`BadTarget::Unsafe`] with what is wrong.
pub fn check_owner(text: &str) -> Result<(), BadTarget> {
    check("an owner", text)
}

/// Refuses a repository name that must not become a path segment or an
/// argument.
///
/// # Errors
///
/// Returns [`BadTarget::Unsafe`] with what is wrong.
pub fn check_name(text: &str) -> Result<(), BadTarget> {
    const WHAT: &str = "a repository name";
    check(WHAT, text)?;
    // `<repo>.git` would be the vault of `<repo>`; GitHub cuts the suffix off
    // when a repository is made.
    if ends_with_ignore_case(text, ".git") {
        return Err(refuse(WHAT, text, "it ends in `.git`"));
    }
    Ok(())
}

fn check(what: &'static str, text: &str) -> Result<(), BadTarget> {
    let why = if text.is_empty() {
        "it is empty"
    } else if text.len() > SEGMENT_BYTES_MAX {
        "it is longer than 100 bytes"
    } else if text == "." || text == ".." {
        "it is a step in a path, not a name"
    } else if text.starts_with('-') {
        "it begins with a dash, like an option"
    } else if !text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    {
        "only letters, digits, `.`, `_` and `-` are names on a forge"
    } else if text.eq_ignore_ascii_case(".git") {
        "it is the name of git's own directory"
    } else if ends_with_ignore_case(text, ".lock") {
        "it ends like one of git's lock files"
    } else {
        return Ok(());
    };
    Err(refuse(what, text, why))
}

fn refuse(what: &'static str, text: &str, why: &'static str) -> BadTarget {
    BadTarget::Unsafe {
        what,
        text: shown(text),
        why,
    }
}

fn ends_with_ignore_case(text: &str, suffix: &str) -> bool {
    text.len() >= suffix.len()
        && text.as_bytes()[text.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_github_allows_are_accepted() {
        for name in [
            "a",
            "A",
            ".github",
            "..a",
            "a..b",
            "...",
            "a.b.c",
            "_x_",
            "x-",
            "0",
            "git",
            "dot.gitx",
            &"x".repeat(100),
        ] {
            assert_eq!(check_owner(name), Ok(()), "{name}");
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_that_leave_their_place_or_look_like_something_else_are_refused() {
        for name in [
            "",
            ".",
            "..",
            "-x",
            "--upload-pack=x",
            "a/b",
            "a\\b",
            "a b",
            "a\n",
            "a\0",
            "\u{7f}",
            "\u{1b}[0m",
            "a:b",
            "a+b",
            "a~1",
            "ünïcode",
            "a\u{202e}b",
            "$(touch x)",
            "`x`",
            ".git",
            ".GIT",
            "config.lock",
            "X.LOCK",
            "%2e%2e",
            "*",
            &"x".repeat(101),
        ] {
            assert!(check_owner(name).is_err(), "{name:?}");
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["app.git", "app.GIT"] {
            assert_eq!(check_owner(name), Ok(()));
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
