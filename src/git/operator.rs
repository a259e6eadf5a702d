//! What is taken over from the operator's own git configuration.
//!
//! The daemon's git reads one file, which is made at start from the operator's
//! system and global configuration through an allow-list: how to log in, how to
//! reach the network, which URL stands for which, and who they are. What could
//! run a program on a repository's behalf (filters, hooks, aliases, drivers) is
//! not taken.

use std::ffi::OsString;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::{Git, GitError};
use crate::domain::code::FailureCode;
use crate::files;

/// Whether a key, as `git config --list` prints it, is taken over.
fn is_taken(key: &str) -> bool {
    let (Some((section, _)), Some((_, name))) = (key.split_once('.'), key.rsplit_once('.')) else {
        return false;
    };
    match section {
        "credential" | "user" => true,
        "url" => matches!(name, "insteadof"),
        "core" => key == "core.sshcommand",
        "http" => matches!(
            name,
            "proxy"
                | "proxyauthmethod"
                | "proxysslcert"
                | "proxysslkey"
                | "proxysslcainfo"
                | "sslverify"
                | "sslcainfo"
                | "sslcapath"
                | "sslcert"
                | "sslkey"
                | "sslversion"
                | "sslbackend"
                | "schannelusesslcainfo"
                | "version"
                | "cookiefile"
                | "extraheader"
                | "emptyauth"
        ),
        _ => false,
    }
}

/// Writes `to` from the operator's configuration and returns the keys that were
/// taken.
///
/// `environment` is the daemon's own: it says where the operator's files are.
///
/// # Errors
///
/// `git_missing` if git cannot be started, `bad_input` if the operator's
/// configuration cannot be read by git.
pub async fn operator_config(
    git: &Git,
    environment: &[(OsString, OsString)],
    to: &Path,
    cancel: &CancellationToken,
) -> Result<Vec<String>, GitError> {
    let mut text = String::from(
        "# Made by Innkeeper at start from the operator's configuration; changes are lost.\n",
    );
    let mut taken = Vec::new();
    for scope in ["--system", "--global"] {
        for (key, value) in list(git, environment, scope, cancel).await? {
            if is_taken(&key) {
                text.push_str(&entry(&key, value.as_deref()));
                taken.push(key);
            }
        }
    }
    if !taken.iter().any(|key| key == "core.sshcommand") {
        // Nobody is there to answer what ssh would ask on the terminal.
        text.push_str(&entry(
            "core.sshcommand",
            Some("ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15"),
        ));
    }
    for key in ["core.attributesfile", "core.excludesfile"] {
        text.push_str(&entry(key, Some("/dev/null")));
    }
    files::atomic_write(to, text.as_bytes(), false).map_err(|error| GitError::Failed {
        subcommand: "config".into(),
        code: if error.kind() == std::io::ErrorKind::StorageFull {
            FailureCode::DiskFull
        } else {
            FailureCode::Internal
        },
        status: None,
        message: error.to_string(),
    })?;
    taken.sort();
    taken.dedup();
    Ok(taken)
}

async fn list(
    git: &Git,
    environment: &[(OsString, OsString)],
    scope: &str,
    cancel: &CancellationToken,
) -> Result<Vec<(String, Option<String>)>, GitError> {
    let of_operator = |name: &str| environment.iter().find(|(known, _)| known == name);
    let mut command = git
        .command("config")
        .args([scope, "--includes", "--list", "-z"])
        // Neither the daemon's own file nor an empty system scope.
        .without_env("GIT_CONFIG_GLOBAL")
        .without_env("GIT_CONFIG_NOSYSTEM");
    for name in [
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_NOSYSTEM",
    ] {
        if let Some((_, value)) = of_operator(name) {
            if name == "GIT_CONFIG_NOSYSTEM" && scope == "--system" && value == "1" {
                return Ok(Vec::new());
            }
            command = command.env(name, value);
        }
    }
    let output = match command.run(cancel).await {
        Ok(output) => output,
        // A scope without a file: git says so by failing.
        Err(GitError::Failed {
            status: Some(_),
            message,
            ..
        }) if message.contains("unable to read config file")
            || message.contains("unable to open")
            || message.contains("$HOME not set") =>
        {
            return Ok(Vec::new());
        }
        Err(GitError::Failed {
            subcommand,
            status: status @ Some(_),
            message,
            ..
        }) => {
            return Err(GitError::Failed {
                subcommand,
                code: FailureCode::BadInput,
                status,
                message,
            });
        }
        Err(error) => return Err(error),
    };
    Ok(output
        .stdout
        .split(|byte| *byte == 0)
        .filter(|one| !one.is_empty())
        .map(|one| {
            let one = String::from_utf8_lossy(one);
            match one.split_once('\n') {
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (one.into_owned(), None),
            }
        })
        .collect())
}

/// One key as it stands in a configuration file.
fn entry(key: &str, value: Option<&str>) -> String {
    let (section, rest) = key.split_once('.').unwrap_or((key, ""));
    let head = match rest.rsplit_once('.') {
        Some((subsection, _)) => format!("[{section} {}]", quoted(subsection)),
        None => format!("[{section}]"),
    };
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    match value {
        Some(value) => format!("{head}\n\t{name} = {}\n", quoted(value)),
        None => format!("{head}\n\t{name}\n"),
    }
}

/// A string as git's configuration files quote it.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_login_network_and_identity_are_taken() {
        for key in [
            "credential.helper",
            "credential.https://github.com.helper",
            "user.name",
            "url.git@github.com:.insteadof",
            "core.sshcommand",
            "http.proxy",
            "http.https://h/.sslcainfo",
        ] {
            assert!(is_taken(key), "{key}");
        }
        for key in [
            "core.hookspath",
            "core.fsmonitor",
            "core.pager",
            "core.attributesfile",
            "filter.lfs.smudge",
            "alias.x",
            "include.path",
            "diff.external",
            "url.x.pushinsteadof",
            "protocol.ext.allow",
            "gpg.program",
            "safe.directory",
        ] {
            assert!(!is_taken(key), "{key}");
        }
    }

    #[test]
    fn an_entry_is_quoted_so_that_git_reads_it_back() {
        assert_eq!(
            entry("credential.https://h.helper", Some("!f \"x\"\\")),
            "[credential \"https://h\"]\n\thelper = \"!f \\\"x\\\"\\\\\"\n"
        );
        assert_eq!(entry("user.name", None), "[user]\n\tname\n");
        // An empty helper resets the list; it must stay empty.
        assert_eq!(
            entry("credential.helper", Some("")),
            "[credential]\n\thelper = \"\"\n"
        );
    }
}
