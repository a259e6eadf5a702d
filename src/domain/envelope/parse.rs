//! From the bytes of a body to an [`Envelope`].

use super::fields::Field;
use super::item::{Repository, actor, comment_of, item_of};
use super::{Envelope, form};
use crate::domain::repo_target::HostPolicy;
use crate::domain::work_item::ItemKind;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `application/json`
    Json,
    /// `application/x-www-form-urlencoded` with a field `payload`.
    Form,
}

/// The delivery is authentic, and nothing can be read from it; it is parked as
/// `bad_payload`.
#[derive(Debug, thiserror::Error)]
pub enum NotUnderstood {
    /// A form without the one field that counts.
    #[error("the form has no field `payload`")]
    NoPayloadField,
    /// Not JSON.
    #[error("the body is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// JSON, but a list, a number, a text or null.
    #[error("the body is JSON, but not an object")]
    NotAnObject,
}

/// Returns whether events of this kind can be about a work item. All others are
/// dropped as `event-not-handled`.
pub fn handled(event: &str) -> bool {
    kind_of(event).is_some()
}

/// Which field of the payload holds the item, and what it is.
fn kind_of(event: &str) -> Option<ItemKind> {
    match event {
        "issues" | "issue_comment" => Some(ItemKind::Issue),
        "pull_request"
        | "pull_request_review"
        | "pull_request_review_comment"
        | "pull_request_review_thread" => Some(ItemKind::PullRequest),
        _ => None,
    }
}

/// Parses a delivery's body.
///
/// The item's host is the first served one among the hosts that the
/// repository's URLs name. If they name only others, it is the first of those,
/// which [`HostPolicy::is_served`] then refuses: an event of another server must
/// not be taken for the repository of that name on the default host. A payload
/// without any URL means the default host.
///
/// # Errors
///
/// Returns [`NotUnderstood`] if the body is no JSON object; never for an
/// authentic payload, whatever is missing in it.
pub fn parse(
    event: &str,
    hosts: &HostPolicy,
    body: &[u8],
    content_type: ContentType,
) -> Result<Envelope, NotUnderstood> {
    match content_type {
        ContentType::Json => parse_json(event, hosts, body),
        ContentType::Form => {
            let json = form::payload(body).ok_or(NotUnderstood::NoPayloadField)?;
            parse_json(event, hosts, &json)
        }
    }
}

