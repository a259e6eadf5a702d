//! Removing checkouts: what is kept and why, what goes, and that nothing else
//! is touched. Real git, real processes; one table for both strategies.

#[path = "support/git_fixture.rs"]
mod git_fixture;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use git_fixture::{Fixture, Remote, wanted};
use innkeeper::domain::archive::AtRisk;
use innkeeper::domain::checkout::{CheckoutRecord, Strategy};
use innkeeper::domain::gate::{Probe, Verdict};
use innkeeper::domain::reason::{KeepReason, Kept};
use innkeeper::domain::work_item::ItemKind;
use innkeeper::workspace::journal::{Journal, Phase};
use innkeeper::workspace::{
    Cleanup, Facts, PrepareOptions, Workspace, WorkspaceError, WorkspaceOptions,
};
use sha1::{Digest, Sha1};
use tokio_util::sync::CancellationToken;

use KeepReason::{
    DetachedUnreferenced, HiddenDirty, IdentityMismatch, IgnoredPrecious, InUse, Locked,
    NestedRepo, OpInProgress, StashFromHere, SubmoduleUnlanded, TrackedDirty, UnlandedCommits,
    Untracked,
};

const STRATEGIES: [Strategy; 2] = [Strategy::Worktree, Strategy::Clone];

/// A checkout of a pull request whose head is on the branch `feat`.
struct World<'a> {
    remote: Remote<'a>,
    fixture: &'a Fixture,
    workspace: Workspace,
    record: CheckoutRecord,
    facts: Facts,
    cancel: CancellationToken,
}

fn options(fixture: &Fixture) -> WorkspaceOptions {
    WorkspaceOptions {
        regenerable: ["node_modules/", "target/", "*.pyc"]
            .map(str::to_owned)
            .to_vec(),
        ..fixture.options()
    }
}

impl<'a> World<'a> {
    async fn new(fixture: &'a Fixture, strategy: Strategy) -> Self {
        Self::with(fixture, strategy, options(fixture)).await
    }

    async fn with(fixture: &'a Fixture, strategy: Strategy, options: WorkspaceOptions) -> Self {
        let remote = fixture.remote("acme", "widgets");
        remote.commit(
            "main",
            ".gitignore",
            ".env\nnode_modules/\n*.pyc\nout/\nwith\\ space\n",
        );
        let workspace = Workspace::with_options(options);
        let record = prepare(&workspace, &remote, 1, "feat", strategy).await;
        let facts = Facts::of(remote.target());
        Self {
            remote,
            fixture,
            workspace,
            record,
            facts,
            cancel: CancellationToken::new(),
        }
    }

    async fn cleanup(&self) -> Result<Cleanup, WorkspaceError> {
        self.workspace
            .cleanup(&self.record, &self.facts, &AtRisk::Keep, &self.cancel)
            .await
    }

    async fn is_cleaned(&self, what: &str) {
        let outcome = self.cleanup().await;
        assert!(
            matches!(
                outcome,
                Ok(Cleanup::Cleaned {
                    bytes: Some(1..),
                    ..
                })
            ),
            "{what}: {outcome:?}"
        );
        self.is_gone(what).await;
    }

    /// Nothing of the checkout is left anywhere.
    async fn is_gone(&self, what: &str) {
        self.workspace.sweep_trash().await.expect("swept");
        assert!(!self.record.path.exists(), "{what}: the directory is there");
        assert_eq!(names_in(&self.root().join(".trash")), [""; 0], "{what}");
        assert_eq!(journal(self), None, "{what}");
        assert_eq!(
            names_in(&self.vault().join("innkeeper/views")),
            [""; 0],
            "{what}"
        );
        let shared = self.shared();
        assert!(
            !shared.join("worktrees").join(&self.record.slug).exists(),
            "{what}"
        );
        assert_eq!(names_in(&shared.join("innkeeper-trash")), [""; 0], "{what}");
        let branches = self.fixture.git(&shared, &["branch", "--list", "feat"]);
        assert_eq!(branches, "", "{what}: the branch is there");
        assert!(
            !self
                .root()
                .join(".work-items")
                .join(&self.record.slug)
                .exists(),
            "{what}"
        );
    }

    /// Everything is as it was, and known to be.
    async fn is_kept(&self, what: &str, expected: &[KeepReason]) -> Vec<Kept> {
        let before = everything(&self.record.path);
        let outcome = self.cleanup().await;
        let Ok(Cleanup::Kept { reasons, .. }) = outcome else {
            panic!("{what}: {outcome:?}");
        };
        let codes: Vec<KeepReason> = reasons.iter().map(|one| one.code).collect();
        assert_eq!(codes, expected, "{what}: {reasons:?}");
        assert_eq!(everything(&self.record.path), before, "{what}");
        assert_eq!(names_in(&self.root().join(".trash")), [""; 0], "{what}");
        assert_eq!(
            names_in(&self.vault().join("innkeeper/views")),
            [""; 0],
            "{what}"
        );
        reasons
    }

