//! Preparing and moving checkouts, with real git against real repositories, in
//! one table for both strategies.

#[path = "support/git_fixture.rs"]
mod git_fixture;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use git_fixture::{Fixture, Remote, wanted};
use innkeeper::domain::checkout::{Strategy, Wanted};
use innkeeper::domain::code::FailureCode;
use innkeeper::domain::repo_target::RepoTarget;
use innkeeper::domain::work_item::ItemKind;
use innkeeper::workspace::{
    DirectoryState, MissingBranch, PrepareOptions, Prepared, Workspace, WorkspaceError,
    WorkspaceOptions,
};
use tokio_util::sync::CancellationToken;

const STRATEGIES: [Strategy; 2] = [Strategy::Worktree, Strategy::Clone];

/// Prepares a pull request's checkout.
async fn prepare(
    workspace: &Workspace,
    target: &RepoTarget,
    number: u64,
    wanted: &Wanted,
    strategy: Strategy,
) -> Result<Prepared, WorkspaceError> {
    let options = PrepareOptions {
        strategy: Some(strategy),
        ..PrepareOptions::default()
    };
    workspace
        .prepare(
            target,
            &slug(number),
            (ItemKind::PullRequest, number),
            wanted,
            options,
            &CancellationToken::new(),
        )
        .await
}

fn slug(number: u64) -> String {
    format!("acme-widgets-{number}-0123abcd")
}

fn head(fixture: &Fixture, dir: &Path) -> String {
    fixture.git(dir, &["rev-parse", "HEAD"])
}

