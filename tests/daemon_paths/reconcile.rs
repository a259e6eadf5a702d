//! Store and disk that differ: deleted, moved away and back, put there by
//! somebody, an unmounted disk, a state that was tampered with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::inn::{Inn, STARTS_PULL_REQUESTS, Transport, checkout_of, widgets};
use crate::support::payloads::PullRequest;
use crate::support::world::{Config, Origin};

/// Has the daemon compare store and disk; returns what the comparison found.
fn compare(inn: &Inn) -> Value {
    let report: Value = serde_json::from_str(&inn.ok(&["gc", "--json"])).expect("JSON");
    report["reconciled"].clone()
}

/// A process that works in a directory until it is dropped: what no removal
/// gets past.
pub struct Inside(Child);

impl Inside {
    pub fn of(dir: &Path) -> Self {
        let sleep = Command::new("sleep").arg("600").current_dir(dir).spawn();
        Self(sleep.expect("sleep runs"))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ended");
    }
}

fn states(inn: &Inn) -> Vec<String> {
    let listed: Value = serde_json::from_str(&inn.ok(&["list", "--json"])).expect("JSON");
    let rows = listed.as_array().expect("a list").iter();
    rows.map(|row| row["state"].as_str().expect("a word").to_owned())
        .collect()
}

fn status(inn: &Inn) -> Value {
    serde_json::from_str(&inn.ok(&["status", "--json"])).expect("JSON")
}

fn pull(origin: &Origin, number: u64) -> PullRequest {
    let branch = format!("topic-{number}");
    let head = origin.pull_request(number, &branch);
    PullRequest::new(&widgets(), number, &head).branch(&branch)
}

/// Prepares this many pull requests.
fn prepared(inn: &mut Inn, origin: &Origin, count: u64) -> Vec<(PullRequest, PathBuf)> {
    (1..=count)
        .map(|number| {
            let request = pull(origin, number);
            let (checkout, _) = inn.prepared(&request.opened());
            (request, checkout)
        })
        .collect()
}

#[test]
fn a_directory_deleted_by_hand_is_missing_once_and_prepared_again_by_the_next_event() {
    for strategy in ["worktree", "clone"] {
        let mut inn = Inn::preparing(Transport::File, strategy);
        let origin = inn.origin("acme", "widgets");
        inn.start();
        let request = pull(&origin, 1);
        let (checkout, first) = inn.prepared(&request.opened());
        fs::remove_dir_all(&checkout).expect("removed");
        assert_eq!(compare(&inn)["missing"], 1, "{strategy}");
        let missing = inn.wait_event("workspace.missing", 1);
        assert_eq!(checkout_of(&missing), checkout);
        assert_eq!(missing["work_item"], first["work_item"]);
        assert_eq!(states(&inn), ["missing"]);
        assert_eq!(compare(&inn)["missing"], 0, "{strategy}");
        assert_eq!(inn.events_named("workspace.missing").len(), 1);
        let head = origin.push_more(1, "topic-1");
        let (again, _) = inn.prepared(&request.clone().at(&head).synchronize(&head));
        assert_eq!(again, checkout, "{strategy}");
        inn.assert_at(&checkout, &head, Some("topic-1"));
        assert_eq!(inn.events_named("workspace.missing").len(), 1);
        assert_eq!(states(&inn), ["ready"]);
        inn.cleaned(&request.at(&head).closed_unmerged(), &checkout);
        inn.finish();
    }
}

#[test]
fn a_directory_that_is_moved_away_and_back_is_the_same_checkout() {
    for strategy in ["worktree", "clone"] {
        let mut inn = Inn::preparing(Transport::File, strategy);
        let origin = inn.origin("acme", "widgets");
        inn.start();
        let (request, checkout) = prepared(&mut inn, &origin, 1).remove(0);
        fs::write(checkout.join("mine"), "mine").expect("written");
        let away = inn.root().join("away");
        fs::rename(&checkout, &away).expect("moved");
        assert_eq!(compare(&inn)["missing"], 1, "{strategy}");
        assert_eq!(states(&inn), ["missing"]);
        fs::rename(&away, &checkout).expect("moved back");
        let found = compare(&inn);
        assert_eq!(
            (&found["missing"], &found["adopted"]),
            (&0.into(), &1.into())
        );
        assert_eq!(states(&inn), ["ready"]);
        assert_eq!(inn.events_named("workspace.prepared").len(), 1);
        // Also over a restart.
        fs::rename(&checkout, &away).expect("moved");
        inn.kill();
        inn.start();
        inn.wait_event("workspace.missing", 2);
        fs::rename(&away, &checkout).expect("moved back");
        inn.kill();
        inn.start();
        assert_eq!(states(&inn), ["ready"], "{strategy}");
        let mine = checkout.join("mine");
        assert_eq!(fs::read(&mine).expect("it is there"), b"mine");
        fs::remove_file(&mine).expect("removed");
        inn.cleaned(&request.closed_unmerged(), &checkout);
        inn.finish();
    }
}

