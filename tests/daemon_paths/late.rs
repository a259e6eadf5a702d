//! Events that come late, early, or on each other's heels.

use serde_json::json;

use crate::inn::{Inn, Transport, checkout_of, widgets};
use crate::support::http_git::Manner;
use crate::support::payloads::{Payload, PullRequest};
use crate::support::world::PATIENCE;

#[test]
fn what_comes_after_the_close_prepares_nothing() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let first = origin.pull_request(1, "topic");
    let other = origin.pull_request(2, "never-seen");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &first).branch("topic");
    let (checkout, _) = inn.prepared(&request.opened());
    // Commits that the remote has are not at risk, merged or not.
    inn.cleaned(&request.closed_unmerged(), &checkout);

    let second = origin.push_more(1, "topic");
    inn.dropped(
        &request.clone().at(&second).synchronize(&first),
        "already-closed",
    );
    inn.dropped(&request.edited(), "no-rule");
    inn.dropped(&request.clone().label("late").opened(), "already-closed");

    // The close of a request that was never heard of, and its opening after it.
    let unseen = PullRequest::new(&widgets(), 2, &other).branch("never-seen");
    inn.done(&unseen.closed_merged());
    inn.dropped(&unseen.opened(), "already-closed");
    inn.dropped(&unseen.synchronize(&first), "already-closed");

    assert_eq!(inn.events_named("workspace.prepared").len(), 1);
    assert!(inn.checkouts_left().is_empty());
    inn.finish();
}

#[test]
fn a_request_merged_by_a_merge_commit_goes_although_its_branch_is_gone() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let first = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &first).branch("topic");
    let (checkout, _) = inn.prepared(&request.opened());
    origin.git(&["checkout", "--quiet", "main"]);
    origin.git(&["merge", "--quiet", "--no-ff", "-m", "merged", "topic"]);
    origin.push("main");
    origin.bare_git(&["branch", "-D", "topic"]);
    inn.cleaned(&request.closed_merged(), &checkout);
    inn.finish();
}

#[test]
fn commits_of_a_closed_request_that_nobody_else_has_are_kept_until_they_are_pushed() {
    let mut inn = Inn::keeping(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let first = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &first).branch("topic");
    let (checkout, _) = inn.prepared(&request.opened());
    std::fs::write(checkout.join("mine.txt"), "mine\n").expect("a file");
    inn.git(&checkout, &["add", "--all"]);
    inn.git(&checkout, &["commit", "--quiet", "-m", "mine"]);
    let reasons = inn.kept(&request.closed_unmerged(), &checkout);
    assert_eq!(reasons, ["unlanded_commits"]);

    // Any later event has it judged again, and tells why it stays.
    let id = inn.done(&request.commented("eve", "NONE", "why?"));
    inn.told("workspace.kept", &id);
    inn.git(&checkout, &["push", "--quiet"]);
    inn.cleaned(&request.commented("eve", "NONE", "still?"), &checkout);
    inn.finish();
}

#[test]
fn a_request_closed_and_reopened_at_once_has_a_checkout() {
    for strategy in ["worktree", "clone"] {
        let mut inn = Inn::preparing(Transport::File, strategy);
        let origin = inn.origin("acme", "widgets");
        let first = origin.pull_request(1, "topic");
        inn.start();
        let request = PullRequest::new(&widgets(), 1, &first).branch("topic");
        inn.prepared(&request.opened());
        let closed = inn.accept(&request.closed_unmerged());
        let reopened = inn.accept(&request.reopened());
        inn.wait_done(&closed);
        inn.told("workspace.cleaned", &closed);
        inn.wait_done(&reopened);
        let checkout = checkout_of(&inn.told("workspace.prepared", &reopened));
        inn.assert_at(&checkout, &first, Some("topic"));

        // The other way round: the close tells that the request is open again.
        let reopened = inn.accept(&retitled(&request.reopened()));
        let closed = inn.accept(&request.event("closed", true, false, json!({})));
        inn.wait_done(&reopened);
        inn.wait_dropped(&closed, "superseded");
        inn.assert_at(&checkout, &first, Some("topic"));

        // A close that is the last word is the last word.
        let reopened = inn.accept(&retitled(&retitled(&request.reopened())));
        let closed = inn.accept(&request.closed_merged());
        inn.wait_over(&reopened);
        inn.wait_done(&closed);
        assert!(!checkout.exists());
        assert!(inn.checkouts_left().is_empty());
        inn.finish();
    }
}