fn status(fixture: &Fixture, dir: &Path) -> String {
    fixture.git(dir, &["status", "--porcelain", "--untracked-files=all"])
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

/// Nothing of any checkout is left; vault and shared clone may be there.
fn assert_nothing_left(root: &Path, of: &str) {
    let vault = root.join(".vault/git.test/acme/widgets.git");
    let shared = root.join("git.test/acme/widgets");
    for dir in [
        root.join(".staging"),
        root.join(".trash"),
        root.join(".worktrees"),
        root.join(".work-items"),
        vault.join("innkeeper/checkouts"),
        shared.join("worktrees"),
        shared.join("innkeeper-new"),
        shared.join("innkeeper-trash"),
        shared.join("refs/heads"),
    ] {
        assert_eq!(
            names_in(&dir),
            Vec::<String>::new(),
            "{} after {of}",
            dir.display()
        );
    }
    for left in Fixture::files_below(&vault) {
        let is_temporary = left.contains("/tmp_") || left.contains(".lock");
        assert!(!is_temporary, "{left} in the vault after {of}");
    }
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "waited in vain until {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_gets_its_commit_on_a_branch_of_its_name() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let (wanted, commit) = remote.open_pull(7, "feature/x");
        let workspace = fixture.workspace();
        let made = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect("prepared");
        let path = &made.record.path;
        assert_eq!(head(&fixture, path), commit);
        assert_eq!(status(&fixture, path), "");
        assert_eq!(
            fixture.git(path, &["symbolic-ref", "HEAD"]),
            "refs/heads/feature/x"
        );
        assert_eq!(made.record.branch.as_deref(), Some("feature/x"));
        assert!(made.fetched && !made.coalesced && !made.reused && !made.fallback);
        assert_eq!(
            fs::read_to_string(path.join("pull-7")).expect("a file"),
            "work\n"
        );
        let expected = match strategy {
            Strategy::Worktree => fixture
                .root()
                .join(".worktrees/git.test/acme/widgets")
                .join(slug(7)),
            Strategy::Clone => fixture
                .root()
                .join(".work-items")
                .join(slug(7))
                .join("git.test/acme/widgets"),
        };
        assert_eq!(*path, expected);
        let shared = fixture.root().join("git.test/acme/widgets");
        assert_eq!(
            fixture.git(&shared, &["rev-parse", "--is-bare-repository"]),
            "true"
        );
        assert_eq!(
            fixture.git(&shared, &["symbolic-ref", "HEAD"]),
            "refs/heads/main"
        );
        fixture.git(&shared, &["fsck", "--connectivity-only"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn preparing_again_returns_the_same_checkout_with_its_work() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let (wanted, _) = remote.open_pull(7, "x");
        let workspace = fixture.workspace();
        let first = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect("prepared");
        fs::write(first.record.path.join("draft"), "precious").expect("written");
        fixture.git(
            &first.record.path,
            &["commit", "-q", "--allow-empty", "-m", "mine"],
        );
        let mine = head(&fixture, &first.record.path);
        // Another process after a crash, the other strategy, another head.
        drop(workspace);
        let workspace = fixture.workspace();
        for other in STRATEGIES {
            let again = prepare(&workspace, &remote.target(), 7, &wanted, other)
                .await
                .expect("prepared");
            assert!(again.reused && !again.fetched);
            assert_eq!(again.record, first.record);
        }
        assert_eq!(
            fs::read_to_string(first.record.path.join("draft")).expect("kept"),
            "precious"
        );
        assert_eq!(head(&fixture, &first.record.path), mine);
        assert!(workspace.knows_commit(&first.record, &mine).await);
        assert!(
            workspace
                .knows_commit(&first.record, &first.record.commit)
                .await
        );
        assert!(!workspace.knows_commit(&first.record, &"1".repeat(40)).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_gets_the_default_branchs_present_tip_also_after_it_was_renamed() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let workspace = fixture.workspace();
        let wanted = Wanted::DefaultBranch;
        let first = prepare(&workspace, &remote.target(), 1, &wanted, strategy)
            .await
            .expect("prepared");
        assert_eq!(head(&fixture, &first.record.path), remote.tip("main"));
        let newer = remote.commit("trunk", "new", "x");
        fixture.git(&remote.bare, &["symbolic-ref", "HEAD", "refs/heads/trunk"]);
        remote.delete("refs/heads/main");
        let second = prepare(&workspace, &remote.target(), 2, &wanted, strategy)
            .await
            .expect("prepared");
        let path = &second.record.path;
        assert_eq!(head(&fixture, path), newer);
        let branch = fixture.try_git(path, &["symbolic-ref", "-q", "HEAD"]);
        match strategy {
            Strategy::Worktree => assert!(
                !branch.status.success(),
                "a worktree of an issue is detached"
            ),
            Strategy::Clone => {
                assert_eq!(branch.stdout, b"refs/heads/trunk\n");
                assert_eq!(fixture.git(path, &["rev-parse", "@{upstream}"]), newer);
            }
        }
        assert_eq!(fixture.git(path, &["rev-parse", "origin/HEAD"]), newer);
        let cancel = CancellationToken::new();
        assert_eq!(
            workspace
                .default_branch(&remote.target(), &cancel)
                .await
                .expect("asked"),
            "trunk"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_repository_and_a_missing_one_have_codes_of_their_own() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.empty_remote("acme", "widgets");
        let workspace = fixture.workspace();
        let wanted = Wanted::DefaultBranch;
        let error = prepare(&workspace, &remote.target(), 1, &wanted, strategy)
            .await
            .expect_err("empty");
        assert_eq!(error.code(), FailureCode::UnbornHead, "{error}");
        let mut target = remote.target();
        target.repo = "gone".into();
        target.clone_url = format!("file://{}/none.git", fixture.path().display());
        let error = prepare(&workspace, &target, 1, &wanted, strategy)
            .await
            .expect_err("missing");
        assert_eq!(error.code(), FailureCode::RepositoryMissing, "{error}");
        assert_nothing_left(&fixture.root(), "failing");
        // The empty one is usable as soon as it has a commit.
        remote.commit("main", "README", "x");
        prepare(&workspace, &remote.target(), 1, &wanted, strategy)
            .await
            .expect("prepared");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_everyday_git_commands_work_in_both() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let (wanted, commit) = remote.open_pull(7, "feature");
        let (_, other) = remote.open_pull(8, "other");
        let workspace = fixture.workspace();
        let made = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect("prepared");
        let path = made.record.path.as_path();
        let git = |args: &[&str]| fixture.git(path, args);
        assert!(git(&["status", "-sb"]).starts_with("## feature...origin/feature"));
        let main = remote.commit("main", "base", "moved\n");
        git(&["fetch"]);
        assert_eq!(git(&["rev-parse", "origin/main"]), main);
        git(&["rebase", "-q", "origin/main"]);
        git(&["push", "-q", "--force-with-lease"]);
        assert_eq!(remote.tip("refs/heads/feature"), head(&fixture, path));
        fs::write(path.join("more"), "x").expect("written");
        git(&["add", "more"]);
        git(&["commit", "-q", "-m", "more"]);
        git(&["push", "-q"]);
        assert_eq!(remote.tip("refs/heads/feature"), head(&fixture, path));
        assert_ne!(remote.tip("refs/heads/feature"), commit);
        // Somebody else pushes; pulling brings it.
        let theirs = remote.commit("feature", "theirs", "x");
        git(&["pull", "-q", "--ff-only"]);
        assert_eq!(head(&fixture, path), theirs);
        git(&["fetch", "-q", "origin", "refs/pull/8/head:pr8"]);
        assert_eq!(git(&["rev-parse", "pr8"]), other);
        git(&["checkout", "-q", "pr8"]);
        git(&["switch", "-q", "-c", "topic", "origin/main"]);
        git(&["push", "-q", "-u", "origin", "topic"]);
        // `topic` gives way to `topic/sub`, here and there.
        remote.delete("refs/heads/topic");
        remote.commit("topic/sub", "sub", "x");
        git(&["fetch", "-q", "--prune"]);
        git(&["rev-parse", "origin/topic/sub"]);
        git(&["checkout", "-q", "main"]);
        git(&["stash", "list"]);
        git(&[
            "worktree",
            "add",
            "-q",
            "--detach",
            &fixture.path().join("own").display().to_string(),
        ]);
        assert_eq!(status(&fixture, &fixture.path().join("own")), "");
        git(&["sparse-checkout", "set", "--cone", "nothing"]);
        git(&["worktree", "prune"]);
        git(&["gc", "-q"]);
        assert_eq!(
            workspace.directory_state(&made.record).await,
            DirectoryState::Present
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_of_forks_come_from_the_base_and_pushing_is_off() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let (wanted, commit) = remote.open_fork_pull(9);
        let workspace = fixture.workspace();
        let made = prepare(&workspace, &remote.target(), 9, &wanted, strategy)
            .await
            .expect("prepared");
        let path = made.record.path.as_path();
        assert_eq!(head(&fixture, path), commit);
        assert!(
            !fixture
                .try_git(path, &["symbolic-ref", "-q", "HEAD"])
                .status
                .success(),
            "detached"
        );
        assert!(made.record.push_off);
        let main = remote.tip("refs/heads/main");
        let push = fixture.try_git(path, &["push", "origin", "HEAD:refs/heads/main"]);
        assert!(!push.status.success());
        assert!(String::from_utf8_lossy(&push.stderr).contains("pushing-is-off"));
        assert_eq!(remote.tip("refs/heads/main"), main);
        fixture.git(path, &["fetch", "-q"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_is_found_by_id_then_by_its_pull_request_then_by_its_branch() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let workspace = fixture.workspace();
        workspace
            .open(&CancellationToken::new())
            .await
            .expect("opened");
        workspace
            .ensure_clone(&remote.target(), &CancellationToken::new())
            .await
            .expect("cloned");
        // A commit that is not named: the request's ref, else the branch.
        let unnamed = |number, branch: &str| Wanted::PullRequest {
            number,
            commit: None,
            branch: Some(branch.into()),
            fork: false,
            base: None,
            gone: false,
        };
        let (_, commit) = remote.open_pull(1, "one");
        let made = prepare(
            &workspace,
            &remote.target(),
            1,
            &unnamed(1, "one"),
            strategy,
        )
        .await
        .expect("by request");
        assert_eq!(made.record.commit, commit);
        let commit = remote.commit("two", "two", "x");
        let made = prepare(
            &workspace,
            &remote.target(),
            2,
            &unnamed(2, "two"),
            strategy,
        )
        .await
        .expect("by branch");
        assert_eq!(made.record.commit, commit);
        // The branch is deleted, the request's ref is there.
        let (by_request, commit) = remote.open_pull(3, "three");
        remote.delete("refs/heads/three");
        let made = prepare(&workspace, &remote.target(), 3, &by_request, strategy)
            .await
            .expect("by id");
        assert_eq!(made.record.commit, commit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_not_there_yet_is_told_from_one_that_is_gone() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let target = remote.target();
    let workspace = fixture.workspace();
    let missing = "1234567890".repeat(4);
    let error = prepare(
        &workspace,
        &target,
        5,
        &wanted(5, &missing, "x"),
        Strategy::Worktree,
    )
    .await
    .expect_err("not yet");
    assert_eq!(error.code(), FailureCode::RefNotYet, "{error}");
    let Wanted::PullRequest {
        number,
        commit,
        branch,
        fork,
        base,
        ..
    } = wanted(5, &missing, "x")
    else {
        unreachable!("it is a pull request")
    };
    let gone = Wanted::PullRequest {
        number,
        commit,
        branch,
        fork,
        base,
        gone: true,
    };
    let since = Instant::now();
    let error = prepare(&workspace, &target, 5, &gone, Strategy::Worktree)
        .await
        .expect_err("gone");
    assert_eq!(error.code(), FailureCode::RefGone, "{error}");
    assert!(since.elapsed() < Duration::from_secs(5));
    // Seen once, then gone.
    let (there, _) = remote.open_pull(6, "six");
    prepare(&workspace, &target, 6, &there, Strategy::Worktree)
        .await
        .expect("prepared");
    remote.delete("refs/pull/6/head");
    remote.delete("refs/heads/six");
    let error = prepare(
        &workspace,
        &target,
        60,
        &wanted(6, &missing, "six"),
        Strategy::Worktree,
    )
    .await
    .expect_err("gone");
    assert_eq!(error.code(), FailureCode::RefGone, "{error}");
    // The ref is there, with another commit.
    remote.open_pull(8, "eight");
    let error = prepare(
        &workspace,
        &target,
        8,
        &wanted(8, &missing, "eight"),
        Strategy::Worktree,
    )
    .await
    .expect_err("mismatch");
    assert_eq!(error.code(), FailureCode::CommitMismatch, "{error}");
    assert!(
        !fixture
            .root()
            .join(".worktrees/git.test/acme/widgets")
            .join(slug(8))
            .exists()
    );
    // It appears: the next attempt has it.
    let late = remote.commit_unpushed("main", "late", "x");
    let error = prepare(
        &workspace,
        &target,
        10,
        &wanted(10, &late, "late"),
        Strategy::Worktree,
    )
    .await
    .expect_err("not yet");
    assert_eq!(error.code(), FailureCode::RefNotYet);
    remote.pull(10, &late);
    prepare(
        &workspace,
        &target,
        10,
        &wanted(10, &late, "late"),
        Strategy::Worktree,
    )
    .await
    .expect("prepared");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_branch_is_given_for_a_gone_head_only_where_that_is_configured() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let workspace = Workspace::with_options(WorkspaceOptions {
            missing_branch: MissingBranch::Default,
            ..fixture.options()
        });
        let gone = Wanted::PullRequest {
            number: 5,
            commit: Some("1234567890".repeat(4)),
            branch: None,
            fork: true,
            base: None,
            gone: true,
        };
        let made = prepare(&workspace, &remote.target(), 5, &gone, strategy)
            .await
            .expect("prepared");
        assert!(made.fallback);
        assert_eq!(head(&fixture, &made.record.path), remote.tip("main"));
        assert_eq!(made.record.branch, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_at_once_share_one_clone_and_one_fetch() {
    for strategy in STRATEGIES {
        for round in 0..3 {
            let fixture = Fixture::new();
            let remote = fixture.remote("acme", "widgets");
            let counter = fixture.path().join("fetches");
            let git = fixture.script(
                "git",
                &format!(
                    "for a; do [ \"$a\" = fetch ] && echo x >> {}; done\nexec git \"$@\"",
                    counter.display()
                ),
            );
            let workspace = Workspace::with_options(WorkspaceOptions {
                git_binary: git,
                ..fixture.options()
            });
            let requests: Vec<(u64, Wanted, String)> = (1..=16)
                .map(|number| {
                    let (wanted, commit) = remote.open_fork_pull(number);
                    (number, wanted, commit)
                })
                .collect();
            let running: Vec<_> = requests
                .into_iter()
                .map(|(number, wanted, commit)| {
                    let (workspace, target) = (workspace.clone(), remote.target());
                    tokio::spawn(async move {
                        let made = prepare(&workspace, &target, number, &wanted, strategy).await;
                        (made, commit)
                    })
                })
                .collect();
            let mut led = 0;
            for one in running {
                let (made, commit) = one.await.expect("no panic");
                let made = made.unwrap_or_else(|error| panic!("{strategy:?} {round}: {error}"));
                assert_eq!(head(&fixture, &made.record.path), commit);
                assert_eq!(status(&fixture, &made.record.path), "");
                assert!(made.fetched || made.coalesced);
                led += usize::from(made.fetched);
            }
            assert!((1..=2).contains(&led), "{led} asked the remote");
            let fetches = fs::read_to_string(&counter)
                .expect("counted")
                .lines()
                .count();
            assert_eq!(fetches, 2, "one clone and one fetch");
            assert_eq!(
                names_in(&fixture.root().join(".staging")),
                Vec::<String>::new()
            );
            fixture.git(
                &fixture.root().join("git.test/acme/widgets"),
                &["fsck", "--connectivity-only"],
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_missing_head_fails_only_the_one_that_wanted_it() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let workspace = fixture.workspace();
    let cancel = CancellationToken::new();
    workspace
        .ensure_clone(&remote.target(), &cancel)
        .await
        .expect("cloned");
    let missing = wanted(3, &"1234567890".repeat(4), "nowhere");
    let (one, first) = remote.open_fork_pull(1);
    let (two, second) = remote.open_fork_pull(2);
    let target = remote.target();
    let (a, b, c) = tokio::join!(
        prepare(&workspace, &target, 1, &one, Strategy::Worktree),
        prepare(&workspace, &target, 3, &missing, Strategy::Worktree),
        prepare(&workspace, &target, 2, &two, Strategy::Worktree),
    );
    assert_eq!(a.expect("prepared").record.commit, first);
    assert_eq!(c.expect("prepared").record.commit, second);
    assert_eq!(b.expect_err("missing").code(), FailureCode::RefNotYet);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_from_one_branch_are_both_prepared_and_one_is_detached() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let (first, commit) = remote.open_pull(1, "shared-head");
    remote.pull(2, &commit);
    let workspace = fixture.workspace();
    let target = remote.target();
    let second = wanted(2, &commit, "shared-head");
    let (a, b) = tokio::join!(
        prepare(&workspace, &target, 1, &first, Strategy::Worktree),
        prepare(&workspace, &target, 2, &second, Strategy::Worktree),
    );
    let (a, b) = (a.expect("prepared"), b.expect("prepared"));
    let on_branch = [&a, &b]
        .iter()
        .filter(|made| made.record.branch.is_some())
        .count();
    assert_eq!(
        on_branch, 1,
        "{:?} {:?}",
        a.detached_because, b.detached_because
    );
    for made in [&a, &b] {
        assert_eq!(head(&fixture, &made.record.path), commit);
        assert_eq!(
            made.record.branch.is_none(),
            made.detached_because.is_some()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_with_work_of_its_own_is_never_reset() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let (first, commit) = remote.open_pull(1, "feat");
    let workspace = fixture.workspace();
    let made = prepare(&workspace, &remote.target(), 1, &first, Strategy::Worktree)
        .await
        .expect("prepared");
    let path = made.record.path.as_path();
    // An agent works on a branch that a later request has as its head.
    fixture.git(path, &["switch", "-q", "-c", "later"]);
    fixture.git(path, &["commit", "-q", "--allow-empty", "-m", "local work"]);
    let local = head(&fixture, path);
    fixture.git(path, &["switch", "-q", "feat"]);
    let (second, theirs) = remote.open_pull(2, "later");
    let made = prepare(&workspace, &remote.target(), 2, &second, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(head(&fixture, &made.record.path), theirs);
    assert_eq!(made.record.branch, None);
    assert!(
        made.detached_because
            .expect("a reason")
            .contains("not behind")
    );
    assert_eq!(fixture.git(path, &["rev-parse", "later"]), local);
    // A branch that is strictly behind, and nobody's, is moved forward.
    fixture.git(path, &["branch", "behind", &remote.tip("refs/heads/main")]);
    let (third, ahead) = remote.open_pull(3, "behind");
    let made = prepare(&workspace, &remote.target(), 3, &third, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(made.record.branch.as_deref(), Some("behind"));
    assert!(!made.record.branch_created);
    assert_eq!(head(&fixture, &made.record.path), ahead);
    // `feat` stands in the way of `feat/x`.
    remote.delete("refs/heads/feat");
    let (fourth, deep) = remote.open_pull(4, "feat/x");
    let made = prepare(&workspace, &remote.target(), 4, &fourth, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(head(&fixture, &made.record.path), deep);
    assert!(made.detached_because.expect("a reason").contains("beside"));
    assert_eq!(head(&fixture, path), commit);
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_that_give_way_to_deeper_ones_block_nobody() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        remote.commit("a", "one", "x");
        let workspace = fixture.workspace();
        let cancel = CancellationToken::new();
        workspace
            .ensure_clone(&remote.target(), &cancel)
            .await
            .expect("cloned");
        let old = remote.tip("refs/heads/a");
        remote.delete("refs/heads/a");
        let deep = remote.commit("a/b", "two", "x");
        let named = Wanted::Named {
            commit: None,
            branch: Some("a/b".into()),
        };
        let made = prepare(&workspace, &remote.target(), 1, &named, strategy)
            .await
            .expect("prepared");
        assert_eq!(made.record.commit, deep);
        // The old tip is kept, and so it counts as having been on the remote.
        let vault = fixture.root().join(".vault/git.test/acme/widgets.git");
        assert_eq!(
            fixture.git(
                &vault,
                &["rev-parse", &format!("refs/innkeeper/seen/{old}")]
            ),
            old
        );
        // And back again, with everything.
        remote.delete("refs/heads/a/b");
        remote.commit("a", "three", "x");
        workspace
            .refresh_heads(&remote.target(), &cancel)
            .await
            .expect("refreshed");
        let tip = remote.tip("refs/heads/a");
        assert_eq!(
            fixture.git(&vault, &["rev-parse", "refs/innkeeper/heads/a"]),
            tip
        );
        assert!(
            !fixture
                .try_git(
                    &vault,
                    &["rev-parse", "-q", "--verify", "refs/innkeeper/heads/a/b"]
                )
                .status
                .success()
        );
        assert_eq!(
            fixture.git(
                &vault,
                &["rev-parse", &format!("refs/innkeeper/seen/{deep}")]
            ),
            deep
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_names_of_branches_are_only_names() {
    let long = format!("{}/{}", "a".repeat(130), "b".repeat(130));
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let workspace = fixture.workspace();
        let branches = [
            "-x",
            "--upload-pack=touch${IFS}x",
            "a+#%'b",
            "ünï/cödé",
            "Fix/x",
            "fix/x",
            "pull/7/head",
            "q\"uo]te",
            &long,
        ];
        for (number, branch) in (1..).zip(branches) {
            let commit = remote.commit_unpushed("main", &format!("f{number}"), "x");
            remote.push(&commit, &format!("refs/heads/{branch}"));
            remote.pull(number, &commit);
            let made = prepare(
                &workspace,
                &remote.target(),
                number,
                &wanted(number, &commit, branch),
                strategy,
            )
            .await
            .unwrap_or_else(|error| panic!("{branch}: {error}"));
            let path = made.record.path.as_path();
            assert_eq!(head(&fixture, path), commit, "{branch}");
            assert_eq!(
                fixture.git(path, &["symbolic-ref", "HEAD"]),
                format!("refs/heads/{branch}")
            );
            assert_eq!(
                fixture.git(path, &["rev-parse", "@{upstream}"]),
                commit,
                "{branch}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_spellings_are_one_repository_and_two_owners_are_two() {
    let fixture = Fixture::new();
    let remote = fixture.remote("Acme", "Widgets");
    let other = fixture.remote("other", "widgets");
    let (_, commit) = remote.open_pull(1, "one");
    let workspace = fixture.workspace();
    let mut target = remote.target();
    prepare(
        &workspace,
        &target,
        1,
        &wanted(1, &commit, "one"),
        Strategy::Worktree,
    )
    .await
    .expect("prepared");
    target.owner = "acme".into();
    target.repo = "widgets".into();
    let (_, commit) = remote.open_pull(2, "two");
    let made = prepare(
        &workspace,
        &target,
        2,
        &wanted(2, &commit, "two"),
        Strategy::Worktree,
    )
    .await
    .expect("prepared");
    assert!(
        made.record
            .path
            .starts_with(fixture.root().join(".worktrees/git.test/Acme/Widgets"))
    );
    let made = prepare(
        &workspace,
        &other.target(),
        3,
        &Wanted::DefaultBranch,
        Strategy::Worktree,
    )
    .await
    .expect("prepared");
    assert_eq!(made.record.commit, other.tip("main"));
    assert_eq!(
        names_in(&fixture.root().join("git.test")),
        ["Acme", "other"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_left_alone() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let (wanted, commit) = remote.open_pull(7, "x");
        let workspace = fixture.workspace();
        let place = match strategy {
            Strategy::Worktree => fixture
                .root()
                .join(".worktrees/git.test/acme/widgets")
                .join(slug(7)),
            Strategy::Clone => fixture
                .root()
                .join(".work-items")
                .join(slug(7))
                .join("git.test/acme/widgets"),
        };
        fs::create_dir_all(&place).expect("made");
        fs::write(place.join("foreign"), "x").expect("written");
        let error = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect_err("in the way");
        assert_eq!(error.code(), FailureCode::PathOccupied, "{error}");
        assert!(
            error.to_string().contains(&place.display().to_string()),
            "{error}"
        );
        assert!(place.join("foreign").exists());
        // An empty directory is nobody's work.
        fs::remove_file(place.join("foreign")).expect("removed");
        let made = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect("prepared");
        assert_eq!(head(&fixture, &made.record.path), commit);
    }
    // A clone that somebody has where the shared clone belongs.
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let place = fixture.root().join("git.test/acme/widgets");
    fs::create_dir_all(&place).expect("made");
    fixture.git(&place, &["init", "-q"]);
    let before = Fixture::files_below(&place);
    let error = prepare(
        &fixture.workspace(),
        &remote.target(),
        1,
        &Wanted::DefaultBranch,
        Strategy::Worktree,
    )
    .await
    .expect_err("in the way");
    assert_eq!(error.code(), FailureCode::PathOccupied, "{error}");
    assert_eq!(Fixture::files_below(&place), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_gone_is_made_again_and_what_only_its_record_knew_is_kept() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let (wanted, commit) = remote.open_pull(7, "x");
        let workspace = fixture.workspace();
        let first = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect("prepared");
        let path = first.record.path.as_path();
        fixture.git(path, &["checkout", "-q", "--detach"]);
        fixture.git(path, &["commit", "-q", "--allow-empty", "-m", "only here"]);
        let only_here = head(&fixture, path);
        fs::remove_dir_all(path).expect("removed");
        assert_eq!(
            workspace.directory_state(&first.record).await,
            DirectoryState::Missing
        );
        let second = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect("prepared");
        assert!(!second.reused);
        assert_eq!(head(&fixture, path), commit);
        assert_eq!(second.record.branch.as_deref(), Some("x"));
        if strategy == Strategy::Worktree {
            let shared = fixture.root().join("git.test/acme/widgets");
            let kept = format!("refs/innkeeper/missing/{}/{only_here}", slug(7));
            assert_eq!(fixture.git(&shared, &["rev-parse", &kept]), only_here);
        }
        // A directory of that name which is another one.
        fs::rename(path, path.with_extension("away")).expect("moved");
        fs::create_dir(path).expect("made");
        assert!(matches!(
            workspace.directory_state(&second.record).await,
            DirectoryState::Foreign(_)
        ));
        let error = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect_err("foreign");
        assert_eq!(error.code(), FailureCode::PathOccupied, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_configuration_hooks_and_filters_run_nothing_and_are_restored() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    remote.commit("main", ".gitattributes", "* filter=z diff=z\n");
    let (first, _) = remote.open_pull(1, "one");
    let workspace = fixture.workspace();
    let made = prepare(&workspace, &remote.target(), 1, &first, Strategy::Worktree)
        .await
        .expect("prepared");
    let path = made.record.path.as_path();
    let ran = fixture.path().join("ran");
    let evil = fixture.script("evil", &format!("echo \"$0 $@\" >> {}; cat", ran.display()));
    let evil = evil.display().to_string();
    let url = remote.target().clone_url;
    for (key, value) in [
        ("core.fsmonitor", evil.as_str()),
        ("core.sshCommand", &evil),
        ("core.askPass", &evil),
        ("core.alternateRefsCommand", &evil),
        ("core.editor", &evil),
        ("credential.helper", &format!("!{evil}")),
        ("filter.z.smudge", &evil),
        ("filter.z.process", &evil),
        ("filter.z.clean", &evil),
        ("diff.external", &evil),
        (&format!("remote.{url}.uploadpack"), &evil),
        (&format!("url.ext::{evil}.insteadOf"), &url),
    ] {
        fixture.git(path, &["config", key, value]);
    }
    fixture.git(path, &["config", "user.name", "kept"]);
    let shared = fixture.root().join("git.test/acme/widgets");
    fs::create_dir(shared.join("hooks")).expect("made");
    for hook in [
        "post-checkout",
        "reference-transaction",
        "post-index-change",
    ] {
        fs::copy(&evil, shared.join("hooks").join(hook)).expect("planted");
    }
    fs::write(shared.join("info/attributes"), "* filter=z\n").expect("planted");
    // An agent that breaks its own record breaks nobody else's checkout.
    fs::write(
        shared.join("worktrees").join(slug(1)).join("HEAD"),
        format!("{}\n", "0".repeat(40)),
    )
    .expect("broken");
    fs::create_dir(shared.join("worktrees/ghost")).expect("made");
    fs::write(shared.join("worktrees/ghost/commondir"), "").expect("planted");
    fs::write(shared.join("config.lock"), "").expect("planted");
    let (second, commit) = remote.open_pull(2, "two");
    let made = prepare(&workspace, &remote.target(), 2, &second, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(made.record.commit, commit);
    assert!(
        !ran.exists(),
        "{}",
        fs::read_to_string(&ran).unwrap_or_default()
    );
    fs::remove_file(shared.join("config.lock")).expect("removed");
    let (third, _) = remote.open_pull(3, "three");
    let made = prepare(&workspace, &remote.target(), 3, &third, Strategy::Worktree)
        .await
        .expect("prepared");
    for key in ["core.fsmonitor", "filter.z.smudge", "core.sshcommand"] {
        assert!(
            made.drift.iter().any(|found| found == key),
            "{:?}",
            made.drift
        );
    }
    assert!(
        !ran.exists(),
        "{}",
        fs::read_to_string(&ran).unwrap_or_default()
    );
    let config = fs::read_to_string(shared.join("config")).expect("read");
    assert!(
        !config.contains("evil") && config.contains("kept"),
        "{config}"
    );
    assert!(!shared.join("hooks").exists() && !shared.join("info/attributes").exists());
    let (fourth, _) = remote.open_pull(4, "four");
    let made = prepare(&workspace, &remote.target(), 4, &fourth, Strategy::Worktree)
        .await
        .expect("prepared");
    assert_eq!(made.drift, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn inherited_git_variables_and_hostile_urls_have_no_effect() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let mut environment = fixture.environment();
    for (name, value) in [
        ("GIT_DIR", "/nonexistent"),
        ("GIT_WORK_TREE", "/nonexistent"),
        ("GIT_INDEX_FILE", "/nonexistent"),
        ("GIT_OBJECT_DIRECTORY", "/nonexistent"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.bare"),
        ("GIT_CONFIG_VALUE_0", "nonsense"),
        ("GIT_ALLOW_PROTOCOL", "ext"),
    ] {
        environment.push((name.into(), value.into()));
    }
    let workspace = Workspace::with_options(WorkspaceOptions {
        environment: Some(environment),
        ..fixture.options()
    });
    let marker = fixture.path().join("ran");
    for url in [
        format!("ext::sh -c touch% {}", marker.display()),
        format!("--upload-pack=touch {}", marker.display()),
        "-x".into(),
    ] {
        let target = RepoTarget {
            repo: "evil".into(),
            clone_url: url,
            ..remote.target()
        };
        let error = prepare(
            &workspace,
            &target,
            1,
            &Wanted::DefaultBranch,
            Strategy::Worktree,
        )
        .await
        .expect_err("refused");
        assert_eq!(error.code(), FailureCode::BadInput, "{error}");
    }
    // A host that is not configured for it is not reached over `file`.
    let target = RepoTarget {
        host: "elsewhere.test".into(),
        ..remote.target()
    };
    let error = prepare(
        &workspace,
        &target,
        1,
        &Wanted::DefaultBranch,
        Strategy::Worktree,
    )
    .await
    .expect_err("refused");
    assert_eq!(error.code(), FailureCode::BadInput, "{error}");
    assert!(!marker.exists());
    prepare(
        &workspace,
        &remote.target(),
        1,
        &Wanted::DefaultBranch,
        Strategy::Worktree,
    )
    .await
    .expect("prepared");
}

/// A git whose n-th call fails in one way; later calls are real.
fn faulty_git(fixture: &Fixture, nth: usize, fault: &str) -> (PathBuf, PathBuf) {
    let calls = fixture.path().join("calls");
    let _ = fs::remove_dir_all(&calls);
    fs::create_dir(&calls).expect("made");
    let git = fixture.script(
        "git",
        &format!(
            "n=1; while ! mkdir {0}/$n 2>/dev/null; do n=$((n+1)); done\n\
             [ $n = {nth} ] || exec git \"$@\"\n\
             case {fault} in\n\
             refuses) echo 'fatal: injected' >&2; exit 128;;\n\
             dies) git \"$@\" >/dev/null 2>&1; kill -9 $$;;\n\
             hangs) exec sleep 600;;\n\
             esac",
            calls.display()
        ),
    );
    (git, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_git_call_fails_nothing_is_left_and_the_next_attempt_converges() {
    for strategy in STRATEGIES {
        for fault in ["refuses", "dies", "hangs"] {
            for nth in 1.. {
                assert!(nth < 40, "more git calls than a preparation can need");
                let fixture = Fixture::new();
                let remote = fixture.remote("acme", "widgets");
                let (wanted, commit) = remote.open_pull(7, "feature");
                let (git, calls) = faulty_git(&fixture, nth, fault);
                let workspace = Workspace::with_options(WorkspaceOptions {
                    git_binary: git,
                    git_timeout: Duration::from_millis(if fault == "hangs" {
                        1500
                    } else {
                        60_000
                    }),
                    git_grace: Duration::from_millis(200),
                    ..fixture.options()
                });
                let first = prepare(&workspace, &remote.target(), 7, &wanted, strategy).await;
                let was_hit = calls.join(nth.to_string()).exists();
                if !was_hit {
                    first.expect("nothing failed");
                    break;
                }
                let of = format!("{strategy:?}: call {nth} {fault}");
                if let Err(error) = &first {
                    assert!(!error.is_cancelled(), "{of}");
                    assert_nothing_left(&fixture.root(), &of);
                }
                let second = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
                    .await
                    .unwrap_or_else(|error| panic!("{of}: {error}"));
                assert_eq!(head(&fixture, &second.record.path), commit, "{of}");
                assert_eq!(second.record.branch.as_deref(), Some("feature"), "{of}");
                assert_eq!(status(&fixture, &second.record.path), "", "{of}");
                assert_eq!(
                    names_in(&fixture.root().join(".staging")),
                    Vec::<String>::new(),
                    "{of}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_comes_while_a_clone_is_made_is_not_half_in_it() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let (wanted, commit) = remote.open_pull(7, "feature");
    let vault = fixture.root().join(".vault/git.test/acme/widgets.git");
    // What another item's fetch does at this moment.
    let git = fixture.script(
        "git",
        &format!(
            "git \"$@\" || exit\n\
             for a; do [ \"$a\" = pack-objects ] && {{\n\
             late=$(git --git-dir={0} -c user.name=x -c user.email=x commit-tree -m late {commit}^{{tree}}) &&\n\
             git --git-dir={0} update-ref refs/innkeeper/heads/late \"$late\"; }}; done; exit 0",
            vault.display()
        ),
    );
    let workspace = Workspace::with_options(WorkspaceOptions {
        git_binary: git,
        ..fixture.options()
    });
    let made = prepare(&workspace, &remote.target(), 7, &wanted, Strategy::Clone)
        .await
        .expect("prepared");
    let heads = fixture.git(&vault, &["for-each-ref", "refs/innkeeper/heads"]);
    assert!(heads.contains("late"), "it came: {heads}");
    fixture.git(&made.record.path, &["fsck", "--connectivity-only"]);
    assert_eq!(head(&fixture, &made.record.path), commit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_dies_while_preparing_leaves_what_the_next_one_undoes() {
    for strategy in STRATEGIES {
        for call in ["fetch", "read-tree", "pack-objects"] {
            if call == "pack-objects" && strategy == Strategy::Worktree {
                continue;
            }
            let fixture = Fixture::new();
            let remote = fixture.remote("acme", "widgets");
            let (wanted, commit) = remote.open_pull(7, "feature");
            let stalled = fixture.path().join("stalled");
            let git = fixture.script(
                "git",
                &format!(
                    "for a; do [ \"$a\" = {call} ] && {{ git \"$@\"; touch {}; exec sleep 600; }}; done\nexec git \"$@\"",
                    stalled.display()
                ),
            );
            // A runtime of its own that goes away in the middle stands for the
            // death: nothing of it runs on, nothing is undone.
            let options = WorkspaceOptions {
                git_binary: git,
                ..fixture.options()
            };
            let target = remote.target();
            let dying = std::thread::spawn({
                let (stalled, wanted) = (stalled.clone(), wanted.clone());
                move || {
                    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
                    runtime.block_on(async {
                        let workspace = Workspace::with_options(options);
                        let running = prepare(&workspace, &target, 7, &wanted, strategy);
                        tokio::select! {
                            made = running => panic!("{made:?}"),
                            () = wait_until("git stalls", || stalled.exists()) => {}
                        }
                    });
                    // Before anything can react to the future being dropped.
                    runtime.shutdown_background();
                }
            });
            dying.join().expect("no panic");
            let since = Instant::now();
            let workspace = loop {
                let workspace = fixture.workspace();
                match workspace.open(&CancellationToken::new()).await {
                    Ok(_) => break workspace,
                    Err(error)
                        if error.code() == FailureCode::LockTimeout
                            && since.elapsed() < Duration::from_secs(20) =>
                    {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            assert_nothing_left(&fixture.root(), call);
            let made = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
                .await
                .expect("prepared");
            assert_eq!(head(&fixture, &made.record.path), commit);
            assert_eq!(status(&fixture, &made.record.path), "");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_slow_preparation_leaves_nothing() {
    for strategy in STRATEGIES {
        for call in ["fetch", "read-tree"] {
            let fixture = Fixture::new();
            let remote = fixture.remote("acme", "widgets");
            let (wanted, _) = remote.open_pull(7, "feature");
            let slow = fixture.path().join("slow");
            let git = fixture.script(
                "git",
                &format!(
                    "for a; do [ \"$a\" = {call} ] && {{ touch {}; sleep 600 & wait; }}; done\nexec git \"$@\"",
                    slow.display()
                ),
            );
            let workspace = Workspace::with_options(WorkspaceOptions {
                git_binary: git,
                ..fixture.options()
            });
            let cancel = CancellationToken::new();
            let running = tokio::spawn({
                let (workspace, cancel, target) =
                    (workspace.clone(), cancel.clone(), remote.target());
                async move {
                    let options = PrepareOptions {
                        strategy: Some(strategy),
                        ..PrepareOptions::default()
                    };
                    let item = (ItemKind::PullRequest, 7);
                    workspace
                        .prepare(&target, &slug(7), item, &wanted, options, &cancel)
                        .await
                }
            });
            wait_until("git is slow", || slow.exists()).await;
            cancel.cancel();
            let error = running.await.expect("no panic").expect_err("cancelled");
            assert!(error.is_cancelled(), "{error}");
            assert_nothing_left(&fixture.root(), call);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_head_moves_a_clean_idle_checkout_and_leaves_any_other_alone() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        let (first, old) = remote.open_pull(7, "feature");
        let workspace = fixture.workspace();
        let cancel = CancellationToken::new();
        let target = remote.target();
        let made = prepare(&workspace, &target, 7, &first, strategy)
            .await
            .expect("prepared");
        let path = made.record.path.clone();
        // Forward.
        let new = remote.commit("feature", "pull-7", "changed\n");
        let updated = workspace
            .update(
                &made.record,
                &target,
                &wanted(7, &new, "feature"),
                true,
                &cancel,
            )
            .await
            .expect("updated");
        assert!(updated.moved);
        assert_eq!(
            (updated.from.as_str(), updated.to.as_str()),
            (old.as_str(), new.as_str())
        );
        assert_eq!(head(&fixture, &path), new);
        assert_eq!(status(&fixture, &path), "");
        assert_eq!(
            fs::read_to_string(path.join("pull-7")).expect("a file"),
            "changed\n"
        );
        // A force push to another history; the old commit stays.
        let forced = remote.commit_unpushed("main", "other-way", "x");
        remote.push(&forced, "refs/heads/feature");
        remote.pull(7, &forced);
        let updated = workspace
            .update(
                &updated.record,
                &target,
                &wanted(7, &forced, "feature"),
                true,
                &cancel,
            )
            .await
            .expect("updated");
        assert!(updated.moved);
        assert_eq!(head(&fixture, &path), forced);
        assert_eq!(status(&fixture, &path), "");
        assert!(!path.join("pull-7").exists() && path.join("other-way").exists());
        assert_eq!(
            fixture.git(&path, &["symbolic-ref", "HEAD"]),
            "refs/heads/feature"
        );
        let vault = fixture.root().join(".vault/git.test/acme/widgets.git");
        assert_eq!(
            fixture.git(
                &vault,
                &["rev-parse", &format!("refs/innkeeper/seen/{new}")]
            ),
            new
        );
        // Somebody works in it, or has.
        let later = remote.commit("feature", "later", "x");
        let busy = workspace
            .update(
                &updated.record,
                &target,
                &wanted(7, &later, "feature"),
                false,
                &cancel,
            )
            .await
            .expect("updated");
        assert!(!busy.moved && busy.to == later);
        for (what, how) in [
            ("untracked", "new"),
            ("edited", "README"),
            ("hidden", "README"),
        ] {
            fs::write(path.join(how), "mine\n").expect("written");
            if what == "hidden" {
                fixture.git(&path, &["update-index", "--assume-unchanged", "README"]);
            }
            let kept = workspace
                .update(
                    &updated.record,
                    &target,
                    &wanted(7, &later, "feature"),
                    true,
                    &cancel,
                )
                .await
                .expect("updated");
            assert!(!kept.moved, "{what}");
            assert_eq!(head(&fixture, &path), forced);
            assert_eq!(fs::read_to_string(path.join(how)).expect("kept"), "mine\n");
            fixture.git(&path, &["update-index", "--no-assume-unchanged", "README"]);
            fixture.git(&path, &["checkout", "-q", "--", "README"]);
            let _ = fs::remove_file(path.join("new"));
        }
        fixture.git(&path, &["commit", "-q", "--allow-empty", "-m", "mine"]);
        let kept = workspace
            .update(
                &updated.record,
                &target,
                &wanted(7, &later, "feature"),
                true,
                &cancel,
            )
            .await
            .expect("updated");
        assert!(!kept.moved);
        assert_eq!(
            fixture.git(
                &vault,
                &["rev-parse", &format!("refs/innkeeper/seen/{later}")]
            ),
            later
        );
        fixture.git(&path, &["reset", "-q", "--hard", "HEAD~1"]);
        let moved = workspace
            .update(
                &updated.record,
                &target,
                &wanted(7, &later, "feature"),
                true,
                &cancel,
            )
            .await
            .expect("updated");
        assert!(moved.moved);
        assert_eq!(head(&fixture, &path), later);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_a_full_disk_and_an_unusable_root_are_told_clearly() {
    let fixture = Fixture::new();
    let cancel = CancellationToken::new();
    let workspace = fixture.workspace();
    workspace.open(&cancel).await.expect("opened");
    let error = fixture.workspace().open(&cancel).await.expect_err("held");
    assert!(
        error
            .to_string()
            .contains(&format!("held by pid {}", std::process::id())),
        "{error}"
    );
    drop(workspace);
    let remote = fixture.remote("acme", "widgets");
    for (bytes, inodes) in [(u64::MAX, 0), (0, u64::MAX)] {
        let workspace = Workspace::with_options(WorkspaceOptions {
            min_free_bytes: bytes,
            min_free_inodes: inodes,
            ..fixture.options()
        });
        let outcome = prepare(
            &workspace,
            &remote.target(),
            1,
            &Wanted::DefaultBranch,
            Strategy::Worktree,
        )
        .await;
        match outcome {
            Err(error) => {
                assert_eq!(error.code(), FailureCode::DiskLow, "{error}");
                assert!(
                    !fixture.root().join(".vault/git.test").exists(),
                    "nothing was begun"
                );
            }
            // A file system that counts no inodes is unlimited.
            Ok(_) => assert_eq!(inodes, u64::MAX),
        }
    }
    fs::write(fixture.path().join("file"), "x").expect("written");
    let unusable = Workspace::with_options(WorkspaceOptions {
        root: fixture.path().join("file/root"),
        ..fixture.options()
    });
    let error = unusable.open(&cancel).await.expect_err("unusable");
    assert!(
        error.to_string().contains("file/root") && error.to_string().contains("root"),
        "{error}"
    );
    let missing = Workspace::with_options(WorkspaceOptions {
        git_binary: fixture.path().join("no-git"),
        ..fixture.options()
    });
    assert!(!missing.is_available().await);
    assert_eq!(
        missing.open(&cancel).await.expect_err("no git").code(),
        FailureCode::GitMissing
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_reached_through_a_link_is_the_real_one() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    fs::create_dir(fixture.root()).expect("made");
    let link = fixture.path().join("link");
    std::os::unix::fs::symlink(fixture.root(), &link).expect("linked");
    let workspace = Workspace::with_options(WorkspaceOptions {
        root: link,
        ..fixture.options()
    });
    for strategy in STRATEGIES {
        let number = strategy as u64 + 1;
        let made = prepare(
            &workspace,
            &remote.target(),
            number,
            &Wanted::DefaultBranch,
            strategy,
        )
        .await
        .expect("prepared");
        assert!(made.record.path.starts_with(fixture.root()));
        let again = prepare(
            &workspace,
            &remote.target(),
            number,
            &Wanted::DefaultBranch,
            strategy,
        )
        .await
        .expect("reused");
        assert!(again.reused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_shares_nothing_with_the_vault() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let (wanted, commit) = remote.open_pull(7, "x");
    let workspace = fixture.workspace();
    let made = prepare(&workspace, &remote.target(), 7, &wanted, Strategy::Clone)
        .await
        .expect("prepared");
    drop(workspace);
    let path = made.record.path.as_path();
    assert!(!path.join(".git/objects/info/alternates").exists());
    for file in Fixture::files_below(&path.join(".git/objects")) {
        let stat = fs::metadata(path.join(".git/objects").join(&file)).expect("it exists");
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&stat), 1, "{file}");
    }
    fs::remove_dir_all(fixture.root().join(".vault")).expect("removed");
    fs::remove_dir_all(fixture.root().join("git.test")).expect("removed");
    fixture.git(path, &["fsck", "--full", "--strict"]);
    assert_eq!(head(&fixture, path), commit);
    assert_eq!(
        fixture.git(path, &["config", "remote.origin.url"]),
        remote.target().clone_url
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_remote_sent_before_is_enough_when_the_commit_is_here() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote: Remote<'_> = fixture.remote("acme", "widgets");
        let (wanted, commit) = remote.open_pull(7, "x");
        let workspace = fixture.workspace();
        workspace
            .ensure_clone(&remote.target(), &CancellationToken::new())
            .await
            .expect("cloned");
        fs::remove_dir_all(&remote.bare).expect("removed");
        let made = prepare(&workspace, &remote.target(), 7, &wanted, strategy)
            .await
            .expect("prepared");
        assert!(!made.fetched && !made.coalesced);
        assert_eq!(head(&fixture, &made.record.path), commit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_concerns_new_checkouts_only() {
    let fixture = Fixture::new();
    let remote = fixture.remote("acme", "widgets");
    let old = fixture.workspace();
    let options = PrepareOptions::default;
    let (target, cancel) = (remote.target(), CancellationToken::new());
    let item = |number| (ItemKind::Issue, number);
    let wanted = Wanted::DefaultBranch;
    let first = old
        .prepare(&target, &slug(1), item(1), &wanted, options(), &cancel)
        .await
        .expect("prepared");
    let new = old.reconfigured(WorkspaceOptions {
        strategy: Strategy::Clone,
        ..fixture.options()
    });
    drop(old);
    let again = new
        .prepare(&target, &slug(1), item(1), &wanted, options(), &cancel)
        .await
        .expect("reused");
    assert!(again.reused && again.record == first.record);
    let second = new
        .prepare(&target, &slug(2), item(2), &wanted, options(), &cancel)
        .await
        .expect("prepared");
    assert_eq!(second.record.strategy, Strategy::Clone);
}

/// Says what the process that is to be killed prepares.
const VICTIM: &str = "INNKEEPER_TEST_VICTIM";

/// Not a test of its own: what the next one starts as a process and kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn victim() {
    let Ok(victim) = std::env::var(VICTIM) else {
        return;
    };
    let parts: Vec<&str> = victim.split('\n').collect();
    let [root, home, url, commit, strategy] = parts[..] else {
        panic!("{victim}")
    };
    let strategy = Strategy::from_name(strategy).expect("a strategy");
    let workspace = Workspace::with_options(WorkspaceOptions {
        environment: Some(vec![
            ("HOME".into(), home.into()),
            ("PATH".into(), std::env::var_os("PATH").expect("a path")),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ]),
        protocols: [(git_fixture::HOST.to_owned(), vec!["file".to_owned()])].into(),
        min_free_bytes: 0,
        min_free_inodes: 0,
        ..WorkspaceOptions::new(root)
    });
    let target = RepoTarget {
        host: git_fixture::HOST.into(),
        owner: "acme".into(),
        repo: "widgets".into(),
        clone_url: url.into(),
    };
    let wanted = wanted(7, commit, "feature");
    prepare(&workspace, &target, 7, &wanted, strategy)
        .await
        .expect("prepared");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_at_any_moment_of_preparing_leaves_what_the_next_one_clears() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let remote = fixture.remote("acme", "widgets");
        for n in 0..300 {
            let dir = fixture
                .path()
                .join(format!("work/acme/widgets/d{}", n % 30));
            fs::create_dir_all(&dir).expect("made");
            fs::write(dir.join(format!("f{n}")), "x\n").expect("written");
        }
        let (_, commit) = remote.open_pull(7, "feature");
        let (mut killed, mut finished) = (0, 0);
        for round in 0..25_u64 {
            // Fresh now and then, so that the first clone is killed as well.
            if round % 5 == 0 {
                let _ = fs::remove_dir_all(fixture.root());
            }
            let victim = [
                fixture.root().display().to_string(),
                fixture.path().join("home").display().to_string(),
                remote.target().clone_url,
                commit.clone(),
                strategy.as_str().to_owned(),
            ]
            .join("\n");
            let mut child =
                std::process::Command::new(std::env::current_exe().expect("this program"))
                    .args(["--exact", "victim", "--ignored", "--quiet"])
                    .env(VICTIM, victim)
                    .stdout(std::process::Stdio::null())
                    .stderr(std::process::Stdio::null())
                    .spawn()
                    .expect("started");
            tokio::time::sleep(Duration::from_millis(4 + (round * 37) % 113)).await;
            child.kill().expect("it is ours");
            let status = child.wait().expect("it ended");
            if status.success() {
                finished += 1;
            } else {
                killed += 1;
            }
            let workspace = fixture.workspace();
            workspace
                .open(&CancellationToken::new())
                .await
                .expect("opened");
            let made = prepare(
                &workspace,
                &remote.target(),
                7,
                &wanted(7, &commit, "feature"),
                strategy,
            )
            .await
            .unwrap_or_else(|error| panic!("{strategy:?} {round}: {error}"));
            let path = made.record.path.clone();
            assert_eq!(head(&fixture, &path), commit);
            assert_eq!(self::status(&fixture, &path), "");
            assert_eq!(
                made.record.branch.as_deref(),
                Some("feature"),
                "{:?}",
                made.detached_because
            );
            drop(workspace);
            // Taken away as if it had never been, for the next round.
            fs::remove_dir_all(&path).expect("removed");
            let vault = fixture.root().join(".vault/git.test/acme/widgets.git");
            let shared = fixture.root().join("git.test/acme/widgets");
            fs::remove_file(
                vault
                    .join("innkeeper/checkouts")
                    .join(format!("{}.json", slug(7))),
            )
            .expect("removed");
            if strategy == Strategy::Worktree {
                fs::remove_dir_all(shared.join("worktrees").join(slug(7))).expect("removed");
                fixture.git(&shared, &["update-ref", "-d", "refs/heads/feature"]);
            }
            for dir in [
                fixture.root().join(".staging"),
                fixture.root().join(".trash"),
                shared.join("innkeeper-new"),
                shared.join("innkeeper-trash"),
            ] {
                assert_eq!(names_in(&dir), Vec::<String>::new(), "{strategy:?} {round}");
            }
            fixture.git(&shared, &["fsck", "--connectivity-only"]);
        }
        assert!(
            killed > 0,
            "no process was killed in time ({finished} finished)"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_was_killed_half_way_is_gone_through_and_work_in_it_is_left() {
    for strategy in STRATEGIES {
        for has_work in [false, true] {
            let fixture = Fixture::new();
            let remote = fixture.remote("acme", "widgets");
            for file in ["a", "b", "c"] {
                remote.commit("feature", file, "old content\n");
            }
            let old = remote.tip("refs/heads/feature");
            for (file, text) in [("a", "new a\n"), ("b", "new b\n"), ("new/d", "new d\n")] {
                remote.commit("feature", file, text);
            }
            let new = remote.tip("refs/heads/feature");
            // A git that writes one file whole, one half, one of the new ones,
            // and then dies with the index locked.
            let died = fixture.path().join("died");
            let git = fixture.script(
                "git",
                &format!(
                    "for a; do [ \"$a\" = {new} ] && [ ! -e {0} ] && case \"$*\" in *read-tree*{old}*) touch {0} \"$GIT_INDEX_FILE.lock\"; \
                     echo 'new a' > a; printf 'new' > b; mkdir new; echo 'new d' > new/d; kill -9 $$;; esac; done\nexec git \"$@\"",
                    died.display()
                ),
            );
            let workspace = Workspace::with_options(WorkspaceOptions {
                git_binary: git,
                ..fixture.options()
            });
            let (target, cancel) = (remote.target(), CancellationToken::new());
            let made = prepare(
                &workspace,
                &target,
                7,
                &wanted(7, &old, "feature"),
                strategy,
            )
            .await
            .expect("prepared");
            let path = made.record.path.clone();
            let next = wanted(7, &new, "feature");
            workspace
                .update(&made.record, &target, &next, true, &cancel)
                .await
                .expect_err("git was killed");
            assert!(died.exists());
            if has_work {
                fs::write(path.join("b"), "mine\n").expect("written");
            }
            drop(workspace);
            let workspace = fixture.workspace();
            let report = workspace.open(&cancel).await.expect("opened");
            assert_eq!(report.moved, [slug(7)], "{report:?}");
            if has_work {
                assert_eq!(head(&fixture, &path), old);
                assert_eq!(fs::read_to_string(path.join("b")).expect("kept"), "mine\n");
                let updated = workspace
                    .update(&made.record, &target, &next, true, &cancel)
                    .await
                    .expect("left");
                assert!(!updated.moved);
            } else {
                assert_eq!(head(&fixture, &path), new);
                assert_eq!(status(&fixture, &path), "");
                let updated = workspace
                    .update(&made.record, &target, &next, true, &cancel)
                    .await
                    .expect("there");
                assert_eq!(updated.record.commit, new);
            }
        }
    }
}

/// A small file system below a directory, for as long as it lives; none where
/// this process may not mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(at).expect("made");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .stderr(std::process::Stdio::null())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Self(at.to_owned()))
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
async fn a_disk_that_fills_up_is_named_and_nothing_half_made_is_left_on_it() {
    for strategy in STRATEGIES {
        for options in ["size=1m", "size=64m,nr_inodes=160"] {
            let fixture = Fixture::new();
            let remote = fixture.remote("acme", "widgets");
            let (small, _) = remote.open_pull(1, "small");
            // Does not compress, and has many files.
            let mut state = 1_u64;
            let mut noise = String::new();
            for _ in 0..60_000 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                noise.push(char::from(
                    b'a' + u8::try_from((state >> 33) % 26).expect("small"),
                ));
            }
            for n in 0..150 {
                let file = fixture.path().join(format!("work/acme/widgets/f{n}"));
                fs::write(file, &noise[n * 300..n * 300 + 15_000]).expect("written");
            }
            let (big, _) = remote.open_pull(2, "big");
            let Some(_disk) = SmallDisk::mount(&fixture.root(), options) else {
                return;
            };
            let workspace = fixture.workspace();
            let mut failed = None;
            for (number, wanted) in [(1, &small), (2, &big)] {
                if let Err(error) =
                    prepare(&workspace, &remote.target(), number, wanted, strategy).await
                {
                    failed = Some((number, error));
                    break;
                }
            }
            let (number, error) = failed.expect("the disk is too small");
            assert_eq!(error.code(), FailureCode::DiskFull, "{options}: {error}");
            let text = error.to_string();
            assert!(
                text.contains(&fixture.root().display().to_string()),
                "{text}"
            );
            let vault = fixture.root().join(".vault/git.test/acme/widgets.git");
            let journal = vault
                .join("innkeeper/checkouts")
                .join(format!("{}.json", slug(number)));
            assert!(!journal.exists(), "{text}");
            for dir in [".staging", ".trash"] {
                assert_eq!(
                    names_in(&fixture.root().join(dir)),
                    Vec::<String>::new(),
                    "{text}"
                );
            }
            for strategy_dir in [".worktrees/git.test/acme/widgets", ".work-items"] {
                let left = names_in(&fixture.root().join(strategy_dir));
                assert!(!left.contains(&slug(number)), "{left:?}");
            }
        }
    }
}
