//! Why something failed, as the stable codes that programs and operators see.
//!
//! Each code is retryable or not, once, in [`FailureCode::retry`]: the code
//! decides what the dispatcher does next, never the message beside it.

use serde::{Deserialize, Serialize};

/// Whether the same attempt could succeed later with nothing changed by a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Taken again, with a growing wait, until the attempts are used up.
    Later,
    /// Parked at once; a person or a new event has to change something.
    Never,
}

macro_rules! failure_codes {
    ($($variant:ident = $text:literal, $retry:ident, $doc:literal;)*) => {
        /// A failure code of the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FailureCode {
            $(#[doc = $doc] $variant,)*
        }

        impl FailureCode {
            /// Every code, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the code as it is written in the event log and the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns whether the same attempt could succeed later.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry,)* }
            }

            /// Returns what the code means, as one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }

            /// Returns the code of this name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

failure_codes! {
    BaseUnresolvable = "base_unresolvable", Never, "The commit or branch to start from cannot be resolved.";
    RefNotYet = "ref_not_yet", Later, "The remote does not offer the pull request's head yet.";
    RefGone = "ref_gone", Never, "The pull request's head existed and is gone.";
    CommitMismatch = "commit_mismatch", Later, "The remote gave another commit than the event named.";
    UnbornHead = "unborn_head", Never, "The repository has no commit yet.";
    Auth = "auth", Never, "The remote refused the credentials, or none were found.";
    Network = "network", Later, "The remote could not be reached.";
    Slow = "slow", Later, "The remote sent too little for too long.";
    RateLimited = "rate_limited", Later, "The remote asked to wait.";
    RepositoryMissing = "repository_missing", Never, "The remote has no such repository, or hides it.";
    DiskFull = "disk_full", Later, "No space or no inodes were left while writing.";
    DiskLow = "disk_low", Later, "Less than the configured free space is left; nothing was begun.";
    Quota = "quota", Later, "As many checkouts as allowed exist already.";
    Corrupt = "corrupt", Later, "A repository of ours is damaged.";
    LockTimeout = "lock_timeout", Later, "A lock was held by another process for too long.";
    PathOccupied = "path_occupied", Never, "Something that is not ours stands where the checkout belongs.";
    BadInput = "bad_input", Never, "A name, ref or commit is not acceptable.";
    SetupFailed = "setup_failed", Never, "The set-up command failed.";
    LfsUnavailable = "lfs_unavailable", Never, "git-lfs is needed and not installed.";
    GitMissing = "git_missing", Later, "The git program cannot be started.";
    GitTooOld = "git_too_old", Never, "The git program is older than the oldest supported version.";
    Timeout = "timeout", Later, "The wall-clock limit was reached.";
    Internal = "internal", Later, "Something unexpected; the message says what.";
    BadPayload = "bad_payload", Never, "The delivery is authentic but was not understood.";
    SessionStartFailed = "session_start_failed", Later, "The session's command could not be started.";
    TemplateFailed = "template_failed", Never, "The prompt's template could not be rendered.";
    Interrupted = "interrupted", Never, "The daemon died five times in a row while working on this delivery alone.";
}

impl std::fmt::Display for FailureCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_the_name_it_is_written_with() {
        for code in FailureCode::ALL {
            assert_eq!(FailureCode::from_name(code.as_str()), Some(*code));
            assert_eq!(
                serde_json::to_value(code).expect("a unit variant serialises"),
                serde_json::Value::from(code.as_str())
            );
        }
    }
}
