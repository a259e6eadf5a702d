//! The environment of a session: a short list of what is inherited, what the
//! profile says, and what the session is about. Everything else stays out.
//!
//! 1. A variable that holds a secret of the daemon is never passed on, also not
//!    on a profile's request.
//! 2. No variable that tells git where its repository is gets in: a session's
//!    git finds the checkout it stands in, and no other.
//! 3. `INNKEEPER_*` is Innkeeper's; a profile cannot set it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::profile::ProfileSpec;
use super::runner::MARK;

/// What a session inherits if the daemon has it, besides the names that begin
/// with one of [`INHERITED_PREFIXES`].
pub const INHERITED: &[&str] = &[
    "HOME",
    "PATH",
    "LANG",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "SHELL",
    "SSH_AUTH_SOCK",
];

/// Beginnings of names that a session inherits.
pub const INHERITED_PREFIXES: &[&str] = &["LC_", "XDG_"];

/// The beginning of Innkeeper's own names.
pub const OWN_PREFIX: &str = "INNKEEPER_";

/// What points git at a repository or a part of one, as `git rev-parse
/// --local-env-vars` lists it, and what sets configuration for it.
const GIT_LOCATIONS: &[&str] = &[
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// What a session is about. An absent value becomes an empty variable, so that
/// a script under `set -u` need not ask first.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionFacts<'a> {
    /// Reference of the work item.
    pub work_item: &'a str,
    /// Id of the session.
    pub session_id: &'a str,
    /// The directory that the session runs in.
    pub checkout: Option<&'a Path>,
    /// The local branch; none when detached.
    pub branch: Option<&'a str>,
    /// The commit that the checkout was first made at.
    pub base_commit: Option<&'a str>,
    /// Name of the event.
    pub event: &'a str,
    /// Its action.
    pub action: Option<&'a str>,
    /// Id of the delivery.
    pub delivery: &'a str,
    /// Where the prompt is written.
    pub prompt_file: Option<&'a Path>,
}

/// A variable that a profile may not set or pass on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// It holds a secret of the daemon.
    #[error("`{0}` holds a secret of the daemon and is never passed to a session")]
    Secret(String),
    /// Its name is Innkeeper's.
    #[error("`{0}` begins with INNKEEPER_, which only Innkeeper sets")]
    Reserved(String),
    /// It points git at a repository.
    #[error("`{0}` points git away from the session's checkout")]
    GitLocation(String),
    /// It is no name, or its value holds a NUL byte.
    #[error("`{0}` cannot be an environment variable")]
    Malformed(String),
}

/// Returns everything that is wrong with a profile's variables; `secrets` are the
/// names of the variables that hold the daemon's own.
pub fn check(profile: &ProfileSpec, secrets: &BTreeSet<String>) -> Vec<EnvironmentError> {
    let passed = profile.pass_env.iter().filter_map(|name| {
        let secret = secrets
            .contains(name)
            .then(|| EnvironmentError::Secret(name.clone()));
        secret.or_else(|| check_name(name))
    });
    let set = profile.env.iter().filter_map(|(name, value)| {
        let malformed = value
            .contains('\0')
            .then(|| EnvironmentError::Malformed(name.clone()));
        check_name(name).or(malformed)
    });
    passed.chain(set).collect()
}

fn check_name(name: &str) -> Option<EnvironmentError> {
    let refused: fn(String) -> EnvironmentError = if name.is_empty() || name.contains(['=', '\0']) {
        EnvironmentError::Malformed
    } else if name.starts_with(OWN_PREFIX) {
        EnvironmentError::Reserved
    } else if is_git_location(name) {
        EnvironmentError::GitLocation
    } else {
        return None;
    };
    Some(refused(name.to_owned()))
}

fn is_git_location(name: &str) -> bool {
    GIT_LOCATIONS.contains(&name)
        || name.starts_with("GIT_CONFIG_KEY_")
        || name.starts_with("GIT_CONFIG_VALUE_")
}

