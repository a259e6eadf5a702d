//! Templates of the URL that git gets for a configured host.

use super::host::{check_host, is_loopback};

/// Fills a template. Owner and name consist of characters that mean themselves
/// in every part of a URL (see [`super::check_name`]), and neither holds a
/// brace, so that the first cannot smuggle in the second.
pub(super) fn fill(template: &str, owner: &str, repo: &str) -> String {
    template.replace("{owner}", owner).replace("{repo}", repo)
}

/// Why a template of a configured host's URL is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// Git must not speak this protocol, or the text is no URL at all.
    #[error("cloneUrl must begin with https://, ssh:// or file://")]
    Scheme,
    /// Plain HTTP to another machine.
    #[error("cloneUrl may use http:// only for this very machine (127.0.0.1, localhost, [::1])")]
    PlainHttp,
    /// The host in it is missing or not acceptable.
    #[error("cloneUrl names no acceptable host")]
    Host,
    /// It would be the same URL for every repository.
    #[error("cloneUrl needs both {{owner}} and {{repo}}")]
    Placeholders,
    /// A brace that is neither of the two placeholders.
    #[error("cloneUrl knows only the placeholders {{owner}} and {{repo}}")]
    UnknownPlaceholder,
    /// A placeholder in the part that says which machine is asked.
    #[error("cloneUrl may use placeholders only behind the host")]
    PlaceholderInHost,
    /// A password would stand in argument lists and error messages.
    #[error("cloneUrl must not hold a password; use a credential helper")]
    Password,
    /// Control characters, spaces, or others that git or a shell would read.
    #[error("cloneUrl holds a space or a control character")]
    Characters,
}

/// Refuses a template that git must not get. The schemes are `https`, `ssh` and
/// `file`.
///
/// `http` is accepted for loopback hosts only: there it can be overheard by
/// nobody who could not read the repository anyway, and it is how a mirror on
/// the same machine, or a test, is reached. Git has to be allowed the scheme
/// ([`scheme`]) beside `https` and `ssh` for that host.
///
/// # Errors
///
/// Returns [`BadTemplate`], each variant with what to change.
pub fn check_template(template: &str) -> Result<(), BadTemplate> {
    if template
        .chars()
        .any(|c| c.is_control() || c.is_whitespace())
    {
        return Err(BadTemplate::Characters);
    }
    let Some((scheme, rest)) = template.split_once("://") else {
        return Err(BadTemplate::Scheme);
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains(['{', '}']) {
        return Err(BadTemplate::PlaceholderInHost);
    }
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.contains(':') {
        return Err(BadTemplate::Password);
    }
    if user.starts_with('-') {
        return Err(BadTemplate::Host);
    }
    match scheme {
        "https" | "ssh" => {
            check_host(host).map_err(|_| BadTemplate::Host)?;
        }
        "http" => {
            let host = check_host(host).map_err(|_| BadTemplate::Host)?;
            if !is_loopback(&host) {
                return Err(BadTemplate::PlainHttp);
            }
        }
        "file" => {
            if !authority.is_empty() && authority != "localhost" {
                return Err(BadTemplate::Host);
            }
        }
        _ => return Err(BadTemplate::Scheme),
    }
    if !path.contains("{owner}") || !path.contains("{repo}") {
        return Err(BadTemplate::Placeholders);
    }
    if fill(path, "", "").contains(['{', '}']) {
        return Err(BadTemplate::UnknownPlaceholder);
    }
    Ok(())
}

/// Returns the scheme of a URL that git gets, which git must be allowed to use.
pub fn scheme(url: &str) -> &str {
    url.split_once("://").map_or("", |(scheme, _)| scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_a_url_that_git_may_get() {
        for good in [
            "https://mirror/{owner}/{repo}.git",
            "https://git@mirror:8443/{owner}/{repo}",
            "ssh://git@mirror:2222/{owner}/{repo}.git",
            "file:///srv/{owner}/{repo}.git",
            "http://127.0.0.1:4000/{owner}/{repo}.git",
            "http://localhost/{owner}/{repo}.git",
            "http://[::1]:4000/{owner}/{repo}.git",
        ] {
            assert_eq!(check_template(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", BadTemplate::Scheme),
            ("git@mirror:{owner}/{repo}.git", BadTemplate::Scheme),
            ("--upload-pack=x://a/{owner}/{repo}", BadTemplate::Scheme),
            ("ext::sh -c x {owner}{repo}", BadTemplate::Characters),
            ("ext::x://a/{owner}/{repo}", BadTemplate::Scheme),
            ("git://mirror/{owner}/{repo}", BadTemplate::Scheme),
            ("http://mirror/{owner}/{repo}.git", BadTemplate::PlainHttp),
            (
                "http://127.0.0.1.evil.example/{owner}/{repo}",
                BadTemplate::PlainHttp,
            ),
            (
                "http://127.0.0.1@evil.example/{owner}/{repo}",
                BadTemplate::PlainHttp,
            ),
            ("https:///{owner}/{repo}", BadTemplate::Host),
            ("ssh://-oProxyCommand=x/{owner}/{repo}", BadTemplate::Host),
            ("ssh://-x@host/{owner}/{repo}", BadTemplate::Host),
            (
                "https://me:secret@mirror/{owner}/{repo}",
                BadTemplate::Password,
            ),
            ("https://mirror/{repo}.git", BadTemplate::Placeholders),
            (
                "https://mirror/{owner}/{repo}/{host}",
                BadTemplate::UnknownPlaceholder,
            ),
            (
                "https://{owner}.example/{owner}/{repo}",
                BadTemplate::PlaceholderInHost,
            ),
            ("file://server/{owner}/{repo}", BadTemplate::Host),
        ] {
            assert_eq!(check_template(bad), Err(why), "{bad}");
        }
    }
}
