//! Heads and branches of every kind: forks, shared names, names in each other's way.

use crate::inn::{Inn, STARTS_PULL_REQUESTS, Transport, widgets};
use crate::support::payloads::PullRequest;
use crate::support::world::{Config, git_output};

/// The head of a fork is fetched through the base repository, stays detached in a
/// clone, and cannot be pushed anywhere by accident.
fn of_a_fork(transport: Transport) {
    let mut inn = Inn::keeping(transport, "worktree");
    let origin = inn.origin("acme", "widgets");
    let main = origin.bare_git(&["rev-parse", "main"]);
    let head = origin.fork_pull_request(2);
    let gone = origin.fork_pull_request(3);
    inn.start();

    // Its branch is called `main`, as one of ours is.
    let fork = PullRequest::new(&widgets(), 2, &head)
        .branch("main")
        .of_fork("eve");
    inn.dropped(&fork.clone().by("eve", "NONE").opened(), "untrusted-actor");
    let (checkout, prepared) = inn.prepared(&fork.opened());
    assert_eq!(prepared["strategy"], "clone");
    assert!(prepared.get("branch").is_none(), "{prepared}");
    inn.assert_at(&checkout, &head, None);
    std::fs::write(checkout.join("mine.txt"), "mine\n").expect("a file");
    inn.git(&checkout, &["add", "--all"]);
    inn.git(&checkout, &["commit", "--quiet", "-m", "mine"]);
    for push in [&["push"][..], &["push", "origin", "HEAD:main"]] {
        let pushed = git_output(&inn.home(), &checkout, push);
        assert!(!pushed.status.success(), "{push:?} went through");
    }
    assert_eq!(origin.bare_git(&["rev-parse", "main"]), main);
    inn.git(&checkout, &["reset", "--quiet", "--hard", &head]);
    let reasons = inn.kept(&fork.closed_unmerged(), &checkout);
    assert_eq!(
        reasons,
        ["detached_unreferenced"],
        "the commit is still in the reflog"
    );

    // The fork is gone: `head.repo` is null.
    let deleted = PullRequest::new(&widgets(), 3, &gone)
        .branch("main")
        .of_deleted_fork("eve");
    let (checkout, prepared) = inn.prepared(&deleted.opened());
    assert_eq!(prepared["strategy"], "clone");
    inn.assert_at(&checkout, &gone, None);
    inn.cleaned(&deleted.closed_unmerged(), &checkout);
    inn.finish();
}

#[test]
fn a_fork_is_fetched_through_the_base_repository_over_file() {
    of_a_fork(Transport::File);
}

#[test]
fn a_fork_is_fetched_through_the_base_repository_over_http() {
    of_a_fork(Transport::Http);
}

#[test]
fn branches_with_odd_long_and_shared_names_work_in_both_strategies() {
    for strategy in ["worktree", "clone"] {
        let mut inn = Inn::preparing(Transport::File, strategy);
        let origin = inn.origin("acme", "widgets");
        let long = format!("feature/{}", "x".repeat(235));
        let names = [
            "fünktion/größe-🐈",
            "имя",
            &long,
            "with.dots_and-dashes",
            "quote'd\"$(touch${IFS}x)`touch${IFS}y`;&|",
            "percent%2e%2e",
            "@at",
            "HEAD-of-state",
        ];
        inn.start();
        for (number, name) in (1..).zip(names) {
            let head = origin.pull_request(number, name);
            let request = PullRequest::new(&widgets(), number, &head).branch(name);
            let (checkout, prepared) = inn.prepared(&request.opened());
            assert_eq!(prepared["branch"], *name);
            inn.assert_at(&checkout, &head, Some(name));
            let more = origin.push_more(number, name);
            inn.done(&request.clone().at(&more).synchronize(&head));
            inn.assert_at(&checkout, &more, Some(name));
            inn.cleaned(&request.at(&more).closed_unmerged(), &checkout);
        }
        assert!(inn.checkouts_left().is_empty());
        assert!(!inn.root().join("x").exists());
        inn.finish();
    }
}

