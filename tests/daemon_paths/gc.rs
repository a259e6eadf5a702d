//! Giving back what nobody needs: a world with everything that can stand below
//! a root, what goes, what stays, and that every byte is accounted for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::inn::{Inn, STARTS_PULL_REQUESTS, Transport, widgets};
use crate::reconcile::Inside;
use crate::support::payloads::{PullRequest, Repo};
use crate::support::world::{Config, HOST, Origin};

fn gc(inn: &Inn, arguments: &[&str]) -> Value {
    let all = [&["gc", "--json"], arguments].concat();
    serde_json::from_str(&inn.ok(&all)).expect("JSON")
}

/// Returns kind and fate of what is at a path.
fn row(report: &Value, path: &Path) -> (String, String) {
    let found: Vec<&Value> = report["holdings"]
        .as_array()
        .expect("rows")
        .iter()
        .filter(|row| row["path"] == path.display().to_string())
        .collect();
    assert_eq!(found.len(), 1, "{}: {found:?}\n{report}", path.display());
    assert!(!found[0]["reason"].as_str().expect("words").is_empty());
    let word = |key: &str| found[0][key].as_str().expect("a word").to_owned();
    (word("kind"), word("fate"))
}

fn assert_row(report: &Value, path: &Path, kind: &str, fate: &str) {
    let shown = path.display();
    assert_eq!(row(report, path), (kind.into(), fate.into()), "{shown}");
}

fn touch(path: &Path, when: &str) {
    let done = Command::new("touch")
        .args(["-d", when])
        .arg(path)
        .status()
        .expect("touch runs");
    assert!(done.success());
}

fn file(path: &Path, bytes: usize) -> PathBuf {
    fs::create_dir_all(path.parent().expect("it has one")).expect("made");
    fs::write(path, vec![7; bytes]).expect("written");
    path.to_owned()
}

