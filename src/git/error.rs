//! How a git call can fail, and which code that is.
//!
//! Git says why in prose only. It is asked to say it untranslated, and the
//! phrases that distinguish one reaction from another are read here, in one
//! table; what is not in it is `internal`, which is tried again.

use crate::domain::code::FailureCode;

/// A git call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    /// The caller cancelled it; git and its children were ended.
    #[error("git {subcommand} was cancelled")]
    Cancelled {
        /// Which command.
        subcommand: String,
    },
    /// It failed.
    #[error("git {subcommand}: {message}")]
    Failed {
        /// Which command.
        subcommand: String,
        /// What that means.
        code: FailureCode,
        /// Git's exit status, if it came to that.
        status: Option<i32>,
        /// What git said, without secrets.
        message: String,
    },
}

impl GitError {
    /// Returns the code that decides what happens next.
    pub const fn code(&self) -> FailureCode {
        match self {
            Self::Cancelled { .. } => FailureCode::Internal,
            Self::Failed { code, .. } => *code,
        }
    }

    /// Returns whether the caller cancelled it.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled { .. })
    }

    /// Returns git's exit status, if git ran to an end.
    pub const fn status(&self) -> Option<i32> {
        match self {
            Self::Cancelled { .. } => None,
            Self::Failed { status, .. } => *status,
        }
    }
}

/// Phrases in lower case, the first that is found decides: a full disk shows
/// as a dozen other failures after it, and a refused login as a missing
/// repository.
const PHRASES: &[(FailureCode, &[&str])] = &[
    (
        FailureCode::DiskFull,
        &[
            "no space left on device",
            "disk quota exceeded",
            "out of disk",
        ],
    ),
    (
        FailureCode::RateLimited,
        &["returned error: 429", "rate limit", "too many requests"],
    ),
    (
        FailureCode::Slow,
        &[
            "operation too slow",
            "less than 1 bytes/sec",
            "bytes/sec transferred the last",
        ],
    ),
    (
        FailureCode::Auth,
        &[
            "authentication failed",
            "could not read username",
            "could not read password",
            "terminal prompts disabled",
            "permission denied (",
            "host key verification failed",
            "returned error: 401",
            "returned error: 403",
            "invalid username or",
        ],
    ),
    (
        FailureCode::RepositoryMissing,
        &[
            "repository not found",
            "does not appear to be a git repository",
            "returned error: 404",
            "' not found",
        ],
    ),
    (
        FailureCode::RefNotYet,
        &[
            "couldn't find remote ref",
            "not our ref",
            "unadvertised object",
            "no such remote ref",
            "no matching remote head",
        ],
    ),
    (
        FailureCode::BadInput,
        &[
            "invalid refspec",
            "not a valid ref name",
            "' not allowed",
            "unable to find remote helper",
            "is not a valid object name",
        ],
    ),
    (
        FailureCode::LockTimeout,
        &[
            ".lock': file exists",
            "another git process seems to be running",
            "could not lock config file",
            "cannot lock ref",
        ],
    ),
    (
        FailureCode::Corrupt,
        &[
            "is corrupt",
            "corrupt loose object",
            "is empty",
            "bad object",
            "missing blob",
            "missing tree",
            "unable to read tree",
            "unable to read sha1 file",
            "could not read object",
            "bad signature",
            "index file smaller than expected",
            "not a git repository",
            "bad tree object",
            "failed to unpack tree object",
            "inflate: data stream error",
            "does not point to a valid object",
            "did not send all necessary objects",
            "could not parse commit",
            "could not be parsed",
            "unable to parse",
            "cannot be accessed",
            "packed object",
            "missing object",
            "unable to find",
            "unable to unpack",
            "hash mismatch",
            "broken ref",
            "invalid sha1 pointer",
            "unresolved delta",
        ],
    ),
    (
        FailureCode::Network,
        &[
            "could not resolve",
            "failed to connect",
            "couldn't connect",
            "connection refused",
            "connection reset",
            "connection timed out",
            "connection closed",
            "network is unreachable",
            "no route to host",
            "unable to access",
            "early eof",
            "hung up unexpectedly",
            "rpc failed",
            "unexpected disconnect",
            "the remote end hung up",
            "could not read from remote repository",
            "bad pack header",
            "protocol error",
            "remote error",
            "unable to read current working directory",
        ],
    ),
];

