//! What an issue or a pull request is called: identity, reference, slug.
//!
//! Identity is host, repository id and number; the name is only what people
//! say. The reference is the name as first seen, the slug is what stands in
//! paths.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The kinds of forge whose events are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forge {
    /// github.com, or a GitHub Enterprise Server.
    Github,
}

impl Forge {
    /// Returns the word before the colon of a reference.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Github => "github",
        }
    }
}

/// The host whose name is left out of references.
pub const HOST_OF_SHORT_REFERENCES: &str = "github.com";

/// Whether a work item is an issue or a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// An issue.
    Issue,
    /// A pull request.
    PullRequest,
}

impl ItemKind {
    /// Returns the kind as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::PullRequest => "pull_request",
        }
    }
}

/// A work item as the forge names it at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ItemName {
    /// Which kind of forge.
    pub forge: Forge,
    /// Host, lower case, with a port only if it is not the scheme's own.
    pub host: String,
    /// Owner of the repository, as written by the forge.
    pub owner: String,
    /// Name of the repository, as written by the forge.
    pub repo: String,
    /// The forge's id of the repository, if the payload had one.
    pub repo_id: Option<u64>,
    /// Number of the issue or pull request.
    pub number: u64,
}

impl ItemName {
    /// Returns the key that says whether two names are the same item: by
    /// repository id where it is known, else by name without regard to case.
    pub fn key(&self) -> String {
        let forge = self.forge.as_str();
        match self.repo_id {
            Some(id) => format!("{forge}|{}|{id}|{}", self.host, self.number),
            None => self.key_by_name(),
        }
    }

    /// Returns the key by name alone, under which an item is found while no id
    /// is known.
    pub fn key_by_name(&self) -> String {
        format!(
            "{}|{}|{}/{}|{}",
            self.forge.as_str(),
            self.host,
            self.owner.to_lowercase(),
            self.repo.to_lowercase(),
            self.number
        )
    }

    /// Returns the reference: `github:owner/repo#15`, on another host
    /// `github:ghe.example.com/owner/repo#15`.
    pub fn reference(&self) -> String {
        let Self {
            forge,
            host,
            owner,
            repo,
            number,
            ..
        } = self;
        let forge = forge.as_str();
        if host == HOST_OF_SHORT_REFERENCES {
            format!("{forge}:{owner}/{repo}#{number}")
        } else {
            format!("{forge}:{host}/{owner}/{repo}#{number}")
        }
    }

    /// Returns the slug: lower case, `[a-z0-9-]`, at most [`SLUG_BYTES_MAX`]
    /// bytes, ending in 8 hex digits of a SHA-256 over host, repository id (name
    /// while no id is known) and number.
    pub fn slug(&self) -> String {
        let digest = Sha256::digest(self.key().as_bytes());
        let tail = format!("-{}-{}", self.number, hex::encode(&digest[..4]));
        let mut head = String::new();
        for c in format!("{}-{}", self.owner, self.repo)
            .to_lowercase()
            .chars()
        {
            let c = if c.is_ascii_lowercase() || c.is_ascii_digit() {
                c
            } else {
                '-'
            };
            if c == '-' && (head.is_empty() || head.ends_with('-')) {
                continue;
            }
            head.push(c);
        }
        head.truncate(SLUG_BYTES_MAX - tail.len());
        let head = head.trim_end_matches('-');
        if head.is_empty() {
            format!("item{tail}")
        } else {
            format!("{head}{tail}")
        }
    }
}

/// The longest slug; with a lease's suffix it stays a portable file name.
pub const SLUG_BYTES_MAX: usize = 60;

/// How a person or a program names an item: reference, short reference, URL or
/// slug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemQuery {
    /// A slug, as it stands in paths.
    Slug(String),
    /// A name, without regard to case; `host` is absent in the short form.
    Name {
        /// Host, if one was given.
        host: Option<String>,
        /// Owner of the repository.
        owner: String,
        /// Name of the repository.
        repo: String,
        /// Number of the issue or pull request.
        number: u64,
    },
}

/// The text names no work item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` names no work item; write owner/repo#15, github:owner/repo#15, the address of the issue or pull request, or its slug"
)]
pub struct BadReference {
    text: String,
}

/// Forges count from one.
fn parse_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

