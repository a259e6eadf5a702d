//! Sessions outlive the daemon, and their end is never lost nor their start
//! doubled, whoever dies.

use std::path::PathBuf;

use crate::inn::{
    checkout_of, lives, repo, rounds, signal, told, violations, wait_nothing_left, wait_quiet,
    world_of_scribes,
};
use crate::support::payloads::PullRequest;
use crate::support::world::World;

/// Runs until it is told to go, and says who it is.
// What it waits with must not keep its lock when it is killed itself.
const UNTIL_TOLD: &str =
    "echo $$ >\"$here/pid\"; while [ ! -e \"$here/go\" ]; do sleep 0.05 9>&-; done; exit 7";

/// Returns a world with a running daemon, and its one pull request.
fn one_pull_request(more: &str) -> (World, PullRequest) {
    let mut world = world_of_scribes(|_| {}, more);
    let origin = world.origin("acme", "widgets");
    let head = origin.pull_request(1, "topic");
    world.start();
    (
        world,
        PullRequest::new(&repo("acme", "widgets", 7), 1, &head).branch("topic"),
    )
}

fn wait_pid(world: &World) -> u32 {
    let file = world.root().join("pid");
    let pid = || {
        std::fs::read_to_string(&file)
            .ok()
            .and_then(|text| text.trim().parse().ok())
    };
    world.until("the session runs", || pid().is_some());
    pid().expect("it was there")
}

fn go(world: &World) {
    std::fs::write(world.root().join("go"), "").expect("a file");
}

fn starts(world: &World) -> usize {
    world.events_named("session.started").len()
}

fn exit_file(world: &World) -> PathBuf {
    let started = world.wait_event("session.started", 1);
    let id = started["session"].as_str().expect("an id").to_owned();
    world.state().join("sessions").join(format!("{id}.exit"))
}

#[test]
fn an_end_while_no_daemon_runs_is_told_by_the_next_one() {
    let (mut world, pull) = one_pull_request(UNTIL_TOLD);
    let opened = world.accept(&pull.opened());
    world.wait_over(&opened);
    wait_pid(&world);
    let exit = exit_file(&world);
    world.kill();
    go(&world);
    world.until("the launcher leaves the status", || exit.exists());
    world.start();
    let exited = world.wait_event("session.exited", 1);
    assert_eq!(exited["status"]["code"], 7, "{exited}");
    assert_eq!(starts(&world), 1);
    assert_eq!(
        told(&world, "acme/widgets", 1).len(),
        2,
        "started once, told once"
    );
    assert_eq!(violations(&world), "");
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn a_session_lives_through_kill_and_stop_and_its_end_is_seen_afterwards() {
    let (mut world, pull) = one_pull_request(UNTIL_TOLD);
    let opened = world.accept(&pull.opened());
    world.wait_over(&opened);
    let pid = wait_pid(&world);
    world.kill();
    assert!(lives(pid), "a kill of the daemon is none of the session");
    world.start();
    world.stop();
    assert!(lives(pid), "a stop of the daemon is none of the session");
    world.start();
    let commented = world.accept(&pull.commented("alice", "MEMBER", "one-more-thing"));
    world.wait_over(&commented);
    assert!(lives(pid));
    go(&world);
    let exited = world.wait_event("session.exited", 1);
    assert_eq!(exited["status"]["code"], 7, "{exited}");
    world.wait_event("session.exited", 2);
    let told = told(&world, "acme/widgets", 1);
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(
        told[2].starts_with("resume ") && told[3].contains("one-more-thing"),
        "{told:?}"
    );
    assert_eq!(starts(&world), 1);
    assert_eq!(violations(&world), "");
    world.stop();
    world.assert_sequence_is_whole();
}

#[test]
fn a_text_that_waited_when_the_daemon_died_is_handed_over_after_the_restart() {
    // Once the run ends before the next start, once after it.
    for ends_first in [true, false] {
        let (mut world, pull) = one_pull_request(UNTIL_TOLD);
        let opened = world.accept(&pull.opened());
        world.wait_over(&opened);
        wait_pid(&world);
        let exit = exit_file(&world);
        for text in ["first-text", "second-text"] {
            let commented = world.accept(&pull.commented("alice", "MEMBER", text));
            world.wait_over(&commented);
        }
        world.kill();
        if ends_first {
            go(&world);
            world.until("the run is over", || exit.exists());
        }
        world.start();
        go(&world);
        world.wait_event("session.exited", 2);
        let told = told(&world, "acme/widgets", 1);
        let texts: Vec<_> = told.iter().filter(|line| line.contains("-text")).collect();
        assert_eq!(texts.len(), 2, "{told:?}");
        assert!(
            texts[0].contains("first") && texts[1].contains("second"),
            "{told:?}"
        );
        assert_eq!(
            told.iter()
                .filter(|line| line.starts_with("resume"))
                .count(),
            1
        );
        assert_eq!(violations(&world), "");
        world.stop();
    }
}

#[test]
fn a_daemon_that_dies_while_it_starts_a_session_starts_it_once() {
    for round in 0..rounds(6) {
        let (mut world, pull) = one_pull_request("");
        let opened = world.accept(&pull.opened());
        // Planned in the store, prompt written, launcher on its way or not.
        let prompts = world.state().join("prompts");
        world.until("a prompt is written", || {
            !crate::inn::names(&prompts).is_empty()
        });
        for _ in 0..round * 2_000 {
            std::hint::spin_loop();
        }
        world.kill();
        world.start();
        let over = world.wait_over(&opened);
        assert_eq!(over["event"], "delivery.done", "{over}");
        world.wait_event("session.exited", 1);
        wait_quiet(&world);
        assert_eq!(starts(&world), 1);
        let told = told(&world, "acme/widgets", 1);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("start "), "{told:?}");
        assert_eq!(violations(&world), "");
        world.stop();
        world.assert_sequence_is_whole();
    }
}

