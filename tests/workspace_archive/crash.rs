//! Killed at any moment, on the way out and on the way back: the next attempt
//! converges, and the work is in its place or in an archive.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use innkeeper::domain::archive::{ArchiveSummary, AtRisk};
use innkeeper::domain::checkout::CheckoutRecord;
use innkeeper::domain::repo_target::RepoTarget;
use innkeeper::workspace::journal::{Journal, Phase};
use innkeeper::workspace::{Cleanup, Facts, Workspace, WorkspaceOptions};
use tokio_util::sync::CancellationToken;

use crate::git_fixture::{Fixture, HOST};
use crate::picture::{Picture, named};
use crate::work::all_together;
use crate::world::{STRATEGIES, World, names_in, open, options};

const ORDER: &str = "INNKEEPER_TEST_ORDER";

/// What a child process is to do.
#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    root: PathBuf,
    home: PathBuf,
    url: String,
    record: CheckoutRecord,
    /// The archive to restore; none to remove the checkout.
    restore: Option<String>,
}

/// Not a test of its own: what the others start and kill.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by other tests"]
async fn a_child_removes_or_restores() {
    let order = std::env::var(ORDER).expect("an order");
    let order: Order = serde_json::from_str(&order).expect("an order");
    let target = RepoTarget {
        host: HOST.into(),
        owner: "acme".into(),
        repo: "widgets".into(),
        clone_url: order.url,
    };
    let workspace = Workspace::with_options(WorkspaceOptions {
        min_free_bytes: 0,
        min_free_inodes: 0,
        protocols: [(HOST.to_owned(), vec!["file".to_owned()])].into(),
        environment: Some(vec![
            ("HOME".into(), order.home.into()),
            ("PATH".into(), std::env::var_os("PATH").expect("a path")),
        ]),
        regenerable: vec!["node_modules/".into(), "target/".into(), "*.pyc".into()],
        ..WorkspaceOptions::new(order.root)
    });
    let cancel = CancellationToken::new();
    open(&workspace).await;
    match order.restore {
        None => {
            let facts = Facts::of(target);
            let outcome = workspace
                .cleanup(&order.record, &facts, &AtRisk::Archive, &cancel)
                .await;
            assert!(
                matches!(outcome, Ok(Cleanup::Cleaned { .. })),
                "{outcome:?}"
            );
        }
        Some(id) => {
            workspace
                .restore(&id, &target, &cancel)
                .await
                .expect("restored");
        }
    }
}

