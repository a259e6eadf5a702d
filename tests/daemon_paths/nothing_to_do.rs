//! Authentic deliveries that nothing is to be done with: each says why.

use serde_json::json;

use crate::inn::{Inn, STARTS_PULL_REQUESTS, Transport, widgets};
use crate::support::payloads::{
    Issue, PullRequest, Repo, check_suite, ping_of_app, ping_of_organization, ping_of_repository,
    push, unknown_event,
};
use crate::support::world::{Config, HOST};

#[test]
fn pings_unknown_events_and_events_of_no_item_are_dropped_with_a_reason() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let repo = widgets();
    inn.dropped(&ping_of_repository(&repo), "ping");
    inn.dropped(&ping_of_organization("acme"), "ping");
    inn.dropped(&ping_of_app(), "ping");
    inn.dropped(&unknown_event(&repo), "event-not-handled");
    inn.dropped(&check_suite(&repo, &head, "topic"), "event-not-handled");
    inn.dropped(
        &push(&repo, "topic", &"a".repeat(40), &head),
        "event-not-handled",
    );

    // An event that names no repository, or no number, has no item.
    let mut nowhere = PullRequest::new(&repo, 1, &head).opened();
    nowhere
        .body
        .as_object_mut()
        .expect("an object")
        .remove("repository");
    inn.dropped(&nowhere, "no-work-item");
    let mut numberless = PullRequest::new(&repo, 1, &head).opened();
    numberless.body["pull_request"]["number"] = json!(null);
    inn.dropped(&numberless, "no-work-item");

    // What is signed and no payload is stored, and given up.
    let mut text = ping_of_app();
    text.event = "issues".into();
    text.body = json!(["not", "an", "object"]);
    inn.parked(&text, "bad_payload");
    assert!(inn.events_named("workspace.prepared").is_empty());
    inn.finish();
}

#[test]
fn strangers_and_bots_start_nothing() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    inn.dropped(
        &request.clone().by("eve", "NONE").opened(),
        "untrusted-actor",
    );
    inn.dropped(
        &request.clone().by("eve", "CONTRIBUTOR").ready_for_review(),
        "untrusted-actor",
    );
    inn.dropped(
        &request.clone().by("renovate[bot]", "MEMBER").opened(),
        "bot",
    );
    let labelled = Issue::new(&widgets(), 5)
        .by("eve", "NONE")
        .label("innkeeper");
    inn.dropped(&labelled.opened(), "untrusted-actor");
    // An issue form sets the label in the name of whoever fills it in.
    inn.dropped(&labelled.labeled("innkeeper"), "untrusted-actor");
    assert!(inn.checkouts_left().is_empty());

    // A maintainer's label is another thing; the stranger's item gets a clone.
    let (_, prepared) = inn.prepared(&labelled.clone().sent_by("alice").labeled("innkeeper"));
    assert_eq!(prepared["strategy"], "clone");

    // Whoever closes it, it ends.
    let checkout = crate::inn::checkout_of(&prepared);
    inn.cleaned(&labelled.sent_by("ghost[bot]").closed(), &checkout);
    inn.finish();
}

#[test]
fn rules_globs_and_hosts_say_what_is_served() {
    let mut inn = Inn::with(
        Transport::File,
        Config {
            routing: format!(
                "repositories: [\"acme/*\", \"other/wid*\"]\n{}",
                STARTS_PULL_REQUESTS.replace(
                    "rules:",
                    "rules:\n  - { name: hands off, when: { label: [hands-off] }, then: ignore }",
                )
            ),
            ..Config::default()
        },
    );
    let mut heads = Vec::new();
    for (owner, name) in [
        ("acme", "widgets"),
        ("other", "widgets"),
        ("other", "gadgets"),
    ] {
        heads.push(inn.origin(owner, name).pull_request(1, "topic"));
    }
    inn.start();
    let request = |repo: &Repo, head: &str| PullRequest::new(repo, 1, head).branch("topic");
    inn.prepared(&request(&widgets(), &heads[0]).opened());
    let theirs = Repo::new("other", "widgets", 8).on(HOST);
    inn.prepared(&request(&theirs, &heads[1]).opened());
    let gadgets = Repo::new("other", "gadgets", 9).on(HOST);
    inn.dropped(
        &request(&gadgets, &heads[2]).opened(),
        "repository-not-allowed",
    );
    inn.dropped(
        &request(&gadgets, &heads[2]).closed_merged(),
        "repository-not-allowed",
    );
    for host in [
        "github.com",
        "evil-forge.example",
        "forge.example.evil.test",
    ] {
        let elsewhere = Repo::new("acme", "widgets", 10).on(host);
        inn.dropped(
            &request(&elsewhere, &heads[0]).opened(),
            "repository-not-allowed",
        );
    }
    // An own rule that ignores is the last word, also about a close.
    let ignored = PullRequest::new(&widgets(), 2, &heads[0]).label("hands-off");
    inn.dropped(&ignored.opened(), "no-rule");
    inn.dropped(&ignored.closed_merged(), "no-rule");
    assert_eq!(inn.events_named("workspace.prepared").len(), 2);
    inn.finish();
}