/// Returns what git's diagnostics mean.
pub(super) fn classify(stderr: &str) -> FailureCode {
    let stderr = stderr.to_lowercase();
    PHRASES
        .iter()
        .find(|(_, phrases)| phrases.iter().any(|phrase| stderr.contains(phrase)))
        .map_or(FailureCode::Internal, |(code, _)| *code)
}

/// Longest message kept.
const MESSAGE_BYTES_MAX: usize = 2000;

/// Returns a text without what looks like a credential: user information in
/// URLs, tokens of the known forms, authorization headers.
pub fn without_secrets(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let lower = line.to_ascii_lowercase();
        if let Some(at) = lower.find("authorization:") {
            lines.push(format!("{}***", &line[..at + "authorization:".len()]));
            continue;
        }
        lines.push(without_tokens(&without_user_information(line)));
    }
    let mut text = lines.join("\n").trim().to_owned();
    if text.len() > MESSAGE_BYTES_MAX {
        let mut end = MESSAGE_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

fn without_user_information(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let authority = after
            .find(|c: char| c == '/' || c.is_whitespace() || c == '\'' || c == '"')
            .unwrap_or(after.len());
        match after[..authority].rfind('@') {
            Some(user) => {
                out.push_str("***");
                rest = &after[user..];
            }
            None => rest = after,
        }
    }
    out.push_str(rest);
    out
}

fn without_tokens(line: &str) -> String {
    const STARTS: [&str; 7] = [
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
    ];
    let mut line = line.to_owned();
    for start in STARTS {
        let mut from = 0;
        while let Some(at) = line[from..].find(start) {
            let at = from + at;
            let end = line[at + start.len()..]
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
                .map_or(line.len(), |n| at + start.len() + n);
            line.replace_range(at..end, "***");
            from = at + 3;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_becomes_a_code() {
        let table = [
            (
                "fatal: write error: No space left on device",
                FailureCode::DiskFull,
            ),
            (
                "fatal: couldn't find remote ref refs/pull/7/head",
                FailureCode::RefNotYet,
            ),
            (
                "fatal: remote error: upload-pack: not our ref 0123",
                FailureCode::RefNotYet,
            ),
            (
                "fatal: could not read Username for 'https://x': terminal prompts disabled",
                FailureCode::Auth,
            ),
            (
                "git@x: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                FailureCode::Auth,
            ),
            (
                "ERROR: Repository not found.\nfatal: Could not read from remote repository.",
                FailureCode::RepositoryMissing,
            ),
            (
                "fatal: unable to access 'https://x/': Could not resolve host: x",
                FailureCode::Network,
            ),
            (
                "fatal: unable to access 'https://x/': Operation too slow. Less than 1 bytes/sec transferred the last 3 seconds",
                FailureCode::Slow,
            ),
            (
                "fatal: unable to access 'https://x/': The requested URL returned error: 429",
                FailureCode::RateLimited,
            ),
            (
                "fatal: unable to access 'https://x/': The requested URL returned error: 503",
                FailureCode::Network,
            ),
            (
                "fatal: Unable to create '/x/index.lock': File exists.",
                FailureCode::LockTimeout,
            ),
            (
                "error: object file objects/ab/cd is empty",
                FailureCode::Corrupt,
            ),
            ("fatal: transport 'ext' not allowed", FailureCode::BadInput),
            ("something new", FailureCode::Internal),
        ];
        for (text, code) in table {
            assert_eq!(classify(text), code, "{text}");
        }
    }

    #[test]
    fn no_credential_survives_in_a_message() {
        let text = "fatal: https://x:ghs_CANARY@h/o/r and 'https://CANARY@h/' ghp_CANARY, \
                    github_pat_CANARY_1\n> Authorization: Bearer CANARY\nkept git@h:o/r";
        let clean = without_secrets(text);
        assert!(!clean.contains("CANARY"), "{clean}");
        assert!(
            clean.contains("https://***@h/o/r") && clean.contains("git@h:o/r"),
            "{clean}"
        );
    }
}