/// Returns a session's environment: of `inherited`, the daemon's own, what every
/// session gets and what the profile passes on; then what the profile sets; then
/// what the session is about.
///
/// # Errors
///
/// Returns the first of what [`check`] finds.
pub fn build(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    profile: &ProfileSpec,
    secrets: &BTreeSet<String>,
    facts: &SessionFacts<'_>,
) -> Result<BTreeMap<OsString, OsString>, EnvironmentError> {
    if let Some(error) = check(profile, secrets).into_iter().next() {
        return Err(error);
    }
    let mut environment: BTreeMap<OsString, OsString> = inherited
        .into_iter()
        .filter(|(name, _)| {
            name.to_str().is_some_and(|name| {
                let is_common = INHERITED.contains(&name)
                    || INHERITED_PREFIXES
                        .iter()
                        .any(|prefix| name.starts_with(prefix));
                let is_passed = profile.pass_env.iter().any(|passed| passed == name);
                (is_common || is_passed) && !secrets.contains(name)
            })
        })
        .collect();
    for (name, value) in &profile.env {
        environment.insert(name.into(), value.into());
    }
    let path = |path: Option<&Path>| path.map_or(OsStr::new(""), Path::as_os_str).to_owned();
    let own: [(&str, OsString); 9] = [
        ("INNKEEPER_WORK_ITEM", facts.work_item.into()),
        (MARK, facts.session_id.into()),
        ("INNKEEPER_CHECKOUT", path(facts.checkout)),
        ("INNKEEPER_BRANCH", facts.branch.unwrap_or_default().into()),
        (
            "INNKEEPER_BASE_COMMIT",
            facts.base_commit.unwrap_or_default().into(),
        ),
        ("INNKEEPER_EVENT", facts.event.into()),
        ("INNKEEPER_ACTION", facts.action.unwrap_or_default().into()),
        ("INNKEEPER_DELIVERY", facts.delivery.into()),
        ("INNKEEPER_PROMPT_FILE", path(facts.prompt_file)),
    ];
    for (name, value) in own {
        environment.insert(name.into(), without_nul(&value));
    }
    Ok(environment)
}

/// Payloads may hold what an environment cannot.
fn without_nul(text: &OsStr) -> OsString {
    OsString::from_vec(
        text.as_bytes()
            .iter()
            .copied()
            .filter(|byte| *byte != 0)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon() -> Vec<(OsString, OsString)> {
        [
            ("HOME", "/home/op"),
            ("LC_ALL", "C"),
            ("XDG_RUNTIME_DIR", "/run/user/1"),
            ("GIT_DIR", "/elsewhere"),
            ("GITHUB_TOKEN", "secret"),
            ("HOOK", "secret"),
            ("INNKEEPER_CONFIG", "/etc/x"),
            ("API_KEY", "for the agent"),
            ("EDITOR", "vi"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into()
    }

    fn built(profile: &ProfileSpec) -> Result<BTreeMap<OsString, OsString>, EnvironmentError> {
        let facts = SessionFacts {
            work_item: "github:o/r#1",
            session_id: "s1",
            event: "issues\0",
            ..SessionFacts::default()
        };
        build(daemon(), profile, &["HOOK".to_owned()].into(), &facts)
    }

    #[test]
    fn only_what_is_listed_or_passed_is_inherited() {
        let profile = ProfileSpec {
            pass_env: vec!["API_KEY".into(), "ABSENT".into()],
            env: [("HOME".to_owned(), "/elsewhere".to_owned())].into(),
            ..ProfileSpec::default()
        };
        let environment = built(&profile).expect("nothing is wrong with it");
        let foreign: Vec<_> = environment
            .keys()
            .filter(|name| !name.as_bytes().starts_with(OWN_PREFIX.as_bytes()))
            .collect();
        assert_eq!(foreign, ["API_KEY", "HOME", "LC_ALL", "XDG_RUNTIME_DIR"]);
        assert_eq!(
            environment[OsStr::new("HOME")],
            "/elsewhere",
            "the profile outweighs what is inherited"
        );
    }

    #[test]
    fn what_the_session_is_about_is_there_and_absent_values_are_empty() {
        let environment = built(&ProfileSpec::default()).expect("nothing is wrong with it");
        assert_eq!(environment[OsStr::new(MARK)], "s1");
        assert_eq!(environment[OsStr::new("INNKEEPER_EVENT")], "issues");
        assert_eq!(environment[OsStr::new("INNKEEPER_BRANCH")], "");
        assert!(!environment.contains_key(OsStr::new("INNKEEPER_CONFIG")));
    }

    #[test]
    fn secrets_reserved_names_and_git_locations_are_refused() {
        let table = [
            ("HOOK", EnvironmentError::Secret("HOOK".into())),
            (
                "INNKEEPER_X",
                EnvironmentError::Reserved("INNKEEPER_X".into()),
            ),
            (
                "GIT_WORK_TREE",
                EnvironmentError::GitLocation("GIT_WORK_TREE".into()),
            ),
            (
                "GIT_CONFIG_KEY_0",
                EnvironmentError::GitLocation("GIT_CONFIG_KEY_0".into()),
            ),
            ("A=B", EnvironmentError::Malformed("A=B".into())),
        ];
        for (name, expected) in table {
            let profile = ProfileSpec {
                pass_env: vec![name.into()],
                ..ProfileSpec::default()
            };
            assert_eq!(built(&profile), Err(expected));
        }
        let profile = ProfileSpec {
            env: [("GIT_AUTHOR_NAME".to_owned(), "agent".to_owned())].into(),
            ..ProfileSpec::default()
        };
        assert!(built(&profile).is_ok(), "who commits is no location");
    }
}
