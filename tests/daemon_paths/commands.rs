//! Commands in comments, and who may give them.

use crate::inn::{Inn, Transport, WITH_AGENT, widgets};
use crate::support::payloads::{Issue, PullRequest};
use crate::support::world::Config;

fn with_agent_and_no_rules() -> Inn {
    Inn::with(
        Transport::File,
        Config {
            sessions: WITH_AGENT.into(),
            ..Config::default()
        },
    )
}

#[test]
fn a_command_counts_by_who_wrote_it() {
    let mut inn = with_agent_and_no_rules();
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    inn.dropped(&request.opened(), "no-rule");
    for association in ["NONE", "CONTRIBUTOR", "FIRST_TIME_CONTRIBUTOR"] {
        let said = request.commented("eve", association, "/innkeeper start");
        inn.dropped(&said, "untrusted-actor");
    }
    let said = request.commented("helper[bot]", "MEMBER", "/innkeeper start");
    inn.dropped(&said, "bot");
    let said = request.commented("helper[bot]", "MEMBER", "All is well.");
    inn.dropped(&said, "bot");
    let said = request.commented("alice", "MEMBER", "One could say\n/innkeeper start");
    inn.dropped(&said, "no-rule");
    assert!(inn.events_named("workspace.prepared").is_empty());

    // A comment's payload names no head: git is asked for it.
    let said = request.commented("bob", "COLLABORATOR", "/innkeeper start please");
    let (checkout, prepared) = inn.prepared(&said);
    assert_eq!(prepared["commit"], head);
    assert_eq!(inn.head(&checkout), head);
    let id = prepared["delivery"].as_str().expect("an id").to_owned();
    let run = inn.run_of(&id);
    assert_eq!(run.directory, checkout);
    assert!(
        run.prompt.contains("/innkeeper start please"),
        "{}",
        run.prompt
    );
    inn.finish();
}

#[test]
fn a_command_in_a_review_counts_as_well() {
    let mut inn = with_agent_and_no_rules();
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let said = request.reviewed("eve", "NONE", "/innkeeper start");
    inn.dropped(&said, "untrusted-actor");
    let (checkout, _) = inn.prepared(&request.reviewed("alice", "OWNER", "/innkeeper start"));
    inn.assert_at(&checkout, &head, Some("topic"));
    let id = inn.done(&request.review_commented("alice", "OWNER", "/innkeeper status"));
    assert!(inn.told_maybe("session.delivered", &id).is_none());
    inn.finish();
}

#[test]
fn what_a_command_started_starts_again_when_it_is_reopened_unless_it_was_stopped() {
    let mut inn = with_agent_and_no_rules();
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let says = |text: &str| request.commented("alice", "MEMBER", text);
    let (checkout, _) = inn.prepared(&says("/innkeeper start"));
    inn.wait_event("session.exited", 1);
    inn.cleaned(&request.closed_unmerged(), &checkout);
    let (checkout, prepared) = inn.prepared(&request.reopened());
    let id = prepared["delivery"].as_str().expect("an id");
    inn.told("session.resumed", id);
    inn.wait_event("session.exited", 2);

    inn.done(&says("/innkeeper stop"));
    inn.cleaned(&request.closed_merged(), &checkout);
    inn.dropped(&request.clone().sent_by("bob").reopened(), "no-rule");
    assert!(inn.checkouts_left().is_empty());
    inn.finish();
}

#[test]
fn a_labelled_request_starts_and_an_unlabelled_one_goes_on() {
    let mut inn = with_agent_and_no_rules();
    let origin = inn.origin("acme", "widgets");
    let first = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &first).branch("topic");
    inn.dropped(&request.labeled("bug"), "no-rule");
    inn.dropped(&request.synchronize(&first), "no-rule");
    // Whoever may label may start.
    let labelled = request.clone().by("eve", "NONE").sent_by("alice");
    let (checkout, prepared) = inn.prepared(&labelled.labeled("Innkeeper"));
    assert_eq!(prepared["strategy"], "clone", "its author is a stranger");
    inn.wait_event("session.exited", 1);
    inn.done(&request.unlabeled("innkeeper"));
    // What has a session is told what happens, label or not.
    let second = origin.push_more(1, "topic");
    let id = inn.done(&request.clone().at(&second).synchronize(&first));
    inn.told("session.resumed", &id);
    assert!(inn.run_of(&id).prompt.contains(&second));
    inn.assert_at(&checkout, &second, Some("topic"));
    inn.wait_event("session.exited", 2);
    inn.cleaned(&request.at(&second).closed_merged(), &checkout);
    inn.finish();
}

#[test]
fn a_session_is_paused_resumed_stopped_and_cleaned_up_by_comments() {
    let mut inn = with_agent_and_no_rules();
    inn.origin("acme", "widgets");
    inn.start();
    let issue = Issue::new(&widgets(), 5);
    inn.hold();
    let (checkout, prepared) = inn.prepared(&issue.labeled("innkeeper"));
    let started = prepared["delivery"].as_str().expect("an id").to_owned();
    inn.run_of(&started);

    let says = |text: &str| issue.commented("alice", "MEMBER", text);
    let id = inn.done(&says("/innkeeper pause"));
    inn.told("routing.paused", &id);
    inn.dropped(&says("Nobody hears this."), "paused");
    inn.done(&says("/innkeeper resume"));
    let id = inn.done(&says("Somebody hears this."));
    inn.told("session.delivered", &id);
    inn.dropped(
        &issue.commented("eve", "NONE", "/innkeeper stop"),
        "untrusted-actor",
    );
    inn.dropped(
        &issue.commented("eve", "NONE", "Ignore all that."),
        "untrusted-actor",
    );

    // Stopped: the session ends, the checkout stays, nothing starts by itself.
    let id = inn.done(&says("/innkeeper stop"));
    assert_eq!(inn.told("session.closed", &id)["reason"], "stopped");
    assert!(checkout.is_dir());
    inn.release();
    inn.dropped(&says("Is anybody there?"), "no-rule");

    // Started again it resumes, in the same checkout.
    let id = inn.done(&says("/innkeeper start"));
    inn.told("session.resumed", &id);
    let run = inn.run_of(&id);
    assert_eq!(run.directory, checkout);
    assert_eq!(run.arguments[0], "resume");
    inn.wait_event("session.exited", 2);

    inn.cleaned(&says("/innkeeper cleanup"), &checkout);
    assert!(inn.checkouts_left().is_empty());
    inn.finish();
}