/// Parses what commands take as REF.
///
/// # Errors
///
/// Returns [`BadReference`] if the text has none of the four forms.
pub fn parse_item_query(text: &str) -> Result<ItemQuery, BadReference> {
    let bad = || BadReference {
        text: text.to_owned(),
    };
    let trimmed = text.trim();
    if let Some(rest) = trimmed
        .strip_prefix("https://")
        .or_else(|| trimmed.strip_prefix("http://"))
    {
        let rest = rest.split(['?', '#']).next().unwrap_or(rest);
        let parts: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
        let [host, owner, repo, "issues" | "pull" | "pulls", number, ..] = parts.as_slice() else {
            return Err(bad());
        };
        return Ok(ItemQuery::Name {
            host: Some(host.to_lowercase()),
            owner: (*owner).to_owned(),
            repo: (*repo).to_owned(),
            number: parse_number(number).ok_or_else(bad)?,
        });
    }
    let Some((name, number)) = trimmed.split_once('#') else {
        let is_slug = !trimmed.is_empty()
            && trimmed.len() <= SLUG_BYTES_MAX
            && trimmed
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && trimmed.contains('-');
        return if is_slug {
            Ok(ItemQuery::Slug(trimmed.to_owned()))
        } else {
            Err(bad())
        };
    };
    let number = parse_number(number).ok_or_else(bad)?;
    let name = name.strip_prefix("github:").unwrap_or(name);
    let parts: Vec<&str> = name.split('/').collect();
    let (host, owner, repo) = match parts.as_slice() {
        [owner, repo] => (None, owner, repo),
        [host, owner, repo] => (Some(host.to_lowercase()), owner, repo),
        _ => return Err(bad()),
    };
    if owner.is_empty() || repo.is_empty() {
        return Err(bad());
    }
    Ok(ItemQuery::Name {
        host,
        owner: (*owner).to_owned(),
        repo: (*repo).to_owned(),
        number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(owner: &str, repo: &str, repo_id: Option<u64>, number: u64) -> ItemName {
        ItemName {
            forge: Forge::Github,
            host: "github.com".into(),
            owner: owner.into(),
            repo: repo.into(),
            repo_id,
            number,
        }
    }

    #[test]
    fn names_that_look_alike_get_different_slugs() {
        let one = name("a-b", "c", None, 1).slug();
        let other = name("a", "b-c", None, 1).slug();
        assert_ne!(one, other);
        assert!(one.starts_with("a-b-c-1-") && other.starts_with("a-b-c-1-"));
    }

    #[test]
    fn a_slug_is_short_and_plain_whatever_the_name() {
        for repo in [&"x".repeat(300), "..", ".github", "ünïcode", "A_B.c", "-"] {
            let slug = name("Owner", repo, Some(7), u64::MAX).slug();
            assert!(slug.len() <= SLUG_BYTES_MAX, "{slug}");
            assert!(
                slug.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{slug}"
            );
            assert!(!slug.starts_with('-'), "{slug}");
        }
    }

    #[test]
    fn names_that_differ_in_case_are_one_item() {
        assert_eq!(
            name("Acme", "App", None, 1).key(),
            name("acme", "app", None, 1).key()
        );
    }

    #[test]
    fn the_host_stands_in_a_reference_unless_it_is_github_com() {
        let mut it = name("o", "r", None, 15);
        assert_eq!(it.reference(), "github:o/r#15");
        it.host = "ghe.example.com".into();
        assert_eq!(it.reference(), "github:ghe.example.com/o/r#15");
    }

    #[test]
    fn every_form_of_reference_is_understood() {
        let short = ItemQuery::Name {
            host: None,
            owner: "o".into(),
            repo: ".github".into(),
            number: 15,
        };
        assert_eq!(parse_item_query("o/.github#15"), Ok(short.clone()));
        assert_eq!(parse_item_query("github:o/.github#15"), Ok(short));
        let full = ItemQuery::Name {
            host: Some("ghe.example.com".into()),
            owner: "o".into(),
            repo: "r".into(),
            number: 15,
        };
        assert_eq!(
            parse_item_query("github:ghe.example.com/o/r#15"),
            Ok(full.clone())
        );
        assert_eq!(
            parse_item_query("https://GHE.example.com/o/r/pull/15/files"),
            Ok(full)
        );
        assert_eq!(
            parse_item_query("o-r-15-0a1b2c3d"),
            Ok(ItemQuery::Slug("o-r-15-0a1b2c3d".into()))
        );
        for bad in [
            "",
            "o/r",
            "o/r#",
            "o/r#x",
            "#1",
            "a/b/c/d#1",
            "https://github.com/o/r",
        ] {
            assert!(parse_item_query(bad).is_err(), "{bad}");
        }
    }
}