    /// Runs a script as the agent.
    fn agent(&self, script: &str) {
        let output = Command::new("sh")
            .args(["-ec", script])
            .current_dir(&self.record.path)
            .env_clear()
            .envs(self.fixture.environment())
            .env("TOP", self.fixture.path())
            .env("REMOTE", &self.remote.bare)
            .env("SHARED", self.shared())
            .output()
            .expect("sh starts");
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn root(&self) -> PathBuf {
        self.fixture.root()
    }

    fn vault(&self) -> PathBuf {
        self.root().join(".vault/git.test/acme/widgets.git")
    }

    fn shared(&self) -> PathBuf {
        self.root().join("git.test/acme/widgets")
    }

    fn admin(&self) -> PathBuf {
        match self.record.strategy {
            Strategy::Worktree => self.shared().join("worktrees").join(&self.record.slug),
            Strategy::Clone => self.record.path.join(".git"),
        }
    }
}

async fn prepare(
    workspace: &Workspace,
    remote: &Remote<'_>,
    number: u64,
    branch: &str,
    strategy: Strategy,
) -> CheckoutRecord {
    let (what, _) = remote.open_pull(number, branch);
    let options = PrepareOptions {
        strategy: Some(strategy),
        ..PrepareOptions::default()
    };
    workspace
        .prepare(
            &remote.target(),
            &format!("acme-widgets-{number}-0123abcd"),
            (ItemKind::PullRequest, number),
            &what,
            options,
            &CancellationToken::new(),
        )
        .await
        .expect("it is prepared")
        .record
}

fn journal(world: &World<'_>) -> Option<Phase> {
    Journal::read(&world.vault(), &world.record.slug)
        .expect("readable")
        .map(|journal| journal.phase)
}

fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("listed")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Every name below a directory, with its inode and size.
fn everything(dir: &Path) -> Vec<(PathBuf, u64, u64)> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let meta = entry.metadata().expect("examined");
            if meta.is_dir() {
                waiting.push(entry.path());
            }
            found.push((entry.path(), meta.ino(), meta.len()));
        }
    }
    found.sort();
    found
}