/// The same event, as if the title had been changed before it.
fn retitled(payload: &Payload) -> Payload {
    let mut payload = payload.clone();
    let title = &mut payload.body["pull_request"]["title"];
    *title = json!(format!("{} again", title.as_str().expect("a title")));
    payload
}

#[test]
fn a_close_ends_a_preparation_that_is_running_and_nothing_is_left() {
    for strategy in ["worktree", "clone"] {
        let mut inn = Inn::preparing(Transport::Http, strategy);
        let origin = inn.origin("acme", "widgets");
        let first = origin.pull_request(1, "topic");
        inn.start();
        let request = PullRequest::new(&widgets(), 1, &first).branch("topic");
        inn.http().set_manner(Manner::Silent);
        let opened = inn.accept(&request.opened());
        inn.http().await_requests(1, PATIENCE);
        let closed = inn.accept(&request.closed_unmerged());
        inn.wait_dropped(&opened, "superseded");
        inn.wait_done(&closed);
        assert!(inn.checkouts_left().is_empty());
        let staging = std::fs::read_dir(inn.checkouts().join(".staging"));
        assert_eq!(
            staging.map_or(0, Iterator::count),
            0,
            "a clone in the making is left"
        );

        // What was cancelled stands in nobody's way.
        inn.http().set_manner(Manner::Prompt);
        let (checkout, _) = inn.prepared(&request.reopened());
        inn.assert_at(&checkout, &first, Some("topic"));
        inn.finish();
    }
}

#[test]
fn a_close_ends_the_wait_for_another_attempt() {
    let mut inn = Inn::preparing(Transport::Http, "worktree");
    let origin = inn.origin("acme", "widgets");
    let first = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &first).branch("topic");
    inn.http().set_manner(Manner::Refusing(503));
    let opened = inn.accept(&request.opened());
    let retrying = inn.wait_delivery("delivery.retrying", &opened);
    assert_eq!(retrying["code"], "network");
    let closed = inn.done(&request.closed_merged());
    inn.wait_dropped(&opened, "superseded");
    assert!(inn.told_maybe("workspace.kept", &closed).is_none());
    assert!(inn.checkouts_left().is_empty());
    // Nobody takes it up again.
    inn.http().set_manner(Manner::Prompt);
    inn.stop();
    inn.start();
    inn.wait_event("daemon.started", 2);
    inn.dropped(&request.edited(), "no-rule");
    assert!(inn.events_named("workspace.prepared").is_empty());
    inn.finish();
}

#[test]
fn of_several_waiting_pushes_the_newest_counts() {
    let mut inn = Inn::preparing(Transport::Http, "worktree");
    let origin = inn.origin("acme", "widgets");
    let mut heads = vec![origin.pull_request(1, "topic")];
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &heads[0]).branch("topic");
    inn.http().set_manner(Manner::Silent);
    let opened = inn.accept(&request.opened());
    inn.http().await_requests(1, PATIENCE);
    let mut pushes = Vec::new();
    for _ in 0..3 {
        let before = heads[heads.len() - 1].clone();
        let head = origin.push_more(1, "topic");
        pushes.push(inn.accept(&request.clone().at(&head).synchronize(&before)));
        heads.push(head);
    }
    inn.http().set_manner(Manner::Prompt);
    inn.wait_done(&opened);
    let checkout = checkout_of(&inn.told("workspace.prepared", &opened));
    inn.wait_dropped(&pushes[0], "superseded");
    let dropped = inn.told("delivery.dropped", &pushes[0]);
    assert_eq!(dropped["work_item"], "github:forge.example/acme/widgets#1");
    inn.wait_dropped(&pushes[1], "superseded");
    inn.wait_done(&pushes[2]);
    let updated = inn.told("workspace.updated", &pushes[2]);
    assert_eq!(updated["from"], heads[0]);
    assert_eq!(updated["to"], heads[3]);
    inn.assert_at(&checkout, &heads[3], Some("topic"));
    inn.finish();
}