#[test]
fn two_requests_of_one_branch_each_have_a_checkout() {
    for strategy in ["worktree", "clone"] {
        let mut inn = Inn::preparing(Transport::File, strategy);
        let origin = inn.origin("acme", "widgets");
        let head = origin.pull_request(1, "topic");
        origin.set_pull(2, &head);
        inn.start();
        let one = PullRequest::new(&widgets(), 1, &head).branch("topic");
        let two = PullRequest::new(&widgets(), 2, &head)
            .branch("topic")
            .onto("release");
        let (first, _) = inn.prepared(&one.opened());
        let (second, prepared) = inn.prepared(&two.opened());
        assert_ne!(first, second);
        inn.assert_at(&first, &head, Some("topic"));
        if strategy == "worktree" {
            assert!(prepared["detached_because"].is_string(), "{prepared}");
            inn.assert_at(&second, &head, None);
        } else {
            inn.assert_at(&second, &head, Some("topic"));
        }
        // A push is told for each of them, and each is moved.
        let (before, head) = (head, origin.push_more(1, "topic"));
        origin.set_pull(2, &head);
        inn.done(&two.clone().at(&head).synchronize(&before));
        inn.done(&one.clone().at(&head).synchronize(&before));
        inn.assert_at(&first, &head, Some("topic"));
        inn.assert_at(&second, &head, (strategy == "clone").then_some("topic"));
        let (one, two) = (one.at(&head), two.at(&head));
        // Each goes by itself.
        inn.cleaned(&one.closed_unmerged(), &first);
        inn.assert_at(&second, &head, (strategy == "clone").then_some("topic"));
        inn.cleaned(&two.closed_unmerged(), &second);
        inn.finish();
    }
}

#[test]
fn a_branch_in_the_way_of_another_leaves_the_checkout_detached() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let one = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let (first, _) = inn.prepared(&one.opened());

    // The remote's branch is renamed; the local one is still in use.
    origin.bare_git(&["branch", "-D", "topic"]);
    origin.git(&["checkout", "--quiet", "--detach"]);
    origin.git(&["branch", "-D", "topic"]);
    let nested = origin.pull_request(2, "topic/nested");
    let two = PullRequest::new(&widgets(), 2, &nested).branch("topic/nested");
    let (second, prepared) = inn.prepared(&two.opened());
    assert!(prepared["detached_because"].is_string(), "{prepared}");
    inn.assert_at(&second, &nested, None);
    inn.assert_at(&first, &head, Some("topic"));

    // Once the other is gone, it can have the name.
    inn.cleaned(&one.closed_merged(), &first);
    inn.cleaned(&two.closed_unmerged(), &second);
    let (again, _) = inn.prepared(&two.reopened());
    inn.assert_at(&again, &nested, Some("topic/nested"));
    inn.finish();
}

#[test]
fn a_head_that_is_not_there_yet_is_waited_for() {
    let mut inn = Inn::preparing(Transport::Http, "worktree");
    let origin = inn.origin("acme", "widgets");
    origin.git(&["checkout", "--quiet", "-b", "topic"]);
    let head = origin.commit("not pushed yet");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let id = inn.accept(&request.opened());
    let retrying = inn.wait_delivery("delivery.retrying", &id);
    assert_eq!(retrying["code"], "ref_not_yet");
    assert_eq!(inn.told("workspace.prepare_failed", &id)["retryable"], true);
    origin.push("topic");
    origin.set_pull(1, &head);
    inn.wait_done(&id);
    let checkout = crate::inn::checkout_of(&inn.told("workspace.prepared", &id));
    inn.assert_at(&checkout, &head, Some("topic"));
    inn.finish();
}

#[test]
fn a_head_that_cannot_be_had_fails_or_where_allowed_gives_the_default_branch() {
    for allowed in [false, true] {
        let mut inn = Inn::with(
            Transport::File,
            Config {
                routing: format!("maxAttempts: 1\n{STARTS_PULL_REQUESTS}"),
                workspace: if allowed {
                    "missingBranch: default".into()
                } else {
                    String::new()
                },
                ..Config::default()
            },
        );
        let origin = inn.origin("acme", "widgets");
        let main = origin.bare_git(&["rev-parse", "main"]);
        inn.start();
        let request = PullRequest::new(&widgets(), 1, &"d".repeat(40)).branch("nowhere");
        if allowed {
            let (checkout, prepared) = inn.prepared(&request.opened());
            assert_eq!(prepared["fallback"], true);
            inn.assert_at(&checkout, &main, None);
            inn.cleaned(&request.closed_unmerged(), &checkout);
        } else {
            inn.parked(&request.opened(), "ref_gone");
        }
        assert!(inn.checkouts_left().is_empty());
        inn.finish();
    }
}
