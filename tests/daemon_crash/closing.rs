//! A close that comes while something waits: for a slow remote, for the next
//! attempt, for a session's place. And the end of a session with everything it
//! started.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::inn::{
    EVERYTHING, checkout_of, lives, processes, repo, scribe, signal, told, violations,
    wait_nothing_left, world_of_scribes,
};
use crate::support::http_git::{HttpGit, Manner};
use crate::support::payloads::PullRequest;
use crate::support::world::{Config, World};

/// Shorter than any wait between attempts that a close might sit out.
const SOON: Duration = Duration::from_secs(4);

fn behind(server: &HttpGit) -> Config {
    Config {
        routing: EVERYTHING.into(),
        clone_url: Some(server.template()),
        ..Config::default()
    }
}

#[test]
fn a_close_during_a_slow_clone_leaves_nothing() {
    let mut world = World::new(&Config::default());
    let server = HttpGit::serve(&world.origins());
    world.configure(&behind(&server));
    world.start();
    // Each repository is cloned anew; the requests of a clone stall one after
    // the other, or not at all.
    let manners = [
        Manner::Silent,
        Manner::Stalling { after: 0 },
        Manner::Stalling { after: 40 },
        Manner::Stalling { after: 300 },
        Manner::Late(Duration::from_millis(300)),
    ];
    for (number, manner) in (1..).zip(manners) {
        for waits in [false, true] {
            let name = format!("slow-{number}-{waits}");
            let origin = world.origin("acme", &name);
            let head = origin.pull_request(number, "topic");
            let repo = repo("acme", &name, 100 + number * 2 + u64::from(waits));
            let pull = PullRequest::new(&repo, number, &head).branch("topic");
            let before = server.requests();
            server.set_manner(manner);
            let opened = world.accept(&pull.opened());
            if waits {
                server.await_requests(before + 1, Duration::from_secs(30));
            }
            let began = Instant::now();
            let closed = world.accept(&pull.closed_unmerged());
            let over = world.wait_over(&opened);
            assert!(
                over["event"] == "delivery.done" || over["reason"] == "superseded",
                "{over}"
            );
            assert_eq!(world.wait_over(&closed)["event"], "delivery.done");
            if !matches!(manner, Manner::Late(_)) {
                assert_eq!(over["reason"], "superseded", "{over}");
                assert!(
                    began.elapsed() < Duration::from_secs(20),
                    "{:?}",
                    began.elapsed()
                );
            }
            server.set_manner(Manner::Prompt);
            wait_nothing_left(&world);
        }
    }
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn a_close_does_not_wait_for_the_next_attempt() {
    let mut world = World::new(&Config::default());
    let server = HttpGit::serve(&world.origins());
    world.configure(&behind(&server));
    let origin = world.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    world.start();
    let repo = repo("acme", "widgets", 7);
    let pull = PullRequest::new(&repo, 1, &head).branch("topic");
    server.set_manner(Manner::Refusing(503));
    let opened = world.accept(&pull.opened());
    world.wait_delivery("delivery.retrying", &opened);
    let began = Instant::now();
    let closed = world.accept(&pull.closed_unmerged());
    assert_eq!(world.wait_over(&closed)["event"], "delivery.done");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(world.wait_over(&opened)["reason"], "superseded");
    wait_nothing_left(&world);
    // Nothing is tried for it any more.
    let attempts = server.requests();
    let other = world.origin("acme", "gadgets");
    let other_head = other.pull_request(2, "topic");
    server.set_manner(Manner::Prompt);
    let id = world.accept(
        &PullRequest::new(&crate::inn::repo("acme", "gadgets", 8), 2, &other_head)
            .branch("topic")
            .opened(),
    );
    world.wait_over(&id);
    let seen = server.seen();
    assert!(
        seen[attempts..]
            .iter()
            .all(|seen| seen.target.starts_with("/acme/gadgets.git")),
        "{:?}",
        &seen[attempts..]
    );
    world.stop();
}

#[test]
fn a_session_that_waits_for_a_place_is_never_started_once_its_item_is_closed() {
    let mut world = world_of_scribes(
        |config| config.sessions.push_str("maxConcurrent: 1\n"),
        "while [ ! -e \"$here/go\" ]; do sleep 0.05 9>&-; done",
    );
    let origin = world.origin("acme", "widgets");
    let repo = repo("acme", "widgets", 7);
    let pulls: Vec<PullRequest> = (1..=3)
        .map(|number| {
            let branch = format!("topic-{number}");
            let head = origin.pull_request(number, &branch);
            PullRequest::new(&repo, number, &head).branch(&branch)
        })
        .collect();
    world.start();
    let first = world.accept(&pulls[0].opened());
    world.wait_over(&first);
    let waits = world.accept(&pulls[1].opened());
    world.wait_delivery("session.queued", &waits);
    let later = world.accept(&pulls[2].opened());
    world.wait_delivery("session.queued", &later);
    // A daemon that is killed meanwhile remembers who waits.
    world.kill();
    world.start();
    let began = Instant::now();
    let closed = world.accept(&pulls[1].closed_unmerged());
    assert_eq!(world.wait_over(&closed)["event"], "delivery.done");
    assert_eq!(world.wait_over(&waits)["reason"], "superseded");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    world.wait_event("workspace.cleaned", 1);
    std::fs::write(world.root().join("go"), "").expect("a file");
    assert_eq!(world.wait_over(&later)["event"], "delivery.done");
    world.wait_event("session.exited", 2);
    assert!(told(&world, "acme/widgets", 2).is_empty());
    assert_eq!(told(&world, "acme/widgets", 3).len(), 2);
    assert_eq!(violations(&world), "");
    let queued = world.events_named("session.queued");
    assert_eq!(queued.len(), 2, "each waits once: {queued:?}");
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn a_text_that_waits_for_a_place_is_handed_over_when_one_is_free() {
    // Without `resume` each run is a session of its own.
    let mut world = world_of_scribes(
        |_| {},
        "touch \"$here/runs-$name\"; while [ ! -e \"$here/go-$name\" ]; do sleep 0.05 9>&-; done",
    );
    let profiles = scribe(
        &world,
        "scribe",
        "touch \"$here/runs-$name\"; while [ ! -e \"$here/go-$name\" ]; do sleep 0.05 9>&-; done",
    );
    let without: Vec<&str> = profiles
        .lines()
        .filter(|line| !line.trim_start().starts_with("resume:"))
        .collect();
    let without = without.join("\n");
    world.configure(&Config {
        routing: EVERYTHING.into(),
        sessions: format!("maxConcurrent: 1\ndefault: scribe\nprofiles:\n{without}"),
        ..Config::default()
    });
    let origin = world.origin("acme", "widgets");
    let repo = repo("acme", "widgets", 7);
    let pulls: Vec<PullRequest> = (1..=2)
        .map(|number| {
            let branch = format!("topic-{number}");
            let head = origin.pull_request(number, &branch);
            PullRequest::new(&repo, number, &head).branch(&branch)
        })
        .collect();
    let mark = |what: &str, number: u64| {
        world
            .root()
            .join(format!("{what}-github-forge-example-acme-widgets-{number}"))
    };
    let (go_1, go_2) = (mark("go", 1), mark("go", 2));
    world.start();
    let opened = world.accept(&pulls[0].opened());
    world.wait_over(&opened);
    let waits = world.accept(&pulls[1].opened());
    world.wait_delivery("session.queued", &waits);
    let comment = world.accept(&pulls[0].commented("alice", "MEMBER", "more-of-one"));
    world.wait_over(&comment);
    // The place goes to the one or the other; both get it in the end, also when
    // the daemon dies while one of them waits.
    std::fs::write(&go_1, "").expect("a file");
    world.wait_event("session.exited", 1);
    world.wait("a second run", |events| {
        let begun = events
            .iter()
            .filter(|told| told["event"] == "session.started");
        (begun.count() >= 2).then_some(())
    });
    world.kill();
    world.start();
    std::fs::write(&go_2, "").expect("a file");
    world.wait_event("session.exited", 3);
    let of_one = told(&world, "acme/widgets", 1);
    assert_eq!(
        of_one
            .iter()
            .filter(|line| line.contains("more-of-one"))
            .count(),
        1,
        "{of_one:?}"
    );
    assert_eq!(told(&world, "acme/widgets", 2).len(), 2);
    assert_eq!(violations(&world), "");
    world.stop();
}

#[test]
fn a_close_ends_a_session_with_everything_it_started() {
    let mut world = world_of_scribes(
        |_| {},
        r#"exec 9>&-
(trap '' TERM; while :; do sleep 1; done) & echo $! >>"$here/pids"
setsid sh -c 'trap "" TERM; echo $$ >>"$1"; while :; do sleep 1; done' x "$here/pids" &
nohup sleep 1000 >/dev/null 2>&1 & echo $! >>"$here/pids"
setsid sh -c 'cd /; setsid sleep 1000 & echo $! >>"$1"' x "$here/pids"
trap '' TERM HUP INT
while [ "$(wc -l <"$here/pids")" -lt 4 ]; do sleep 0.05 9>&-; done
echo $$ >>"$here/pids"
while :; do sleep 1; done"#,
    );
    let origin = world.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    let pull = PullRequest::new(&repo("acme", "widgets", 7), 1, &head).branch("topic");
    world.start();
    let opened = world.accept(&pull.opened());
    let checkout = checkout_of(&world, &opened);
    let pids = || -> Vec<u32> {
        let text = std::fs::read_to_string(world.root().join("pids")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    world.until("five processes run", || pids().len() == 5);
    let pids = pids();
    assert!(pids.iter().all(|pid| lives(*pid)), "{pids:?}");
    let closed = world.accept(&pull.closed_unmerged());
    assert_eq!(world.wait_over(&closed)["event"], "delivery.done");
    world.wait_delivery("workspace.cleaned", &closed);
    assert!(!checkout.exists());
    let alive: Vec<_> = pids.iter().filter(|pid| lives(**pid)).collect();
    assert!(alive.is_empty(), "{alive:?} {:?}", processes(world.root()));
    wait_nothing_left(&world);
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn a_checkout_that_somebody_else_stands_in_is_kept_and_they_are_not_touched() {
    let mut world = world_of_scribes(|_| {}, "");
    let origin = world.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    let pull = PullRequest::new(&repo("acme", "widgets", 7), 1, &head).branch("topic");
    world.start();
    let opened = world.accept(&pull.opened());
    let checkout = checkout_of(&world, &opened);
    world.wait_event("session.exited", 1);
    let mut somebody = Command::new("sleep")
        .arg("1000")
        .current_dir(&checkout)
        .stdin(Stdio::null())
        .spawn()
        .expect("it starts");
    let closed = world.accept(&pull.closed_unmerged());
    let kept = world.wait_delivery("workspace.kept", &closed);
    assert_eq!(kept["reasons"][0]["code"], "in_use", "{kept}");
    assert_eq!(world.wait_over(&closed)["event"], "delivery.done");
    assert!(checkout.join("README").exists());
    assert!(lives(somebody.id()));
    signal(somebody.id(), "KILL");
    somebody.wait().expect("it ended");
    world.ok(&["item", "cleanup", "acme/widgets#1"]);
    world.wait_event("workspace.cleaned", 1);
    wait_nothing_left(&world);
    world.stop();
}
