//! Globs over repositories and branches.

use globset::{GlobBuilder, GlobMatcher};

/// The text is not a glob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a glob: {why}")]
pub struct BadPattern {
    text: String,
    why: String,
}

/// A glob. `/` is matched by nothing but itself, except that a lone `*` matches
/// everything; `**` spans slashes.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    /// None for the lone `*`.
    matcher: Option<GlobMatcher>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// Parses a glob over `owner/name`, without regard to case, as forges
    /// compare names.
    ///
    /// # Errors
    ///
    /// Returns [`BadPattern`] if it is no glob.
    pub fn repository(text: &str) -> Result<Self, BadPattern> {
        Self::parse(text, true)
    }

    /// Parses a glob over branch names, in which case counts, as to git.
    ///
    /// # Errors
    ///
    /// Returns [`BadPattern`] if it is no glob.
    pub fn branch(text: &str) -> Result<Self, BadPattern> {
        Self::parse(text, false)
    }

    fn parse(text: &str, ignore_case: bool) -> Result<Self, BadPattern> {
        let bad = |why: String| BadPattern {
            text: text.to_owned(),
            why,
        };
        if text.is_empty() {
            return Err(bad("it is empty and would match nothing".to_owned()));
        }
        let matcher = if text == "*" {
            None
        } else {
            let glob = GlobBuilder::new(text)
                .literal_separator(true)
                .case_insensitive(ignore_case)
                .build()
                .map_err(|error| bad(error.kind().to_string()))?;
            Some(glob.compile_matcher())
        };
        Ok(Self {
            text: text.to_owned(),
            matcher,
        })
    }

    /// Returns whether the name is one that is meant.
    pub fn is_match(&self, name: &str) -> bool {
        self.matcher
            .as_ref()
            .is_none_or(|matcher| matcher.is_match(name))
    }

    /// Returns the glob as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_is_literal_except_in_a_lone_star() {
        let matches = |glob: &str, name: &str| {
            let glob = Pattern::repository(glob).expect("a glob");
            glob.is_match(name)
        };
        assert!(matches("*", "acme/app"));
        assert!(matches("acme/*", "acme/app") && matches("acme/*", "ACME/.github"));
        assert!(matches("*/app", "acme/app") && matches("Acme/App", "acme/app"));
        assert!(matches("acme/{app,web}", "acme/web") && matches("**", "acme/app"));
        assert!(matches("acme/a?p", "acme/app") && matches("acme/[a-c]*", "acme/app"));
        assert!(!matches("acme*", "acme/app"));
        assert!(!matches("acme", "acme/app"));
        assert!(!matches("*p", "acme/app"));
        assert!(!matches("acme/*", "acme-evil/app"));
        assert!(!matches("acme/*", "evil/acme/app"));
    }

    #[test]
    fn case_counts_in_branches_and_not_in_repositories() {
        let branch = Pattern::branch("feature/*").expect("a glob");
        assert!(branch.is_match("feature/x"));
        assert!(!branch.is_match("Feature/x"));
        assert!(!branch.is_match("feature/x/y"));
        assert!(Pattern::branch("*").expect("a glob").is_match("a/b"));
    }

    #[test]
    fn what_is_no_glob_is_refused_with_the_reason() {
        for text in ["", "[", "a/{b", "[z-a]"] {
            let error = Pattern::repository(text).expect_err("no glob").to_string();
            assert!(error.contains("is not a glob: "), "{error}");
        }
    }
}