#[test]
fn what_somebody_put_there_is_told_once_and_left_alone() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let (request, checkout) = prepared(&mut inn, &origin, 1).remove(0);
    let root = inn.checkouts();
    let shared = root.join("forge.example/acme/widgets");
    let own = inn.root().join("my-own-worktree");
    let own_path = own.display().to_string();
    inn.git(
        &shared,
        &["worktree", "add", "--detach", &own_path, "origin/main"],
    );
    fs::write(own.join("work"), "mine").expect("written");
    let parent = checkout.parent().expect("it has one");
    let strangers = [
        parent.join("somebodys"),
        root.join(".work-items/somebodys/deep/er"),
        root.join(".trash/somebodys"),
        root.join(".archive/some/bodys"),
        root.join(".pool/some/where"),
        root.join("forge.example/acme/gadgets/x"),
    ];
    for stranger in &strangers {
        fs::create_dir_all(stranger).expect("made");
        fs::write(stranger.join("file"), "x").expect("written");
    }
    let record = shared.join("worktrees/my-own-worktree");
    for _ in 0..2 {
        assert_eq!(compare(&inn)["foreign"], 7);
    }
    // A restart tells again.
    let log = || fs::read_to_string(inn.root().join("daemon.log")).expect("the log");
    for stranger in [
        parent.join("somebodys"),
        root.join(".work-items/somebodys"),
        root.join(".trash/somebodys"),
        root.join(".archive/some/bodys"),
        root.join(".pool/some"),
        root.join("forge.example/acme/gadgets"),
        record.clone(),
    ] {
        let shown = stranger.display().to_string();
        let told = log().lines().filter(|line| line.contains(&shown)).count();
        assert_eq!(told, 1, "{shown}: {}", log());
    }
    inn.cleaned(&request.closed_unmerged(), &checkout);
    inn.stop();
    inn.start();
    compare(&inn);
    for stranger in &strangers {
        assert!(stranger.join("file").exists(), "{}", stranger.display());
    }
    assert_eq!(inn.git(&own, &["status", "--porcelain"]), "?? work");
    assert!(record.join("gitdir").exists());
    inn.finish();
}

fn unmounted(area: &str, strategy: &str) {
    let mut inn = Inn::preparing(Transport::File, strategy);
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let requests = prepared(&mut inn, &origin, 12);
    // One is kept already.
    let (kept, kept_at) = &requests[0];
    let inside = Inside::of(kept_at);
    assert_eq!(inn.kept(&kept.closed_unmerged(), kept_at), ["in_use"]);
    let (mounted, away) = (inn.checkouts().join(area), inn.root().join("unmounted"));
    fs::rename(&mounted, &away).expect("moved");

    // The first event that meets it finds it out.
    let (closed, closed_at) = &requests[1];
    let id = inn.done(&closed.closed_unmerged());
    assert!(inn.told_maybe("workspace.cleaned", &id).is_none());
    let told = inn.told("workspace.kept", &id);
    assert_eq!(told["reasons"][0]["code"], "probe_failed", "{told}");
    let halted = inn.wait_event("removal.halted", 1);
    assert_eq!(
        (&halted["count"], &halted["checkouts"]),
        (&12.into(), &12.into())
    );
    assert_eq!(inn.events_named("workspace.missing").len(), 12);
    assert_eq!(states(&inn), ["missing"; 12]);

    // Nothing is removed, and nothing prepared in its place.
    let (moved_on, _) = &requests[2];
    let head = origin.push_more(3, "topic-3");
    let waiting = inn.accept(&moved_on.clone().at(&head).synchronize(&head));
    let failed = inn.wait_delivery("workspace.prepare_failed", &waiting);
    assert!(
        failed["error"]
            .as_str()
            .expect("words")
            .contains("--resume-removals"),
        "{failed}"
    );
    assert!(!mounted.exists(), "nothing is made there");
    compare(&inn);
    let halt = &status(&inn)["removals_halted"];
    assert!(
        halt["reason"].as_str().expect("words").contains("12 of 12"),
        "{halt}"
    );
    let doctor = inn.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("--resume-removals"), "{doctor}");
    inn.kill();
    inn.start();
    assert!(
        status(&inn)["removals_halted"].is_object(),
        "it outlives a restart"
    );

    // Mounted again, everything is as it was, and goes on when somebody says so.
    fs::rename(&away, &mounted).expect("moved back");
    compare(&inn);
    assert_eq!(states(&inn), ["ready"; 12]);
    drop(inside);
    compare(&inn);
    assert!(
        kept_at.is_dir() && closed_at.is_dir(),
        "removals are halted"
    );
    assert_eq!(inn.events_named("workspace.cleaned").len(), 0);
    let report: Value =
        serde_json::from_str(&inn.ok(&["gc", "--resume-removals", "--json"])).expect("JSON");
    assert!(
        report["resumed"].is_object() && report["halted"].is_null(),
        "{report}"
    );
    inn.wait_event("workspace.cleaned", 2);
    assert!(!kept_at.exists() && !closed_at.exists());
    assert!(status(&inn)["removals_halted"].is_null());
    assert_eq!(
        inn.wait_over(&waiting)["event"],
        "delivery.done",
        "it was tried again"
    );
    assert_eq!(inn.events_named("removal.halted").len(), 1);
    for (request, checkout) in &requests[3..] {
        inn.cleaned(&request.closed_unmerged(), checkout);
    }
    inn.finish();
}

