//! Issues, which the built-in rules start by a label.

use serde_json::json;

use crate::inn::{Inn, Transport, widgets};
use crate::support::payloads::{Issue, Payload};
use crate::support::world::Config;

fn by_label(transport: Transport, strategy: &str) -> Inn {
    Inn::with(
        transport,
        Config {
            workspace: format!("strategy: {strategy}"),
            ..Config::default()
        },
    )
}

fn unlabeled(issue: &Issue, name: &str) -> Payload {
    issue.event("unlabeled", true, json!({ "label": { "name": name } }))
}

/// A labelled issue gets the default branch's present tip, and goes when it closes.
fn lives_and_ends(transport: Transport, strategy: &str) {
    let mut inn = by_label(transport, strategy);
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let issue = Issue::new(&widgets(), 5);
    inn.dropped(&issue.opened(), "no-rule");
    inn.dropped(&issue.labeled("other"), "no-rule");
    let (checkout, prepared) = inn.prepared(&issue.labeled("innkeeper"));
    let main = origin.bare_git(&["rev-parse", "main"]);
    let branch = (strategy == "clone").then_some("main");
    inn.assert_at(&checkout, &main, branch);
    assert_eq!(prepared["branch"].as_str(), branch);

    // The label away: nothing new is started, what is there stays.
    let labelled = issue.clone().label("innkeeper");
    inn.done(&unlabeled(&issue, "innkeeper"));
    inn.dropped(&unlabeled(&issue, "innkeeper"), "no-rule");
    assert!(checkout.is_dir());
    inn.done(&labelled.reopened());
    inn.cleaned(&labelled.closed(), &checkout);

    // Another one begins at what the branch is by then.
    origin.git(&["checkout", "--quiet", "main"]);
    let newer = origin.commit("newer");
    origin.push("main");
    let second = Issue::new(&widgets(), 6).label("innkeeper");
    let (checkout, _) = inn.prepared(&second.opened());
    inn.assert_at(&checkout, &newer, branch);

    // The default branch has another name from now on.
    origin.bare_git(&["branch", "-m", "main", "trunk"]);
    origin.bare_git(&["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    let third = Issue::new(&widgets(), 7).label("innkeeper");
    let (checkout, _) = inn.prepared(&third.opened());
    inn.assert_at(&checkout, &newer, (strategy == "clone").then_some("trunk"));
    inn.finish();
}

#[test]
fn a_labelled_issue_gets_a_detached_worktree_over_file() {
    lives_and_ends(Transport::File, "worktree");
}

#[test]
fn a_labelled_issue_gets_a_detached_worktree_over_http() {
    lives_and_ends(Transport::Http, "worktree");
}

#[test]
fn a_labelled_issue_gets_a_clone_on_the_default_branch_over_file() {
    lives_and_ends(Transport::File, "clone");
}

#[test]
fn a_labelled_issue_gets_a_clone_on_the_default_branch_over_http() {
    lives_and_ends(Transport::Http, "clone");
}

#[test]
fn an_issue_of_an_empty_repository_has_nothing_to_start_from() {
    for transport in [Transport::File, Transport::Http] {
        let mut inn = by_label(transport, "worktree");
        let origin = inn.origin("acme", "widgets");
        origin.bare_git(&["update-ref", "-d", "refs/heads/main"]);
        inn.start();
        let issue = Issue::new(&widgets(), 5);
        inn.parked(&issue.labeled("innkeeper"), "unborn_head");
        assert!(inn.checkouts_left().is_empty());
        // The first commit comes, and somebody tries again.
        origin.push("main");
        let (checkout, _) = inn.prepared(&issue.commented("alice", "MEMBER", "/innkeeper start"));
        assert!(checkout.join("README").exists());
        inn.finish();
    }
}