#[test]
fn a_daemon_that_dies_right_after_moving_a_checkout_still_tells_the_session() {
    for _ in 0..rounds(3) {
        let (mut world, pull) = one_pull_request("");
        let origin = world.origin("acme", "widgets");
        let opened = world.accept(&pull.opened());
        world.wait_over(&opened);
        world.wait_event("session.exited", 1);
        let second = origin.push_more(1, "topic");
        let (shared, _) = crate::inn::clones(&world).remove(0);
        let branch = shared.join("refs/heads/topic");
        let moved = world.accept(&pull.clone().at(&second).synchronize(&pull.head_sha));
        world.until("the branch is moved", || {
            std::fs::read_to_string(&branch).is_ok_and(|tip| tip.trim() == second)
        });
        // What is HEAD by now is not the session's own push.
        world.kill();
        world.start();
        let over = world.wait_over(&moved);
        assert_eq!(over["event"], "delivery.done", "{over}");
        world.wait_event("session.exited", 2);
        let told = told(&world, "acme/widgets", 1);
        let lines = told.iter().filter(|line| line.contains(&second));
        assert_eq!(lines.count(), 1, "{told:?}");
        assert_eq!(violations(&world), "");
        world.stop();
    }
}

#[test]
fn a_session_whose_process_is_killed_ends_with_the_signal() {
    let (mut world, pull) = one_pull_request(UNTIL_TOLD);
    let opened = world.accept(&pull.opened());
    world.wait_over(&opened);
    signal(wait_pid(&world), "KILL");
    let exited = world.wait_event("session.exited", 1);
    assert_eq!(exited["status"]["signal"], 9, "{exited}");
    world.stop();
}

#[test]
fn a_session_whose_launcher_is_killed_is_lost_and_goes_on_at_the_next_event() {
    for daemon_dies_too in [false, true] {
        let (mut world, pull) = one_pull_request(UNTIL_TOLD);
        let opened = world.accept(&pull.opened());
        let checkout = checkout_of(&world, &opened);
        world.wait_over(&opened);
        let pid = wait_pid(&world);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let launcher: u32 = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(1))
            .and_then(|parent| parent.parse().ok())
            .expect("it has a parent");
        if daemon_dies_too {
            world.kill();
        }
        signal(launcher, "KILL");
        signal(pid, "KILL");
        world.until("both are gone", || !lives(launcher) && !lives(pid));
        if daemon_dies_too {
            world.start();
        }
        world.wait_event("session.lost", 1);
        go(&world);
        let commented = world.accept(&pull.commented("alice", "MEMBER", "go-on"));
        world.wait_over(&commented);
        world.wait_event("session.exited", 1);
        let told = told(&world, "acme/widgets", 1);
        assert_eq!(
            told.iter().filter(|line| line.contains("go-on")).count(),
            1,
            "{told:?}"
        );
        assert_eq!(violations(&world), "");
        let closed = world.accept(&pull.closed_unmerged());
        world.wait_delivery("workspace.cleaned", &closed);
        assert!(!checkout.exists());
        wait_nothing_left(&world);
        world.stop();
    }
}

#[test]
fn a_command_that_outlives_its_launcher_is_never_joined_by_a_second_one() {
    let (mut world, pull) = one_pull_request(
        "echo $PPID $$ >\"$here/pids\"; while [ ! -e \"$here/go\" ]; do sleep 0.05 9>&-; done",
    );
    let opened = world.accept(&pull.opened());
    world.wait_over(&opened);
    let pids = || -> Vec<u32> {
        let text = std::fs::read_to_string(world.root().join("pids")).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    world.until("it runs", || pids().len() == 2);
    let pids = pids();
    signal(pids[0], "KILL");
    world.until("the launcher is gone", || !lives(pids[0]));
    let commented = world.accept(&pull.commented("alice", "MEMBER", "go-on"));
    world.wait_over(&commented);
    let went_on = |world: &World| {
        told(world, "acme/widgets", 1)
            .iter()
            .any(|line| line.contains("go-on"))
    };
    // Either it waits for the old one, or the old one is ended first.
    world.until("a decision", || !lives(pids[1]) || !went_on(&world));
    go(&world);
    world.until("the text is handed over", || went_on(&world));
    assert_eq!(violations(&world), "");
    world.stop();
}

#[test]
fn a_session_that_could_never_be_started_is_started_and_not_resumed() {
    let (mut world, pull) = one_pull_request("");
    let script = world.root().join("scribe.sh");
    let shell = std::fs::read_to_string(world.config_file()).expect("a configuration");
    std::fs::write(
        world.config_file(),
        shell.replace("/bin/sh, -eu", "./not-there-yet, -eu"),
    )
    .expect("written");
    world.wait_event("config.reloaded", 1);
    let opened = world.accept(&pull.opened());
    world.wait_delivery("session.spawn_failed", &opened);
    world.kill();
    std::os::unix::fs::symlink("/bin/sh", world.root().join("not-there-yet")).expect("a link");
    assert!(script.exists());
    world.start();
    assert_eq!(world.wait_over(&opened)["event"], "delivery.done");
    world.wait_event("session.exited", 1);
    let told = told(&world, "acme/widgets", 1);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("start "), "{told:?}");
    world.stop();
}
