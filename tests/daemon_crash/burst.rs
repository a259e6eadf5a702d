//! Two hundred deliveries for forty items, and a daemon that is killed twenty
//! times meanwhile. Afterwards the world is compared with what must be.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::inn::{
    assert_clones_are_whole, checkout_of, clones, names, of_delivery, processes, remains, repo,
    rounds, signal, told, violations, wait_nothing_left, wait_quiet, world_of_scribes,
};
use crate::support::payloads::{Issue, Payload, PullRequest, deliver};
use crate::support::world::{Origin, SECRET, World};

const ITEMS: u64 = 40;
const KILLS: usize = 20;
const FIRST_ISSUE: u64 = 33;

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A delivery and what is expected of it.
#[derive(Clone)]
struct Sent {
    id: String,
    item: u64,
    payload: Payload,
    /// What the session is told, if it is told anything.
    text: Option<String>,
}

fn closes(item: u64) -> bool {
    matches!(item % 4, 0 | 1)
}

fn reopens(item: u64) -> bool {
    item % 4 == 1
}

fn repository(item: u64) -> (&'static str, u64) {
    if item.is_multiple_of(3) {
        ("gadgets", 8)
    } else {
        ("widgets", 7)
    }
}

/// The deliveries in the order in which they are sent: of each item its first,
/// of each its second, and so on.
fn deliveries(round: usize, heads: &BTreeMap<u64, (String, String)>) -> Vec<Sent> {
    let mut steps: Vec<Vec<Sent>> = vec![Vec::new(); 5];
    for item in 1..=ITEMS {
        let (name, id) = repository(item);
        let repo = repo("acme", name, id);
        let comment = |step: usize| format!("comment-{item}-{step}");
        let mut add = |step: usize, payload: Payload, text: Option<String>| {
            steps[step].push(Sent {
                id: format!("burst-{round}-{item}-{step}"),
                item,
                payload,
                text,
            });
        };
        if item >= FIRST_ISSUE {
            let issue = Issue::new(&repo, item);
            let said = |step: usize| issue.commented("alice", "MEMBER", &comment(step));
            add(0, issue.opened(), Some(format!("issues/opened {item}")));
            add(1, said(1), Some(comment(1)));
            add(2, said(2), Some(comment(2)));
            if closes(item) {
                add(3, issue.closed(), None);
            } else {
                add(3, said(3), Some(comment(3)));
            }
            if reopens(item) {
                add(4, issue.reopened(), Some(format!("issues/reopened {item}")));
            } else if !closes(item) {
                add(4, said(4), Some(comment(4)));
            } else {
                // A second close of what is closed does nothing.
                add(4, issue.closed(), None);
            }
            continue;
        }
        let (first, second) = &heads[&item];
        let branch = format!("topic-{item}");
        let before = PullRequest::new(&repo, item, first).branch(&branch);
        let after = PullRequest::new(&repo, item, second).branch(&branch);
        let said = |step: usize| after.commented("alice", "MEMBER", &comment(step));
        add(
            0,
            before.opened(),
            Some(format!("pull_request/opened {item}")),
        );
        add(1, said(1), Some(comment(1)));
        add(2, after.synchronize(first), Some(second.clone()));
        if closes(item) {
            add(3, after.closed_unmerged(), None);
        } else {
            add(3, said(3), Some(comment(3)));
        }
        if reopens(item) {
            add(
                4,
                after.reopened(),
                Some(format!("pull_request/reopened {item}")),
            );
        } else if !closes(item) {
            add(4, said(4), Some(comment(4)));
        } else {
            add(4, after.closed_unmerged(), None);
        }
    }
    steps.concat()
}

/// Makes each pull request's first head and the commit on top of it. The remote
/// has both from the beginning.
fn heads(origins: &[(&str, &Origin)]) -> BTreeMap<u64, (String, String)> {
    (1..FIRST_ISSUE)
        .map(|item| {
            let (name, _) = repository(item);
            let (_, origin) = origins
                .iter()
                .find(|(known, _)| *known == name)
                .expect("made");
            let branch = format!("topic-{item}");
            let first = origin.pull_request(item, &branch);
            let second = origin.push_more(item, &branch);
            (item, (first, second))
        })
        .collect()
}

/// Sends what is given until the daemon dies; returns how many were answered
/// with 202.
fn send(world: &World, sent: &[Sent]) -> usize {
    let address = world.webhooks();
    for (index, one) in sent.iter().enumerate() {
        match deliver(
            address,
            "/webhooks/github",
            SECRET.as_bytes(),
            &one.id,
            &one.payload,
        ) {
            Ok(reply) if reply.status == 202 => {}
            Ok(reply) => panic!("{}: {}", one.id, reply.status),
            Err(_) => return index,
        }
    }
    sent.len()
}

