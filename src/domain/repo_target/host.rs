//! Which hosts are served, and how git reaches a repository on them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::segment::{check_name, check_owner};
use super::template::fill;
use super::{BadTarget, RepoTarget, shown};

/// How git reaches a host that has no template of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloneProtocol {
    /// `https://host/owner/repo.git`
    #[default]
    Https,
    /// `ssh://git@host/owner/repo.git`; never the short form `git@host:…`, which
    /// cannot carry a port.
    Ssh,
}

/// What the configuration says about one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Template of the URL that git gets, with `{owner}` and `{repo}`; none for
    /// the protocol's usual one.
    pub clone_url: Option<String>,
}

/// The hosts whose repositories are worked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPolicy {
    /// The host of payloads that carry no URL.
    pub default_host: String,
    /// How git reaches a host without a template.
    pub clone_protocol: CloneProtocol,
    /// The other hosts, and templates, by host.
    pub hosts: BTreeMap<String, HostEntry>,
}

impl Default for HostPolicy {
    fn default() -> Self {
        Self {
            default_host: "github.com".to_owned(),
            clone_protocol: CloneProtocol::default(),
            hosts: BTreeMap::new(),
        }
    }
}

impl HostPolicy {
    /// Returns whether repositories on this host are worked with: it is the
    /// default host or a key of `hosts`, as a whole and without regard to case.
    pub fn is_served(&self, host: &str) -> bool {
        check_host(host).is_ok_and(|host| self.entry(&host).is_some())
    }

    /// Returns where a repository is and how git reaches it.
    ///
    /// # Errors
    ///
    /// [`BadTarget::NotServed`] if the host is not configured (the delivery is
    /// dropped), [`BadTarget::Unsafe`] if host, owner or name must not become a
    /// path or an argument.
    pub fn target(&self, host: &str, owner: &str, repo: &str) -> Result<RepoTarget, BadTarget> {
        let host = check_host(host)?;
        check_owner(owner)?;
        check_name(repo)?;
        let Some(entry) = self.entry(&host) else {
            return Err(BadTarget::NotServed { host: shown(&host) });
        };
        let clone_url = match &entry.clone_url {
            Some(template) => fill(template, owner, repo),
            None => usual_url(self.clone_protocol, &host, owner, repo),
        };
        Ok(RepoTarget {
            host,
            owner: owner.to_owned(),
            repo: repo.to_owned(),
            clone_url,
        })
    }

    /// Returns what is said of a host that is served.
    fn entry(&self, host: &str) -> Option<&HostEntry> {
        const NOTHING_SAID: &HostEntry = &HostEntry { clone_url: None };
        let is = |text: &str| check_host(text).is_ok_and(|text| text == host);
        self.hosts
            .iter()
            .find(|(key, _)| is(key))
            .map(|(_, entry)| entry)
            .or_else(|| is(&self.default_host).then_some(NOTHING_SAID))
    }
}

/// Returns the URL of a repository on a host without a template.
pub(super) fn usual_url(protocol: CloneProtocol, host: &str, owner: &str, repo: &str) -> String {
    match protocol {
        CloneProtocol::Https => format!("https://{host}/{owner}/{repo}.git"),
        // The port of a web address is not the port of SSH.
        CloneProtocol::Ssh => format!("ssh://git@{}/{owner}/{repo}.git", bare_host(host)),
    }
}

/// Returns a host in its one spelling: lower case, a name or an address, with a
/// port only if it is not the one that HTTPS has anyway.
///
/// # Errors
///
/// Returns [`BadTarget::Unsafe`] for anything but `[a-z0-9.-]` labels, an IPv6
/// address in brackets, and a port.
pub fn check_host(text: &str) -> Result<String, BadTarget> {
    let refuse = |why| BadTarget::Unsafe {
        what: "a host",
        text: shown(text),
        why,
    };
    if text.len() > 253 + ":65535".len() {
        return Err(refuse("it is too long"));
    }
    let text_lower = text.to_ascii_lowercase();
    let (name, port) = if let Some(rest) = text_lower.strip_prefix('[') {
        let (address, rest) = rest
            .split_once(']')
            .ok_or_else(|| refuse("a bracket is not closed"))?;
        let address: std::net::Ipv6Addr = address
            .parse()
            .map_err(|_| refuse("it is not an IPv6 address"))?;
        let port = match rest {
            "" => None,
            _ => Some(
                rest.strip_prefix(':')
                    .ok_or_else(|| refuse("text follows the address"))?,
            ),
        };
        (format!("[{address}]"), port)
    } else {
        let (name, port) = match text_lower.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text_lower.as_str(), None),
        };
        if name.is_empty() {
            return Err(refuse("it is empty"));
        }
        if name.len() > 253 {
            return Err(refuse("it is too long"));
        }
        for label in name.split('.') {
            if label.is_empty() || label.len() > 63 {
                return Err(refuse("one of its parts is empty or longer than 63 bytes"));
            }
            if label.starts_with('-') || label.ends_with('-') {
                return Err(refuse("one of its parts begins or ends with a dash"));
            }
            if !label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            {
                return Err(refuse("only letters, digits, dots and dashes are a host"));
            }
        }
        (name.to_owned(), port)
    };
    match port {
        None => Ok(name),
        Some(port) => {
            if port.is_empty() || port.len() > 5 || !port.bytes().all(|b| b.is_ascii_digit()) {
                return Err(refuse("its port is not a number"));
            }
            match port.parse::<u16>() {
                Ok(0) | Err(_) => Err(refuse("its port is out of range")),
                Ok(443) => Ok(name),
                Ok(port) => Ok(format!("{name}:{port}")),
            }
        }
    }
}

