//! What a payload says about where a repository is.

use serde_json::Value;

use super::host::{CloneProtocol, check_host, usual_url};
use super::segment::{check_name, check_owner};
use super::{BadTarget, RepoTarget, shown};

/// The parts of a repository's URL, as they stand in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTarget {
    /// Host in its one spelling.
    pub host: String,
    /// Owner, not yet judged.
    pub owner: String,
    /// Name without `.git`, not yet judged.
    pub repo: String,
}

/// Parses `https://host/owner/repo.git`, `ssh://git@host/owner/repo.git`,
/// `git@host:owner/repo.git`, and the same with `http` and without `.git`.
///
/// Returns none for anything else, among it `file:`, `ext::`, local paths and
/// text that begins with a dash: such a URL names no host and is not used.
pub fn parse_url(url: &str) -> Option<UrlTarget> {
    let (host, path) = if let Some((scheme, rest)) = url.split_once("://") {
        let own_port = match scheme {
            "https" => ":443",
            "http" => ":80",
            "ssh" => ":22",
            _ => return None,
        };
        let (authority, path) = rest.split_once('/')?;
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        (host.strip_suffix(own_port).unwrap_or(host), path)
    } else {
        let (authority, path) = url.split_once(':')?;
        let (_, host) = authority.split_once('@')?;
        (host, path)
    };
    let host = check_host(host).ok()?;
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let (owner, repo) = path.split_once('/')?;
    Some(UrlTarget {
        host,
        owner: owner.to_owned(),
        repo: repo.strip_suffix(".git").unwrap_or(repo).to_owned(),
    })
}