#[test]
fn whatever_was_accepted_has_its_effect_once_though_the_daemon_is_killed_twenty_times() {
    for round in 0..rounds(1) {
        one_burst(round);
    }
}

#[test]
fn locks_that_a_killed_daemon_left_in_the_shared_clone_hold_nobody_up() {
    let mut world = world_of_scribes(|_| {}, "");
    let origin = world.origin("acme", "widgets");
    let first = origin.pull_request(1, "topic");
    let second = origin.push_more(1, "topic");
    let repo = repo("acme", "widgets", 7);
    let pull = PullRequest::new(&repo, 1, &first).branch("topic");
    world.start();
    let opened = world.accept(&pull.opened());
    let checkout = checkout_of(&world, &opened);
    world.wait_event("session.exited", 1);
    world.kill();
    let (shared, vault) = clones(&world).remove(0);
    let plant = || {
        for (dir, name) in [
            (&shared, "refs/heads/topic.lock"),
            (&shared, "packed-refs.lock"),
            (&shared, "config.lock"),
            (&vault, "packed-refs.lock"),
        ] {
            std::fs::write(dir.join(name), "").expect("a lock");
        }
    };
    plant();
    // A git of an agent that runs at this moment may hold such locks for real.
    let mut agent = std::process::Command::new("git")
        .args(["cat-file", "--batch"])
        .current_dir(&checkout)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("git starts");
    world.start();
    assert!(shared.join("refs/heads/topic.lock").exists());
    assert!(!vault.join("packed-refs.lock").exists());
    world.kill();
    drop(agent.stdin.take());
    agent.wait().expect("it ended");
    plant();
    world.start();
    let moved = world.accept(&pull.clone().at(&second).synchronize(&first));
    assert_eq!(world.wait_over(&moved)["event"], "delivery.done");
    let updated = world.wait_delivery("workspace.updated", &moved);
    assert_eq!(updated["moved"], true, "{updated}");
    assert_eq!(origin.git_in(&checkout, &["rev-parse", "topic"]), second);
    assert!(world.events_named("workspace.prepare_failed").is_empty());
    let closed = world.accept(&pull.closed_unmerged());
    world.wait_delivery("workspace.cleaned", &closed);
    wait_nothing_left(&world);
    assert!(!shared.join("config.lock").exists());
    world.stop();
}

fn one_burst(round: usize) {
    let mut world = world_of_scribes(|_| {}, "");
    let (widgets, gadgets) = (
        world.origin("acme", "widgets"),
        world.origin("acme", "gadgets"),
    );
    let heads = heads(&[("widgets", &widgets), ("gadgets", &gadgets)]);
    let all = deliveries(round, &heads);
    assert_eq!(all.len(), 200);
    let mut random = Random(0x1234_5678 + u64::try_from(round).expect("few rounds"));
    let mut answered = 0;
    world.start();
    for kill in 0..KILLS {
        // Ten more each time, and what the last daemon did not answer.
        let until = (kill + 1) * all.len() / KILLS;
        let moment = Duration::from_millis(random.below(900));
        let pid = world.pid();
        let killer = std::thread::spawn(move || {
            let since = std::time::Instant::now();
            while let Some(left) = moment
                .checked_sub(since.elapsed())
                .filter(|left| !left.is_zero())
            {
                std::thread::park_timeout(left);
            }
            signal(pid, "KILL");
        });
        answered += send(&world, &all[answered..until]);
        killer.join().expect("it kills");
        world.kill();
        world.start();
    }
    answered += send(&world, &all[answered..]);
    assert_eq!(answered, all.len());
    for one in &all {
        world.wait_over(&one.id);
    }
    wait_quiet(&world);
    check_deliveries(&world, &all);
    check_texts(&world, &all);
    check_disk(&world, &heads);
    world.stop();
    world.assert_sequence_is_whole();
}

