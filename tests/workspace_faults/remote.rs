//! A remote that changes under our feet.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_default_branch_that_was_renamed_is_followed_everywhere() {
    for by_refresh in [true, false] {
        let fixture = Fixture::new();
        let world = World::new(&fixture);
        let made = world.prepare(1, "one").await;
        let newer = world.remote.commit("trunk", "new", "x");
        world.git(
            &world.remote.bare,
            &["symbolic-ref", "HEAD", "refs/heads/trunk"],
        );
        world.remote.delete("refs/heads/main");
        let (target, cancel) = (world.remote.target(), CancellationToken::new());
        if by_refresh {
            world
                .workspace
                .refresh_heads(&target, &cancel)
                .await
                .expect("asked");
        } else {
            let name = world
                .workspace
                .default_branch(&target, &cancel)
                .await
                .expect("asked");
            assert_eq!(name, "trunk");
        }
        let shared = world.shared();
        assert_eq!(
            world.git(&shared, &["symbolic-ref", "HEAD"]),
            "refs/heads/trunk"
        );
        assert_eq!(
            world.git(&made.record.path, &["rev-parse", "origin/HEAD"]),
            newer
        );
        assert_eq!(
            world.git(&shared, &["symbolic-ref", "refs/remotes/origin/HEAD"]),
            "refs/remotes/origin/trunk"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_force_push_keeps_the_old_commit_for_the_item_that_is_at_it() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture);
        let (wanted, old) = world.remote.open_pull(1, "one");
        let made = world
            .try_prepare(1, &wanted, strategy)
            .await
            .expect("prepared");
        fs::write(made.record.path.join("draft"), "mine").expect("written");
        let mut last = old.clone();
        for round in 0..3 {
            let new = world
                .remote
                .commit_unpushed("main", &format!("round-{round}"), "x");
            world.remote.push(&new, "refs/heads/one");
            world.remote.pull(1, &new);
            world.remote.forget_unreachable();
            let updated = world
                .workspace
                .update(
                    &made.record,
                    &world.remote.target(),
                    &git_fixture::wanted(1, &new, "one"),
                    true,
                    &CancellationToken::new(),
                )
                .await
                .expect("updated");
            assert!(!updated.moved, "there is a draft in it");
            last = new;
        }
        world.git(&world.vault(), &["gc", "-q", "--prune=now"]);
        for commit in [&old, &last] {
            world.git(&world.vault(), &["cat-file", "-e", commit]);
        }
        world.git(&made.record.path, &["fsck", "--connectivity-only"]);
        assert_eq!(world.git(&made.record.path, &["rev-parse", "HEAD"]), old);
        world.git(&made.record.path, &["cat-file", "-e", &last]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_differ_in_case_and_names_that_give_way_are_each_their_own() {
    let fixture = Fixture::new();
    let world = World::new(&fixture);
    let (upper, one) = world.remote.open_pull(1, "Fix/x");
    let (lower, two) = world.remote.open_pull(2, "fix/x");
    for (number, wanted, commit, branch) in [(1, upper, one, "Fix/x"), (2, lower, two, "fix/x")] {
        let made = world
            .try_prepare(number, &wanted, Strategy::Worktree)
            .await
            .expect("prepared");
        assert_eq!(made.record.commit, commit);
        assert_eq!(made.record.branch.as_deref(), Some(branch));
    }
    // `fix` cannot stand beside `fix/x`: of the two only what is there blocks.
    world.remote.delete("refs/heads/fix/x");
    let (flat, three) = world.remote.open_pull(3, "fix");
    let made = world
        .try_prepare(3, &flat, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(made.record.commit, three);
    assert!(
        made.detached_because
            .expect("a reason")
            .contains("refs/heads/fix/x")
    );
    world
        .workspace
        .refresh_heads(&world.remote.target(), &CancellationToken::new())
        .await
        .expect("refreshed");
    world.prepare(4, "other").await;
}
