//! Which files go into an archive, and which git holds already.
//!
//! A tracked file that the closest look found unchanged is its blob, to the
//! byte, unless attributes could have converted it or the index hides it from
//! that look: then its content is compared. Ignored files that can be made again
//! are left out; what is nested, or in a submodule, goes whole.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use std::os::unix::ffi::OsStrExt;

use super::listing::{Found, Kind};
use crate::workspace::probe::index::Entry as IndexEntry;
use crate::workspace::probe::regenerable::Regenerable;
use crate::workspace::probe::status::{self, Entry as StatusEntry};

/// What is done about one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    /// It can be made again.
    Leave,
    /// It is this blob.
    Blob(&'a str),
    /// It is this blob, if its content says so.
    Compare(&'a str),
    /// Its content is archived.
    Take,
}

/// What the choices follow from.
pub(super) struct Chooser<'a> {
    tracked: HashMap<&'a [u8], &'a IndexEntry>,
    changed: HashSet<&'a [u8]>,
    /// Files and directories; without a slash at the end.
    ignored: HashSet<&'a [u8]>,
    whole: HashSet<&'a [u8]>,
    regenerable: &'a Regenerable,
    is_doubtful: bool,
}

const ATTRIBUTES: &[u8] = b".gitattributes";

impl<'a> Chooser<'a> {
    /// `whole` are nested repositories and submodules.
    pub fn new(
        index: &'a [IndexEntry],
        status: &'a [StatusEntry],
        whole: &'a [PathBuf],
        regenerable: &'a Regenerable,
        found: &[Found],
        is_split: bool,
    ) -> Self {
        let of_kind = |kind: status::Kind| {
            status
                .iter()
                .filter(move |entry| entry.kind == kind)
                .map(|entry| entry.path.as_slice())
        };
        let is_attributes =
            |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(ATTRIBUTES);
        Self {
            tracked: index
                .iter()
                .filter(|entry| entry.stage == 0 && !entry.is_submodule())
                .map(|entry| (entry.path.as_slice(), entry))
                .collect(),
            changed: of_kind(status::Kind::Changed).collect(),
            ignored: of_kind(status::Kind::Ignored)
                .map(|path| path.strip_suffix(b"/").unwrap_or(path))
                .collect(),
            whole: whole
                .iter()
                .map(|path| path.as_os_str().as_bytes())
                .collect(),
            regenerable,
            is_doubtful: is_split
                || index.iter().any(|entry| is_attributes(&entry.path))
                || found.iter().any(|one| is_attributes(&one.path)),
        }
    }

    /// Chooses for a file.
    pub fn file(&self, path: &[u8]) -> Choice<'a> {
        if self.is_in_whole(path) {
            return Choice::Take;
        }
        match self.tracked.get(path) {
            Some(entry) if self.is_doubtful || entry.is_hidden() || self.changed.contains(path) => {
                Choice::Compare(&entry.id)
            }
            Some(entry) => Choice::Blob(&entry.id),
            None if self.can_be_made_again(path) => Choice::Leave,
            None => Choice::Take,
        }
    }

    /// Whether a fifo, socket or device may be left out.
    pub fn leaves_special(&self, path: &[u8]) -> bool {
        self.regenerable.matches(path)
    }

    /// Leaves out of a listing what can be made again, but for directories that
    /// something else is in.
    pub fn without_regenerable(&self, found: Vec<Found>) -> Vec<Found> {
        let mut needed: HashSet<Vec<u8>> = HashSet::new();
        let mut kept: Vec<Found> = Vec::with_capacity(found.len());
        // Backwards: what is in a directory comes before it.
        for one in found.into_iter().rev() {
            let stays = match &one.kind {
                Kind::Directory => {
                    let mut path = one.path.clone();
                    path.push(b'/');
                    one.path.is_empty()
                        || needed.contains(&one.path)
                        || self.is_in_whole(&one.path)
                        || !self.can_be_made_again(&path)
                }
                Kind::File | Kind::Link(_) => self.file(&one.path) != Choice::Leave,
                Kind::Special => !self.leaves_special(&one.path),
            };
            if stays {
                if let Some(at) = one.path.iter().rposition(|byte| *byte == b'/') {
                    needed.insert(one.path[..at].to_vec());
                }
                kept.push(one);
            }
        }
        kept.reverse();
        kept
    }

    fn can_be_made_again(&self, path: &[u8]) -> bool {
        prefixes(path).any(|prefix| self.ignored.contains(prefix)) && self.regenerable.matches(path)
    }

    fn is_in_whole(&self, path: &[u8]) -> bool {
        !self.whole.is_empty() && prefixes(path).any(|prefix| self.whole.contains(prefix))
    }
}