/// Returns where the repository of a payload is: from `clone_url`, `ssh_url` or
/// `html_url`, whichever is the first that names a host, else rebuilt from
/// `full_name` and the default host. None if the payload names no repository.
///
/// The URL that git gets is made from the protocol, the host, the owner and the
/// name; the payload's own is never used. Whether the host is served at all is
/// for [`super::HostPolicy`] to say.
///
/// # Errors
///
/// Returns [`BadTarget::Unsafe`] if a segment must not become a path or an
/// argument.
pub fn repo_target_from_payload(
    payload: &Value,
    protocol: CloneProtocol,
    default_host: &str,
) -> Result<Option<RepoTarget>, BadTarget> {
    let repository = &payload["repository"];
    let text = |key: &str| repository[key].as_str().filter(|text| !text.is_empty());
    let from_url = ["clone_url", "ssh_url", "html_url"]
        .into_iter()
        .filter_map(text)
        .find_map(parse_url);
    let found = match from_url {
        Some(found) => found,
        None => match from_full_name(repository, default_host)? {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    check_owner(&found.owner)?;
    check_name(&found.repo)?;
    let clone_url = usual_url(protocol, &found.host, &found.owner, &found.repo);
    Ok(Some(RepoTarget {
        host: found.host,
        owner: found.owner,
        repo: found.repo,
        clone_url,
    }))
}

/// Rebuilds it from `full_name`, else from `owner.login` and `name`.
fn from_full_name(repository: &Value, default_host: &str) -> Result<Option<UrlTarget>, BadTarget> {
    let full_name = match (
        repository["full_name"].as_str(),
        repository["owner"]["login"].as_str(),
        repository["name"].as_str(),
    ) {
        (Some(full_name), _, _) if !full_name.is_empty() => full_name.to_owned(),
        (_, Some(owner), Some(name)) => format!("{owner}/{name}"),
        _ => return Ok(None),
    };
    let Some((owner, repo)) = full_name.split_once('/') else {
        return Err(BadTarget::Unsafe {
            what: "owner/name",
            text: shown(&full_name),
            why: "it has no slash",
        });
    };
    Ok(Some(UrlTarget {
        host: check_host(default_host)?,
        owner: owner.to_owned(),
        repo: repo.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(repository: &Value) -> Result<Option<RepoTarget>, BadTarget> {
        let payload = json!({ "repository": repository });
        repo_target_from_payload(&payload, CloneProtocol::Https, "github.com")
    }

    #[test]
    fn every_form_of_url_names_the_same_repository() {
        for (key, url) in [
            ("clone_url", "https://ghe.example/acme/.github.git"),
            ("clone_url", "https://GHE.example:443/acme/.github"),
            ("clone_url", "http://ghe.example:80/acme/.github.git"),
            (
                "clone_url",
                "https://user:pass@ghe.example/acme/.github.git?x#y",
            ),
            ("ssh_url", "git@ghe.example:acme/.github.git"),
            ("ssh_url", "ssh://git@ghe.example/acme/.github.git"),
            ("ssh_url", "ssh://git@ghe.example:22/acme/.github.git"),
            ("html_url", "https://ghe.example/acme/.github"),
        ] {
            let found = target(&json!({ key: url })).expect("safe").expect("named");
            assert_eq!(
                (
                    found.host.as_str(),
                    found.owner.as_str(),
                    found.repo.as_str()
                ),
                ("ghe.example", "acme", ".github"),
                "{url}"
            );
            assert_eq!(found.clone_url, "https://ghe.example/acme/.github.git");
        }
    }

    #[test]
    fn a_payload_without_a_url_is_rebuilt_from_its_full_name() {
        let found = target(&json!({ "full_name": "acme/a.b_c-d" })).expect("safe");
        assert_eq!(
            found.expect("named").clone_url,
            "https://github.com/acme/a.b_c-d.git"
        );
        let payload = json!({ "repository": { "full_name": "acme/app" } });
        let found = repo_target_from_payload(&payload, CloneProtocol::Ssh, "ghe.example:8443");
        let found = found.expect("safe").expect("named");
        assert_eq!(found.host, "ghe.example:8443");
        assert_eq!(found.clone_url, "ssh://git@ghe.example/acme/app.git");
    }

    #[test]
    fn a_payload_that_names_no_repository_has_no_target() {
        for payload in [
            json!({}),
            json!(null),
            json!([]),
            json!({ "repository": null }),
            json!({ "repository": {} }),
            json!({ "repository": 7 }),
        ] {
            let found = repo_target_from_payload(&payload, CloneProtocol::Https, "github.com");
            assert_eq!(found, Ok(None), "{payload}");
        }
    }

    #[test]
    fn a_url_that_names_no_host_is_not_used() {
        for url in [
            "file:///etc",
            "/etc/passwd",
            "../x",
            "ext::sh -c touch% x",
            "--upload-pack=touch x",
            "-x",
            "git://github.com/acme/app",
            "javascript:alert(1)",
            "https://",
            "https:///a/b",
            "",
            "host",
            "ssh://-oProxyCommand=x/acme/app",
            "git@-x:acme/app",
        ] {
            let found = target(&json!({ "clone_url": url, "full_name": "acme/app" }));
            let found = found.expect("the rest is safe").expect("named");
            assert_eq!(found.clone_url, "https://github.com/acme/app.git", "{url}");
        }
    }

    #[test]
    fn a_segment_that_is_not_a_name_is_an_error_wherever_it_stands() {
        for name in [
            "../x",
            "..",
            "-x/app",
            "acme/-x",
            "a//b",
            "acme/a/b",
            "acme/a\nb",
            "acme/",
            "/app",
            "a/..",
            "acme",
        ] {
            assert!(target(&json!({ "full_name": name })).is_err(), "{name:?}");
            let url = format!("https://github.com/{name}");
            if name.contains('/') {
                assert!(target(&json!({ "clone_url": url })).is_err(), "{url:?}");
            }
        }
        assert!(target(&json!({ "full_name": "--upload-pack=touch x" })).is_err());
        assert!(target(&json!({ "owner": { "login": ".." }, "name": "app" })).is_err());
    }
}