#[test]
fn twelve_worktrees_on_an_unmounted_disk_halt_removals_until_somebody_says_so() {
    unmounted(".worktrees", "worktree");
}

#[test]
fn twelve_clones_on_an_unmounted_disk_halt_removals_until_somebody_says_so() {
    unmounted(".work-items", "clone");
}

#[test]
fn what_is_gone_for_good_is_let_go_once_somebody_says_so() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let requests = prepared(&mut inn, &origin, 7);
    fs::remove_dir_all(inn.checkouts().join(".worktrees")).expect("removed");
    assert_eq!(compare(&inn)["missing"], 7);
    let closed = inn.done(&requests[0].0.closed_unmerged());
    inn.told("workspace.kept", &closed);
    inn.ok(&["gc", "--resume-removals"]);
    inn.until("the closed one is let go", || states(&inn).len() == 6);
    let head = origin.push_more(2, "topic-2");
    let (again, _) = inn.prepared(&requests[1].0.clone().at(&head).synchronize(&head));
    inn.assert_at(&again, &head, Some("topic-2"));
    assert_eq!(inn.events_named("removal.halted").len(), 1);
    inn.finish();
}

#[test]
fn a_root_that_is_not_mounted_is_noticed_with_one_checkout_too() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let (request, checkout) = prepared(&mut inn, &origin, 1).remove(0);
    let (mounted, away) = (inn.checkouts(), inn.root().join("unmounted"));
    inn.stop();
    fs::rename(&mounted, &away).expect("moved");
    inn.start();
    inn.wait_event("workspace.missing", 1);
    let id = inn.done(&request.closed_unmerged());
    let told = inn.told("workspace.kept", &id);
    assert_eq!(told["reasons"][0]["code"], "probe_failed", "{told}");
    inn.stop();
    fs::remove_dir_all(&mounted).expect("removed");
    fs::rename(&away, &mounted).expect("moved back");
    inn.start();
    compare(&inn);
    inn.wait_event("workspace.cleaned", 1);
    assert!(!checkout.exists());
    inn.finish();
}

