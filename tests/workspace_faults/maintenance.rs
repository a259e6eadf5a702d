//! Maintenance: everything is still there afterwards.

use innkeeper::workspace::Maintained;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_checkout_a_borrower_or_an_archive_needs_survives_three_rounds() {
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    let path = &made.record.path;
    let pushed = made.record.commit.clone();
    // On no ref of the vault, borrowed by the shared clone all the same.
    let lone = world.git(
        &world.vault(),
        &[
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@y",
            "commit-tree",
            "-m",
            "lone",
            &world.git(
                &world.vault(),
                &["rev-parse", &format!("{pushed}^{{tree}}")],
            ),
        ],
    );
    world.git(path, &["update-ref", "refs/heads/borrows", &lone]);
    // In an archive only.
    let archived = world.remote.commit_unpushed("main", "archived", "x");
    world.remote.push(&archived, "refs/heads/gone");
    world
        .workspace
        .refresh_heads(&world.remote.target(), &CancellationToken::new())
        .await
        .expect("fetched");
    world.git(
        &world.vault(),
        &["update-ref", "refs/innkeeper/archive/a/head", &archived],
    );
    world.remote.delete("refs/heads/gone");
    // Detached, on no ref at all, and in a stash.
    world.git(path, &["checkout", "-q", "--detach"]);
    let detached = world.commit(&made.record, "detached");
    fs::write(path.join("README"), "changed\n").expect("written");
    world.git(path, &["stash", "-q"]);
    let stash = world.git(path, &["rev-parse", "refs/stash"]);
    // And pushed away.
    let newer = world.remote.commit_unpushed("main", "newer", "x");
    world.remote.push(&newer, "refs/heads/one");
    world.remote.pull(1, &newer);
    world.remote.forget_unreachable();
    for round in 0..3 {
        let (wanted, _) = world.remote.open_pull(10 + round, &format!("r{round}"));
        world
            .try_prepare(10 + round, &wanted, Strategy::Clone)
            .await
            .expect("prepared");
        let done = world
            .workspace
            .maintain(&world.remote.target(), &CancellationToken::new())
            .await
            .expect("maintained");
        assert_eq!(done, Maintained::Done);
        for commit in [&pushed, &lone, &archived, &detached, &stash] {
            world.git(path, &["cat-file", "-e", &format!("{commit}^{{tree}}")]);
            world.git(path, &["rev-list", "--objects", "--quiet", commit]);
        }
        world.is_sound(&world.vault(), "maintaining");
        world.git(path, &["fsck", "--connectivity-only"]);
        assert_eq!(world.git(path, &["stash", "list"]).lines().count(), 1);
        assert_eq!(world.git(path, &["rev-parse", "HEAD"]), detached);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_loose_refs_become_packed_in_vault_and_shared_clone() {
    const REFS: usize = 10_000;
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    let made = world.prepare(1, "one").await;
    let id = format!("{}\n", made.record.commit);
    let seen = world.vault().join("refs/innkeeper/pull");
    let heads = world.shared().join("refs/heads/many");
    for dir in [&seen, &heads] {
        fs::create_dir_all(dir).expect("made");
        for n in 0..REFS {
            fs::write(dir.join((1000 + n).to_string()), &id).expect("written");
        }
    }
    world
        .workspace
        .maintain(&world.remote.target(), &CancellationToken::new())
        .await
        .expect("maintained");
    for (dir, loose) in [(world.vault(), seen), (world.shared(), heads)] {
        assert_eq!(names_in(&loose), [""; 0], "{}", loose.display());
        let packed = fs::read_to_string(dir.join("packed-refs")).expect("read");
        assert!(packed.lines().count() > REFS, "{}", dir.display());
        assert!(!dir.join("packed-refs").is_symlink());
    }
    let count = world.git(&made.record.path, &["for-each-ref", "refs/heads/many"]);
    assert_eq!(count.lines().count(), REFS);
    world.prepare(2, "two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_needs_the_repository_does_not_wait_for_its_maintenance() {
    let fixture = Fixture::new();
    let stalls = fixture.path().join("stalls");
    let git = fixture.script(
        "git-slow",
        &format!(
            "for a; do [ \"$a\" = repack ] && {{ touch {}; exec sleep 600; }}; done\nexec git \"$@\"",
            stalls.display()
        ),
    );
    let world = World::with(
        &fixture,
        WorkspaceOptions {
            git_binary: git,
            ..fixture.options()
        },
    );
    world.prepare(1, "one").await;
    let (workspace, target) = (world.workspace.clone(), world.remote.target());
    let running =
        tokio::spawn(async move { workspace.maintain(&target, &CancellationToken::new()).await });
    let since = std::time::Instant::now();
    while !stalls.exists() {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "git never stalled"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.prepare(2, "two").await;
    let done = running.await.expect("no panic").expect("no failure");
    assert_eq!(done, Maintained::GaveWay);
    assert!(since.elapsed() < Duration::from_secs(60));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_was_just_used_is_not_due() {
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    world.prepare(1, "one").await;
    let next = world
        .workspace
        .maintain_next(&CancellationToken::new())
        .await
        .expect("looked");
    assert_eq!(next, None);
}
