//! A full disk: refused with a reason, nothing half-made, and all is well once
//! there is space again. File systems are mounted, which needs root.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inn::{EVERYTHING, repo, wait_nothing_left};
use crate::support::payloads::PullRequest;
use crate::support::world::{Config, Origin, World};

/// A small file system; unmounted when dropped.
pub struct Small(pub PathBuf);

impl Small {
    pub fn mount(at: &Path, options: &str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test mounts file systems and needs root"
        );
        std::fs::create_dir_all(at).expect("a directory");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status()
            .expect("mount runs");
        assert!(status.success(), "a tmpfs at {}", at.display());
        Self(at.to_owned())
    }

    /// Writes until nothing is left; returns the file that takes the space.
    fn fill(&self) -> PathBuf {
        use std::io::Write;
        let ballast = self.0.join("ballast");
        let mut file = std::fs::File::create(&ballast).expect("a file");
        for size in [65536, 4096, 1] {
            let block = vec![b'x'; size];
            while file.write_all(&block).is_ok() {}
        }
        ballast
    }
}

/// Takes every inode that is left; returns the directory that has them.
fn take_inodes(small: &Small) -> PathBuf {
    let ballast = small.0.join("ballast");
    std::fs::create_dir(&ballast).expect("a directory");
    let mut number = 0;
    while std::fs::write(ballast.join(number.to_string()), "").is_ok() {
        number += 1;
    }
    ballast
}