#[test]
fn a_handful_of_kept_checkouts_goes_in_a_round_and_then_removals_are_halted() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let requests = prepared(&mut inn, &origin, 7);
    let mut inside = Vec::new();
    for (request, checkout) in &requests {
        inside.push(Inside::of(checkout));
        assert_eq!(inn.kept(&request.closed_unmerged(), checkout), ["in_use"]);
    }
    // The same reasons are not told again, others are.
    compare(&inn);
    assert_eq!(inn.events_named("workspace.kept").len(), 7);
    fs::write(requests[0].1.join("more"), "mine").expect("written");
    compare(&inn);
    inn.wait_event("workspace.kept", 8);
    fs::remove_file(requests[0].1.join("more")).expect("removed");
    drop(inside);
    compare(&inn);
    let left = || {
        requests
            .iter()
            .filter(|(_, checkout)| checkout.exists())
            .count()
    };
    assert_eq!(left(), 2);
    let halted = inn.wait_event("removal.halted", 1);
    assert_eq!(
        (&halted["count"], &halted["checkouts"]),
        (&6.into(), &7.into())
    );
    compare(&inn);
    assert_eq!(left(), 2);
    // A person who names the item is an event of its own.
    let item = |at: usize| format!("acme/widgets#{}", at + 1);
    let at = requests
        .iter()
        .position(|(_, checkout)| checkout.exists())
        .expect("two are left");
    inn.ok(&["item", "cleanup", &item(at)]);
    assert_eq!(left(), 1);
    inn.ok(&["gc", "--resume-removals"]);
    assert_eq!(left(), 0);
    inn.finish();
}

#[test]
fn a_round_comes_by_itself() {
    let mut inn = Inn::with(
        Transport::File,
        Config {
            routing: STARTS_PULL_REQUESTS.into(),
            workspace: "reconcileMinutes: 1".into(),
            ..Config::default()
        },
    );
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let (_, checkout) = prepared(&mut inn, &origin, 1).remove(0);
    fs::remove_dir_all(&checkout).expect("removed");
    let deadline = Instant::now() + Duration::from_secs(90);
    while inn.events_named("workspace.missing").is_empty() {
        assert!(Instant::now() < deadline, "{}", inn.story());
        std::thread::park_timeout(Duration::from_millis(100));
    }
    inn.finish();
}

/// Changes the identity that the state holds of the only checkout.
fn tamper(inn: &Inn, change: impl FnOnce(&mut Value)) {
    let state = rusqlite::Connection::open(inn.state().join("innkeeper.db")).expect("opens");
    let record: String = state
        .query_row("SELECT record FROM checkouts", [], |row| row.get(0))
        .expect("a record");
    let mut record: Value = serde_json::from_str(&record).expect("JSON");
    change(&mut record);
    state
        .execute("UPDATE checkouts SET record = ?1", [record.to_string()])
        .expect("changed");
}

fn everything_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).expect("listed").flatten() {
            if entry.file_type().expect("a kind").is_dir() {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

#[test]
fn a_state_that_names_another_directory_removes_nothing() {
    for strategy in ["worktree", "clone"] {
        let mut inn = Inn::preparing(Transport::File, strategy);
        let origin = inn.origin("acme", "widgets");
        inn.start();
        let (request, checkout) = prepared(&mut inn, &origin, 1).remove(0);
        let shared = inn.checkouts().join("forge.example/acme/widgets");
        let before = everything_below(&checkout);
        let mut real = Value::Null;
        for (round, path) in (1..).zip([
            PathBuf::from("/"),
            PathBuf::from(".."),
            checkout.join(".."),
            inn.checkouts(),
            shared.clone(),
            inn.root().join("home"),
        ]) {
            inn.stop();
            tamper(&inn, |record| {
                if real.is_null() {
                    real = record.clone();
                }
                record["path"] = path.display().to_string().into();
            });
            inn.start();
            compare(&inn);
            assert_eq!(states(&inn), ["ready"], "{}", path.display());
            let event = request.event("closed", false, true, serde_json::json!({ "round": round }));
            let id = inn.done(&event);
            let told = inn.told("workspace.kept", &id);
            assert_eq!(told["reasons"][0]["code"], "identity_mismatch", "{told}");
            compare(&inn);
            assert_eq!(everything_below(&checkout), before, "{}", path.display());
            assert!(shared.join("HEAD").is_file() && inn.home().is_dir());
        }
        // A root that is none is not made one.
        inn.stop();
        tamper(&inn, |record| {
            *record = real.clone();
            record["root"] = "/".into();
        });
        inn.start();
        let event = request.event("closed", false, true, serde_json::json!({ "round": 0 }));
        let id = inn.done(&event);
        let told = inn.told("workspace.kept", &id);
        assert_eq!(told["reasons"][0]["code"], "probe_failed", "{told}");
        assert!(!Path::new("/.vault").exists());
        // With its own identity back it goes as ever.
        inn.stop();
        tamper(&inn, |record| *record = real.clone());
        inn.start();
        compare(&inn);
        inn.wait_event("workspace.cleaned", 1);
        assert!(!checkout.exists());
        inn.finish();
    }
}
