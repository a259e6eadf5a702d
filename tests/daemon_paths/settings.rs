//! Settings that change where and how checkouts are made, and when they go.

use crate::inn::{Inn, STARTS_PULL_REQUESTS, Transport, WITH_AGENT, widgets};
use crate::support::payloads::{Issue, PullRequest};
use crate::support::world::Config;

fn pull_requests(workspace: &str) -> Config {
    Config {
        routing: STARTS_PULL_REQUESTS.into(),
        workspace: workspace.into(),
        ..Config::default()
    }
}

#[test]
fn a_checkout_that_is_to_be_kept_stays_until_it_is_asked_for() {
    for strategy in ["worktree", "clone"] {
        let workspace = format!("strategy: {strategy}\nkeepCheckoutOnClose: true");
        let mut inn = Inn::with(Transport::File, pull_requests(&workspace));
        let origin = inn.origin("acme", "widgets");
        let head = origin.pull_request(1, "topic");
        inn.start();
        let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
        let (checkout, _) = inn.prepared(&request.opened());
        assert_eq!(
            inn.kept(&request.closed_merged(), &checkout),
            ["configured"]
        );
        inn.assert_at(&checkout, &head, Some("topic"));
        let cleanup = request.commented("alice", "MEMBER", "/innkeeper cleanup");
        inn.cleaned(&cleanup, &checkout);
        inn.finish();
    }
}

#[test]
fn without_a_root_sessions_run_in_the_spawn_workdir_and_nothing_is_cloned() {
    let mut inn = Inn::with(
        Transport::File,
        Config {
            routing: format!("spawnWorkdir: somewhere\n{STARTS_PULL_REQUESTS}"),
            sessions: WITH_AGENT.into(),
            no_root: true,
            ..Config::default()
        },
    );
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    let somewhere = inn.root().join("somewhere");
    std::fs::create_dir(&somewhere).expect("a directory");
    std::fs::write(somewhere.join("precious"), "").expect("a file");
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let id = inn.done(&request.opened());
    let run = inn.run_of(&id);
    assert_eq!(run.directory, somewhere);
    assert_eq!(run.environment["INNKEEPER_BRANCH"], "");
    inn.wait_event("session.exited", 1);
    let id = inn.done(&request.commented("alice", "MEMBER", "More."));
    assert_eq!(inn.run_of(&id).directory, somewhere);
    inn.wait_event("session.exited", 2);
    inn.done(&request.closed_merged());
    inn.wait_event("session.closed", 1);
    assert!(somewhere.join("precious").exists());
    assert!(inn.events_named("workspace.prepared").is_empty());
    assert!(!inn.checkouts().exists());
    inn.finish();
}

#[test]
fn an_unknown_strategy_is_a_warning_and_means_worktree() {
    let mut inn = Inn::with(Transport::File, pull_requests("strategy: teleport"));
    let origin = inn.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    let checked = inn.run(&["config", "check"]);
    assert!(checked.status.success());
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    assert!(
        said.contains("teleport") && said.contains("worktree"),
        "{said}"
    );
    inn.start();
    let request = PullRequest::new(&widgets(), 1, &head).branch("topic");
    let (_, prepared) = inn.prepared(&request.opened());
    assert_eq!(prepared["strategy"], "worktree");
    inn.finish();
}

#[test]
fn root_and_strategy_changed_by_a_reload_concern_new_checkouts_only() {
    let mut inn = Inn::with(Transport::File, pull_requests("strategy: worktree"));
    let origin = inn.origin("acme", "widgets");
    let first = origin.pull_request(1, "one");
    let second = origin.pull_request(2, "two");
    inn.start();
    let one = PullRequest::new(&widgets(), 1, &first).branch("one");
    let (old, _) = inn.prepared(&one.opened());
    assert!(old.starts_with(inn.checkouts()));

    inn.reload(Config {
        root: Some("elsewhere".into()),
        ..pull_requests("strategy: clone")
    });
    let elsewhere = inn.root().join("elsewhere");
    let two = PullRequest::new(&widgets(), 2, &second).branch("two");
    let (new, prepared) = inn.prepared(&two.opened());
    assert_eq!(prepared["strategy"], "clone");
    assert!(new.starts_with(&elsewhere), "{}", new.display());

    // The old one is still moved, and found after a restart.
    let more = origin.push_more(1, "one");
    let id = inn.done(&one.clone().at(&more).synchronize(&first));
    assert_eq!(inn.told("workspace.updated", &id)["moved"], true);
    inn.assert_at(&old, &more, Some("one"));
    inn.stop();
    inn.start();
    inn.cleaned(&one.clone().at(&more).closed_unmerged(), &old);
    inn.cleaned(&two.closed_unmerged(), &new);

    // Off: what was made before is still taken away.
    let (third, _) = inn.prepared(&one.clone().at(&more).reopened());
    assert!(third.starts_with(&elsewhere));
    inn.reload(Config {
        no_root: true,
        ..pull_requests("strategy: clone")
    });
    inn.cleaned(&one.at(&more).closed_merged(), &third);
    inn.finish();
}

#[test]
fn a_reload_with_errors_changes_nothing() {
    let mut inn = Inn::with(Transport::File, pull_requests("strategy: worktree"));
    inn.origin("acme", "widgets");
    inn.start();
    inn.reconfigure(pull_requests("strategie: clone"));
    inn.signal("HUP");
    let rejected = inn.wait_event("config.rejected", 1);
    assert!(
        rejected["error"]
            .as_str()
            .expect("text")
            .contains("strategie"),
        "{rejected}"
    );
    let issue = Issue::new(&widgets(), 5);
    let (_, prepared) = inn.prepared(&issue.labeled("innkeeper"));
    assert_eq!(prepared["strategy"], "worktree");
    inn.finish();
}
