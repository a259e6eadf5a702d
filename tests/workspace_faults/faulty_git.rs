//! A git whose n-th call fails, for every n on the way of an item from its
//! preparation over a new head to its close.

use innkeeper::domain::archive::AtRisk;
use innkeeper::workspace::{Cleanup, Facts};

use super::*;

const FAULTS: [(&str, &str); 4] = [
    ("refuses", "echo 'fatal: injected' >&2; exit 128"),
    ("dies", "kill -9 $$"),
    (
        "dies after doing it",
        "git \"$@\" >/dev/null 2>&1; kill -9 $$",
    ),
    ("hangs", "exec sleep 600"),
];

/// A git that does what `then` says at the call that the file `order` names.
fn faulty(fixture: &Fixture, then: &str) -> PathBuf {
    let top = fixture.path();
    let top = top.display();
    fixture.script(
        "git-faulty",
        &format!(
            "if [ -f {top}/order ]; then\n\
             n=1; while ! mkdir {top}/calls/$n 2>/dev/null; do n=$((n+1)); done\n\
             if [ $n = $(cat {top}/order) ]; then {then}; fi\nfi\nexec git \"$@\""
        ),
    )
}

fn begin(fixture: &Fixture, n: u32) {
    let calls = fixture.path().join("calls");
    let _ = fs::remove_dir_all(&calls);
    fs::create_dir(&calls).expect("made");
    fs::write(fixture.path().join("order"), n.to_string()).expect("written");
}

/// Whether the n-th call was reached.
fn end(fixture: &Fixture, n: u32) -> bool {
    fs::remove_file(fixture.path().join("order")).expect("removed");
    fixture.path().join("calls").join(n.to_string()).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_call_fails_while_moving_and_closing_the_next_attempt_converges() {
    for strategy in STRATEGIES {
        for (fault, then) in FAULTS {
            for n in 1.. {
                assert!(n < 40, "more calls than a move and a close can need");
                let of = format!("{strategy:?}: call {n} {fault}");
                let fixture = Fixture::new();
                let options = WorkspaceOptions {
                    git_binary: faulty(&fixture, then),
                    git_timeout: Duration::from_millis(if fault == "hangs" {
                        1500
                    } else {
                        60_000
                    }),
                    git_grace: Duration::from_millis(200),
                    ..fixture.options()
                };
                let world = World::with(&fixture, options);
                let (wanted, _) = world.remote.open_pull(1, "one");
                let made = world
                    .try_prepare(1, &wanted, strategy)
                    .await
                    .expect("prepared");
                let newer = world.remote.commit("one", "newer", "x");
                world.remote.pull(1, &newer);
                let (target, cancel) = (world.remote.target(), CancellationToken::new());
                let wanted = git_fixture::wanted(1, &newer, "one");
                let update = |record| {
                    let (workspace, target, wanted, cancel) =
                        (&world.workspace, &target, &wanted, &cancel);
                    async move { workspace.update(record, target, wanted, true, cancel).await }
                };
                let facts = Facts::of(target.clone());
                begin(&fixture, n);
                let record = match update(&made.record).await {
                    Ok(updated) => updated.record,
                    Err(error) => {
                        assert!(!error.is_cancelled(), "{of}");
                        made.record.clone()
                    }
                };
                let first = world
                    .workspace
                    .cleanup(&record, &facts, &AtRisk::Keep, &cancel)
                    .await;
                let was_hit = end(&fixture, n);
                if !matches!(first, Ok(Cleanup::Cleaned { .. })) {
                    assert!(record.path.is_dir(), "{of}: {first:?}");
                    let updated = update(&record)
                        .await
                        .unwrap_or_else(|error| panic!("{of}: {error}"));
                    assert_eq!(updated.record.commit, newer, "{of}");
                    assert_eq!(
                        world.git(&record.path, &["rev-parse", "HEAD"]),
                        newer,
                        "{of}"
                    );
                    assert_eq!(
                        world.git(&record.path, &["status", "--porcelain"]),
                        "",
                        "{of}"
                    );
                    let second = world
                        .workspace
                        .cleanup(&updated.record, &facts, &AtRisk::Keep, &cancel)
                        .await;
                    assert!(
                        matches!(second, Ok(Cleanup::Cleaned { .. })),
                        "{of}: {second:?}"
                    );
                }
                world.workspace.sweep_trash().await.expect("swept");
                assert!(!record.path.exists(), "{of}");
                let (root, vault, shared) = (fixture.root(), world.vault(), world.shared());
                for dir in [
                    root.join(".staging"),
                    root.join(".trash"),
                    vault.join("innkeeper/checkouts"),
                    vault.join("innkeeper/rebuilding"),
                    shared.join("worktrees"),
                    shared.join("innkeeper-new"),
                    shared.join("innkeeper-trash"),
                    shared.join("refs/heads"),
                ] {
                    assert_eq!(names_in(&dir), [""; 0], "{} after {of}", dir.display());
                }
                for left in Fixture::files_below(&vault) {
                    let is_left = left.contains("/tmp_") || left.contains(".lock");
                    assert!(!is_left, "{left} in the vault after {of}");
                }
                world.git(&shared, &["fsck", "--connectivity-only"]);
                if !was_hit {
                    break;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_is_killed_again_and_again_leaves_no_temporary_pack() {
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    world.prepare(1, "one").await;
    let pack = world.vault().join("objects/pack");
    for n in 0..5 {
        fs::write(pack.join(format!("tmp_pack_{n}")), "half").expect("written");
        fs::write(pack.join(format!("tmp_idx_{n}")), "half").expect("written");
    }
    let missing = git_fixture::wanted(9, &"1".repeat(40), "none");
    world
        .try_prepare(9, &missing, Strategy::Worktree)
        .await
        .expect_err("it is nowhere");
    let left: Vec<String> = names_in(&pack)
        .into_iter()
        .filter(|name| name.starts_with("tmp_"))
        .collect();
    assert_eq!(left, [""; 0]);
}
