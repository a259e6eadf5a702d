//! What a checkout's files say about itself, read in process.
//!
//! An agent can write all of it. What is read here decides only whether a
//! checkout is left alone, never whether something may be removed.

use std::fs;
use std::path::Path;

use super::identity::{Located, read_line};

/// Where HEAD is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadState {
    /// The full name of the branch it names; none when detached.
    pub branch: Option<String>,
    /// The commit; none when the branch has none.
    pub commit: Option<String>,
}

/// Reads HEAD of a checkout.
pub fn head_of(located: &Located) -> Result<HeadState, String> {
    let line = read_line(&located.admin.join("HEAD"))?;
    match line.strip_prefix("ref: ") {
        None => Ok(HeadState {
            branch: None,
            commit: is_id(&line).then_some(line),
        }),
        Some(name) => Ok(HeadState {
            branch: Some(name.to_owned()),
            commit: ref_of(&located.common, name),
        }),
    }
}

/// Reads what a ref points at, loose or packed.
fn ref_of(common: &Path, name: &str) -> Option<String> {
    let fits = name.starts_with("refs/")
        && !name
            .split('/')
            .any(|part| part.is_empty() || part == ".." || part == ".");
    if !fits {
        return None;
    }
    if let Ok(line) = read_line(&common.join(name)) {
        return is_id(&line).then_some(line);
    }
    let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
    packed.lines().find_map(|line| {
        let (id, found) = line.split_once(' ')?;
        (found == name && is_id(id)).then(|| id.to_owned())
    })
}

/// Whether a commit is HEAD of a checkout, or was.
pub fn knows_commit(located: &Located, commit: &str) -> bool {
    if !is_id(commit) {
        return false;
    }
    let is_head = head_of(located).is_ok_and(|head| head.commit.as_deref() == Some(commit));
    is_head || reflog(located).iter().any(|id| id == commit)
}

/// Returns the commits that HEAD has been at, oldest first.
pub fn reflog(located: &Located) -> Vec<String> {
    /// Longer logs are read from their end.
    const BYTES_MAX: usize = 16 * 1024 * 1024;
    let Ok(bytes) = fs::read(located.admin.join("logs/HEAD")) else {
        return Vec::new();
    };
    let tail = &bytes[bytes.len().saturating_sub(BYTES_MAX)..];
    String::from_utf8_lossy(tail)
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|id| is_id(id))
        .map(str::to_owned)
        .collect()
}

fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_reflog_are_read_loose_and_packed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (a, b, c) = ("a".repeat(40), "b".repeat(40), "c".repeat(40));
        let located = Located {
            path: dir.path().into(),
            admin: dir.path().join("admin"),
            common: dir.path().join("common"),
        };
        fs::create_dir_all(located.admin.join("logs")).expect("made");
        fs::create_dir_all(located.common.join("refs/heads")).expect("made");
        let put = |path: std::path::PathBuf, text: String| fs::write(path, text).expect("written");
        put(located.admin.join("HEAD"), "ref: refs/heads/x\n".into());
        put(
            located.common.join("packed-refs"),
            format!("# pack\n{a} refs/heads/x\n"),
        );
        assert_eq!(head_of(&located).expect("read").commit, Some(a.clone()));
        put(located.common.join("refs/heads/x"), format!("{b}\n"));
        assert_eq!(head_of(&located).expect("read").commit, Some(b.clone()));
        put(
            located.admin.join("logs/HEAD"),
            format!("{a} {c} A <a@b> 1 +0000\tcommit: m\n"),
        );
        assert!(knows_commit(&located, &b) && knows_commit(&located, &c));
        assert!(!knows_commit(&located, &a) && !knows_commit(&located, "c"));
        put(
            located.admin.join("HEAD"),
            "ref: refs/../../escape\n".into(),
        );
        assert_eq!(head_of(&located).expect("read").commit, None);
    }
}