/// Runs the child and kills it after a while; returns how long it ran, and
/// whether it came to its end by itself.
fn run_child(world: &World<'_>, restore: Option<&str>, limit: Duration) -> (Duration, bool) {
    let order = Order {
        root: world.root(),
        home: world.fixture.path().join("home"),
        url: world.remote.target().clone_url,
        record: world.record.clone(),
        restore: restore.map(str::to_owned),
    };
    let began = Instant::now();
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crash::a_child_removes_or_restores", "--ignored"])
        .env(ORDER, serde_json::to_string(&order).expect("text"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("it starts");
    while began.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("asked") {
            assert!(status.success(), "the child failed: {status}");
            return (began.elapsed(), true);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ended");
    (began.elapsed(), false)
}

/// A new workspace after a crash, put in order.
async fn reopened(world: &mut World<'_>) {
    let new = Workspace::with_options(options(world.fixture));
    drop(std::mem::replace(&mut world.workspace, new));
    open(&world.workspace).await;
}

/// Lets go of the root, so that a child can have it.
fn let_go(world: &mut World<'_>) {
    let idle = Workspace::with_options(options(world.fixture));
    drop(std::mem::replace(&mut world.workspace, idle));
}

async fn removed(world: &World<'_>, what: &str) -> ArchiveSummary {
    let outcome = world.cleanup(&AtRisk::Archive).await;
    let Ok(Cleanup::Cleaned {
        archive: Some(archive),
        ..
    }) = outcome
    else {
        panic!("{what}: {outcome:?}");
    };
    world.is_gone(what).await;
    archive
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_moment_loses_nothing_and_the_next_attempt_converges() {
    /// Moments on each way.
    const MOMENTS: u32 = 12;
    const LONG: Duration = Duration::from_secs(60);
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        world.agent(&all_together().script);
        let before = Picture::of(&world);
        let_go(&mut world);
        let (way_out, _) = run_child(&world, None, LONG);
        reopened(&mut world).await;
        let mut archive = removed(&world, "unharmed").await;
        let_go(&mut world);
        let (way_back, _) = run_child(&world, Some(&archive.id), LONG);
        let mut killed = 0;
        for moment in 0..MOMENTS {
            let what = named(strategy, &format!("moment {moment}"));
            reopened(&mut world).await;
            // On the way back: there, or to be restored again.
            match Journal::read(&world.vault(), &world.record.slug).expect("readable") {
                Some(journal) => {
                    assert_eq!(journal.phase, Phase::Ready, "{what}");
                    world.record = journal.record;
                }
                None => world.is_restored(&archive, &what).await,
            }
            before.is_same(&Picture::of(&world), &what);
            world.is_tidy(&what);
            world
                .workspace
                .purge_archive(&archive.id)
                .await
                .expect("purged");
            world.has_no_archive(&what).await;

            let_go(&mut world);
            let limit = way_out * (moment + 1) / (MOMENTS + 1);
            killed += u32::from(!run_child(&world, None, limit).1);
            reopened(&mut world).await;
            // Undone, or gone through with: never between, never both.
            let archives = world.workspace.archives().await.expect("listed");
            if world.record.path.exists() {
                before.is_same(&Picture::of(&world), &what);
                world.has_no_archive(&what).await;
            } else {
                assert_eq!(archives.len(), 1, "{what}");
            }
            archive = removed(&world, &what).await;
            assert_eq!(
                world.workspace.archives().await.expect("listed"),
                std::slice::from_ref(&archive),
                "{what}"
            );
            let_go(&mut world);
            let limit = way_back * (moment + 1) / (MOMENTS + 1);
            killed += u32::from(!run_child(&world, Some(&archive.id), limit).1);
        }
        assert!(killed > MOMENTS, "only {killed} were killed");
    }
}

/// A git that does what `then` says at its n-th call, if there is an order for
/// it, and is git otherwise.
fn faulty_git(fixture: &Fixture, then: &str) -> PathBuf {
    let top = fixture.path();
    let top = top.display();
    fixture.script(
        "git-faulty",
        &format!(
            "if [ -f {top}/order ]; then n=$(cat {top}/calls 2>/dev/null || echo 0); n=$((n+1)); \
             echo $n > {top}/calls; if [ $n = $(cat {top}/order) ]; then {then}; fi; fi; exec git \"$@\""
        ),
    )
}

fn calls(fixture: &Fixture) -> u32 {
    fs::read_to_string(fixture.path().join("calls"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

fn order(fixture: &Fixture, n: u32) {
    fs::write(fixture.path().join("order"), n.to_string()).expect("written");
    let _ = fs::remove_file(fixture.path().join("calls"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_that_fails_at_any_call_loses_nothing_and_the_next_attempt_converges() {
    let faults = [
        ("refuses", "echo fatal: no >&2; exit 128"),
        ("answers and dies", "git \"$@\"; kill -9 $$"),
    ];
    for strategy in STRATEGIES {
        for (what, then) in faults {
            let fixture = Fixture::new();
            let faulty = WorkspaceOptions {
                git_binary: faulty_git(&fixture, then),
                git_grace: Duration::from_millis(200),
                ..options(&fixture)
            };
            let mut world = World::with(&fixture, strategy, faulty).await;
            world.agent(&all_together().script);
            let before = Picture::of(&world);
            let mut archive = None;
            for n in 1..40 {
                let what = named(strategy, &format!("{what} / out, call {n}"));
                order(&fixture, n);
                let outcome = world.cleanup(&AtRisk::Archive).await;
                if calls(&fixture) < n {
                    assert!(n > 4, "{what}: few calls");
                }
                match outcome {
                    Ok(Cleanup::Cleaned {
                        archive: Some(made),
                        ..
                    }) => {
                        archive = Some(made);
                        break;
                    }
                    Ok(Cleanup::Kept { .. }) | Err(_) => {}
                    other => panic!("{what}: {other:?}"),
                }
                assert_eq!(world.journal(), Some(Phase::Ready), "{what}");
                before.is_same(&Picture::of(&world), &what);
                world.has_no_archive(&what).await;
            }
            let archive = archive.expect("it was removed in the end");
            world.is_gone(what).await;
            for n in 1..40 {
                let what = named(strategy, &format!("{what} / back, call {n}"));
                order(&fixture, n);
                match world.restore(&archive.id).await {
                    Ok(restored) => {
                        assert_eq!(restored.differs, [""; 0], "{what}");
                        world.record = restored.record.expect("a checkout");
                        break;
                    }
                    Err(_) => {
                        assert_eq!(world.journal(), None, "{what}");
                        assert!(!world.record.path.exists(), "{what}");
                        world.is_tidy(&what);
                    }
                }
            }
            let _ = fs::remove_file(fixture.path().join("order"));
            before.is_same(&Picture::of(&world), what);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_while_it_is_archived_keeps_the_checkout_and_drops_the_archive() {
    for strategy in STRATEGIES {
        for change in ["echo x >> n", "echo x > new", "echo x > nested/new", "rm n"] {
            let what = named(strategy, change);
            let fixture = Fixture::new();
            // When the bundle is written.
            let then = format!(
                "git \"$@\"; s=$?; unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE; cd $(cat {}/place); {change}; exit $s",
                fixture.path().display()
            );
            let faulty = WorkspaceOptions {
                git_binary: faulty_git(&fixture, &then),
                ..options(&fixture)
            };
            let world = World::with(&fixture, strategy, faulty).await;
            world.agent("echo x > n; git init -q nested; echo work > work; git add work; git commit -qm work");
            fs::write(
                fixture.path().join("place"),
                world.record.path.display().to_string(),
            )
            .expect("written");
            // Count the calls up to the bundle: status, the remote's branches.
            order(&fixture, 3);
            let outcome = world.cleanup(&AtRisk::Archive).await.expect("answered");
            assert!(
                matches!(outcome, Cleanup::Kept { .. }),
                "{what}: {outcome:?}"
            );
            assert!(world.record.path.exists(), "{what}");
            assert_eq!(world.journal(), Some(Phase::Ready), "{what}");
            world.has_no_archive(&what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_of_an_archive_is_swept_and_what_is_not_marked_is_not() {
    for state in ["making", "purging"] {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, STRATEGIES[0]).await;
        world.agent("echo work > work; git add work; git commit -qm work");
        let commit = fixture.git(&world.record.path, &["rev-parse", "HEAD"]);
        let kept = world.archive("kept").await;
        world.is_restored(&kept, "kept").await;
        let id = "0123456789abcdef0123456789abcdef";
        let pin = |id: &str| format!("refs/innkeeper/archive/{id}/all");
        let foreign = "f".repeat(32);
        for id in [id, &foreign] {
            fixture.git(&world.vault(), &["update-ref", &pin(id), &commit]);
        }
        let shelf = world.root().join(".archive").join(&world.record.slug);
        let dir = shelf.join(id);
        copy(&world.archive_dir(&kept), &dir);
        let marks = world.vault().join("innkeeper/archives");
        fs::create_dir_all(&marks).expect("made");
        let mark = format!(
            "{{\"version\":1,\"state\":\"{state}\",\"slug\":\"{}\",\"id\":\"{id}\",\"nonce\":\"{}\"}}",
            world.record.slug, world.record.nonce
        );
        fs::write(marks.join(format!("{id}.json")), mark).expect("written");
        reopened(&mut world).await;
        assert_eq!(names_in(&shelf), [kept.id.as_str()], "{state}");
        world.is_tidy(state);
        let pins = fixture.git(
            &world.vault(),
            &[
                "for-each-ref",
                "--format=%(refname)",
                "refs/innkeeper/archive",
            ],
        );
        let mut expected = [pin(&kept.id), pin(&foreign)];
        expected.sort();
        assert_eq!(pins.lines().collect::<Vec<_>>(), expected, "{state}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for name in names_in(from) {
        fs::copy(from.join(&name), to.join(&name)).expect("copied");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_a_crash_undid_takes_its_archive_along_and_one_that_went_through_does_not() {
    for decided in [false, true] {
        let what = if decided {
            "gone through with"
        } else {
            "undone"
        };
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, STRATEGIES[0]).await;
        world.agent("echo work > work; git add work; git commit -qm work");
        let kept = world.archive(what).await;
        world.is_restored(&kept, what).await;
        let before = Picture::of(&world);
        let id = "0123456789abcdef0123456789abcdef";
        let shelf = world.root().join(".archive").join(&world.record.slug);
        copy(&world.archive_dir(&kept), &shelf.join(id));
        let marks = world.vault().join("innkeeper/archives");
        let mark = format!(
            "{{\"version\":1,\"state\":\"making\",\"slug\":\"{}\",\"id\":\"{id}\",\"nonce\":\"{}\"}}",
            world.record.slug, world.record.nonce
        );
        fs::create_dir_all(&marks).expect("made");
        fs::write(marks.join(format!("{id}.json")), mark).expect("written");
        let phase = Phase::Removing {
            trash: "crashed".into(),
            archive: Some(id.into()),
        };
        Journal::new(phase, world.record.clone())
            .write(&world.vault())
            .expect("written");
        let trash = world.root().join(".trash/crashed");
        fs::rename(&world.record.path, trash).expect("renamed");
        if decided {
            let aside = world.shared().join("innkeeper-trash/crashed");
            fs::rename(world.admin(), aside).expect("renamed");
        }
        reopened(&mut world).await;
        if decided {
            world.is_gone(what).await;
            assert_eq!(names_in(&shelf), {
                let mut both = [id.to_owned(), kept.id.clone()];
                both.sort();
                both
            });
        } else {
            assert_eq!(world.journal(), Some(Phase::Ready));
            before.is_same(&Picture::of(&world), what);
            assert_eq!(names_in(&shelf), [kept.id.as_str()]);
            world.is_tidy(what);
        }
    }
}
