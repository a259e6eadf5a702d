//! Locks: removed on proof, waited for while they are held.

use innkeeper::domain::code::FailureCode;

use super::*;

const OLD: Duration = Duration::from_hours(3);

/// Where each kind of lock stands in a git directory.
const KINDS: [&str; 9] = [
    "index.lock",
    "HEAD.lock",
    "packed-refs.lock",
    "config.lock",
    "shallow.lock",
    "refs/heads/two.lock",
    "refs/innkeeper/seen/x.lock",
    "objects/info/commit-graph.lock",
    "objects/info/commit-graphs/commit-graph-chain.lock",
];

fn plant(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(&path, "").expect("planted");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_git_locked_is_free_after_a_restart_and_each_is_told() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    let admin = world.shared().join("worktrees").join(slug(1));
    let foreign = fixture.path().join("theirs");
    world.git(
        &made.record.path,
        &[
            "worktree",
            "add",
            "-q",
            "--detach",
            &foreign.display().to_string(),
        ],
    );
    let mut planted = Vec::new();
    for dir in [world.vault(), world.shared()] {
        planted.extend(KINDS.map(|name| plant(&dir, name)));
    }
    for name in ["index.lock", "HEAD.lock", "config.worktree.lock"] {
        planted.push(plant(&admin, name));
    }
    // Not ours to judge.
    let theirs = plant(&world.shared().join("worktrees/theirs"), "index.lock");
    let report = world.reopen().await;
    let mut removed: Vec<PathBuf> = report.locks.iter().map(|one| one.path.clone()).collect();
    removed.sort();
    planted.sort();
    assert_eq!(removed, planted);
    assert!(
        report
            .locks
            .iter()
            .all(|one| one.proof.contains("no process has it open")),
        "{:?}",
        report.locks
    );
    assert!(theirs.exists());
    world.prepare(2, "two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_git_works_there_no_lock_is_taken_from_it() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    let lock = plant(&world.shared(), "packed-refs.lock");
    age(&lock, OLD);
    // A git that waits for its input, inside.
    let mut git = std::process::Command::new("git")
        .args(["cat-file", "--batch"])
        .current_dir(&made.record.path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("git starts");
    let head = std::io::Write::write_all(git.stdin.as_mut().expect("piped"), b"HEAD\n");
    head.expect("asked");
    let mut answer = [0; 1];
    std::io::Read::read_exact(git.stdout.as_mut().expect("piped"), &mut answer)
        .expect("it answers");
    let report = world.reopen().await;
    assert_eq!(report.locks, []);
    assert!(lock.exists());
    git.kill().expect("it is ours");
    git.wait().expect("it ended");
    assert_eq!(world.reopen().await.locks.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_somebody_holds_is_waited_for_then_tried_again_later() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    world.prepare(1, "one").await;
    let (wanted, commit) = world.remote.open_pull(2, "two");
    // Younger than any git may hold it: nobody knows that nobody does.
    let lock = plant(&world.shared(), "refs/heads/two.lock");
    let error = world
        .try_prepare(2, &wanted, Strategy::Worktree)
        .await
        .expect_err("held");
    assert_eq!(error.code(), FailureCode::LockTimeout, "{error}");
    assert!(lock.exists());
    // Given up while it is waited for.
    let gives_up = lock.clone();
    let giver = std::thread::spawn(move || {
        let journal = gives_up
            .ancestors()
            .nth(3)
            .expect("the shared clone")
            .join("worktrees")
            .join(slug(2))
            .join("index");
        let since = std::time::Instant::now();
        while !journal.exists() && since.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        fs::remove_file(gives_up).expect("given up");
    });
    let made = world
        .try_prepare(2, &wanted, Strategy::Worktree)
        .await
        .expect("prepared");
    giver.join().expect("no panic");
    assert_eq!(made.record.branch.as_deref(), Some("two"));
    assert_eq!(made.record.commit, commit);
    // One that is older than any git holds one goes, with a word.
    let (wanted, _) = world.remote.open_pull(3, "three");
    let lock = plant(&world.shared(), "refs/heads/three.lock");
    age(&lock, OLD);
    let made = world
        .try_prepare(3, &wanted, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(made.record.branch.as_deref(), Some("three"));
    let told = world.told();
    assert!(
        told.iter().any(|event| matches!(
            event,
            LogEvent::LockRemoved { path, .. } if *path == lock.display().to_string()
        )),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_lock_of_the_vault_stops_no_fetch() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    world.prepare(1, "one").await;
    let (wanted, commit) = world.remote.open_pull(2, "two");
    let pin = format!("refs/innkeeper/seen/{commit}.lock");
    let lock = plant(&world.vault(), &pin);
    age(&lock, OLD);
    let made = world
        .try_prepare(2, &wanted, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(made.record.commit, commit);
    assert!(
        world
            .told()
            .iter()
            .any(|event| matches!(event, LogEvent::LockRemoved { .. }))
    );
}
