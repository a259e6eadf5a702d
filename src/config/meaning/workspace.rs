//! Checks of `routing.workspace`.

use std::path::Path;

use super::Meaning;
use crate::config::key_path::KeyPath;
use crate::config::placeholders::placeholders;

impl Meaning<'_> {
    pub(super) fn workspace(&mut self) {
        let workspace = &self.config.routing.workspace;
        let key = KeyPath::of("routing.workspace");
        if workspace.root.as_deref() == Some(Path::new("/")) {
            self.error(&key.key("root"), "must be a directory of its own");
        }
        if !is_host(&workspace.default_host) {
            self.error(&key.key("defaultHost"), "must be a host, in lower case");
        }
        if workspace.git_binary.trim().is_empty() {
            self.error(&key.key("gitBinary"), "must name a program");
        }
        for (name, host) in &workspace.hosts {
            let key = key.key("hosts").key(name);
            if !is_host(name) {
                self.error(
                    &key,
                    "must be a host, in lower case, with a port or without",
                );
            }
            if let Some(url) = &host.clone_url {
                self.clone_url(url, &key.key("cloneUrl"));
            }
        }
        let key = key.key("removal").key("regenerable");
        self.words(&workspace.removal.regenerable, &key);
        for (at, pattern) in workspace.removal.regenerable.iter().enumerate() {
            if pattern.starts_with('!') || pattern.starts_with('#') {
                self.error(
                    &key.index(at),
                    "must say what can be made again; exceptions and comments are not understood",
                );
            } else if pattern.trim_matches(['*', '/']).is_empty() && !pattern.trim().is_empty() {
                self.error(
                    &key.index(at),
                    format!("`{pattern}` would let every ignored file be lost"),
                );
            }
        }
    }

    fn clone_url(&mut self, url: &str, key: &KeyPath) {
        for needed in ["{owner}", "{repo}"] {
            if !url.contains(needed) {
                self.error(key, format!("must hold {needed}"));
            }
        }
        for found in placeholders(url) {
            if found != "{owner}" && found != "{repo}" {
                self.error(key, format!("holds an unknown placeholder {found}"))
                    .help("the placeholders are {owner}, {repo}");
            }
        }
        if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            self.error(key, "must not hold blanks or control characters");
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            self.error(key, "must begin with https://, ssh:// or file://");
            return;
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        match scheme {
            "file" => {
                if !authority.is_empty() {
                    self.error(key, "must be file:/// and an absolute path");
                }
                return;
            }
            "http" if is_loopback(host) => {}
            "http" => {
                self.error(key, "may use http only on a loopback address");
            }
            "https" | "ssh" => {}
            _ => {
                self.error(key, "must begin with https://, ssh:// or file://");
            }
        }
        if user.contains(':') || (scheme != "ssh" && !user.is_empty()) {
            self.error(key, "must not hold a password or a token")
                .help("git asks its credential helper");
        }
        if host.is_empty()
            || host.contains(['{', '}'])
            || host.starts_with('-')
            || user.starts_with('-')
        {
            self.error(key, "must name a host");
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare == "localhost"
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Returns whether a text is a host as work items have it: lower case, with a
/// port or without, and fit to be a directory's name.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    name.len() <= 253
        && name.split('.').all(plain)
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}
