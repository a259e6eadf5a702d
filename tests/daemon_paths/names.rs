//! Names of repositories: those that work, and those that lead to no path.

use serde_json::json;

use crate::inn::{Inn, Transport, widgets};
use crate::support::payloads::{PullRequest, Repo};
use crate::support::world::HOST;

#[test]
fn names_that_github_allows_work_and_those_alike_do_not_mix() {
    let mut inn = Inn::preparing(Transport::Http, "worktree");
    inn.start();
    let names = [
        ("acme", ".github"),
        ("acme", "dots.in.it"),
        ("acme", "under_score"),
        ("acme", "-dash"),
        ("acme", "x.git.y"),
        ("a-b", "c"),
        ("a", "b-c"),
    ];
    let mut checkouts = Vec::new();
    for (id, (owner, name)) in (100..).zip(names) {
        let head = inn.origin(owner, name).pull_request(1, "topic");
        let repo = Repo::new(owner, name, id).on(HOST);
        let request = PullRequest::new(&repo, 1, &head).branch("topic");
        if name.starts_with('-') {
            inn.dropped(&request.opened(), "repository-not-allowed");
            continue;
        }
        let (checkout, _) = inn.prepared(&request.opened());
        inn.assert_at(&checkout, &head, Some("topic"));
        let shared = inn.checkouts().join(HOST).join(owner).join(name);
        assert!(
            shared.join("HEAD").exists(),
            "{} is no clone",
            shared.display()
        );
        checkouts.push((checkout, request));
    }
    for (checkout, request) in checkouts {
        inn.cleaned(&request.closed_unmerged(), &checkout);
    }
    assert!(inn.checkouts_left().is_empty());
    inn.finish();
}

#[test]
fn a_repository_that_is_written_in_other_letters_or_renamed_is_the_same() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let first = origin.pull_request(1, "topic");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &first).branch("topic");
    let (checkout, _) = inn.prepared(&request.opened());

    // Renamed: what git is given from now on is the new name's URL.
    std::fs::rename(&origin.bare, inn.origins().join("acme/gadgets.git")).expect("renamed");
    let mut moved = inn.origin("acme", "gadgets");
    moved.work.clone_from(&origin.work);
    let second = moved.push_more(1, "topic");
    let renamed = Repo::new("acme", "gadgets", 7).on(HOST);
    let request = PullRequest::new(&renamed, 1, &second).branch("topic");
    let id = inn.done(&request.synchronize(&first));
    assert_eq!(inn.told("workspace.updated", &id)["moved"], true);
    inn.assert_at(&checkout, &second, Some("topic"));
    assert_eq!(
        inn.told("delivery.done", &id)["work_item"],
        "github:forge.example/acme/widgets#1"
    );

    // Letters do not matter.
    let shouted = Repo::new("ACME", "Gadgets", 7).on(HOST);
    let request = PullRequest::new(&shouted, 1, &second).branch("topic");
    inn.cleaned(&request.closed_unmerged(), &checkout);
    inn.finish();
}

#[test]
fn a_payload_without_addresses_is_taken_for_the_default_host() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    inn.start();
    let mut payload = PullRequest::new(&widgets(), 1, &head)
        .branch("topic")
        .opened();
    let repository = payload.body["repository"]
        .as_object_mut()
        .expect("an object");
    for key in [
        "clone_url",
        "ssh_url",
        "html_url",
        "git_url",
        "svn_url",
        "url",
    ] {
        repository.remove(key);
    }
    let (checkout, _) = inn.prepared(&payload);
    inn.assert_at(&checkout, &head, Some("topic"));
    inn.finish();
}

#[test]
fn an_address_in_a_payload_never_reaches_git() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let bait = inn.root().join("touched");
    let ext = format!("ext::sh -c 'touch {}'", bait.display());
    let upload = format!("--upload-pack=touch {}", bait.display());
    let file = format!("file://{}/origin/acme/widgets.git", inn.root().display());
    for (number, url) in (1..).zip([
        &*ext,
        &*upload,
        &*file,
        "https://evil.test/acme/widgets.git",
    ]) {
        let branch = format!("topic-{number}");
        let head = origin.pull_request(number, &branch);
        let mut payload = PullRequest::new(&widgets(), number, &head)
            .branch(&branch)
            .opened();
        payload.body["repository"]["clone_url"] = json!(url);
        payload.body["pull_request"]["base"]["repo"]["clone_url"] = json!(url);
        payload.body["pull_request"]["head"]["repo"]["clone_url"] = json!(url);
        let (checkout, _) = inn.prepared(&payload);
        inn.assert_at(&checkout, &head, Some(&branch));
        let remote = inn.git(&checkout, &["remote", "get-url", "origin"]);
        assert_eq!(remote, format!("file://{}", origin.bare.display()));
    }
    assert!(!bait.exists());
    inn.finish();
}