/// Returns a path and everything above it, without slashes at the end.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    trimmed
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| &trimmed[..at])
        .chain([trimmed])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracked(path: &str, skipped: bool) -> IndexEntry {
        IndexEntry {
            path: path.into(),
            mode: 0o100_644,
            id: format!("id of {path}"),
            stage: 0,
            assumed: false,
            skipped,
        }
    }

    fn told(kind: status::Kind, path: &str) -> StatusEntry {
        StatusEntry {
            kind,
            path: path.into(),
        }
    }

    fn found(path: &str, kind: Kind) -> Found {
        Found {
            path: path.into(),
            kind,
            mode: 0o644,
            mtime: (0, 0),
            bytes: 0,
        }
    }

    #[test]
    fn only_what_the_look_proved_equal_is_taken_for_its_blob() {
        let index = [
            tracked("same", false),
            tracked("edited", false),
            tracked("hidden", true),
            tracked("target/forced", false),
        ];
        let status = [
            told(status::Kind::Changed, "edited"),
            told(status::Kind::Untracked, "new"),
            told(status::Kind::Untracked, "x.pyc"),
            told(status::Kind::Ignored, "target/"),
            told(status::Kind::Ignored, ".env"),
            told(status::Kind::Ignored, "y.pyc"),
        ];
        let whole = [PathBuf::from("target/nested")];
        let regenerable = Regenerable::parse(&["target/", "*.pyc"]).expect("patterns");
        let chooser = |found: &[Found]| {
            let chooser = Chooser::new(&index, &status, &whole, &regenerable, found, false);
            [
                "same",
                "edited",
                "hidden",
                "new",
                "x.pyc",
                "y.pyc",
                ".env",
                "target/f",
                "target/forced",
                "target/nested/f",
            ]
            .map(|path| chooser.file(path.as_bytes()))
        };
        let expected = [
            Choice::Blob("id of same"),
            Choice::Compare("id of edited"),
            Choice::Compare("id of hidden"),
            Choice::Take,
            Choice::Take,
            Choice::Leave,
            Choice::Take,
            Choice::Leave,
            Choice::Blob("id of target/forced"),
            Choice::Take,
        ];
        assert_eq!(chooser(&[]), expected);
        let converted = chooser(&[found("d/.gitattributes", Kind::File)]);
        assert_eq!(converted[0], Choice::Compare("id of same"));
    }

    #[test]
    fn a_directory_stays_if_anything_in_it_does() {
        let status = [told(status::Kind::Ignored, "target/")];
        let whole = [PathBuf::from("target/a/nested")];
        let regenerable = Regenerable::parse(&["target/"]).expect("patterns");
        let all = vec![
            found("", Kind::Directory),
            found("empty", Kind::Directory),
            found("target", Kind::Directory),
            found("target/a", Kind::Directory),
            found("target/a/nested", Kind::Directory),
            found("target/a/nested/f", Kind::File),
            found("target/b", Kind::Directory),
            found("target/b/f", Kind::File),
        ];
        let chooser = Chooser::new(&[], &status, &whole, &regenerable, &all, false);
        let kept: Vec<String> = chooser
            .without_regenerable(all.clone())
            .into_iter()
            .map(|one| String::from_utf8_lossy(&one.path).into_owned())
            .collect();
        assert_eq!(
            kept,
            [
                "",
                "empty",
                "target",
                "target/a",
                "target/a/nested",
                "target/a/nested/f"
            ]
        );
    }
}
