//! Deleting archives: what was asked for, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;

use innkeeper::domain::checkout::Strategy;
use innkeeper::domain::code::FailureCode;

use crate::git_fixture::Fixture;
use crate::work::COMMIT;
use crate::world::{STRATEGIES, World, names_in};

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_deleted_with_its_pins() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        world.agent(COMMIT);
        let first = world.archive("first").await;
        world.is_restored(&first, "first").await;
        world.agent("echo x > n");
        let second = world.archive("second").await;
        let listed: Vec<String> = world
            .workspace
            .archives()
            .await
            .expect("listed")
            .into_iter()
            .map(|archive| archive.id)
            .collect();
        assert_eq!(listed, [second.id.clone(), first.id.clone()]);
        let bytes = world
            .workspace
            .purge_archive(&first.id)
            .await
            .expect("purged");
        assert_eq!(bytes, first.bytes);
        world.is_tidy("purged");
        let error = world.restore(&first.id).await.expect_err("gone");
        assert_eq!(error.code(), FailureCode::BadInput);
        world.is_restored(&second, "the other").await;
        world
            .workspace
            .purge_archive(&second.id)
            .await
            .expect("purged");
        world.has_no_archive("all purged").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_archive_can_be_deleted_and_names_lead_nowhere_else() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    world.agent(COMMIT);
    let archive = world.archive("first").await;
    let outside = fixture.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("f"), "x").expect("written");
    let planted = "0123456789abcdef0123456789abcdef";
    symlink(
        &outside,
        world
            .root()
            .join(".archive")
            .join(&world.record.slug)
            .join(planted),
    )
    .expect("linked");
    for id in ["", ".", "..", "../outside", "*", planted, &archive.id[1..]] {
        let error = world
            .workspace
            .purge_archive(id)
            .await
            .expect_err("refused");
        assert_eq!(error.code(), FailureCode::BadInput, "{id}");
    }
    assert_eq!(names_in(&outside), ["f"]);
    fs::write(world.archive_dir(&archive).join("manifest.json"), "{}").expect("written");
    assert_eq!(world.workspace.archives().await.expect("listed"), []);
    world
        .workspace
        .purge_archive(&archive.id)
        .await
        .expect("purged");
    fs::remove_file(
        world
            .root()
            .join(".archive")
            .join(&world.record.slug)
            .join(planted),
    )
    .expect("removed");
    fs::remove_dir(world.root().join(".archive").join(&world.record.slug)).expect("empty");
    world.has_no_archive("purged").await;
}
