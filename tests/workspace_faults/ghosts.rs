//! Half-made records of other people's worktrees.

use super::*;

/// Makes a record as a killed `git worktree add` leaves one.
fn ghost(world: &World<'_>, name: &str, files: &[(&str, &str)], by: Duration) -> PathBuf {
    let admin = world.shared().join("worktrees").join(name);
    fs::create_dir_all(&admin).expect("made");
    let usual = [
        ("commondir", "../..\n"),
        ("gitdir", "/nonexistent/.git\n"),
        ("HEAD", "ref: refs/heads/nobody\n"),
        ("locked", "initializing"),
    ];
    for (file, text) in usual.iter().chain(files) {
        fs::write(admin.join(file), text).expect("written");
    }
    for entry in fs::read_dir(&admin).expect("listed").flatten() {
        age(&entry.path(), by);
    }
    age(&admin, by);
    admin
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_breaks_every_git_is_set_aside_and_no_other_is() {
    let null = format!("{}\n", "0".repeat(40));
    let missing = format!("{}\n", "1".repeat(40));
    let kinds: [(&str, Vec<(&str, &str)>); 4] = [
        ("empty-commondir", vec![("commondir", "")]),
        ("null-head", vec![("HEAD", &null), ("locked", "mine")]),
        ("missing-head", vec![("HEAD", &missing), ("locked", "mine")]),
        ("initializing", vec![]),
    ];
    for at_start in [true, false] {
        for (name, files) in &kinds {
            let fixture = Fixture::new();
            let mut world = World::new(&fixture);
            let made = world.prepare(1, "one").await;
            let theirs = fixture.path().join("theirs");
            world.git(
                &made.record.path,
                &[
                    "worktree",
                    "add",
                    "-q",
                    "--detach",
                    &theirs.display().to_string(),
                ],
            );
            let young = ghost(&world, "young", files, Duration::ZERO);
            // The daemon goes on regardless: it sees no worktrees.
            world.prepare(2, "two").await;
            assert!(young.exists(), "{name}: somebody may be at it");
            fs::remove_dir_all(&young).expect("removed");
            let old = ghost(&world, name, files, Duration::from_mins(5));
            if at_start {
                let report = world.reopen().await;
                assert_eq!(report.ghosts, std::slice::from_ref(&old), "{name}");
            } else {
                let made = world.prepare(3, "three").await;
                assert_eq!(made.drift, [format!("worktrees/{name}")], "{name}");
            }
            assert!(!old.exists(), "{name}");
            let aside = names_in(&world.shared().join("innkeeper-trash"));
            assert!(
                aside.iter().any(|one| one.contains(name)),
                "{name} is kept: {aside:?}"
            );
            // Everybody's git works again, also theirs.
            world.git(&made.record.path, &["fetch", "-q"]);
            world.git(&theirs, &["worktree", "list"]);
            world.git(&theirs, &["rev-list", "--all"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_a_directory_points_to_is_left_alone_whatever_it_says() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    let theirs = fixture.path().join("theirs");
    world.git(
        &made.record.path,
        &[
            "worktree",
            "add",
            "-q",
            "--detach",
            &theirs.display().to_string(),
        ],
    );
    let admin = world.shared().join("worktrees/theirs");
    fs::write(admin.join("HEAD"), format!("{}\n", "0".repeat(40))).expect("written");
    for entry in fs::read_dir(&admin).expect("listed").flatten() {
        age(&entry.path(), Duration::from_mins(5));
    }
    age(&admin, Duration::from_mins(5));
    assert_eq!(world.reopen().await.ghosts, [] as [PathBuf; 0]);
    assert_eq!(world.prepare(2, "two").await.drift, [""; 0]);
    assert!(admin.exists());
}