fn free(ballast: &Path) {
    if ballast.is_dir() {
        std::fs::remove_dir_all(ballast).expect("removed");
    } else {
        std::fs::remove_file(ballast).expect("removed");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _still_in_use = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn every_request() -> Config {
    Config {
        routing: EVERYTHING.into(),
        ..Config::default()
    }
}

fn pull(origin: &Origin, number: u64) -> PullRequest {
    let branch = format!("topic-{number}");
    let head = origin.pull_request(number, &branch);
    PullRequest::new(&repo("acme", "widgets", 7), number, &head).branch(&branch)
}

#[test]
fn as_root_a_full_state_disk_is_a_503_and_the_daemon_goes_on_when_there_is_space() {
    let mut world = World::new(&every_request());
    let small = Small::mount(&world.state(), "size=80m");
    let origin = world.origin("acme", "widgets");
    let (first, second) = (pull(&origin, 1), pull(&origin, 2));
    world.start();
    let before = world.accept(&first.opened());
    world.wait_over(&before);
    let ballast = small.fill();
    // Some space stays reserved for what runs, so the first is refused already.
    let mut refused = None;
    for attempt in 0..2000 {
        let reply = world.deliver_as(&format!("full-{attempt}"), &second.edited());
        match reply.status {
            202 => {}
            503 => {
                refused = Some(reply);
                break;
            }
            other => panic!("{other}: {}", String::from_utf8_lossy(&reply.body)),
        }
    }
    let refused = refused.expect("a full disk refuses");
    let wait: u64 = refused
        .header("retry-after")
        .expect("a time")
        .parse()
        .expect("seconds");
    assert!(wait > 0);
    assert!(
        world.run(&["status"]).status.code().is_some(),
        "it still answers"
    );
    std::fs::remove_file(ballast).expect("removed");
    world.until("it accepts again", || {
        world.deliver_as("after", &second.opened()).status == 202
    });
    assert_eq!(world.wait_over("after")["event"], "delivery.done");
    world.wait_delivery("workspace.prepared", "after");
    for number in [1, 2] {
        let pull = pull(&origin, number);
        let id = world.accept(&pull.closed_unmerged());
        assert_eq!(world.wait_over(&id)["event"], "delivery.done");
    }
    wait_nothing_left(&world);
    world.stop();
    world.assert_sequence_is_whole();
    drop(world);
    drop(small);
}

fn full_root(options: &str, fill: impl Fn(&Small) -> PathBuf, free: impl Fn(&Path)) {
    let mut world = World::new(&every_request());
    let small = Small::mount(&world.checkouts(), options);
    let origin = world.origin("acme", "widgets");
    let (first, second) = (pull(&origin, 1), pull(&origin, 2));
    world.start();
    let ballast = fill(&small);
    let id = world.accept(&first.opened());
    let failed = world.wait_delivery("workspace.prepare_failed", &id);
    assert_eq!(failed["code"], "disk_full", "{failed}");
    assert_eq!(failed["retryable"], true, "{failed}");
    let error = failed["error"].as_str().expect("a message");
    assert!(
        error.contains(&world.checkouts().display().to_string()),
        "names the path: {error}"
    );
    world.wait_delivery("delivery.retrying", &id);
    let said = second.commented("alice", "MEMBER", "a comment that starts nothing");
    assert_eq!(
        world.deliver_as("other", &said).status,
        202,
        "it still listens"
    );
    assert_eq!(world.wait_over("other")["event"], "delivery.dropped");
    free(&ballast);
    // The attempt after the wait succeeds by itself.
    assert_eq!(world.wait_over(&id)["event"], "delivery.done");
    let closed = world.accept(&first.closed_unmerged());
    world.wait_delivery("workspace.cleaned", &closed);
    wait_nothing_left(&world);
    world.stop();
    world.assert_sequence_is_whole();
    drop(world);
    drop(small);
}

#[test]
fn as_root_a_full_disk_of_checkouts_is_disk_full_and_tried_again() {
    full_root("size=4m", Small::fill, |ballast| {
        std::fs::remove_file(ballast).expect("removed");
    });
}

#[test]
fn as_root_no_inodes_left_is_disk_full_and_tried_again() {
    full_root("size=64m,nr_inodes=400", take_inodes, |ballast| {
        std::fs::remove_dir_all(ballast).expect("removed");
    });
}

/// Root, state, origins, everything on one disk that is full: what is not
/// accepted is said, what is accepted is done in the end, and work stays.
fn everything_full(options: &str, fill: impl Fn(&Small) -> PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let small = Small::mount(&dir.path().join("disk"), options);
    let mut world = World::new_in(&small.0, &every_request());
    let origin = world.origin("acme", "widgets");
    let (first, second) = (pull(&origin, 1), pull(&origin, 2));
    world.start();
    let opened = world.accept(&first.opened());
    assert_eq!(world.wait_over(&opened)["event"], "delivery.done");
    let checkout = crate::inn::checkout_of(&world, &opened);
    std::fs::write(checkout.join("draft"), "not committed\n").expect("work");
    let ballast = fill(&small);
    let mut owed = Vec::new();
    for (id, payload) in [
        ("full-close", first.closed_unmerged()),
        ("full-open", second.opened()),
    ] {
        match world.deliver_as(id, &payload).status {
            202 => {}
            503 => owed.push((id, payload)),
            other => panic!("{id}: {other}"),
        }
    }
    // Also a daemon that is killed here, and cannot write, harms nothing.
    world.kill();
    if let Err(told) = world.try_start_with(|_| {}) {
        assert!(
            !told.contains("signal"),
            "it says what is the matter: {told}"
        );
    }
    let draft = checkout.join("draft");
    let in_place = std::fs::read_to_string(&draft);
    assert_eq!(in_place.expect("it stays"), "not committed\n");
    free(&ballast);
    if !world.is_running() {
        world.start();
    }
    for (id, payload) in owed {
        world.until("it accepts again", || {
            world.deliver_as(id, &payload).status == 202
        });
    }
    for id in ["full-close", "full-open"] {
        assert_eq!(world.wait_over(id)["event"], "delivery.done");
    }
    let kept = crate::inn::of_delivery(&world.events(), "full-close", &["workspace.kept"]).len();
    if kept > 0 {
        let again = world.accept(&first.closed_unmerged());
        world.wait_over(&again);
    }
    let cleaned = world.wait_event("workspace.cleaned", 1);
    let archive = cleaned["archive"].as_str().expect("an archive").to_owned();
    assert!(!checkout.exists());
    let to = world.root().join("restored");
    world.ok(&[
        "archive",
        "restore",
        &archive,
        "--to",
        &to.display().to_string(),
    ]);
    let text = std::fs::read_to_string(to.join("draft")).expect("it is in the archive");
    assert_eq!(text, "not committed\n");
    let closed = world.accept(&second.closed_unmerged());
    assert_eq!(world.wait_over(&closed)["event"], "delivery.done");
    wait_nothing_left(&world);
    world.stop();
    world.assert_sequence_is_whole();
    drop(world);
    drop(small);
}

#[test]
fn as_root_one_full_disk_for_everything_costs_no_work_and_no_delivery() {
    everything_full("size=90m", Small::fill);
}

#[test]
fn as_root_one_disk_without_inodes_for_everything_costs_no_work_and_no_delivery() {
    everything_full("size=200m,nr_inodes=1500", take_inodes);
}

#[test]
fn as_root_a_state_disk_without_inodes_costs_no_delivery() {
    let mut world = crate::inn::world_of_scribes(|_| {}, "");
    let small = Small::mount(&world.state(), "size=200m,nr_inodes=200");
    let origin = world.origin("acme", "widgets");
    let (first, second) = (pull(&origin, 1), pull(&origin, 2));
    world.start();
    let before = world.accept(&first.opened());
    world.wait_over(&before);
    world.wait_event("session.exited", 1);
    let ballast = take_inodes(&small);
    let opened = world.accept(&second.opened());
    // Its prompt cannot be written, so that its session waits.
    let failed = world.wait_delivery("session.spawn_failed", &opened);
    assert_eq!(failed["retryable"], true, "{failed}");
    free(&ballast);
    assert_eq!(world.wait_over(&opened)["event"], "delivery.done");
    world.wait_event("session.exited", 2);
    assert_eq!(crate::inn::told(&world, "acme/widgets", 2).len(), 2);
    for pull in [first, second] {
        let closed = world.accept(&pull.closed_unmerged());
        world.wait_delivery("workspace.cleaned", &closed);
    }
    wait_nothing_left(&world);
    world.stop();
    world.assert_sequence_is_whole();
    drop(world);
    drop(small);
}

#[test]
fn as_root_a_disk_that_fills_up_while_preparing_leaves_nothing_half_made() {
    let mut world = World::new(&every_request());
    let small = Small::mount(&world.checkouts(), "size=12m");
    let origin = world.origin("acme", "widgets");
    // Larger than what is left once it is fetched, and nothing compresses it.
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..5 * 1024 * 1024)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            u8::try_from(state >> 56).expect("eight bits")
        })
        .collect();
    let small_pull = pull(&origin, 1);
    world.start();
    let first = world.accept(&small_pull.opened());
    assert_eq!(world.wait_over(&first)["event"], "delivery.done");
    origin.git(&["checkout", "--quiet", "-B", "big", "main"]);
    std::fs::write(origin.work.join("noise"), &noise).expect("a file");
    let head = origin.commit("big");
    origin.push("big");
    origin.set_pull(2, &head);
    let big = PullRequest::new(&repo("acme", "widgets", 7), 2, &head).branch("big");
    let ballast = small.0.join("ballast");
    let space = rustix::fs::statvfs(&small.0).expect("it is there");
    let free = space.f_bavail * space.f_frsize;
    let keep = 7 * 1024 * 1024;
    let size = usize::try_from(free.saturating_sub(keep)).expect("small");
    std::fs::write(&ballast, vec![0; size]).expect("a file");
    let id = world.accept(&big.opened());
    let failed = world.wait_delivery("workspace.prepare_failed", &id);
    assert_eq!(failed["code"], "disk_full", "{failed}");
    // The other one is not harmed.
    let checkout = crate::inn::checkout_of(&world, &first);
    assert_eq!(origin.git_in(&checkout, &["status", "--porcelain"]), "");
    let closed = world.accept(&big.closed_unmerged());
    assert_eq!(world.wait_over(&closed)["event"], "delivery.done");
    std::fs::remove_file(&ballast).expect("removed");
    let closed = world.accept(&small_pull.closed_unmerged());
    world.wait_delivery("workspace.cleaned", &closed);
    wait_nothing_left(&world);
    world.stop();
    drop(world);
    drop(small);
}
