//! Hostile payloads: signed, and written by somebody who wants to get out.

use serde_json::json;

use crate::inn::{Inn, Transport, widgets};
use crate::support::payloads::{Payload, PullRequest, Repo};
use crate::support::world::HOST;

#[test]
fn names_that_would_lead_out_of_the_root_are_refused() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let names = [
        ("..", "widgets"),
        ("acme", ".."),
        ("acme", "."),
        ("acme", "../widgets"),
        ("acme", "a//b"),
        ("acme", "a/b"),
        ("-x", "widgets"),
        ("acme", "--upload-pack=touch x"),
        ("acme", "wid\u{1b}[31mgets"),
        ("acme", "wid\ngets"),
        ("acme", "wid\0gets"),
        ("acme", "$(touch x)"),
        ("acme", "wid gets"),
        ("acme", "wïdgets"),
        ("acme\\..", "widgets"),
        ("acme", &"x".repeat(300)),
    ];
    for (id, (owner, name)) in (100..).zip(names) {
        let repo = Repo::new(owner, name, id).on(HOST);
        let id = inn.accept(&PullRequest::new(&repo, 1, &head).branch("topic").opened());
        let over = inn.wait_over(&id);
        let refused = (over["event"] == "delivery.parked" && over["code"] == "bad_input")
            || (over["event"] == "delivery.dropped"
                && ["repository-not-allowed", "no-work-item"]
                    .contains(&over["reason"].as_str().unwrap_or_default()));
        assert!(refused, "{owner:?}/{name:?}: {over}");
    }
    assert!(inn.events_named("workspace.prepared").is_empty());
    assert!(inn.checkouts_left().is_empty());
    let outside = inn.root().join("widgets");
    assert!(!outside.exists() && !inn.root().join("x").exists());
    // One line each, whatever the names hold.
    inn.finish();
}

#[test]
fn refs_and_commits_that_are_options_or_paths_are_refused() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let bad_branches = [
        "--upload-pack=touch x",
        "../../HEAD",
        "a..b",
        "a\u{1}b",
        "a b",
        "a:b",
        "a~1",
        "refs/heads/../../config",
        "x.lock",
        "a\\b",
        "",
    ];
    for (number, branch) in (10..).zip(bad_branches) {
        origin.set_pull(number, &head);
        let id = inn.accept(
            &PullRequest::new(&widgets(), number, &head)
                .branch(branch)
                .opened(),
        );
        let over = inn.wait_over(&id);
        // Refused, or without that branch at the commit: nothing in between.
        if over["event"] == "delivery.done" {
            let prepared = inn.told("workspace.prepared", &id);
            assert_eq!(prepared["commit"], head, "{branch:?}");
            assert!(prepared.get("branch").is_none(), "{branch:?}: {prepared}");
        } else {
            assert_eq!(over["code"], "bad_input", "{branch:?}: {over}");
        }
    }
    // A leading dash is a legal name, and only ever a name.
    for (number, branch) in (30..).zip(["-x", "--upload-pack=touch", "--help"]) {
        origin.set_pull(number, &head);
        let request = PullRequest::new(&widgets(), number, &head).branch(branch);
        let (checkout, _) = inn.prepared(&request.opened());
        inn.assert_at(&checkout, &head, Some(branch));
        inn.cleaned(&request.closed_unmerged(), &checkout);
    }
    for (number, sha) in (40..).zip(["--help", "HEAD", "main", "../x", &"g".repeat(40), "abc"]) {
        let id = inn.accept(
            &PullRequest::new(&widgets(), number, sha)
                .branch("topic")
                .opened(),
        );
        let over = inn.wait_over(&id);
        assert_eq!(over["code"], "bad_input", "{sha:?}: {over}");
    }
    assert!(!inn.root().join("x").exists());
    inn.finish();
}

#[test]
fn what_shells_would_run_in_titles_logins_and_bodies_is_text() {
    let mut inn = Inn::with(
        Transport::File,
        crate::support::world::Config {
            routing: crate::inn::STARTS_PULL_REQUESTS.into(),
            sessions: "default: agent\nprofiles:\n  agent: { start: [agent, \"{url}\", \"{branch}\", \"{prompt}\"] }"
                .into(),
            ..crate::support::world::Config::default()
        },
    );
    let origin = inn.origin("acme", "widgets");
    let branch = "$(touch${IFS}x)`touch${IFS}y`";
    let head = origin.pull_request(1, branch);
    inn.start();
    let mut request = PullRequest::new(&widgets(), 1, &head)
        .branch(branch)
        .label("$(touch z)");
    request.title = "$(touch x); `touch y` && touch z | {{ 7 * 7 }} {% raw %} {prompt}".into();
    request.body = "$(touch x)\u{1b}[2J\u{202e}{{ item.title }} {prompt.file} \0".into();
    request.author = "$(touch x)".into();
    let (checkout, prepared) = inn.prepared(&request.opened());
    inn.assert_at(&checkout, &head, Some(branch));
    let run = inn.run_of(prepared["delivery"].as_str().expect("an id"));
    assert_eq!(run.arguments[1], branch);
    assert!(
        run.prompt.contains("{{ 7 * 7 }}"),
        "a title is no template\n{}",
        run.prompt
    );
    assert!(!run.prompt.contains('\u{1b}') && !run.prompt.contains('\u{202e}'));
    inn.wait_event("session.exited", 1);
    for name in ["x", "y", "z"] {
        for dir in [inn.root().to_owned(), checkout.clone(), inn.home()] {
            assert!(!dir.join(name).exists(), "something ran");
        }
    }
    inn.finish();
}

#[test]
fn fields_of_other_types_and_numbers_out_of_range_harm_nothing() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let odd = |change: &dyn Fn(&mut serde_json::Value)| -> Payload {
        let mut payload = request.opened();
        change(&mut payload.body);
        payload
    };
    inn.dropped(
        &odd(&|body| body["pull_request"]["number"] = json!(-1)),
        "no-work-item",
    );
    inn.dropped(
        &odd(&|body| body["pull_request"]["number"] = json!("1")),
        "no-work-item",
    );
    inn.dropped(
        &odd(&|body| body["pull_request"] = json!([1])),
        "no-work-item",
    );
    inn.dropped(
        &odd(&|body| body["sender"] = json!("alice")),
        "untrusted-actor",
    );
    inn.dropped(
        &odd(&|body| body["pull_request"]["author_association"] = json!(7)),
        "untrusted-actor",
    );
    // What does not matter may be anything.
    let (checkout, _) = inn.prepared(&odd(&|body| {
        body["pull_request"]["title"] = json!(null);
        body["pull_request"]["body"] = json!({ "a": [1.5e300] });
        body["pull_request"]["labels"] = json!("none");
        body["installation"] = json!(true);
    }));
    inn.assert_at(&checkout, &head, Some("topic"));
    inn.finish();
}
