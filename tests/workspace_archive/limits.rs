//! What no archive can hold is kept as it is, and nothing is left of the
//! attempt; consent holds for what was seen and for nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use innkeeper::domain::archive::AtRisk;
use innkeeper::domain::checkout::Strategy;
use innkeeper::domain::reason::KeepReason::{ArchiveFailed, ArchiveTooBig, Locked, ProbeFailed};
use innkeeper::workspace::{Cleanup, WorkspaceOptions};

use crate::git_fixture::Fixture;
use crate::picture::{Picture, named};
use crate::work::COMMIT;
use crate::world::{STRATEGIES, World, options};

#[tokio::test(flavor = "multi_thread")]
async fn what_no_archive_can_hold_is_kept() {
    let cases = [
        ("a fifo", "mkfifo f"),
        ("a fifo in a nested repository", "git init -q n; mkfifo n/f"),
        (
            "a nested repository that borrows objects",
            "git clone -q --shared $TOP/work/acme/widgets n",
        ),
        (
            "a nested worktree of somebody else's repository",
            "git -C $TOP/work/acme/widgets worktree add -q --detach $PWD/n",
        ),
    ];
    for strategy in STRATEGIES {
        for (what, script) in cases {
            let what = named(strategy, what);
            let fixture = Fixture::new();
            let world = World::new(&fixture, strategy).await;
            world.agent(script);
            world.is_refused(&what, ArchiveFailed).await;
        }
    }
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Clone).await;
    world.agent("git worktree add -q --detach $TOP/outside");
    world
        .is_refused("a worktree of a clone", ArchiveFailed)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_in_what_can_be_made_again_is_in_nobodys_way() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture, Strategy::Worktree).await;
    world.agent("mkdir -p node_modules/made; mkfifo node_modules/made/f; echo x > n");
    let archive = world.archive("a fifo").await;
    world.is_restored(&archive, "a fifo").await;
    assert!(world.record.path.join("n").exists());
    assert!(!world.record.path.join("node_modules").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_an_archive_may_be_is_kept() {
    // Nothing compresses it.
    let files = "head -c 300000 /dev/urandom > n";
    let commits = format!("{files}; git add n; git commit -qm n; git rm -q n; git commit -qm gone");
    for strategy in STRATEGIES {
        for (what, script) in [("files", files), ("commits", commits.as_str())] {
            let fixture = Fixture::new();
            let small = WorkspaceOptions {
                archive_max_bytes: 200_000,
                ..options(&fixture)
            };
            let mut world = World::with(&fixture, strategy, small).await;
            world.agent(script);
            let what = named(strategy, what);
            world.is_refused(&what, ArchiveTooBig).await;
            world.workspace = world.workspace.reconfigured(options(&fixture));
            let archive = world.archive(&what).await;
            assert!(archive.bytes > 300_000, "{what}: {archive:?}");
            world.is_restored(&archive, &what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_only_seems_large_does_not_hold_anybody_up() {
    let fixture = Fixture::new();
    let world = World::with(
        &fixture,
        Strategy::Worktree,
        WorkspaceOptions {
            archive_max_bytes: 1_000_000,
            ..options(&fixture)
        },
    )
    .await;
    world.agent("truncate -s 100G .env");
    let outcome = world.cleanup(&AtRisk::Archive).await.expect("answered");
    let Cleanup::Kept { reasons, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        reasons.iter().any(|reason| reason.code == ArchiveTooBig),
        "{reasons:?}"
    );
    world.has_no_archive("a sparse file").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_read_is_kept() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        world.agent("echo x > .env");
        let file = world.record.path.join(".env");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("changed");
        if fs::read(&file).is_ok() {
            // For root nothing is unreadable: then it is archived, mode and all.
            let before = Picture::of(&world);
            let archive = world.archive("sealed").await;
            world.is_restored(&archive, "sealed").await;
            before.is_same(&Picture::of(&world), "sealed");
            continue;
        }
        world.is_refused("an ignored file", ArchiveFailed).await;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changed");
        let dir = world.record.path.join("d");
        world.agent("mkdir d; echo x > d/f; chmod 0 d");
        world.is_refused("a directory", ProbeFailed).await;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keeping_is_the_default_and_its_token_holds_until_something_changes() {
    let changes = [
        "echo more > n",
        "touch README",
        "git stash -q -u; git stash apply -q",
        "git commit -q --allow-empty -m x",
        "echo x > nested/f",
        "git -C nested -c user.name=a -c user.email=b commit -q --allow-empty -m x",
        "mkdir empty",
        "chmod 600 n",
        "git update-ref refs/heads/feat HEAD~1",
    ];
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        world.agent(&format!("{COMMIT}; echo x > n; git init -q nested"));
        let mut tokens = Vec::new();
        for change in changes {
            let kept = |outcome: Cleanup| match outcome {
                Cleanup::Kept { token, .. } => token.expect("consent would help"),
                other => panic!("{change}: {other:?}"),
            };
            let token = kept(world.cleanup(&AtRisk::Keep).await.expect("answered"));
            let seen = world
                .workspace
                .inspect(&world.record, &world.facts, &world.cancel)
                .await
                .expect("looked at");
            assert_eq!(seen.fingerprint, token, "{change}");
            for wrong in ["", "true", "0"] {
                let wrong = AtRisk::Consent(wrong.into());
                assert_eq!(kept(world.cleanup(&wrong).await.expect("answered")), token);
            }
            assert!(!tokens.contains(&token), "{change}");
            world.agent(change);
            let consent = AtRisk::Consent(token.clone());
            let new = kept(world.cleanup(&consent).await.expect("answered"));
            assert_ne!(new, token, "{change}");
            tokens.push(token);
        }
        world.has_no_archive("no consent").await;
        let outcome = world.cleanup(&AtRisk::Keep).await.expect("answered");
        let Cleanup::Kept {
            token: Some(token), ..
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        let outcome = world
            .cleanup(&AtRisk::Consent(token))
            .await
            .expect("answered");
        assert!(
            matches!(
                outcome,
                Cleanup::Cleaned {
                    archive: Some(_),
                    ..
                }
            ),
            "{outcome:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hindrance_is_no_matter_of_consent() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    world.agent("echo x > n");
    fs::write(world.admin().join("locked"), "mine\n").expect("written");
    for at_risk in [AtRisk::Keep, AtRisk::Archive, AtRisk::Consent("t".into())] {
        let outcome = world.cleanup(&at_risk).await.expect("answered");
        let Cleanup::Kept { reasons, token } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(
            reasons.iter().any(|reason| reason.code == Locked),
            "{reasons:?}"
        );
        assert_eq!(token, None);
    }
    world.has_no_archive("locked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_at_risk_goes_without_an_archive() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        world.agent("mkdir -p node_modules/made; echo x > node_modules/made/f");
        let outcome = world.cleanup(&AtRisk::Archive).await.expect("answered");
        assert!(
            matches!(outcome, Cleanup::Cleaned { archive: None, .. }),
            "{outcome:?}"
        );
        world.is_gone("clean").await;
        world.has_no_archive("clean").await;
    }
}
