//! Which ignored files may be thrown away: those that a pattern of
//! `removal.regenerable` names.
//!
//! Patterns are gitignore's: without a slash they match a name at any depth,
//! with one they are anchored at the top, a trailing slash matches directories
//! only, a later `!` takes back. What is below a matching directory matches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// A pattern that is not one.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a pattern: {why}")]
pub struct BadPattern {
    /// The text.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

/// Patterns of what can be made again.
#[derive(Clone, Debug, Default)]
pub struct Regenerable {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    glob: GlobMatcher,
    anchored: bool,
    directory_only: bool,
    takes_back: bool,
}

impl Regenerable {
    /// Reads patterns.
    ///
    /// # Errors
    ///
    /// Names the first pattern that is none.
    pub fn parse<S: AsRef<str>>(patterns: &[S]) -> Result<Self, BadPattern> {
        let patterns = patterns
            .iter()
            .map(|text| Pattern::parse(text.as_ref()))
            .collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Returns whether `path`, relative to the checkout, may be thrown away; a
    /// trailing slash says that it is a directory.
    pub fn matches(&self, path: &[u8]) -> bool {
        let is_directory = path.ends_with(b"/");
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let mut here = PathBuf::new();
        let parts: Vec<&[u8]> = trimmed.split(|byte| *byte == b'/').collect();
        for (n, part) in parts.iter().enumerate() {
            here.push(OsStr::from_bytes(part));
            let last = n + 1 == parts.len();
            if self.decides(&here, OsStr::from_bytes(part), is_directory || !last) {
                return true;
            }
        }
        false
    }

    fn decides(&self, path: &Path, name: &OsStr, is_directory: bool) -> bool {
        self.patterns
            .iter()
            .rev()
            .find(|pattern| {
                (is_directory || !pattern.directory_only)
                    && if pattern.anchored {
                        pattern.glob.is_match(path)
                    } else {
                        pattern.glob.is_match(name)
                    }
            })
            .is_some_and(|pattern| !pattern.takes_back)
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, BadPattern> {
        let bad = |why: String| BadPattern {
            pattern: text.to_owned(),
            why,
        };
        let (takes_back, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (directory_only, rest) = match rest.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let anchored = rest.contains('/');
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        if rest.is_empty() || rest.starts_with('/') {
            return Err(bad("it names nothing".to_owned()));
        }
        let glob = GlobBuilder::new(rest)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| bad(error.kind().to_string()))?
            .compile_matcher();
        Ok(Self {
            glob,
            anchored,
            directory_only,
            takes_back,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_gitignore() {
        for (patterns, path, expected) in [
            (&["node_modules/"][..], "node_modules/", true),
            (&["node_modules/"], "web/node_modules/", true),
            (
                &["node_modules/"],
                "web/node_modules/left-pad/index.js",
                true,
            ),
            (&["node_modules/"], "node_modules", false),
            (&["node_modules/"], "my_node_modules/", false),
            (&["*.pyc"], "a/b/c.pyc", true),
            (&["*.pyc"], "a/b/c.py", false),
            (&["*.pyc"], ".env", false),
            (&["/out"], "out", true),
            (&["/out"], "a/out", false),
            (&["a/*/c/"], "a/b/c/", true),
            (&["a/*/c/"], "a/b/d/c/", false),
            (&["a/**/c"], "a/b/d/c", true),
            (&["*.log", "!keep.log"], "keep.log", false),
            (&["*.log", "!keep.log"], "x/other.log", true),
            (&[".DS_Store"], "x/.DS_Store", true),
            (&[], "anything", false),
        ] {
            let all = Regenerable::parse(patterns).expect("these are patterns");
            assert_eq!(
                all.matches(path.as_bytes()),
                expected,
                "{patterns:?} {path}"
            );
        }
    }

    #[test]
    fn a_pattern_that_names_nothing_or_everything_by_mistake_is_refused() {
        for text in ["", "/", "!", "//", "a[", "!/"] {
            assert!(Regenerable::parse(&[text]).is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_that_are_not_unicode_are_matched_as_bytes() {
        let all = Regenerable::parse(&["*.pyc"]).expect("a pattern");
        assert!(all.matches(b"a/\xff.pyc"));
        assert!(!all.matches(b"a/\xff.env"));
    }
}
