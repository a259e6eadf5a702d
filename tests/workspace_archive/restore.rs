//! Restoring where something is in the way, gone, or damaged.

use std::fs;

use innkeeper::domain::archive::AtRisk;
use innkeeper::domain::checkout::Strategy;
use innkeeper::domain::code::FailureCode;
use innkeeper::domain::work_item::ItemKind;
use innkeeper::workspace::{Cleanup, PrepareOptions, Workspace};

use crate::git_fixture::Fixture;
use crate::picture::{Picture, named};
use crate::work::{COMMIT, EDIT, all_together};
use crate::world::{STRATEGIES, World, names_in, open, options};

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_that_stands_is_never_written_over() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        world.agent(&format!("{COMMIT}; echo x > n"));
        let archive = world.archive("first").await;
        world.is_restored(&archive, "first").await;
        let before = Picture::of(&world);
        let error = world.restore(&archive.id).await.expect_err("refused");
        assert_eq!(error.code(), FailureCode::PathOccupied, "{error}");
        before.is_same(&Picture::of(&world), "refused");
        world.is_tidy("refused");
        // Neither is somebody's directory in its place.
        let archive = world.archive("second").await;
        fs::create_dir_all(&world.record.path).expect("made");
        fs::write(world.record.path.join("theirs"), "x").expect("written");
        let error = world.restore(&archive.id).await.expect_err("refused");
        assert_eq!(error.code(), FailureCode::PathOccupied, "{error}");
        assert_eq!(names_in(&world.record.path), ["theirs"]);
        world.is_tidy("occupied");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_was_prepared_again_keeps_its_new_checkout() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    world.agent(COMMIT);
    let archive = world.archive("first").await;
    let (what, _) = world.remote.open_pull(1, "feat");
    world
        .workspace
        .prepare(
            &world.remote.target(),
            &world.record.slug,
            (ItemKind::PullRequest, 1),
            &what,
            PrepareOptions::default(),
            &world.cancel,
        )
        .await
        .expect("prepared anew");
    let error = world.restore(&archive.id).await.expect_err("refused");
    assert_eq!(error.code(), FailureCode::PathOccupied, "{error}");
    let to = fixture.path().join("aside");
    let restored = world
        .workspace
        .restore_to(&archive.id, &to, &world.cancel)
        .await
        .expect("it goes elsewhere");
    assert_eq!(restored.differs, [""; 0]);
    assert!(to.join("work").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_for_a_standalone_repository_has_to_be_empty_and_outside() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    world.agent(COMMIT);
    let archive = world.archive("first").await;
    let full = fixture.path().join("full");
    fs::create_dir(&full).expect("made");
    fs::write(full.join("theirs"), "x").expect("written");
    let link = fixture.path().join("link");
    std::os::unix::fs::symlink(&full, &link).expect("linked");
    for (to, code) in [
        (full.clone(), FailureCode::PathOccupied),
        (link, FailureCode::PathOccupied),
        (full.join("theirs"), FailureCode::PathOccupied),
        (world.root().join("x"), FailureCode::BadInput),
        ("relative".into(), FailureCode::BadInput),
    ] {
        let error = world
            .workspace
            .restore_to(&archive.id, &to, &world.cancel)
            .await
            .expect_err("refused");
        assert_eq!(error.code(), code, "{}: {error}", to.display());
    }
    assert_eq!(names_in(&full), ["theirs"]);
    for id in ["", "..", "../x", "0123", &"f".repeat(32)] {
        let error = world.restore(id).await.expect_err("unknown");
        assert_eq!(error.code(), FailureCode::BadInput, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_comes_back_after_the_shared_clone_or_the_vault_was_made_anew() {
    for strategy in STRATEGIES {
        for vault_too in [false, true] {
            let what = named(strategy, if vault_too { "vault" } else { "shared" });
            let fixture = Fixture::new();
            let mut world = World::new(&fixture, strategy).await;
            let case = all_together();
            world.agent(&case.script);
            let before = Picture::of(&world);
            let archive = world.archive(&what).await;
            drop(std::mem::replace(
                &mut world.workspace,
                Workspace::with_options(options(&fixture)),
            ));
            fs::remove_dir_all(world.shared()).expect("removed");
            if vault_too {
                fs::remove_dir_all(world.vault()).expect("removed");
            }
            // The request was merged meanwhile, and its branch deleted.
            world.remote.delete("refs/heads/feat");
            open(&world.workspace).await;
            world.is_restored(&archive, &what).await;
            // A branch that the remote has no more cannot be compared with.
            let except: &[&str] = if vault_too { &["status"] } else { &[] };
            before.is_same_but(&Picture::of(&world), &what, except);
            world.agent(case.then);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_archive_is_told_and_nothing_is_touched() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        world.agent(&format!("{COMMIT}; {EDIT}; echo x > n"));
        let before = Picture::of(&world);
        let archive = world.archive("whole").await;
        let dir = world.archive_dir(&archive);
        for part in names_in(&dir) {
            let path = dir.join(&part);
            let whole = fs::read(&path).expect("read");
            let middle = whole.len() / 2;
            let mut damaged = Vec::new();
            for at in [0, middle, whole.len() - 1] {
                let mut flipped = whole.clone();
                flipped[at] ^= 0x20;
                damaged.push(flipped);
            }
            damaged.push(whole[..middle].to_vec());
            damaged.push(Vec::new());
            damaged.push([whole.as_slice(), b"x"].concat());
            for bytes in damaged {
                fs::write(&path, bytes).expect("written");
                let error = world.restore(&archive.id).await.expect_err("damaged");
                assert_eq!(error.code(), FailureCode::Corrupt, "{part}: {error}");
                assert!(!world.record.path.exists());
                assert_eq!(world.journal(), None);
                world.is_tidy(&part);
            }
            fs::remove_file(&path).expect("removed");
            let error = world.restore(&archive.id).await.expect_err("damaged");
            assert_eq!(error.code(), FailureCode::Corrupt, "{part}: {error}");
            fs::write(&path, whole).expect("written");
        }
        world.is_restored(&archive, "whole again").await;
        before.is_same(&Picture::of(&world), "whole again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_others_have_or_moved_is_left_to_them_and_it_is_said() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture, Strategy::Worktree).await;
    world.agent(COMMIT);
    let tip = fixture.git(&world.record.path, &["rev-parse", "HEAD"]);
    let archive = world.archive("first").await;
    let gone = fixture.try_git(
        &world.shared(),
        &["rev-parse", "-q", "--verify", "refs/heads/feat"],
    );
    assert!(!gone.status.success(), "its branch went with it");
    // Somebody else makes one of that name.
    let main = world.remote.tip("refs/heads/main");
    fixture.git(&world.shared(), &["branch", "feat", &main]);
    let restored = world.restore(&archive.id).await.expect("restored");
    assert_eq!(restored.differs.len(), 2, "{:?}", restored.differs);
    assert!(
        restored.differs[1].contains("detached"),
        "{:?}",
        restored.differs
    );
    world.record = restored.record.expect("a checkout");
    assert!(
        !world.record.branch_created,
        "it must not go with this checkout"
    );
    assert_eq!(fixture.git(&world.record.path, &["rev-parse", "HEAD"]), tip);
    assert_eq!(fixture.git(&world.shared(), &["rev-parse", "feat"]), main);
    assert_eq!(
        fixture.git(&world.record.path, &["status", "--porcelain"]),
        ""
    );
    // The same where another checkout is on it, at the very commit.
    let archive = world.archive("second").await;
    assert_eq!(fixture.git(&world.shared(), &["rev-parse", "feat"]), main);
    fixture.git(&world.shared(), &["branch", "-f", "feat", &tip]);
    let other = fixture.path().join("other");
    let to = other.display().to_string();
    fixture.git(&world.shared(), &["worktree", "add", "-q", &to, "feat"]);
    let restored = world.restore(&archive.id).await.expect("restored");
    // It was detached; the branch is only another checkout's now.
    assert_eq!(restored.differs.len(), 1, "{:?}", restored.differs);
    world.record = restored.record.expect("a checkout");
    assert!(!world.record.branch_created);
    assert_eq!(
        fixture.git(&other, &["symbolic-ref", "HEAD"]),
        "refs/heads/feat"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_was_made_here_but_not_by_the_preparation_stays() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture, Strategy::Worktree).await;
    world.agent(&format!(
        "git checkout -qb mine; {COMMIT}; git checkout -qb feat2"
    ));
    let archive = world.archive("branches").await;
    let branches = fixture.git(&world.shared(), &["branch", "--format=%(refname:short)"]);
    assert_eq!(branches, "feat2\nmine");
    world.is_restored(&archive, "branches").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stash_that_others_use_too_is_not_disturbed() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture, Strategy::Worktree).await;
    let (what, _) = world.remote.open_pull(2, "other");
    let other = world
        .workspace
        .prepare(
            &world.remote.target(),
            "acme-widgets-2-0123abcd",
            (ItemKind::PullRequest, 2),
            &what,
            PrepareOptions::default(),
            &world.cancel,
        )
        .await
        .expect("prepared")
        .record;
    world.agent(&format!("{EDIT}; git stash -qm mine"));
    fs::write(other.path.join("README"), "theirs\n").expect("written");
    fixture.git(&other.path, &["stash", "-qm", "theirs"]);
    let list = fixture.git(&other.path, &["stash", "list"]);
    let archive = world.archive("stash").await;
    assert_eq!(fixture.git(&other.path, &["stash", "list"]), list);
    world.is_restored(&archive, "stash").await;
    assert_eq!(fixture.git(&other.path, &["stash", "list"]), list);
    // Dropped by somebody meanwhile: it is put back, on top of what is there.
    let archive = world.archive("stash").await;
    fixture.git(&other.path, &["stash", "drop", "-q", "stash@{1}"]);
    world.is_restored(&archive, "stash").await;
    let list = fixture.git(&other.path, &["stash", "list"]);
    let lines: Vec<&str> = list.lines().collect();
    assert!(
        lines[0].ends_with("mine") && lines[1].ends_with("theirs"),
        "{list}"
    );
    world.agent("git stash pop -q; grep -q more README");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_record_of_a_missing_directory_holds_is_archived() {
    let cases = [
        ("a commit", COMMIT.to_owned(), "grep -q work work"),
        (
            "a staged file",
            "echo x > n; git add n".to_owned(),
            "git show :n | grep -qx x",
        ),
        (
            "a stash",
            format!("{EDIT}; git stash -q"),
            "git stash pop -q; grep -q more README",
        ),
        (
            "a rebase",
            format!(
                "{COMMIT}; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1 >/dev/null 2>&1"
            ),
            "git reset -q --hard; git rebase --continue >/dev/null 2>&1; test -f work",
        ),
    ];
    for (what, script, then) in cases {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, Strategy::Worktree).await;
        world.agent(&script);
        fs::remove_dir_all(&world.record.path).expect("removed");
        let outcome = world.cleanup(&AtRisk::Keep).await.expect("answered");
        let Cleanup::Kept {
            token: Some(token), ..
        } = outcome
        else {
            panic!("{what}: {outcome:?}");
        };
        let again = world
            .cleanup(&AtRisk::Consent("x".into()))
            .await
            .expect("answered");
        assert!(matches!(again, Cleanup::Kept { .. }), "{what}: {again:?}");
        let outcome = world
            .cleanup(&AtRisk::Consent(token))
            .await
            .expect("answered");
        let Cleanup::Cleaned {
            archive: Some(archive),
            ..
        } = outcome
        else {
            panic!("{what}: {outcome:?}");
        };
        world.is_gone(what).await;
        world.forget_unreachable();
        world.is_restored(&archive, what).await;
        world.agent("test -f README");
        world.agent(then);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_was_gone_through_with_tells_of_its_archive_again() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    world.agent(COMMIT);
    let archive = world.archive("first").await;
    let outcome = world.cleanup(&AtRisk::Archive).await.expect("answered");
    assert_eq!(
        outcome,
        Cleanup::Cleaned {
            archive: Some(archive.clone()),
            bytes: None
        }
    );
    let listed = world.workspace.archives().await.expect("listed");
    assert_eq!(listed, std::slice::from_ref(&archive));
    let one = world
        .workspace
        .archive_summary(&archive.id)
        .await
        .expect("there");
    assert_eq!(one, archive);
    assert_eq!(
        (one.commits, one.head),
        (1, Some("refs/heads/feat".to_owned()))
    );
}
