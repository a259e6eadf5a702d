//! Damaged objects and refs: what can be read is kept, checkouts do not notice.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;

use super::*;

/// An agent's work in every form that lives in the shared clone.
struct Work {
    record: CheckoutRecord,
    /// Commits that must be readable afterwards, and refs that name some.
    commits: Vec<String>,
    refs: String,
    stash: String,
    status: String,
    head: String,
}

async fn work(world: &World<'_>) -> Work {
    let record = world.prepare(1, "one").await.record;
    let path = &record.path;
    let mut commits = vec![
        world.commit(&record, "first"),
        world.commit(&record, "second"),
    ];
    world.git(path, &["branch", "topic"]);
    world.git(path, &["tag", "-a", "-m", "t", "mine"]);
    for n in 0..2 {
        fs::write(path.join("README"), format!("stashed {n}\n")).expect("written");
        world.git(path, &["stash", "-q"]);
        commits.push(world.git(path, &["rev-parse", "refs/stash"]));
    }
    fs::write(path.join("draft"), "not committed\n").expect("written");
    world.git(path, &["add", "draft"]);
    fs::write(path.join("draft"), "changed again\n").expect("written");
    Work {
        commits,
        refs: refs(world),
        stash: world.git(path, &["stash", "list", "--format=%H %gs"]),
        status: world.git(path, &["status", "--porcelain"]),
        head: world.git(path, &["rev-parse", "HEAD"]),
        record,
    }
}

fn refs(world: &World<'_>) -> String {
    world.git(
        &world.shared(),
        &["for-each-ref", "refs/heads", "refs/tags", "refs/stash"],
    )
}

impl Work {
    /// All of it is there.
    fn is_whole(&self, world: &World<'_>, of: &str) {
        let path = &self.record.path;
        for commit in &self.commits {
            world.git(path, &["rev-list", "--objects", "--quiet", commit]);
        }
        let now = refs(world);
        for line in self.refs.lines() {
            assert!(
                now.lines().any(|found| found == line),
                "{of}: {line} is not in\n{now}"
            );
        }
        self.is_usable(world, of);
    }

    /// The checkout is as it was, and git works in it.
    fn is_usable(&self, world: &World<'_>, of: &str) {
        let path = &self.record.path;
        assert_eq!(world.git(path, &["rev-parse", "HEAD"]), self.head, "{of}");
        assert_eq!(
            world.git(path, &["status", "--porcelain"]),
            self.status,
            "{of}"
        );
        assert_eq!(
            fs::read_to_string(path.join("draft")).expect("read"),
            "changed again\n"
        );
        assert_eq!(
            world.git(path, &["stash", "list", "--format=%H %gs"]),
            self.stash,
            "{of}"
        );
        world.git(path, &["fsck", "--connectivity-only"]);
        world.git(path, &["fetch", "-q"]);
        world.git(path, &["commit", "-q", "-m", "goes on"]);
        world.git(path, &["reset", "-q", "--soft", "HEAD^"]);
    }
}

fn has_ending(name: &str, ending: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|found| found == ending)
}

fn pack_of(dir: &Path) -> PathBuf {
    let names = names_in(&dir.join("objects/pack"));
    let name = names
        .iter()
        .find(|name| has_ending(name, "pack"))
        .expect("there is a pack");
    dir.join("objects/pack").join(name)
}

fn writable(path: &Path) -> fs::File {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("made writable");
    fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("opened")
}

fn truncate(path: &Path, by: u64) {
    let file = writable(path);
    let length = file.metadata().expect("asked").len();
    file.set_len(length.saturating_sub(by)).expect("cut");
}

fn flip(path: &Path, at: i64) {
    let mut file = writable(path);
    let from = if at < 0 {
        SeekFrom::End(at)
    } else {
        SeekFrom::Start(at.unsigned_abs())
    };
    file.seek(from).expect("sought");
    let mut byte = [0];
    file.read_exact(&mut byte).expect("read");
    file.seek(SeekFrom::Current(-1)).expect("sought");
    file.write_all(&[byte[0] ^ 0x55]).expect("written");
}