/// Returns the host without its port.
pub fn bare_host(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// Returns whether a host, with or without a port, is this very machine.
pub fn is_loopback(host: &str) -> bool {
    matches!(bare_host(host), "127.0.0.1" | "localhost" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(hosts: &[(&str, Option<&str>)]) -> HostPolicy {
        HostPolicy {
            hosts: hosts
                .iter()
                .map(|(host, url)| {
                    let clone_url = url.map(str::to_owned);
                    ((*host).to_owned(), HostEntry { clone_url })
                })
                .collect(),
            ..HostPolicy::default()
        }
    }

    #[test]
    fn only_configured_hosts_are_served_and_only_as_a_whole() {
        let policy = policy(&[("ghe.example.com:8443", None)]);
        for host in [
            "github.com",
            "GitHub.COM",
            "github.com:443",
            "ghe.example.com:8443",
        ] {
            assert!(policy.is_served(host), "{host}");
        }
        for host in [
            "evil-github.com",
            "github.com.evil.example",
            "ithub.com",
            "xgithub.com",
            "github.com.",
            "github.com:8443",
            "ghe.example.com",
            "www.github.com",
            "",
            "169.254.169.254",
        ] {
            assert!(!policy.is_served(host), "{host}");
            assert!(policy.target(host, "acme", "app").is_err(), "{host}");
        }
        assert_eq!(
            policy.target("evil-github.com", "acme", "app"),
            Err(BadTarget::NotServed {
                host: "evil-github.com".into()
            })
        );
    }

    #[test]
    fn the_url_is_made_from_configuration() {
        let mut policy = policy(&[
            (
                "mirror.example",
                Some("https://git.example/m/{owner}/{repo}.git"),
            ),
            ("local.example", Some("file:///srv/git/{owner}/{repo}.git")),
            ("ghe.example:8443", None),
        ]);
        let url = |policy: &HostPolicy, host: &str| {
            let target = policy.target(host, "acme", ".github");
            target.expect("the host is served").clone_url
        };
        assert_eq!(
            url(&policy, "github.com"),
            "https://github.com/acme/.github.git"
        );
        assert_eq!(
            url(&policy, "mirror.example"),
            "https://git.example/m/acme/.github.git"
        );
        assert_eq!(
            url(&policy, "local.example"),
            "file:///srv/git/acme/.github.git"
        );
        assert_eq!(
            url(&policy, "ghe.example:8443"),
            "https://ghe.example:8443/acme/.github.git"
        );
        policy.clone_protocol = CloneProtocol::Ssh;
        assert_eq!(
            url(&policy, "github.com"),
            "ssh://git@github.com/acme/.github.git"
        );
        assert_eq!(
            url(&policy, "ghe.example:8443"),
            "ssh://git@ghe.example/acme/.github.git"
        );
        assert_eq!(
            url(&policy, "mirror.example"),
            "https://git.example/m/acme/.github.git"
        );
    }

    #[test]
    fn a_host_has_one_spelling() {
        for (text, host) in [
            ("GitHub.com", "github.com"),
            ("github.com:443", "github.com"),
            ("github.com:8080", "github.com:8080"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:443", "[::1]"),
            ("[0:0::1]:99", "[::1]:99"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(check_host(text).as_deref(), Ok(host), "{text}");
        }
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.",
            "-a",
            "a-.b",
            "a b",
            "a/b",
            "a@b",
            "a_b",
            "a:",
            "a:0",
            "a:65536",
            "a:-1",
            "a:+1",
            "a:b",
            "a:1:2",
            "[::1",
            "[x]",
            "[::1]x",
            "::1",
            "ünï.example",
            "a\nb",
            "a\0",
            "$(x)",
            "a%2e",
            &"x".repeat(64),
            &vec!["x"; 200].join("."),
        ] {
            assert!(check_host(text).is_err(), "{text:?}");
        }
    }
}