fn disk_usage(dir: &Path) -> u64 {
    let output = Command::new("du")
        .args(["-s", "-B1"])
        .arg(dir)
        .output()
        .expect("du runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let bytes = text.split_whitespace().next().expect("a number");
    bytes.parse().expect("a number")
}

fn pull(repo: &Repo, origin: &Origin, number: u64) -> PullRequest {
    let branch = format!("topic-{number}");
    let head = origin.pull_request(number, &branch);
    PullRequest::new(repo, number, &head).branch(&branch)
}

#[test]
fn every_byte_is_accounted_for_and_only_what_nobody_needs_goes() {
    for strategy in ["worktree", "clone"] {
        one_of_each(strategy);
    }
}

fn one_of_each(strategy: &str) {
    let keeping = format!("strategy: {strategy}\nkeepCheckoutOnClose: true");
    let mut inn = Inn::with(Transport::File, with_workspace(&keeping));
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let root = inn.checkouts();
    let vault = |name: &str| root.join(format!(".vault/{HOST}/acme/{name}.git"));
    let shared = |name: &str| root.join(format!("{HOST}/acme/{name}"));

    // An open item, and a closed one whose checkout is kept.
    let (open, _) = inn.prepared(&pull(&widgets(), &origin, 1).opened());
    let closed = pull(&widgets(), &origin, 2);
    let (kept, _) = inn.prepared(&closed.opened());
    fs::write(
        kept.join(".gitignore"),
        "target/\nnode_modules/\nprecious/\n",
    )
    .expect("written");
    fs::write(kept.join("mine"), "mine").expect("written");
    let output = file(&kept.join("sub/target/debug/big"), 1 << 20);
    let with_repository = file(&kept.join("node_modules/x/.git/HEAD"), 10);
    let precious = file(&kept.join("precious/big"), 10);
    let tracked = file(&kept.join("target/tracked"), 10);
    let beside = file(&kept.join("target/deep/output"), 10);
    inn.git(&kept, &["add", "--force", "target/tracked"]);
    let elsewhere = file(&inn.root().join("elsewhere/target/x"), 10);
    std::os::unix::fs::symlink(inn.root().join("elsewhere"), kept.join("link")).expect("linked");
    file(&open.join("target/output"), 10);
    inn.kept(&closed.closed_unmerged(), &kept);

    // Repositories that lie idle: one that nothing needs, one with a commit that
    // exists only there, one with a worktree of somebody's own.
    for (id, name) in (20..).zip(["idle", "precious", "used"]) {
        let origin = inn.origin("acme", name);
        let request = pull(&Repo::new("acme", name, id).on(HOST), &origin, id);
        let (checkout, _) = inn.prepared(&request.opened());
        inn.ok(&["item", "cleanup", &format!("acme/{name}#{id}")]);
        assert!(!checkout.exists());
    }
    // Another content than that of any commit of the remote.
    let empty = ["hash-object", "-t", "tree", "-w", "/dev/null"];
    let tree = inn.git(&shared("precious"), &empty);
    let commit = inn.git(
        &shared("precious"),
        &["commit-tree", "-m", "only here", &tree],
    );
    inn.git(
        &shared("precious"),
        &["update-ref", "refs/heads/only-here", &commit],
    );
    let own = inn.root().join("my-own").display().to_string();
    inn.git(
        &shared("used"),
        &["worktree", "add", "--detach", &own, "origin/main"],
    );
    for name in ["idle", "precious", "used"] {
        touch(&vault(name).join("innkeeper/checkouts"), "40 days ago");
        touch(&shared(name).join("worktrees"), "40 days ago");
    }

    inn.until("what was removed is deleted", || {
        fs::read_dir(root.join(".trash")).expect("listed").count() == 0
    });

    // What is left over, what is in the making, and what is somebody's.
    let trash = file(&root.join(".trash/gone.deleting/big"), 1 << 20);
    let undecided = file(&root.join(".trash/undecided/file"), 10);
    let left = root.join(".staging/left");
    let staged = file(&left.join("file"), 1 << 16);
    let making = file(&root.join(".staging/making/file"), 10);
    let old_pack = file(&vault("widgets").join("objects/pack/tmp_pack_old"), 1 << 20);
    let new_pack = file(&vault("widgets").join("objects/pack/tmp_pack_new"), 10);
    let shared_pack = file(&shared("widgets").join("objects/pack/tmp_pack_old"), 10);
    let held_pack = file(&shared("widgets").join("objects/pack/tmp_pack_held"), 10);
    for old in [&staged, &left, &old_pack, &shared_pack, &held_pack] {
        touch(old, "2 hours ago");
    }
    let holder = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::from(fs::File::open(&held_pack).expect("opened")))
        .spawn();
    let mut holder = holder.expect("sleep runs");
    let archive = file(&root.join(".archive/slug/id/manifest.json"), 10);
    let stranger = file(&root.join(".pool/some/file"), 10);

    let expected = |dry: bool| {
        let goes = if dry { "reclaimable" } else { "reclaimed" };
        let trash_dir = root.join(".trash/gone.deleting");
        let repository_dir = kept.join("node_modules");
        vec![
            (open.clone(), "checkout", "stays"),
            (kept.clone(), "checkout", "stays"),
            (kept.join("sub/target"), "regenerable", goes),
            (kept.join("target/deep"), "regenerable", goes),
            (repository_dir, "regenerable", "stays"),
            (shared("widgets"), "shared_clone", "stays"),
            (vault("widgets"), "vault", "stays"),
            (shared("precious"), "shared_clone", "stays"),
            (shared("used"), "shared_clone", "stays"),
            (trash_dir, "trash", goes),
            (root.join(".trash/undecided"), "foreign", "stays"),
            (left.clone(), "staging", goes),
            (root.join(".staging/making"), "staging", "stays"),
            (old_pack.clone(), "leaked_pack", goes),
            (shared_pack.clone(), "leaked_pack", goes),
            (new_pack.clone(), "leaked_pack", "stays"),
            (held_pack.clone(), "leaked_pack", "stays"),
            (root.join(".archive/slug/id"), "archive", "stays"),
            (root.join(".pool/some"), "foreign", "stays"),
            (root.clone(), "own", "stays"),
        ]
    };
    // An archive that cannot be understood may be of any repository.
    let report = gc(&inn, &["--dry-run"]);
    assert_row(&report, &shared("idle"), "shared_clone", "stays");
    fs::write(
        &archive,
        format!(r#"{{"record":{{"host":"{HOST}","owner":"acme","repo":"widgets"}}}}"#),
    )
    .expect("written");

    let before = disk_usage(&root);
    let report = gc(&inn, &["--dry-run"]);
    for (path, kind, fate) in expected(true) {
        assert_row(&report, &path, kind, fate);
    }
    assert_row(&report, &shared("idle"), "shared_clone", "reclaimable");
    assert_row(&report, &vault("idle"), "vault", "reclaimable");
    assert_eq!(report["total_bytes"], before, "{report}");
    assert_eq!(disk_usage(&root), before, "a dry run changes nothing");
    assert!(report["reclaimable_bytes"].as_u64().expect("bytes") > 3 << 20);
    assert_eq!(report["reclaimed_bytes"], 0);
    let plain = inn.ok(&["gc", "--dry-run"]);
    let lines = plain.lines().count();
    assert_eq!(lines, report["holdings"].as_array().expect("rows").len());

    let report = gc(&inn, &[]);
    for (path, kind, fate) in expected(false) {
        assert_row(&report, &path, kind, fate);
    }
    let after = disk_usage(&root);
    assert_eq!(report["total_bytes"], after, "{report}");
    assert!(before - after > 3 << 20, "{before} {after}");
    for gone in [&output, &beside, &trash, &staged, &old_pack, &shared_pack] {
        assert!(!gone.exists(), "{}", gone.display());
    }
    assert!(!vault("idle").exists() && !shared("idle").exists());
    for stays in [
        &with_repository,
        &precious,
        &tracked,
        &elsewhere,
        &undecided,
        &making,
        &new_pack,
        &held_pack,
        &archive,
        &stranger,
    ] {
        assert!(stays.exists(), "{}", stays.display());
    }
    assert!(open.join("target/output").exists(), "its item is open");
    assert_eq!(
        inn.git(&shared("precious"), &["rev-parse", "only-here"]),
        commit
    );

    // A repository that is needed again is fetched again.
    let origin = inn.origin("acme", "idle");
    let request = pull(&Repo::new("acme", "idle", 20).on(HOST), &origin, 77);
    let (again, _) = inn.prepared(&request.opened());
    inn.assert_at(&again, &inn.head(&again), Some("topic-77"));
    holder.kill().expect("it runs");
    holder.wait().expect("it ended");
    inn.finish();
}

#[test]
fn output_stays_while_a_process_works_in_the_checkout() {
    let mut inn = Inn::with(Transport::File, with_workspace("keepCheckoutOnClose: true"));
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let request = pull(&widgets(), &origin, 1);
    let (checkout, _) = inn.prepared(&request.opened());
    let output = file(&checkout.join("target/output"), 10);
    file(&checkout.join("mine"), 10);
    inn.kept(&request.closed_unmerged(), &checkout);
    let inside = Inside::of(&checkout);
    let report = gc(&inn, &[]);
    assert_row(&report, &checkout.join("target"), "regenerable", "stays");
    assert!(output.exists());
    drop(inside);
    let report = gc(&inn, &[]);
    assert_row(
        &report,
        &checkout.join("target"),
        "regenerable",
        "reclaimed",
    );
    assert!(!output.exists() && checkout.join("mine").exists());
    inn.finish();
}

/// More than any disk has.
const MORE_THAN_THERE_IS: &str = "minFreeBytes: 1125899906842624";

/// Waits until the daemon goes by this bound.
fn in_force(inn: &Inn, min_free_bytes: u64) {
    inn.signal("HUP");
    inn.until("the bound is in force", || {
        let output = inn.run(&["status", "--json"]).stdout;
        serde_json::from_slice::<Value>(&output)
            .is_ok_and(|status| status["limits"]["min_free_bytes"] == min_free_bytes)
    });
}

fn with_workspace(workspace: &str) -> Config {
    Config {
        routing: STARTS_PULL_REQUESTS.into(),
        workspace: workspace.into(),
        ..Config::default()
    }
}

#[test]
fn before_a_preparation_is_refused_for_want_of_space_what_goes_by_itself_is_given_back() {
    let mut inn = Inn::with(Transport::File, with_workspace(""));
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let (first, _) = inn.prepared(&pull(&widgets(), &origin, 1).opened());
    // The bounds of the harness come first; a key may stand only once.
    let yaml = fs::read_to_string(inn.config_file()).expect("read");
    let low = yaml.replace("minFreeBytes: 0", MORE_THAN_THERE_IS);
    fs::write(inn.config_file(), &low).expect("written");
    in_force(&inn, 1 << 50);

    let root = inn.checkouts();
    let trash = file(&root.join(".trash/gone.deleting/big"), 1 << 16);
    let undecided = file(&root.join(".trash/undecided/file"), 10);
    let left = file(&root.join(".staging/left/file"), 10);
    let making = file(&root.join(".staging/making/file"), 10);
    let pack = root.join(format!(
        ".vault/{HOST}/acme/widgets.git/objects/pack/tmp_pack_1"
    ));
    file(&pack, 10);
    for old in [&left, left.parent().expect("it has one"), &pack] {
        touch(old, "2 hours ago");
    }
    let request = pull(&widgets(), &origin, 2);
    let id = inn.accept(&request.opened());
    let failed = inn.wait_delivery("workspace.prepare_failed", &id);
    assert_eq!(failed["code"], "disk_low", "{failed}");
    assert_eq!(failed["retryable"], true);
    for gone in [&trash, &left, &pack] {
        assert!(!gone.exists(), "{}", gone.display());
    }
    assert!(undecided.exists() && making.exists() && first.is_dir());
    // With space there it is prepared by itself.
    fs::write(inn.config_file(), &yaml).expect("written");
    in_force(&inn, 0);
    inn.wait_done(&id);
    inn.finish();
}

#[test]
fn beyond_the_most_checkouts_preparing_waits_until_one_goes() {
    let mut inn = Inn::with(Transport::File, with_workspace("maxCheckouts: 1"));
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let first = pull(&widgets(), &origin, 1);
    let (checkout, _) = inn.prepared(&first.opened());
    let id = inn.accept(&pull(&widgets(), &origin, 2).opened());
    let failed = inn.wait_delivery("workspace.prepare_failed", &id);
    assert_eq!(failed["code"], "quota", "{failed}");
    assert_eq!(failed["retryable"], true);
    inn.cleaned(&first.closed_unmerged(), &checkout);
    inn.wait_done(&id);
    inn.finish();
}

#[test]
fn killed_between_taking_a_shared_clone_and_its_vault_away_the_next_event_makes_it_whole() {
    let mut inn = Inn::preparing(Transport::File, "worktree");
    let origin = inn.origin("acme", "widgets");
    inn.start();
    let request = pull(&widgets(), &origin, 1);
    let (checkout, _) = inn.prepared(&request.opened());
    inn.cleaned(&request.closed_unmerged(), &checkout);
    inn.kill();
    let root = inn.checkouts();
    let shared = root.join(format!("{HOST}/acme/widgets"));
    fs::rename(&shared, root.join(".trash/clone-1.deleting")).expect("moved");
    inn.start();
    let vault = root.join(format!(".vault/{HOST}/acme/widgets.git"));
    assert_row(&gc(&inn, &["--dry-run"]), &vault, "vault", "stays");
    touch(&vault.join("innkeeper/checkouts"), "40 days ago");
    assert_row(&gc(&inn, &["--dry-run"]), &vault, "vault", "reclaimable");
    let (again, _) = inn.prepared(&pull(&widgets(), &origin, 2).opened());
    assert!(shared.join("HEAD").is_file());
    assert_eq!(inn.git(&again, &["status", "--porcelain"]), "");
    inn.finish();
}