fn parse_json(event: &str, hosts: &HostPolicy, json: &[u8]) -> Result<Envelope, NotUnderstood> {
    let document = Field::document(json).map_err(NotUnderstood::NotJson)?;
    if !document.is_object() {
        return Err(NotUnderstood::NotAnObject);
    }
    let [
        action,
        repository,
        sender,
        issue,
        pull_request,
        comment,
        review,
        label,
        before,
        after,
    ] = document.fields([
        "action",
        "repository",
        "sender",
        "issue",
        "pull_request",
        "comment",
        "review",
        "label",
        "before",
        "after",
    ]);
    let repository = Repository::read(repository, hosts);
    let item = match kind_of(event) {
        Some(kind @ ItemKind::Issue) => item_of(issue, kind, repository.as_ref()),
        Some(kind @ ItemKind::PullRequest) => item_of(pull_request, kind, repository.as_ref()),
        None => None,
    };
    let comment = match event {
        "issue_comment" | "pull_request_review_comment" => comment_of(comment),
        "pull_request_review" => comment_of(review),
        _ => None,
    };
    let [label_name] = label.fields(["name"]);
    Ok(Envelope {
        event: event.to_owned(),
        action: action.name(),
        repository: repository.as_ref().map(Repository::full_name),
        sender: actor(sender),
        item,
        comment,
        label: label_name.name(),
        before: before.name(),
        after: after.name(),
        url_mismatch: repository.and_then(|repository| repository.url_mismatch),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::envelope::Head;

    fn parsed(event: &str, payload: &Value) -> Envelope {
        let body = serde_json::to_vec(payload).expect("serialises");
        parse(event, &HostPolicy::default(), &body, ContentType::Json).expect("understood")
    }

    fn repository() -> Value {
        json!({
            "id": 7, "name": "app", "full_name": "acme/app", "owner": { "login": "acme" },
            "html_url": "https://github.com/acme/app", "clone_url": "https://github.com/acme/app.git",
        })
    }

    fn pull_request(head_repo: &Value) -> Value {
        json!({
            "action": "opened",
            "repository": repository(),
            "sender": { "login": "alice", "type": "User" },
            "pull_request": {
                "number": 15, "title": "T", "body": null, "state": "open", "draft": true, "merged": false,
                "user": { "login": "dependabot[bot]", "type": "Bot" }, "author_association": "contributor",
                "labels": [{ "name": "innkeeper" }, "plain", 7, { "name": null }],
                "head": { "sha": "aa", "ref": "topic", "repo": head_repo },
                "base": { "ref": "main", "repo": { "id": 7 } },
            },
        })
    }

    #[test]
    fn a_pull_request_is_read() {
        let envelope = parsed("pull_request", &pull_request(&json!({ "id": 7 })));
        assert_eq!(envelope.repository.as_deref(), Some("acme/app"));
        let item = envelope.item.expect("an item");
        assert_eq!(item.name.reference(), "github:acme/app#15");
        assert_eq!(item.name.repo_id, Some(7));
        assert_eq!(item.kind, ItemKind::PullRequest);
        assert_eq!(
            (item.open, item.merged, item.draft),
            (Some(true), Some(false), true)
        );
        assert_eq!(item.labels, ["innkeeper", "plain"]);
        assert_eq!(item.association.as_deref(), Some("CONTRIBUTOR"));
        assert!(item.author.expect("an author").bot);
        assert_eq!(item.base.as_deref(), Some("main"));
        assert_eq!(
            item.head,
            Some(Head {
                sha: Some("aa".into()),
                branch: Some("topic".into()),
                fork: false,
                repository_gone: false
            })
        );
    }

    #[test]
    fn a_head_counts_as_the_repositorys_own_only_if_the_payload_says_so() {
        let head = |head_repo: &Value| {
            let item = parsed("pull_request", &pull_request(head_repo)).item;
            let head = item.expect("an item").head.expect("a head");
            (head.fork, head.repository_gone)
        };
        assert_eq!(head(&json!({ "id": 7 })), (false, false));
        assert_eq!(head(&json!({ "full_name": "Acme/App" })), (false, false));
        assert_eq!(
            head(&json!({ "id": 8, "full_name": "acme/app" })),
            (true, false)
        );
        assert_eq!(head(&json!({ "full_name": "mallory/app" })), (true, false));
        assert_eq!(head(&json!({})), (true, false));
        assert_eq!(head(&json!("x")), (true, false));
        assert_eq!(head(&Value::Null), (true, true));
        let mut payload = pull_request(&Value::Null);
        payload["pull_request"]["head"]
            .as_object_mut()
            .expect("an object")
            .remove("repo");
        let head = parsed("pull_request", &payload).item.expect("an item").head;
        let head = head.expect("a head");
        assert_eq!((head.fork, head.repository_gone), (true, false));
    }

    #[test]
    fn a_comment_on_a_pull_request_is_about_the_pull_request() {
        let mut payload = json!({
            "action": "created",
            "repository": repository(),
            "sender": { "login": "bob" },
            "issue": { "number": 15, "state": "closed", "pull_request": { "url": "x", "merged_at": null } },
            "comment": { "id": 9, "body": "hi", "user": { "login": "bob" }, "author_association": "MEMBER", "html_url": "u" },
        });
        let envelope = parsed("issue_comment", &payload);
        let item = envelope.item.expect("an item");
        assert_eq!((item.kind, item.head), (ItemKind::PullRequest, None));
        assert_eq!((item.open, item.merged), (Some(false), Some(false)));
        let comment = envelope.comment.expect("a comment");
        assert_eq!((comment.id, comment.body.as_str()), (Some(9), "hi"));
        payload["issue"]
            .as_object_mut()
            .expect("an object")
            .remove("pull_request");
        let item = parsed("issue_comment", &payload).item.expect("an item");
        assert_eq!(item.kind, ItemKind::Issue);
    }

    #[test]
    fn a_review_is_read_with_its_text_and_its_author() {
        let mut payload = pull_request(&json!({ "id": 7 }));
        payload["action"] = json!("submitted");
        payload["review"] = json!({ "id": 4, "body": null, "user": { "login": "rev" }, "author_association": "OWNER" });
        let envelope = parsed("pull_request_review", &payload);
        assert!(envelope.item.is_some());
        let review = envelope.comment.expect("a review");
        assert_eq!(review.body, "");
        assert_eq!(review.association.as_deref(), Some("OWNER"));
    }

    #[test]
    fn the_host_is_a_served_one_if_any_url_names_one() {
        let item_host = |patch: Value| {
            let mut payload = pull_request(&json!({ "id": 7 }));
            for (key, value) in patch.as_object().expect("an object") {
                payload["repository"][key] = value.clone();
            }
            let envelope = parsed("pull_request", &payload);
            (
                envelope.item.expect("an item").name.host,
                envelope.url_mismatch,
            )
        };
        assert_eq!(item_host(json!({})), ("github.com".into(), None));
        let foreign = "https://169.254.169.254/acme/app.git";
        assert_eq!(
            item_host(json!({ "clone_url": foreign })),
            ("github.com".into(), Some(foreign.into()))
        );
        assert_eq!(
            item_host(json!({ "clone_url": "ext::sh -c x" })),
            ("github.com".into(), Some("ext::sh -c x".into()))
        );
        assert_eq!(
            item_host(json!({ "clone_url": "https://GHE.example/acme/app.git", "html_url": "https://ghe.example/acme/app" })).0,
            "ghe.example",
            "it is refused later, and not taken for the default host's"
        );
        assert_eq!(
            item_host(json!({ "clone_url": null, "html_url": 7 })),
            ("github.com".into(), None)
        );
    }

    #[test]
    fn only_a_body_that_is_no_object_is_not_understood() {
        let verdict = |body: &[u8]| parse("ping", &HostPolicy::default(), body, ContentType::Json);
        assert!(matches!(verdict(b""), Err(NotUnderstood::NotJson(_))));
        assert!(matches!(verdict(b"{"), Err(NotUnderstood::NotJson(_))));
        assert!(matches!(verdict(b"{} x"), Err(NotUnderstood::NotJson(_))));
        assert!(matches!(
            verdict(b"{\"a\":\"\xff\"}"),
            Err(NotUnderstood::NotJson(_))
        ));
        for text in ["[]", "null", "7", "\"x\""] {
            assert!(
                matches!(verdict(text.as_bytes()), Err(NotUnderstood::NotAnObject)),
                "{text}"
            );
        }
        assert!(verdict(b"{}").is_ok());
        assert!(verdict(br#"{"action":7,"repository":[],"sender":"x","label":1}"#).is_ok());
        let form = parse("ping", &HostPolicy::default(), b"x=1", ContentType::Form);
        assert!(matches!(form, Err(NotUnderstood::NoPayloadField)));
    }

    #[test]
    fn a_form_says_the_same_as_its_json() {
        let payload = pull_request(&json!({ "id": 7 }));
        let mut body = b"payload=".to_vec();
        for byte in serde_json::to_vec(&payload).expect("serialises") {
            body.extend(format!("%{byte:02X}").bytes());
        }
        let form = parse(
            "pull_request",
            &HostPolicy::default(),
            &body,
            ContentType::Form,
        );
        assert_eq!(form.expect("understood"), parsed("pull_request", &payload));
    }

    #[test]
    fn without_a_number_or_a_repository_there_is_no_item() {
        for (path, value) in [
            ("/pull_request/number", json!("15")),
            ("/pull_request/number", json!(-1)),
            ("/pull_request/number", json!(0)),
            ("/pull_request", json!([])),
            ("/repository", json!(null)),
        ] {
            let mut payload = pull_request(&json!({ "id": 7 }));
            *payload.pointer_mut(path).expect("there") = value.clone();
            assert_eq!(
                parsed("pull_request", &payload).item,
                None,
                "{path} {value}"
            );
        }
    }

    #[test]
    fn an_envelope_survives_being_stored() {
        let envelope = parsed("pull_request", &pull_request(&Value::Null));
        let text = serde_json::to_string(&envelope).expect("serialises");
        assert_eq!(
            serde_json::from_str::<Envelope>(&text).expect("parses"),
            envelope
        );
    }
}
