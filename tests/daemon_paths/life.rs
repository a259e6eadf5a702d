//! A pull request's life: opened, pushed to, closed, reopened.

use crate::inn::{Inn, Transport, squash_merge, widgets};
use crate::support::payloads::PullRequest;

/// Everything that happens to a request of the repository's own branch while no
/// session runs.
fn lives_and_ends(transport: Transport, strategy: &str) {
    let mut inn = Inn::keeping(transport, strategy);
    let origin = inn.origin("acme", "widgets");
    let first = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &first).branch("topic");

    let (checkout, prepared) = inn.prepared(&request.opened());
    assert_eq!(prepared["strategy"], strategy);
    assert_eq!(prepared["commit"], first);
    assert_eq!(prepared["branch"], "topic");
    assert_eq!(prepared["base"], "main");
    assert_eq!(prepared["source"], "webhook");
    assert_eq!(prepared["reused"], false);
    assert_eq!(prepared["fallback"], false);
    assert_eq!(prepared["work_item"], "github:forge.example/acme/widgets#1");
    let name = checkout
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    if strategy == "worktree" {
        let parent = inn
            .checkouts()
            .join(".worktrees/forge.example/acme/widgets");
        assert_eq!(checkout.parent(), Some(parent.as_path()));
        assert!(name.starts_with("acme-widgets-1-"), "{name}");
    } else {
        assert!(checkout.ends_with("forge.example/acme/widgets"));
        assert!(checkout.starts_with(inn.checkouts().join(".work-items")));
    }
    inn.assert_at(&checkout, &first, Some("topic"));
    if transport == Transport::Http {
        assert!(inn.http().reads() > 0, "it was fetched over HTTP");
    }

    // Clean, and nobody works in it: it is moved, also after a force push.
    let second = origin.push_more(1, "topic");
    let id = inn.done(&request.clone().at(&second).synchronize(&first));
    let updated = inn.told("workspace.updated", &id);
    assert_eq!(updated["moved"], true, "{updated}");
    assert_eq!(
        (&updated["from"], &updated["to"]),
        (&first.clone().into(), &second.clone().into())
    );
    inn.assert_at(&checkout, &second, Some("topic"));
    origin.git(&["checkout", "--quiet", "-B", "topic", "main"]);
    origin.write("begun-anew.txt", "anew\n");
    let third = origin.commit("begun anew");
    origin.push("topic");
    origin.set_pull(1, &third);
    let id = inn.done(&request.clone().at(&third).synchronize(&second));
    assert_eq!(inn.told("workspace.updated", &id)["moved"], true);
    inn.assert_at(&checkout, &third, Some("topic"));
    assert!(
        inn.has_commit(&checkout, &second),
        "what was forced away stays reachable"
    );

    // With work in it, it is left alone; the new commit is there to be had.
    std::fs::write(checkout.join("mine.txt"), "mine\n").expect("a file");
    let fourth = origin.push_more(1, "topic");
    let id = inn.done(&request.clone().at(&fourth).synchronize(&third));
    assert_eq!(inn.told("workspace.updated", &id)["moved"], false);
    assert_eq!(inn.head(&checkout), third);
    assert!(checkout.join("mine.txt").exists());
    assert!(inn.has_commit(&checkout, &fourth));

    // Closed with work in it, it is kept; with a reason.
    assert_eq!(
        inn.kept(&request.clone().at(&fourth).closed_unmerged(), &checkout),
        ["untracked"]
    );
    assert!(checkout.join("mine.txt").exists());

    // Reopened, it is the same checkout.
    let id = inn.done(&request.clone().at(&fourth).reopened());
    assert!(inn.told_maybe("workspace.prepared", &id).is_none());
    assert!(checkout.join("mine.txt").exists());

    // The agent's own push tells it nothing.
    inn.git(
        &checkout,
        &["pull", "--quiet", "--rebase", "origin", "topic"],
    );
    inn.git(&checkout, &["add", "--all"]);
    inn.git(&checkout, &["commit", "--quiet", "-m", "mine"]);
    inn.git(&checkout, &["push", "--quiet"]);
    let mine = inn.head(&checkout);
    assert_eq!(origin.bare_git(&["rev-parse", "topic"]), mine);
    origin.set_pull(1, &mine);
    inn.dropped(&request.clone().at(&mine).synchronize(&fourth), "own-event");

    // Squashed onto its base and the branch deleted, nothing is at risk.
    origin.git(&[
        "fetch",
        "--quiet",
        &origin.bare.display().to_string(),
        "topic",
    ]);
    origin.git(&["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
    origin.git(&["branch", "-f", "topic"]);
    squash_merge(&origin, "topic");
    origin.bare_git(&["branch", "-D", "topic"]);
    inn.cleaned(&request.clone().at(&mine).closed_merged(), &checkout);
    inn.dropped(
        &request
            .clone()
            .at(&mine)
            .event("closed", false, true, serde_json::json!({"again": 1})),
        "already-closed",
    );
    assert!(
        inn.checkouts_left().is_empty(),
        "{:?}",
        inn.checkouts_left()
    );
    inn.finish();
}

#[test]
fn a_request_lives_and_ends_in_a_worktree_over_file() {
    lives_and_ends(Transport::File, "worktree");
}

#[test]
fn a_request_lives_and_ends_in_a_clone_over_file() {
    lives_and_ends(Transport::File, "clone");
}

#[test]
fn a_request_lives_and_ends_in_a_worktree_over_http() {
    lives_and_ends(Transport::Http, "worktree");
}

#[test]
fn a_request_lives_and_ends_in_a_clone_over_http() {
    lives_and_ends(Transport::Http, "clone");
}