fn check_deliveries(world: &World, all: &[Sent]) {
    let events = world.events();
    for one in all {
        let ends = of_delivery(
            &events,
            &one.id,
            &["delivery.done", "delivery.dropped", "delivery.parked"],
        );
        assert_eq!(ends.len(), 1, "{}: {ends:?}", one.id);
        let received = of_delivery(&events, &one.id, &["webhook.received"]);
        assert_eq!(received.len(), 1, "{}", one.id);
        let end = ends[0];
        let expected: &[&str] = match end["event"].as_str() {
            Some("delivery.done") => continue,
            // With a close behind it an opening starts nothing, and then there is
            // no session for what came in between.
            Some("delivery.dropped") if closes(one.item) => {
                let first = format!(
                    "burst-{}-0",
                    one.id
                        .split('-')
                        .skip(1)
                        .take(2)
                        .collect::<Vec<_>>()
                        .join("-")
                );
                let opening = of_delivery(&events, &first, &["delivery.dropped"]);
                if opening.is_empty() || one.id == first {
                    &["superseded", "already-closed"]
                } else {
                    &["superseded", "already-closed", "no-rule", "no-session"]
                }
            }
            _ => &[],
        };
        let reason = end["reason"].as_str().unwrap_or_default();
        assert!(
            expected.contains(&reason),
            "{end}\n{}",
            story(&events, one.item)
        );
    }
    // Also what a killed daemon left in the middle of something hinders nobody.
    for bad in [
        "workspace.prepare_failed",
        "session.lost",
        "session.spawn_failed",
        "delivery.parked",
    ] {
        let told: Vec<&Value> = events.iter().filter(|told| told["event"] == bad).collect();
        assert!(told.is_empty(), "{told:?}");
    }
}

/// Everything that was told of an item, for a failure that is to be understood.
fn story(events: &[Value], item: u64) -> String {
    let ending = format!("#{item}");
    events
        .iter()
        .filter(|told| {
            told["work_item"]
                .as_str()
                .is_some_and(|name| name.ends_with(&ending))
                || told["event"] == "daemon.started"
        })
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn check_texts(world: &World, all: &[Sent]) {
    assert_eq!(violations(world), "");
    let events = world.events();
    for item in 1..=ITEMS {
        let (name, _) = repository(item);
        let told = told(world, &format!("acme/{name}"), item);
        let lines: Vec<&String> = told
            .iter()
            .filter(|line| !line.starts_with("start ") && !line.starts_with("resume "))
            .collect();
        let mut last = None;
        for one in all.iter().filter(|one| one.item == item) {
            let Some(text) = &one.text else { continue };
            let places: Vec<usize> = lines
                .iter()
                .enumerate()
                .filter(|(_, line)| line.contains(&format!("{text} ")))
                .map(|(place, _)| place)
                .collect();
            // A close may come before the session wrote down what it was told.
            let fits = places.len() == 1 || (closes(item) && places.is_empty());
            assert!(
                fits,
                "{}: {places:?} in {told:#?}\n{}",
                one.id,
                story(&events, item)
            );
            if let Some(place) = places.first() {
                assert!(
                    last.is_none_or(|last| last < *place),
                    "order of {item}: {told:#?}"
                );
                last = Some(*place);
            }
        }
        if reopens(item) {
            assert!(
                lines.iter().any(|line| line.contains("reopened")),
                "{item}: {told:#?}\n{}",
                story(&events, item)
            );
        }
    }
}

fn check_disk(world: &World, heads: &BTreeMap<u64, (String, String)>) {
    let open: Vec<u64> = (1..=ITEMS)
        .filter(|item| !closes(*item) || reopens(*item))
        .collect();
    let root = world.checkouts();
    for area in [".staging", ".trash"] {
        world.until(&format!("{area} is empty"), || {
            names(&root.join(area)).is_empty()
        });
    }
    let left = remains(world);
    let belongs = |entry: &str| {
        open.iter().any(|item| {
            let (name, _) = repository(*item);
            entry.contains(&format!("acme-{name}-{item}-"))
                || entry.ends_with(&format!("/topic-{item}"))
        })
    };
    let strays: Vec<&String> = left.iter().filter(|entry| !belongs(entry)).collect();
    assert!(strays.is_empty(), "{strays:#?}");
    for item in &open {
        let (name, _) = repository(*item);
        let slug = format!("acme-{name}-{item}-");
        let checkouts: Vec<&String> = left
            .iter()
            .filter(|entry| entry.starts_with('/') && entry.contains(&slug))
            .collect();
        assert_eq!(checkouts.len(), 1, "{item}: {checkouts:?}");
        let checkout = std::path::Path::new(checkouts[0]);
        let head = crate::support::world::git(world.root(), checkout, &["rev-parse", "HEAD"]);
        if let Some((first, second)) = heads.get(item) {
            assert!(head == *first || head == *second, "{item} is at {head}");
            // Both commits can be had without asking the remote.
            crate::support::world::git(world.root(), checkout, &["cat-file", "-e", second]);
        }
        let status = crate::support::world::git(world.root(), checkout, &["status", "--porcelain"]);
        assert_eq!(status, "", "{item}");
    }
    assert_clones_are_whole(world);
    world.until("nothing runs", || processes(world.root()).is_empty());
}
