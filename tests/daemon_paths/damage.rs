//! What a crash or a bad disk leaves in the repositories, seen from outside.

use std::path::Path;

use crate::inn::{Inn, Transport, widgets};
use crate::support::payloads::PullRequest;

#[test]
fn a_branch_that_was_cut_short_is_put_right_and_told_and_nothing_of_its_item_is_lost() {
    let mut inn = Inn::keeping(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    let other = origin.pull_request(2, "other");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let (checkout, _) = inn.prepared(&request.opened());
    std::fs::write(checkout.join("mine.txt"), "mine\n").expect("a file");
    inn.git(&checkout, &["add", "--all"]);
    inn.git(&checkout, &["commit", "--quiet", "-m", "mine"]);
    let mine = inn.head(&checkout);
    let common = inn.git(
        &checkout,
        &["rev-parse", "--path-format=absolute", "--git-common-dir"],
    );
    let branch = Path::new(&common).join("refs/heads/topic");
    std::fs::write(branch, "").expect("cut short");

    let second = PullRequest::new(&widgets(), 2, &other).branch("other");
    inn.prepared(&second.opened());
    let told = inn.wait_event("shared_clone.rebuilt", 1);
    assert_eq!(told["path"], common.as_str(), "{told}");
    let reason = told["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("refs/heads/topic"), "{told}");
    inn.assert_at(&checkout, &mine, Some("topic"));
    let reasons = inn.kept(&request.closed_unmerged(), &checkout);
    assert_eq!(reasons, ["unlanded_commits"]);
    inn.finish();
}

#[test]
fn locks_that_a_killed_git_left_are_told_at_the_next_start() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let (checkout, _) = inn.prepared(&request.opened());
    let common = inn.git(
        &checkout,
        &["rev-parse", "--path-format=absolute", "--git-common-dir"],
    );
    let lock = Path::new(&common).join("refs/heads/topic.lock");
    inn.kill();
    std::fs::write(&lock, "").expect("left over");
    inn.start();
    let told = inn.wait_event("lock.removed", 1);
    assert_eq!(told["path"], lock.display().to_string(), "{told}");
    assert!(
        told["proof"]
            .as_str()
            .is_some_and(|proof| !proof.is_empty())
    );
    assert!(!lock.exists());
    inn.cleaned(&request.closed_unmerged(), &checkout);
    inn.finish();
}