const COMMIT: &str = "echo work > work; git add work; git commit -qm work";

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_nowhere_else_is_kept_with_its_reason_and_nothing_is_touched() {
    let edit = "echo more >> README";
    let cases: Vec<(&str, String, &[KeepReason])> = vec![
        ("a tracked file is edited", edit.into(), &[TrackedDirty]),
        ("an edit is staged", format!("{edit}; git add README"), &[TrackedDirty]),
        ("a file is deleted", "rm README".into(), &[TrackedDirty]),
        ("a mode is changed", "chmod +x README".into(), &[TrackedDirty]),
        ("a file became a link", "ln -sf /etc README".into(), &[TrackedDirty]),
        ("a file is meant to be added", "echo x > n; git add -N n".into(), &[TrackedDirty]),
        ("a file is untracked", "mkdir d; echo x > d/n".into(), &[Untracked]),
        (
            "an untracked file that the configuration hides",
            "git config status.showUntrackedFiles no; echo x > n".into(),
            &[Untracked],
        ),
        (
            "an untracked file hidden by info/exclude",
            "mkdir -p \"$(git rev-parse --git-common-dir)/info\"; echo n >> \"$(git rev-parse --git-common-dir)/info/exclude\"; echo x > n".into(),
            &[Untracked],
        ),
        ("an ignored file", "echo secret > .env".into(), &[IgnoredPrecious]),
        ("an ignored directory", "mkdir out; echo x > out/f".into(), &[IgnoredPrecious]),
        (
            "an edit behind skip-worktree",
            format!("git update-index --skip-worktree README; {edit}"),
            &[HiddenDirty],
        ),
        (
            "an edit behind assume-unchanged",
            format!("git update-index --assume-unchanged README; {edit}"),
            &[HiddenDirty],
        ),
        (
            "an edit beside a split index",
            format!("git update-index --split-index; {edit}"),
            &[TrackedDirty],
        ),
        ("a commit on the branch", COMMIT.into(), &[UnlandedCommits]),
        (
            "a commit on a detached HEAD",
            format!("git checkout -q --detach; {COMMIT}"),
            &[DetachedUnreferenced],
        ),
        (
            "a commit that only the reflog knows",
            format!("{COMMIT}; git reset -q --hard HEAD~1"),
            &[DetachedUnreferenced],
        ),
        (
            "a commit on another branch made here",
            format!("git checkout -qb other; {COMMIT}; git checkout -q feat"),
            &[UnlandedCommits],
        ),
        (
            "a commit on a branch that was renamed here",
            format!("git branch -m renamed; {COMMIT}"),
            &[UnlandedCommits],
        ),
        (
            "a commit that a made-up remote branch holds",
            format!("{COMMIT}; git update-ref refs/remotes/origin/fake HEAD"),
            &[UnlandedCommits],
        ),
        (
            "a commit hidden by a graft",
            format!("{COMMIT}; g=$(git rev-parse --git-common-dir); mkdir -p $g/info; git rev-parse HEAD > $g/info/grafts"),
            &[UnlandedCommits],
        ),
        (
            "a commit hidden by a shallow boundary",
            format!("{COMMIT}; git rev-parse HEAD~1 HEAD > $(git rev-parse --git-common-dir)/shallow"),
            &[UnlandedCommits],
        ),
        (
            "a commit replaced by one that landed",
            format!("{COMMIT}; git replace HEAD origin/main"),
            &[UnlandedCommits],
        ),
        (
            "a commit whose graph says it has no parents",
            format!("{COMMIT}; git commit-graph write --reachable; f=$(git rev-parse --git-path objects/info/commit-graph); chmod +w $f; printf '\\0\\0\\0\\0' | dd of=$f bs=1 seek=1100 conv=notrunc 2>/dev/null"),
            &[UnlandedCommits],
        ),
        (
            "two commits, of which one was pushed",
            format!("{COMMIT}; git push -q origin HEAD:feat; echo x > y; git add y; git commit -qm second"),
            &[UnlandedCommits],
        ),
        (
            "a commit with its upstream gone",
            format!("git push -q origin HEAD:gone; git branch -q --set-upstream-to=origin/gone || true; {COMMIT}; git push -q origin :gone"),
            &[UnlandedCommits],
        ),
        (
            "a merge in progress",
            format!("git checkout -qb side origin/main; {COMMIT}; git checkout -q feat; git merge -q --no-commit --no-ff side"),
            &[OpInProgress, TrackedDirty, UnlandedCommits],
        ),
        (
            "a rebase that stopped with a clean tree",
            "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1 2>/dev/null".into(),
            &[OpInProgress],
        ),
        (
            "a cherry-pick in progress",
            "git checkout -qb side origin/main; echo b > README; git commit -qam side; git checkout -q feat; echo c > README; git commit -qam mine; git cherry-pick side >/dev/null 2>&1 || true; git checkout -q HEAD -- README".into(),
            &[OpInProgress, UnlandedCommits],
        ),
        (
            "a revert in progress",
            "echo b > README; git commit -qam b; echo c > README; git commit -qam c; git revert HEAD~1 >/dev/null 2>&1 || true; git checkout -q HEAD -- README".into(),
            &[OpInProgress, UnlandedCommits],
        ),
        ("a bisection", "git bisect start -q >/dev/null".into(), &[OpInProgress]),
        (
            "patches being applied",
            "git format-patch -q -1 --stdout origin/main > $TOP/p; git am -q $TOP/p >/dev/null 2>&1 || true; git checkout -q -f HEAD".into(),
            &[OpInProgress],
        ),
        ("a stash", format!("{edit}; git stash -q"), &[StashFromHere]),
        (
            "a stash on a detached HEAD",
            format!("git checkout -q --detach; {edit}; git stash push -q -- README"),
            &[StashFromHere],
        ),
        (
            "a repository in an ignored directory",
            "mkdir -p node_modules/x; git init -q node_modules/x".into(),
            &[NestedRepo],
        ),
        (
            "a bare repository in an ignored directory",
            "mkdir -p node_modules; git init -q --bare node_modules/x".into(),
            &[NestedRepo],
        ),
        ("a fifo", "mkfifo f".into(), &[Untracked]),
    ];
    for strategy in STRATEGIES {
        for (what, script, expected) in &cases {
            let fixture = Fixture::new();
            let world = World::new(&fixture, strategy).await;
            world.agent(script);
            let what = format!("{} / {what}", strategy.as_str());
            world.is_kept(&what, expected).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_also_somewhere_else_goes() {
    let cases = [
        ("nothing was done", ""),
        (
            "a commit was pushed without a word",
            "echo x > w; git add w; git commit -qm w; git push -q origin HEAD:feat",
        ),
        (
            "a commit was pushed to another branch",
            "git checkout -qb other; echo x > w; git add w; git commit -qm w; git push -q origin HEAD:other",
        ),
        (
            "only what can be made again",
            "mkdir -p node_modules/a/b; echo x > node_modules/a/b/c; echo x > m.pyc",
        ),
        ("empty directories", "mkdir -p a/b/c"),
        (
            "an edit was taken back",
            "echo x >> README; git checkout -q README",
        ),
        (
            "a look around",
            "git fetch -q; git checkout -q origin/main; git checkout -q feat; git status >/dev/null",
        ),
        (
            "sparse checkout leaves files out",
            "git sparse-checkout set --no-cone /pull-1",
        ),
        (
            "a sparse index leaves files out",
            "git sparse-checkout set --cone --sparse-index none 2>/dev/null",
        ),
        ("a version 4 index", "git update-index --index-version 4"),
        (
            "links that lead out",
            "mkdir -p node_modules; ln -s $TOP/precious node_modules/out; ln -s / node_modules/root",
        ),
    ];
    for strategy in STRATEGIES {
        for (what, script) in cases {
            let fixture = Fixture::new();
            let world = World::new(&fixture, strategy).await;
            fs::create_dir(fixture.path().join("precious")).expect("made");
            fs::write(fixture.path().join("precious/f"), "kept").expect("written");
            world.agent(script);
            world
                .is_cleaned(&format!("{} / {what}", strategy.as_str()))
                .await;
            assert!(fixture.path().join("precious/f").exists(), "{what}");
            assert_eq!(
                world.cleanup().await.expect("can be asked again"),
                Cleanup::AlreadyGone
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_landed_under_another_id_goes() {
    let two = "echo 1 > one; git add one; git commit -qm one; echo 2 > two; git add two; git commit -qm two";
    // What the remote's main gets, as a script in a clone of it that has the
    // agent's commits as `theirs`.
    let cases = [
        (
            "rebased",
            "echo m > m; git add m; git commit -qm m; git cherry-pick main..theirs >/dev/null",
            true,
        ),
        (
            "squashed",
            "echo m > m; git add m; git commit -qm m; git merge -q --squash theirs >/dev/null; git commit -qm squash",
            true,
        ),
        (
            "squashed, then reverted",
            "git merge -q --squash theirs >/dev/null; git commit -qm squash; git revert --no-edit HEAD >/dev/null",
            true,
        ),
        (
            "one of two picked",
            "git cherry-pick theirs~1 >/dev/null",
            false,
        ),
        (
            "not landed",
            "echo m > m; git add m; git commit -qm m",
            false,
        ),
        (
            "equal to what was on the remote days before it was written",
            "git merge -q --squash theirs >/dev/null; \
             GIT_COMMITTER_DATE=\"@$(($(date +%s) - 200000)) +0000\" git commit -qm squash",
            false,
        ),
        (
            "the same but for white space",
            "git merge -q --squash theirs >/dev/null; printf '1 \\n' > one; git commit -qam squash",
            false,
        ),
    ];
    for strategy in STRATEGIES {
        for (what, script, landed) in cases {
            let fixture = Fixture::new();
            let world = World::new(&fixture, strategy).await;
            world.agent(two);
            world.agent(&format!(
                "git clone -q $REMOTE $TOP/upstream; h=$PWD; cd $TOP/upstream; \
                 git fetch -q $h HEAD:theirs; git checkout -q -b new main; {script}; git push -q origin HEAD:main"
            ));
            let what = format!("{} / {what}", strategy.as_str());
            if landed {
                world.is_cleaned(&what).await;
            } else {
                world.is_kept(&what, &[UnlandedCommits]).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_a_payload_named_is_not_at_risk_and_a_name_proves_nothing() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        world.agent(COMMIT);
        // The request was merged, says the payload, at another commit.
        world.facts.merged = Some(true);
        world.facts.heads = vec![world.record.commit.clone(), "nonsense".to_owned()];
        world
            .is_kept("merged at another commit", &[UnlandedCommits])
            .await;
        let head = fixture.git(&world.record.path, &["rev-parse", "HEAD"]);
        world.facts.heads.push(head);
        // No branch of the remote has it any more.
        world.remote.delete("refs/heads/feat");
        world.is_cleaned("named by a payload").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_that_cannot_be_reached_makes_nothing_landed() {
    let fixture = Fixture::new();
    let mut world = World::new(&fixture, Strategy::Worktree).await;
    world.agent("echo x > w; git add w; git commit -qm w; git push -q origin HEAD:feat");
    let url = world.facts.target.clone_url.clone();
    world.facts.target.clone_url = "file:///nowhere/at/all".to_owned();
    world.is_kept("not reached", &[UnlandedCommits]).await;
    world.facts.target.clone_url = url;
    world.is_cleaned("reached").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_behind_forged_stat_data_is_found_before_the_removal() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        let file = world.record.path.join("README");
        let text = fs::read_to_string(&file).expect("read");
        fs::write(&file, text.to_uppercase()).expect("edited");
        let index = world.admin().join("index");
        forge(&index, "README", &fs::metadata(&file).expect("there"));
        let plain = fixture.git(&world.record.path, &["status", "--porcelain"]);
        assert_eq!(plain, "", "the forgery works on git");
        let seen = world
            .workspace
            .inspect(&world.record, &world.facts, &world.cancel)
            .await
            .expect("looked at");
        assert_eq!(seen.verdict, Verdict::Removable, "{seen:?}");
        world.is_kept("forged", &[TrackedDirty]).await;
    }
}

/// Makes an index claim that a file is as it was when it was added.
fn forge(index: &Path, name: &str, meta: &fs::Metadata) {
    let mut bytes = fs::read(index).expect("read");
    let needle = [name.as_bytes(), b"\0"].concat();
    let at = bytes
        .windows(needle.len())
        .position(|window| window == needle)
        .expect("it is in the index")
        - 62;
    let fields = [
        meta.ctime(),
        meta.ctime_nsec(),
        meta.mtime(),
        meta.mtime_nsec(),
        i64::try_from(meta.dev()).expect("small"),
        i64::try_from(meta.ino()).expect("small"),
    ];
    for (n, field) in fields.iter().enumerate() {
        let low = u32::try_from(field & 0xffff_ffff).expect("masked");
        bytes[at + 4 * n..at + 4 * n + 4].copy_from_slice(&low.to_be_bytes());
    }
    let end = bytes.len() - 20;
    let sum = Sha1::digest(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum);
    fs::write(index, bytes).expect("written");
    // Younger than the file, so that it is believed.
    fs::File::options()
        .write(true)
        .open(index)
        .expect("opened")
        .set_modified(SystemTime::now() + Duration::from_mins(1))
        .expect("set");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_kept() {
    let cases = [
        (
            "a damaged index",
            "printf junk >> $(git rev-parse --git-path index)",
        ),
        (
            "a HEAD that is no commit",
            "echo 1111111111111111111111111111111111111111 > $(git rev-parse --git-path HEAD)",
        ),
        (
            "a HEAD that is nothing",
            "h=$(git rev-parse --git-path HEAD); echo 'ref: ../../x' > $h",
        ),
        (
            "a damaged reflog",
            "echo junk >> $(git rev-parse --git-path logs/HEAD)",
        ),
        ("a fifo as .gitignore", "mkdir d; mkfifo d/.gitignore"),
        (
            "a fifo as a ref",
            "mkfifo $(git rev-parse --git-common-dir)/refs/heads/f",
        ),
        (
            "a fifo as the index",
            "i=$(git rev-parse --git-path index); rm $i; mkfifo $i",
        ),
    ];
    for strategy in STRATEGIES {
        for (what, script) in cases {
            let fixture = Fixture::new();
            let world = World::new(&fixture, strategy).await;
            world.agent(script);
            let outcome = tokio::time::timeout(Duration::from_secs(30), world.cleanup())
                .await
                .unwrap_or_else(|_| panic!("{what}: it waits"));
            let Ok(Cleanup::Kept { reasons, .. }) = outcome else {
                panic!("{what}: {outcome:?}");
            };
            assert!(
                reasons
                    .iter()
                    .any(|one| one.code == KeepReason::ProbeFailed),
                "{what}: {reasons:?}"
            );
            assert!(world.record.path.exists(), "{what}");
        }
    }
}

/// Puts code into every place that git or a checkout could run it from; each
/// writes the canary.
const POISON: &str = r#"
    c=$TOP/canary; printf '#!/bin/sh\necho ran >> %s\ncat\n' $c > $TOP/evil; chmod +x $TOP/evil
    g=$(git rev-parse --git-common-dir)
    for k in core.fsmonitor core.sshCommand core.askPass credential.helper core.pager core.editor \
        filter.z.clean filter.z.smudge filter.z.process diff.external diff.z.command diff.z.textconv \
        merge.z.driver gpg.program core.alternateRefsCommand uploadpack.packObjectsHook \
        remote.origin.uploadpack "remote.$REMOTE.uploadpack" "remote.file://$REMOTE.uploadpack"; do
        git config "$k" $TOP/evil; done
    git config filter.z.required true; git config core.hooksPath $TOP/hooks
    mkdir -p $TOP/hooks $g/hooks $g/info
    for h in post-checkout post-index-change reference-transaction pre-commit post-commit fsmonitor-watchman; do
        cp $TOP/evil $TOP/hooks/$h; cp $TOP/evil $g/hooks/$h; done
    echo '* filter=z diff=z merge=z' > $g/info/attributes
"#;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_an_agent_planted_runs() {
    for strategy in STRATEGIES {
        for (what, more) in [
            ("clean", ""),
            ("dirty", "printf HELLO > README; echo x > n"),
        ] {
            let fixture = Fixture::new();
            let world = World::new(&fixture, strategy).await;
            world.agent(&format!("{more}\n{POISON}"));
            let _ = fs::remove_file(fixture.path().join("canary"));
            let outcome = world.cleanup().await.expect("it is answered");
            assert_eq!(
                matches!(outcome, Cleanup::Cleaned { .. }),
                more.is_empty(),
                "{what}: {outcome:?}"
            );
            assert!(
                !fixture.path().join("canary").exists(),
                "{} / {what}",
                strategy.as_str()
            );
        }
    }
    // The poison works on a git that is not careful.
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    world.agent(&format!("printf HELLO > README\n{POISON}"));
    let _ = fixture.try_git(&world.record.path, &["status"]);
    assert!(fixture.path().join("canary").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submodule_with_work_of_its_own_is_kept_and_its_code_does_not_run() {
    let add = "git init -q -b main $TOP/lib; git -C $TOP/lib commit -q --allow-empty -m lib; \
        git -c protocol.file.allow=always submodule --quiet add file://$TOP/lib lib; \
        git commit -qm lib; git push -q origin HEAD:feat";
    let cases: [(&str, &str, &[KeepReason]); 6] = [
        ("as recorded", "", &[]),
        (
            "a local commit, HEAD back at the recorded one",
            "cd lib; git commit -q --allow-empty -m local; git checkout -q HEAD~1",
            &[SubmoduleUnlanded],
        ),
        ("an untracked file", "echo x > lib/n", &[SubmoduleUnlanded]),
        (
            "a local commit in a submodule whose files are gone",
            "cd lib; git commit -q --allow-empty -m local; git checkout -q HEAD~1; cd ..; git submodule --quiet deinit -f lib",
            &[SubmoduleUnlanded],
        ),
        (
            "a stash",
            "cd lib; echo x > n; git add n; git stash -q",
            &[SubmoduleUnlanded],
        ),
        (
            "planted filters",
            "printf '#!/bin/sh\\necho ran >> $TOP/canary\\ncat\\n' > $TOP/evil; chmod +x $TOP/evil; cd lib; git config core.fsmonitor $TOP/evil; git config filter.z.clean $TOP/evil; echo '* filter=z' > .gitattributes; rm -f $TOP/canary",
            &[SubmoduleUnlanded],
        ),
    ];
    for strategy in STRATEGIES {
        for (what, script, expected) in cases {
            let fixture = Fixture::new();
            let world = World::new(&fixture, strategy).await;
            world.agent(add);
            world.agent(script);
            let what = format!("{} / {what}", strategy.as_str());
            if expected.is_empty() {
                world.is_cleaned(&what).await;
            } else {
                world.is_kept(&what, expected).await;
            }
            assert!(!fixture.path().join("canary").exists(), "{what}");
        }
    }
}

/// Ends its child, whatever the test says.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_inside_keeps_the_checkout_unless_it_is_our_own() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let mut world = World::new(&fixture, strategy).await;
        let mut child = Command::new("sh")
            .args(["-c", "echo ready; read wait"])
            .current_dir(&world.record.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("it is ready");
        let child = Ended(child);
        let reasons = world.is_kept("a shell", &[InUse]).await;
        assert_eq!(reasons[0].paths, [format!("{} sh", child.0.id())]);
        world.facts.own_processes = vec![child.0.id()];
        world.is_cleaned("our own").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_keeps_and_a_lock_that_was_taken_away_does_not() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    let lock = world.admin().join("locked");
    let ours = fs::read(&lock).expect("it is locked");
    fs::write(&lock, "do not touch, says Bob").expect("written");
    let reasons = world.is_kept("locked by Bob", &[Locked]).await;
    assert_eq!(reasons[0].paths, ["do not touch, says Bob"]);
    fs::write(&lock, ours).expect("written");
    world.agent("git worktree unlock .");
    world.is_cleaned("unlocked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_or_directory_that_does_not_agree_is_refused_and_nothing_is_touched() {
    type Tamper = fn(&mut CheckoutRecord, &Path);
    let stored: [(&str, Tamper); 12] = [
        ("the root directory", |r, _| r.path = "/".into()),
        ("the workspace root", |r, root| r.path = root.into()),
        ("the shared clone", |r, root| {
            r.path = root.join("git.test/acme/widgets");
        }),
        ("the vault", |r, root| r.path = root.join(".vault")),
        ("dots", |r, _| r.path = r.path.join("../../..")),
        ("another path", |r, root| r.path = root.join(".worktrees/x")),
        ("another root", |r, _| r.root = "/".into()),
        ("another inode", |r, _| r.inode += 1),
        ("another nonce", |r, _| r.nonce = "0".repeat(32)),
        ("a slug that climbs", |r, _| r.slug = "../../x".into()),
        ("a host that climbs", |r, _| r.host = "..".into()),
        ("a record that climbs", |r, _| {
            r.record = r.record.as_ref().map(|_| "../../..".to_owned());
            r.strategy = Strategy::Worktree;
        }),
    ];
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        let before = everything(&world.root());
        for (what, tamper) in stored {
            let mut record = world.record.clone();
            tamper(&mut record, &world.root());
            let outcome = world
                .workspace
                .cleanup(&record, &world.facts, &AtRisk::Keep, &world.cancel)
                .await
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let Cleanup::Kept { reasons, .. } = &outcome else {
                panic!("{what}: {outcome:?}");
            };
            assert_eq!(reasons[0].code, IdentityMismatch, "{what}");
            let seen = world
                .workspace
                .inspect(&record, &world.facts, &world.cancel)
                .await
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(matches!(seen.verdict, Verdict::Keep(_)), "{what}");
            assert_eq!(everything(&world.root()), before, "{what}");
        }
        world.is_cleaned("untampered").await;
    }
    let on_disk = [
        (
            "exchanged for another directory",
            "mv $D $D-old; cp -a $D-old $D",
        ),
        ("exchanged for a link", "mv $D $D-old; ln -s $D-old $D"),
        (".git is a link", "mv $D/.git $D/g; ln -s g $D/.git"),
        (
            ".git is another repository",
            "rm -rf $D/.git; git init -q $D",
        ),
        (".git is gone", "rm -rf $D/.git"),
    ];
    for strategy in STRATEGIES {
        for (what, script) in on_disk {
            let fixture = Fixture::new();
            let world = World::new(&fixture, strategy).await;
            world.agent(&format!("D={}; {script}", world.record.path.display()));
            let before = everything(&world.root());
            let outcome = world.cleanup().await;
            let Ok(Cleanup::Kept { reasons, .. }) = &outcome else {
                panic!("{what}: {outcome:?}");
            };
            assert_eq!(reasons[0].code, IdentityMismatch, "{what}");
            assert_eq!(everything(&world.root()), before, "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_worktrees_and_their_branches_are_left_alone() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    let other = prepare(
        &world.workspace,
        &world.remote,
        2,
        "other",
        Strategy::Worktree,
    )
    .await;
    world.agent("git worktree add -q -b mine $TOP/mine origin/main; cd $TOP/mine; echo x > n; git add n; git commit -qm mine");
    // A worktree that is away for a moment keeps its record.
    world.agent("git worktree add -q -b away $TOP/away origin/main; mv $TOP/away $TOP/elsewhere");
    world.is_cleaned("the one").await;
    fs::rename(
        fixture.path().join("elsewhere"),
        fixture.path().join("away"),
    )
    .expect("back");
    for (path, branch) in [
        (other.path.clone(), "other"),
        (fixture.path().join("mine"), "mine"),
        (fixture.path().join("away"), "away"),
    ] {
        let seen = fixture.git(&path, &["status", "--porcelain=v1", "-b"]);
        assert!(seen.starts_with(&format!("## {branch}")), "{seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_stays_if_the_preparation_did_not_make_it_or_somebody_else_has_it() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    // Somebody else checked the branch out after this checkout had left it.
    world.agent("git checkout -q --detach; git worktree add -q $TOP/mine feat");
    let outcome = world.cleanup().await;
    assert!(
        matches!(outcome, Ok(Cleanup::Cleaned { .. })),
        "{outcome:?}"
    );
    fixture.git(
        &fixture.path().join("mine"),
        &["rev-parse", "refs/heads/feat"],
    );

    let again = Fixture::new();
    let remote = again.remote("acme", "widgets");
    let workspace = Workspace::with_options(options(&again));
    let _first = prepare(&workspace, &remote, 7, "seven", Strategy::Worktree).await;
    let commit = remote.commit("feat", "f", "f");
    let shared = again.root().join("git.test/acme/widgets");
    again.git(
        &shared,
        &[
            "fetch",
            "-q",
            &remote.bare.display().to_string(),
            "feat:feat",
        ],
    );
    let prepared = workspace
        .prepare(
            &remote.target(),
            "acme-widgets-1-0123abcd",
            (ItemKind::PullRequest, 1),
            &wanted(1, &commit, "feat"),
            PrepareOptions::default(),
            &CancellationToken::new(),
        )
        .await
        .expect("prepared");
    assert_eq!(prepared.record.branch.as_deref(), Some("feat"));
    let facts = Facts::of(remote.target());
    let outcome = workspace
        .cleanup(
            &prepared.record,
            &facts,
            &AtRisk::Keep,
            &CancellationToken::new(),
        )
        .await;
    assert!(
        matches!(outcome, Ok(Cleanup::Cleaned { .. })),
        "{outcome:?}"
    );
    assert_eq!(
        again.git(&shared, &["rev-parse", "refs/heads/feat"]),
        commit
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stash_of_another_checkout_does_not_count_and_stays() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    let other = prepare(
        &world.workspace,
        &world.remote,
        2,
        "other",
        Strategy::Worktree,
    )
    .await;
    fs::write(other.path.join("README"), "edited").expect("written");
    fixture.git(&other.path, &["stash", "-q"]);
    world.is_cleaned("the stash is another's").await;
    assert!(!fixture.git(&other.path, &["stash", "list"]).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_of_a_clone_keeps_the_clone() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Clone).await;
    world.agent("git worktree add -q --detach $TOP/sub HEAD");
    world.is_kept("a worktree hangs on it", &[NestedRepo]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_told_as_they_are() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Worktree).await;
    world.agent("echo x > 'ünïcödé'; echo x > \"$(printf 'new\\nline')\"; echo x > 'with space'");
    let reasons = world
        .is_kept("odd names", &[Untracked, IgnoredPrecious])
        .await;
    assert_eq!(reasons[0].paths, ["new\nline", "ünïcödé"]);
    assert_eq!(reasons[1].paths, ["with space"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_changes_nothing_and_its_fingerprint_changes_with_every_change() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        let before = everything(&world.root());
        let mut fingerprints = Vec::new();
        for script in ["", "echo x > n", "echo y > n", "git add n", COMMIT] {
            world.agent(script);
            let seen = world
                .workspace
                .inspect(&world.record, &world.facts, &world.cancel)
                .await
                .expect("looked at");
            assert_eq!(seen.results.len(), Probe::ALL.len());
            assert!(!fingerprints.contains(&seen.fingerprint), "{script}");
            fingerprints.push(seen.fingerprint);
            if script.is_empty() {
                assert_eq!(seen.verdict, Verdict::Removable);
                assert_eq!(everything(&world.root()), before);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_gone_takes_its_record_with_it_unless_work_is_in_it() {
    let cases: [(&str, &str, &[KeepReason]); 5] = [
        ("clean", "", &[]),
        ("a commit", COMMIT, &[UnlandedCommits]),
        (
            "a detached commit",
            "git checkout -q --detach; echo x > w; git add w; git commit -qm w",
            &[DetachedUnreferenced],
        ),
        ("a staged file", "echo x > n; git add n", &[TrackedDirty]),
        (
            "a stash",
            "echo x >> README; git stash -q",
            &[StashFromHere],
        ),
    ];
    for (what, script, expected) in cases {
        let fixture = Fixture::new();
        let world = World::new(&fixture, Strategy::Worktree).await;
        world.agent(script);
        fs::remove_dir_all(&world.record.path).expect("removed");
        if expected.is_empty() {
            assert_eq!(
                world.cleanup().await.expect("answered"),
                Cleanup::AlreadyGone
            );
            world.is_gone(what).await;
        } else {
            world.is_kept(what, expected).await;
            assert!(world.admin().exists(), "{what}");
        }
    }
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Clone).await;
    fs::remove_dir_all(&world.record.path).expect("removed");
    assert_eq!(
        world.cleanup().await.expect("answered"),
        Cleanup::AlreadyGone
    );
    world.is_gone("a clone").await;
}

/// Opens the root as soon as the earlier workspace has let go of it.
async fn reopen(world: &World<'_>) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match world.workspace.open(&world.cancel).await {
            Ok(_) => return,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Makes the state that a crash after a step leaves.
fn crash_after(world: &World<'_>, step: usize) {
    let id = "acme-widgets-1-0123abcd-crashed";
    let phase = Phase::Removing {
        trash: id.into(),
        archive: None,
    };
    Journal::new(phase, world.record.clone())
        .write(&world.vault())
        .expect("written");
    let trash = world.root().join(".trash");
    if step >= 1 {
        fs::rename(&world.record.path, trash.join(id)).expect("renamed");
    }
    if step >= 2 && world.record.strategy == Strategy::Worktree {
        let aside = world.shared().join("innkeeper-trash");
        fs::create_dir_all(&aside).expect("made");
        fs::rename(world.admin(), aside.join(id)).expect("renamed");
    }
    if step >= 3 && world.record.strategy == Strategy::Worktree {
        world
            .fixture
            .git(&world.shared(), &["update-ref", "-d", "refs/heads/feat"]);
    }
    if step >= 4 {
        let mut gone = trash.join(id).into_os_string();
        gone.push(".deleting");
        fs::rename(trash.join(id), gone).expect("renamed");
    }
    if step >= 5 && world.record.strategy == Strategy::Worktree {
        fs::remove_dir_all(world.shared().join("innkeeper-trash").join(id)).expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_any_two_steps_is_undone_or_gone_through_with() {
    for strategy in STRATEGIES {
        for step in [0, 1, 2, 3, 4, 5] {
            // For a clone the mark is the step that decides.
            let decided = step >= if strategy == Strategy::Clone { 4 } else { 2 };
            for reopened in [false, true] {
                let what = format!("{} / step {step} / {reopened}", strategy.as_str());
                let fixture = Fixture::new();
                let mut world = World::new(&fixture, strategy).await;
                crash_after(&world, step);
                if reopened {
                    drop(std::mem::replace(
                        &mut world.workspace,
                        Workspace::with_options(options(&fixture)),
                    ));
                    reopen(&world).await;
                    assert_eq!(world.record.path.exists(), !decided, "{what}");
                    assert_eq!(
                        journal(&world),
                        (!decided).then_some(Phase::Ready),
                        "{what}"
                    );
                    if !decided {
                        // Nothing was lost: it is as it was.
                        assert_eq!(
                            fixture.git(&world.record.path, &["status", "--porcelain"]),
                            "",
                            "{what}"
                        );
                    }
                }
                world
                    .cleanup()
                    .await
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                world.is_gone(&what).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_came_before_a_crash_is_back_in_its_place() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        world.agent("echo x > n");
        crash_after(&world, 1);
        assert!(!world.record.path.exists());
        let outcome = world.cleanup().await.expect("answered");
        assert!(matches!(outcome, Cleanup::Kept { .. }), "{outcome:?}");
        assert!(world.record.path.join("n").exists());
        assert_eq!(journal(&world), Some(Phase::Ready));
    }
}

/// A git that does what `then` says at its n-th call, if there is an order for
/// it, and is git otherwise.
fn faulty_git(fixture: &Fixture, then: &str) -> PathBuf {
    let top = fixture.path();
    let top = top.display();
    fixture.script(
        "git-faulty",
        &format!(
            "if [ -f {top}/order ]; then n=$(cat {top}/calls 2>/dev/null || echo 0); n=$((n+1)); \
             echo $n > {top}/calls; if [ $n = $(cat {top}/order) ]; then {then}; fi; fi; exec git \"$@\""
        ),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_that_fails_dies_or_hangs_at_any_call_loses_nothing_and_the_next_attempt_converges() {
    let faults = [
        ("refuses", "echo fatal: no >&2; exit 128"),
        ("dies", "kill -9 $$"),
        ("answers and dies", "git \"$@\"; kill -9 $$"),
        ("warns", "echo 'warning: odd' >&2"),
        ("hangs", "exec sleep 600"),
    ];
    for strategy in STRATEGIES {
        for (what, then) in faults {
            for dirty in [false, true] {
                let fixture = Fixture::new();
                let program = faulty_git(&fixture, then);
                let options = WorkspaceOptions {
                    git_binary: program,
                    git_timeout: Duration::from_secs(if what == "hangs" { 1 } else { 60 }),
                    git_grace: Duration::from_millis(200),
                    ..options(&fixture)
                };
                let world = World::with(&fixture, strategy, options).await;
                if dirty {
                    world.agent(COMMIT);
                }
                let mut calls_in_all = 0;
                for n in 1..20 {
                    let what = format!("{} / {what} / call {n} / {dirty}", strategy.as_str());
                    fs::write(fixture.path().join("order"), n.to_string()).expect("written");
                    let _ = fs::remove_file(fixture.path().join("calls"));
                    let before = everything(&world.record.path);
                    let outcome = world.cleanup().await;
                    let calls: u32 = fs::read_to_string(fixture.path().join("calls"))
                        .ok()
                        .and_then(|text| text.trim().parse().ok())
                        .unwrap_or(0);
                    calls_in_all = calls_in_all.max(calls);
                    if calls < n {
                        assert_eq!(
                            matches!(outcome, Ok(Cleanup::Kept { .. })),
                            dirty,
                            "{what}: {outcome:?}"
                        );
                        break;
                    }
                    assert!(
                        !matches!(outcome, Ok(Cleanup::Cleaned { .. })),
                        "{what}: an answer was missing"
                    );
                    assert_eq!(everything(&world.record.path), before, "{what}");
                    assert_eq!(journal(&world), Some(Phase::Ready), "{what}");
                }
                assert!(calls_in_all >= 1, "git was asked");
                let _ = fs::remove_file(fixture.path().join("order"));
                if dirty {
                    world.is_kept(what, &[UnlandedCommits]).await;
                } else {
                    world.is_gone(what).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_between_the_two_looks_puts_the_checkout_back() {
    let changes = [
        ("an untracked file", "echo x > n"),
        ("an edit", "echo x >> README"),
        (
            "an edit with its time put back",
            "touch -r README /tmp/.t$$; tr a-z A-Z < README > r; cat r > README; rm r; touch -r /tmp/.t$$ README; rm /tmp/.t$$",
        ),
        (
            "a commit",
            "git -c user.name=a -c user.email=b commit -q --allow-empty -m x",
        ),
        (
            "a file in what can be made again",
            "mkdir -p node_modules; echo x > node_modules/x",
        ),
    ];
    for strategy in STRATEGIES {
        for (what, change) in changes {
            let what = format!("{} / {what}", strategy.as_str());
            let fixture = Fixture::new();
            // After the first status has answered, in the checkout's place.
            let program = faulty_git(
                &fixture,
                &format!(
                    "git \"$@\"; s=$?; cd $GIT_WORK_TREE; unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE; {change}; exit $s"
                ),
            );
            let world = World::with(
                &fixture,
                strategy,
                WorkspaceOptions {
                    git_binary: program,
                    ..options(&fixture)
                },
            )
            .await;
            fs::write(fixture.path().join("order"), "1").expect("written");
            let outcome = world.cleanup().await;
            assert!(
                matches!(outcome, Ok(Cleanup::Kept { .. })),
                "{what}: {outcome:?}"
            );
            assert!(world.record.path.exists(), "{what}");
            assert_eq!(journal(&world), Some(Phase::Ready), "{what}");
            let calls = fs::read_to_string(fixture.path().join("calls")).expect("git was asked");
            assert!(
                calls.trim().parse::<u32>().is_ok_and(|calls| calls <= 3),
                "{what}: {calls}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trash_that_cannot_take_it_is_a_clear_error_and_nothing_is_lost() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        let trash = world.root().join(".trash");
        let elsewhere = fixture.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("made");
        for obstacle in ["file", "link", "nothing"] {
            fs::remove_dir_all(&trash)
                .or_else(|_| fs::remove_file(&trash))
                .expect("removed");
            match obstacle {
                "file" => fs::write(&trash, "").expect("written"),
                "link" => symlink(&elsewhere, &trash).expect("linked"),
                _ => {}
            }
            let error = world.cleanup().await.expect_err("refused");
            assert!(error.to_string().contains(".trash"), "{error}");
            assert!(world.record.path.exists());
            assert_eq!(journal(&world), Some(Phase::Ready));
            assert_eq!(names_in(&elsewhere), [""; 0]);
            if obstacle == "nothing" {
                fs::create_dir(&trash).expect("made");
            }
        }
        world.is_cleaned("with a trash").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_leaves_it_in_its_place_or_gone_and_two_at_once_agree() {
    for strategy in STRATEGIES {
        let fixture = Fixture::new();
        let world = World::new(&fixture, strategy).await;
        let cancel = CancellationToken::new();
        cancel.cancel();
        let outcome = world
            .workspace
            .cleanup(&world.record, &world.facts, &AtRisk::Keep, &cancel)
            .await;
        assert!(
            matches!(outcome, Err(WorkspaceError::Cancelled)),
            "{outcome:?}"
        );
        assert!(world.record.path.exists());
        let (one, two) = tokio::join!(world.cleanup(), world.cleanup());
        let mut outcomes = [one.expect("answered"), two.expect("answered")];
        outcomes.sort_by_key(|one| matches!(one, Cleanup::AlreadyGone));
        assert!(
            matches!(outcomes, [Cleanup::Cleaned { .. }, Cleanup::AlreadyGone]),
            "{outcomes:?}"
        );
        world.is_gone("both").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strategy_is_removed_by_its_own_name_only() {
    let fixture = Fixture::new();
    let world = World::new(&fixture, Strategy::Clone).await;
    let (workspace, record, facts) = (&world.workspace, &world.record, &world.facts);
    let wrong = workspace
        .remove_worktree(record, facts, &AtRisk::Keep, &world.cancel)
        .await;
    assert!(wrong.is_err(), "{wrong:?}");
    let right = workspace
        .remove_workitem_clone(record, facts, &AtRisk::Keep, &world.cancel)
        .await;
    assert!(matches!(right, Ok(Cleanup::Cleaned { .. })), "{right:?}");
}
