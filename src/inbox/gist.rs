//! The two fields of a payload that an event tells beside the headers.
//!
//! This is not understanding a payload: what does not look as expected is left
//! out, and the delivery is stored all the same.

use serde::Deserialize;

/// Larger bodies are not looked into; the time would be better spent.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Longer values are left out: events are for people to skim.
const VALUE_BYTES_MAX: usize = 200;

/// What a payload is about, roughly.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gist {
    pub(super) action: Option<String>,
    pub(super) repository: Option<String>,
}

#[derive(Deserialize)]
struct Payload {
    action: Option<String>,
    repository: Option<Repository>,
}

#[derive(Deserialize)]
struct Repository {
    full_name: Option<String>,
}

impl Gist {
    /// Returns what `body` says, or nothing.
    pub(super) fn of(body: &[u8]) -> Self {
        if body.len() > BODY_BYTES_MAX {
            return Self::default();
        }
        let Ok(payload) = serde_json::from_slice::<Payload>(body) else {
            return Self::default();
        };
        let short = |value: &String| value.len() <= VALUE_BYTES_MAX;
        Self {
            action: payload.action.filter(short),
            repository: payload
                .repository
                .and_then(|repository| repository.full_name)
                .filter(short),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_and_repository_are_found_wherever_they_stand() {
        let body = br#"{"x":[1,{"action":"no"}],"repository":{"id":1,"full_name":"a/b"},"action":"opened"}"#;
        assert_eq!(
            Gist::of(body),
            Gist {
                action: Some("opened".into()),
                repository: Some("a/b".into())
            }
        );
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        for body in [
            &b""[..],
            b"{",
            b"[]",
            b"null",
            br#"{"action":7}"#,
            br#"{"action":"a","action":"b"}"#,
            b"\xff\xfe",
        ] {
            assert_eq!(Gist::of(body), Gist::default());
        }
    }
}
