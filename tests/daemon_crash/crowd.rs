//! Many items of one repository at once: one shared clone, one fetch for all
//! that wait, each checkout at its own commit.

use std::path::PathBuf;

use crate::inn::{EVERYTHING, clones, repo, rounds, wait_nothing_left};
use crate::support::http_git::HttpGit;
use crate::support::payloads::{Issue, Payload, PullRequest, deliver};
use crate::support::world::{Config, Origin, SECRET, World};

const CROWD: u64 = 16;

/// Delivers all at once, each on a connection and thread of its own.
fn deliver_at_once(world: &World, payloads: &[(String, Payload)]) {
    let address = world.webhooks();
    std::thread::scope(|scope| {
        for (id, payload) in payloads {
            scope.spawn(move || {
                let reply = deliver(address, "/webhooks/github", SECRET.as_bytes(), id, payload)
                    .expect("the listener answers");
                assert_eq!(reply.status, 202, "{id}");
            });
        }
    });
}

/// Branches of the repository itself and, every fourth, heads that only
/// `refs/pull` has.
fn pull_requests(origin: &Origin) -> Vec<(u64, String, Option<String>)> {
    (1..=CROWD)
        .map(|number| {
            if number % 4 == 0 {
                return (number, origin.fork_pull_request(number), None);
            }
            let branch = format!("topic-{number}");
            (number, origin.pull_request(number, &branch), Some(branch))
        })
        .collect()
}

fn sixteen_at_once(strategy: &str) {
    for round in 0..rounds(3) {
        let mut world = World::new(&Config::default());
        let origin = world.origin("acme", "widgets");
        let pulls = pull_requests(&origin);
        let server = HttpGit::serve(&world.origins());
        world.configure(&Config {
            routing: format!("maxConcurrentDispatches: 16\n{EVERYTHING}"),
            workspace: format!("strategy: {strategy}\nuntrustedStrategy: {strategy}"),
            clone_url: Some(server.template()),
            ..Config::default()
        });
        world.start();
        let repo = repo("acme", "widgets", 7);
        let opened: Vec<(String, Payload)> = pulls
            .iter()
            .map(|(number, head, branch)| {
                let pull = PullRequest::new(&repo, *number, head);
                let pull = match branch {
                    Some(branch) => pull.branch(branch),
                    None => pull.of_fork("mallory"),
                };
                (format!("crowd-{round}-{number}"), pull.opened())
            })
            .collect();
        deliver_at_once(&world, &opened);
        let mut fetches = 0;
        for ((id, _), (_, head, _)) in opened.iter().zip(&pulls) {
            let over = world.wait_over(id);
            assert_eq!(over["event"], "delivery.done", "{over}");
            let prepared = world.wait_delivery("workspace.prepared", id);
            assert_eq!(prepared["commit"], *head, "{prepared}");
            assert_eq!(prepared["strategy"], strategy, "{prepared}");
            let checkout = PathBuf::from(prepared["checkout"].as_str().expect("a path"));
            assert_eq!(origin.git_in(&checkout, &["rev-parse", "HEAD"]), *head);
            assert_eq!(origin.git_in(&checkout, &["status", "--porcelain"]), "");
            if prepared["fetched"] == true && prepared["coalesced"] == false {
                fetches += 1;
            }
        }
        assert_eq!(clones(&world).len(), 1, "{:?}", clones(&world));
        assert!(world.events_named("workspace.prepare_failed").is_empty());
        // All wait for the first clone; what it brought not is one fetch for all
        // that wait by then, and one more for those that came during that one.
        assert!(
            server.reads() <= 5 && fetches <= 3,
            "{} reads, {fetches} fetches",
            server.reads()
        );
        for (_, payload) in pulls.iter().map(|(number, head, _)| {
            (
                number,
                PullRequest::new(&repo, *number, head).closed_unmerged(),
            )
        }) {
            world.accept(&payload);
        }
        world.wait_event("workspace.cleaned", pulls.len());
        wait_nothing_left(&world);
        world.stop();
        world.assert_sequence_is_whole();
    }
}

#[test]
fn sixteen_pull_requests_at_once_are_sixteen_worktrees_of_one_shared_clone() {
    sixteen_at_once("worktree");
}

#[test]
fn sixteen_pull_requests_at_once_are_sixteen_clones_from_one_fetch() {
    sixteen_at_once("clone");
}

#[test]
fn issues_and_pull_requests_of_two_repositories_come_mixed_and_in_any_spelling() {
    for round in 0..rounds(1) {
        let mut world = World::new(&Config::default());
        let widgets = world.origin("acme", "widgets");
        let gadgets = world.origin("acme", "gadgets");
        // A forge does not care how its names are spelled.
        let spelled = world.origins().join("Acme");
        std::fs::create_dir(&spelled).expect("a directory");
        std::os::unix::fs::symlink(&widgets.bare, spelled.join("Widgets.git")).expect("a link");
        let server = HttpGit::serve(&world.origins());
        world.configure(&Config {
            routing: format!("maxConcurrentDispatches: 16\n{EVERYTHING}"),
            clone_url: Some(server.template()),
            ..Config::default()
        });
        world.start();
        let tip = widgets.git(&["rev-parse", "main"]);
        let other_tip = gadgets.git(&["rev-parse", "main"]);
        let mut deliveries = Vec::new();
        let mut expected = Vec::new();
        for number in 1..=16 {
            let id = format!("mixed-{round}-{number}");
            let (payload, commit) = match number % 4 {
                0 => (
                    Issue::new(&repo("Acme", "Widgets", 7), number).opened(),
                    tip.clone(),
                ),
                1 => {
                    let head = widgets.pull_request(number, &format!("topic-{number}"));
                    let pull = PullRequest::new(&repo("acme", "widgets", 7), number, &head);
                    (pull.branch(&format!("topic-{number}")).opened(), head)
                }
                2 => (
                    Issue::new(&repo("acme", "gadgets", 8), number).opened(),
                    other_tip.clone(),
                ),
                _ => {
                    let head = gadgets.pull_request(number, &format!("topic-{number}"));
                    let pull = PullRequest::new(&repo("acme", "gadgets", 8), number, &head);
                    (pull.branch(&format!("topic-{number}")).opened(), head)
                }
            };
            deliveries.push((id.clone(), payload));
            expected.push((id, commit));
        }
        deliver_at_once(&world, &deliveries);
        for (id, commit) in &expected {
            let over = world.wait_over(id);
            assert_eq!(over["event"], "delivery.done", "{over}");
            let prepared = world.wait_delivery("workspace.prepared", id);
            assert_eq!(prepared["commit"], *commit, "{prepared}");
        }
        assert_eq!(clones(&world).len(), 2, "{:?}", clones(&world));
        assert!(world.events_named("workspace.prepare_failed").is_empty());
        world.stop();
        world.assert_sequence_is_whole();
    }
}