/// The shared clone's objects of its own as one pack.
fn repack(world: &World<'_>) -> PathBuf {
    world.git(
        &world.shared(),
        &["repack", "-q", "-a", "-d", "-l", "--keep-unreachable"],
    );
    pack_of(&world.shared())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_pack_is_found_before_use_and_what_is_readable_is_kept() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let work = work(&world).await;
    // Only its end is gone: every object can be read.
    truncate(&repack(&world), 20);
    world.prepare(2, "two").await;
    let rebuilt = world.rebuilt();
    assert_eq!(rebuilt.len(), 1, "{rebuilt:?}");
    assert_eq!(rebuilt[0].0, world.shared().display().to_string());
    assert!(
        rebuilt[0].1.contains("cut short") || rebuilt[0].1.contains("does not end"),
        "{rebuilt:?}"
    );
    work.is_whole(&world, "a pack without its end");
    // The damaged one is kept.
    let aside = world.vault().join("innkeeper/set-aside");
    let kept = Fixture::files_below(&aside);
    assert!(kept.iter().any(|name| has_ending(name, "pack")), "{kept:?}");
    world.prepare(3, "three").await;
    assert_eq!(world.rebuilt(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_that_say_nothing_get_what_their_reflog_says() {
    for (what, text) in [
        ("empty", ""),
        ("garbage", "\0\0\0\0\n"),
        ("cut", "0123456789"),
    ] {
        for at_start in [true, false] {
            let of = format!("{what}, at start: {at_start}");
            let fixture = Fixture::new();
            let mut world = World::new(&fixture);
            let work = work(&world).await;
            for name in ["refs/heads/one", "refs/heads/topic", "refs/stash"] {
                fs::write(world.shared().join(name), text).expect("broken");
            }
            if at_start {
                let report = world.reopen().await;
                assert_eq!(report.problems, [""; 0], "{of}");
            } else {
                world.prepare(2, "two").await;
            }
            assert_eq!(world.rebuilt().len(), 1, "{of}");
            work.is_whole(&world, &of);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_object_costs_what_needs_it_and_nothing_else() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let work = work(&world).await;
    let blob = world.git(&work.record.path, &["rev-parse", "HEAD:second"]);
    let object = world
        .shared()
        .join("objects")
        .join(&blob[..2])
        .join(&blob[2..]);
    writable(&object).set_len(0).expect("emptied");
    let report = world.reopen().await;
    assert_eq!(report.problems, [""; 0]);
    let rebuilt = world.rebuilt();
    assert_eq!(rebuilt.len(), 1, "{rebuilt:?}");
    assert!(
        rebuilt[0].1.contains(&blob),
        "it is told what is lost: {rebuilt:?}"
    );
    let now = refs(&world);
    for line in work.refs.lines() {
        assert!(now.contains(line), "{line} is not in\n{now}");
    }
    world.git(&work.record.path, &["cat-file", "-p", "HEAD^:first"]);
    // The file is still there, and so is the way to make the object again.
    world.git(&work.record.path, &["hash-object", "-w", "second"]);
    work.is_whole(&world, "after it was made again");
    // Not again and again.
    world.reopen().await;
    assert_eq!(world.rebuilt(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_vault_is_fetched_anew_and_keeps_what_only_it_had() {
    for damage in ["truncated", "flipped", "gone"] {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture);
        // What the remote will always have is in a pack of its own.
        world
            .workspace
            .ensure_clone(&world.remote.target(), &CancellationToken::new())
            .await
            .expect("cloned");
        let work = work(&world).await;
        // A pin that the remote has forgotten, and an archive's ref.
        let pushed = work.record.commit.clone();
        let newer = world.remote.commit_unpushed("main", "newer", "x");
        world.remote.push(&newer, "refs/heads/one");
        world.remote.pull(1, &newer);
        let vault = world.vault();
        world.git(
            &vault,
            &["update-ref", "refs/innkeeper/archive/a/head", &pushed],
        );
        let base = world.remote.tip("main");
        let with_base = names_in(&vault.join("objects/pack"))
            .into_iter()
            .filter(|name| has_ending(name, "idx"))
            .map(|name| vault.join("objects/pack").join(name))
            .find(|index| {
                world
                    .git(&vault, &["verify-pack", "-v", &index.display().to_string()])
                    .contains(&base)
            })
            .expect("a pack holds it");
        let pack = with_base.with_extension("pack");
        match damage {
            "truncated" => truncate(&pack, 60),
            "flipped" => flip(&pack, 40),
            _ => {
                fs::remove_file(&pack).expect("removed");
                fs::remove_file(&with_base).expect("removed");
            }
        }
        world.reopen().await;
        let made = world.prepare(2, "two").await;
        world.git(
            &made.record.path,
            &["rev-list", "--objects", "--quiet", "HEAD"],
        );
        let rebuilt = world.rebuilt();
        assert!(
            rebuilt
                .iter()
                .any(|(path, _)| *path == vault.display().to_string()),
            "{damage}: {rebuilt:?}"
        );
        world.is_sound(&vault, damage);
        assert_eq!(
            world.git(&vault, &["rev-parse", "refs/innkeeper/archive/a/head"]),
            pushed,
            "{damage}"
        );
        work.is_whole(&world, damage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_of_the_vault_that_say_nothing_block_nobody() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    let vault = world.vault();
    let pin = format!("refs/innkeeper/seen/{}", made.record.commit);
    for at_start in [true, false] {
        for name in [
            pin.as_str(),
            "refs/innkeeper/heads/main",
            "refs/innkeeper/pull/1",
        ] {
            let path = vault.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, "").expect("broken");
        }
        if at_start {
            assert_eq!(world.reopen().await.problems, [""; 0]);
        }
        let number = if at_start { 2 } else { 3 };
        world.prepare(number, &format!("b{number}")).await;
        assert_eq!(world.git(&vault, &["rev-parse", &pin]), made.record.commit);
        world.is_sound(&vault, "mending");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_clone_without_its_frame_gets_it_back() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let work = work(&world).await;
    for name in ["innkeeper.json", "HEAD"] {
        fs::remove_file(world.shared().join(name)).expect("removed");
        world
            .prepare(if name == "HEAD" { 2 } else { 3 }, name)
            .await;
        work.is_whole(&world, name);
    }
    assert_eq!(world.rebuilt(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_is_found_by_the_maintenance_and_costs_no_other_object() {
    for part in ["pack", "index"] {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture);
        let work = work(&world).await;
        // Something large that nothing else depends on, so that it is what is hit.
        let noise: Vec<u8> = (0..200_000_u32)
            .map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).expect("a byte"))
            .collect();
        fs::write(fixture.path().join("noise"), noise).expect("written");
        let path = &work.record.path;
        let blob = world.git(
            path,
            &[
                "hash-object",
                "-w",
                &fixture.path().join("noise").display().to_string(),
            ],
        );
        world.git(path, &["update-ref", "refs/tags/noise", &blob]);
        let pack = repack(&world);
        match part {
            "pack" => {
                let listed = world.git(path, &["verify-pack", "-v", &pack.display().to_string()]);
                let at: i64 = listed
                    .lines()
                    .find(|line| line.starts_with(&blob))
                    .and_then(|line| line.split_whitespace().nth(4)?.parse().ok())
                    .expect("an offset");
                flip(&pack, at + 1000);
            }
            _ => flip(&pack.with_extension("idx"), 1040),
        }
        world
            .workspace
            .maintain(&world.remote.target(), &CancellationToken::new())
            .await
            .expect("maintained");
        let rebuilt = world.rebuilt();
        assert_eq!(rebuilt.len(), 1, "{part}: {rebuilt:?}");
        work.is_whole(&world, part);
        let is_there = fixture
            .try_git(path, &["cat-file", "-e", &blob])
            .status
            .success();
        assert_eq!(is_there, part == "index");
        assert_eq!(rebuilt[0].1.contains(&blob), part == "pack", "{rebuilt:?}");
        // Once is enough.
        world
            .workspace
            .maintain(&world.remote.target(), &CancellationToken::new())
            .await
            .expect("maintained");
        assert_eq!(world.rebuilt(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_agents_commit_while_it_is_made_anew_is_there_afterwards() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let work = work(&world).await;
    let other = world.prepare(5, "five").await.record;
    let stop = std::sync::atomic::AtomicBool::new(false);
    for round in 0..4 {
        fs::write(world.shared().join("refs/heads/topic"), "").expect("broken");
        let committed = std::thread::scope(|scope| {
            let agent = scope.spawn(|| {
                let mut committed = Vec::new();
                for n in 0.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) && n > 5 {
                        return committed;
                    }
                    let name = format!("r{round}-{n}");
                    fs::write(other.path.join(&name), &name).expect("written");
                    // It may meet the moment of a rename; then it was not done.
                    let add = fixture.try_git(&other.path, &["add", &name]);
                    let commit = fixture.try_git(&other.path, &["commit", "-q", "-m", &name]);
                    let head = fixture.try_git(&other.path, &["rev-parse", "HEAD"]);
                    if add.status.success() && commit.status.success() && head.status.success() {
                        let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
                        committed.push(head);
                    }
                }
                committed
            });
            let runtime = tokio::runtime::Handle::current();
            tokio::task::block_in_place(|| {
                runtime.block_on(world.prepare(10 + round, &format!("b{round}")));
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let committed = agent.join().expect("no panic");
            stop.store(false, std::sync::atomic::Ordering::Relaxed);
            committed
        });
        assert_eq!(world.rebuilt().len(), 1);
        let last = committed.last().expect("something was committed");
        assert_eq!(
            &world.git(&other.path, &["rev-parse", "HEAD"]),
            last,
            "{round}"
        );
        for commit in &committed {
            world.git(&other.path, &["rev-list", "--objects", "--quiet", commit]);
        }
        work.is_whole(&world, "agents at work");
    }
}

/// Says which root the process that is to be killed opens.
const VICTIM: &str = "INNKEEPER_TEST_FAULTS_VICTIM";

/// Not a test of its own: what the next one starts as a process and kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn victim() {
    let Ok(root) = std::env::var(VICTIM) else {
        return;
    };
    let workspace = Workspace::with_options(WorkspaceOptions::new(root));
    workspace
        .open(&CancellationToken::new())
        .await
        .expect("opened");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_killed_while_it_makes_one_anew_loses_nothing() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let work = work(&world).await;
    let (mut killed, mut healed) = (0, 0);
    for round in 0..20_u64 {
        fs::write(world.shared().join("refs/heads/topic"), "").expect("broken");
        (world.workspace, world.told) = workspace(fixture.options());
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "corruption::victim", "--ignored", "--quiet"])
            .env(VICTIM, fixture.root())
            .env("HOME", fixture.path().join("home"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("started");
        let set_aside = world.vault().join("innkeeper/set-aside");
        let before = names_in(&set_aside).len();
        // Half of them at a time, half of them when it has begun to swap.
        let since = std::time::Instant::now();
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(5 + (round * 13) % 90)).await;
        } else {
            while names_in(&set_aside).len() == before
                && since.elapsed() < Duration::from_secs(20)
                && child.try_wait().expect("asked").is_none()
            {
                std::hint::spin_loop();
            }
        }
        child.kill().expect("it is ours");
        if child.wait().expect("it ended").success() {
            healed += 1;
        } else {
            killed += 1;
        }
        let report = world.reopen().await;
        assert_eq!(report.problems, [""; 0], "{round}");
        assert_eq!(
            names_in(&world.vault().join("innkeeper/rebuilding")),
            [""; 0]
        );
        assert!(!world.vault().join("innkeeper/rebuild.json").exists());
        work.is_whole(&world, &format!("round {round}"));
    }
    assert!(killed > 0, "none was killed in time ({healed} were not)");
}

/// A small file system of its own, taken away at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, options: &str) -> Self {
        fs::create_dir_all(at).expect("made");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "root can mount"
        );
        Self(at.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_root_a_disk_too_full_to_make_one_anew_changes_nothing_until_there_is_room() {
    let fixture = Fixture::new();
    let _disk = SmallDisk::mount(&fixture.root(), "size=40m");
    let mut world = World::new(&fixture);
    let work = work(&world).await;
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..8_000_000)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            u8::try_from(state >> 56).expect("a byte")
        })
        .collect();
    fs::write(fixture.path().join("noise"), &noise).expect("written");
    let file = fixture.path().join("noise").display().to_string();
    let blob = world.git(&work.record.path, &["hash-object", "-w", &file]);
    fs::write(world.shared().join("refs/heads/topic"), "").expect("broken");
    let filler = fixture.root().join("filler");
    let free = innkeeper_free(&fixture.root()) - 3_000_000;
    fs::write(&filler, vec![0; usize::try_from(free).expect("fits")]).expect("filled");
    let (wanted, _) = world.remote.open_pull(2, "two");
    let error = world
        .try_prepare(2, &wanted, Strategy::Worktree)
        .await
        .expect_err("full");
    assert_eq!(
        error.code(),
        innkeeper::domain::code::FailureCode::DiskFull,
        "{error}"
    );
    assert_eq!(
        names_in(&world.vault().join("innkeeper/rebuilding")),
        [""; 0]
    );
    assert_eq!(
        names_in(&world.vault().join("innkeeper/set-aside")),
        [""; 0]
    );
    let report = world.reopen().await;
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert_eq!(
        world.git(&work.record.path, &["status", "--porcelain"]),
        work.status
    );
    fs::remove_file(&filler).expect("removed");
    world
        .try_prepare(2, &wanted, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(world.rebuilt().len(), 1);
    work.is_whole(&world, "room was made");
    world.git(&work.record.path, &["cat-file", "-e", &blob]);
}

fn innkeeper_free(dir: &Path) -> u64 {
    innkeeper::files::free_space(dir).expect("asked").bytes
}
