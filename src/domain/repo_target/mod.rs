//! Where a repository is: host, owner, name, and the URL that git gets.
//!
//! What a payload says about a repository is text that somebody else chose.
//! Here it becomes a [`RepoTarget`] whose every part is safe as a path segment
//! and as a part of an argument, or it is refused.
//!
//! # Invariants
//!
//! 1. [`RepoTarget::clone_url`] is made from configuration, host, owner and
//!    name. No URL of a payload ever reaches git; a payload's URL only names a
//!    host.
//! 2. A host is compared as a whole: `evil-github.com` is not `github.com`.
//! 3. Owner and name are `[A-Za-z0-9._-]`, not `.` or `..`, begin with no dash,
//!    and fit in a file name, so that [`RepoTarget::rel_path`] stays below the
//!    root.

mod git_name;
mod host;
mod payload;
mod segment;
mod template;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use git_name::{BadBranch, BadCommit, check_branch, check_commit};
pub use host::{CloneProtocol, HostEntry, HostPolicy, bare_host, check_host, is_loopback};
pub use payload::{UrlTarget, parse_url, repo_target_from_payload};
pub use segment::{SEGMENT_BYTES_MAX, check_name, check_owner};
pub use template::{BadTemplate, check_template, scheme};

use crate::domain::code::FailureCode;

/// A repository on a host, and how git reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RepoTarget {
    /// Host, lower case; `host:port` if it has one.
    pub host: String,
    /// Owner.
    pub owner: String,
    /// Name.
    pub repo: String,
    /// The URL that git gets; derived from configuration, never the payload's.
    pub clone_url: String,
}

impl RepoTarget {
    /// Returns `host/owner/repo`, with the host as it stands in paths.
    pub fn rel_path(&self) -> PathBuf {
        [self.host_dir().as_str(), &self.owner, &self.repo]
            .iter()
            .collect()
    }

    /// Returns the host as it stands in paths: `host`, or `host+port`.
    pub fn host_dir(&self) -> String {
        host_dir(&self.host)
    }
}

/// Returns a host as it stands in paths: a colon would end a path in several
/// programs' search lists, so the port follows a plus sign.
pub fn host_dir(host: &str) -> String {
    host.replace(':', "+")
}

/// Why a repository is not one that can be worked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// The host is none of the configured ones; the delivery is dropped.
    #[error("host `{host}` is neither workspace.defaultHost nor a key of workspace.hosts")]
    NotServed {
        /// The host, cut and printable.
        host: String,
    },
    /// A name that must not become a path or an argument; the delivery is parked.
    #[error("`{text}` cannot be used as {what}: {why}")]
    Unsafe {
        /// What it was to be: a host, an owner, a repository name.
        what: &'static str,
        /// The text, cut and printable.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl BadTarget {
    /// Returns the failure code, or none where the delivery is only dropped as
    /// `repository-not-allowed`.
    pub const fn code(&self) -> Option<FailureCode> {
        match self {
            Self::NotServed { .. } => None,
            Self::Unsafe { .. } => Some(FailureCode::BadInput),
        }
    }
}

/// How much of a refused text is shown.
const SHOWN_CHARS_MAX: usize = 80;

/// Returns the beginning of a hostile text with control characters escaped, fit
/// for a message.
pub(crate) fn shown(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_stands_behind_a_plus_sign_in_paths() {
        let target = RepoTarget {
            host: "127.0.0.1:8443".into(),
            owner: "acme".into(),
            repo: ".github".into(),
            clone_url: String::new(),
        };
        assert_eq!(
            target.rel_path(),
            PathBuf::from("127.0.0.1+8443/acme/.github")
        );
    }

    #[test]
    fn a_hostile_text_is_shown_cut_and_printable() {
        let text = shown(&format!("\u{1b}[31m\n{}", "x".repeat(500)));
        assert!(text.starts_with("\\u{1b}[31m\\n"), "{text}");
        assert!(text.chars().count() < 120, "{text}");
    }
}
