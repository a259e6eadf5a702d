//! A checkout of a pull request, an agent that works in it, and the ways out of
//! it and back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use innkeeper::domain::archive::{ArchiveSummary, AtRisk};
use innkeeper::domain::checkout::{CheckoutRecord, Strategy};
use innkeeper::domain::reason::KeepReason;
use innkeeper::domain::work_item::ItemKind;
use innkeeper::workspace::journal::{Journal, Phase};
use innkeeper::workspace::{
    Cleanup, Facts, PrepareOptions, Restored, Workspace, WorkspaceError, WorkspaceOptions,
};
use tokio_util::sync::CancellationToken;

use crate::git_fixture::{Fixture, Remote};
use crate::picture::Picture;

pub const STRATEGIES: [Strategy; 2] = [Strategy::Worktree, Strategy::Clone];

pub struct World<'a> {
    pub remote: Remote<'a>,
    pub fixture: &'a Fixture,
    pub workspace: Workspace,
    pub record: CheckoutRecord,
    pub facts: Facts,
    pub cancel: CancellationToken,
}

pub fn options(fixture: &Fixture) -> WorkspaceOptions {
    WorkspaceOptions {
        regenerable: ["node_modules/", "target/", "*.pyc"]
            .map(str::to_owned)
            .to_vec(),
        ..fixture.options()
    }
}

impl<'a> World<'a> {
    pub async fn new(fixture: &'a Fixture, strategy: Strategy) -> Self {
        Self::with(fixture, strategy, options(fixture)).await
    }

    pub async fn with(fixture: &'a Fixture, strategy: Strategy, options: WorkspaceOptions) -> Self {
        let remote = fixture.remote("acme", "widgets");
        remote.commit("main", "src/lib/deep.txt", "one\ntwo\n");
        remote.commit("main", "other/file", "more\n");
        remote.commit(
            "main",
            ".gitignore",
            ".env\nnode_modules/\ntarget/\n*.pyc\nout/\n",
        );
        let workspace = Workspace::with_options(options);
        let (wanted, _) = remote.open_pull(1, "feat");
        let record = workspace
            .prepare(
                &remote.target(),
                "acme-widgets-1-0123abcd",
                (ItemKind::PullRequest, 1),
                &wanted,
                PrepareOptions {
                    strategy: Some(strategy),
                    ..PrepareOptions::default()
                },
                &CancellationToken::new(),
            )
            .await
            .expect("it is prepared")
            .record;
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

    /// Runs a script as the agent.
    pub fn agent(&self, script: &str) {
        let output = Command::new("sh")
            .args(["-ec", script])
            .current_dir(&self.record.path)
            .env_clear()
            .envs(self.fixture.environment())
            .env("TOP", self.fixture.path())
            .env("GIT_EDITOR", "true")
            .env("GIT_ALLOW_PROTOCOL", "file")
            .output()
            .expect("sh starts");
        assert!(
            output.status.success(),
            "{script}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    pub async fn cleanup(&self, at_risk: &AtRisk) -> Result<Cleanup, WorkspaceError> {
        self.workspace
            .cleanup(&self.record, &self.facts, at_risk, &self.cancel)
            .await
    }

    /// Removes it with an archive, which there has to be.
    pub async fn archive(&self, what: &str) -> ArchiveSummary {
        let outcome = self.cleanup(&AtRisk::Archive).await;
        let Ok(Cleanup::Cleaned {
            archive: Some(archive),
            ..
        }) = outcome
        else {
            panic!("{what}: {outcome:?}");
        };
        self.is_gone(what).await;
        archive
    }

    /// Nothing of the checkout is left but its archive.
    pub async fn is_gone(&self, what: &str) {
        self.workspace.sweep_trash().await.expect("swept");
        assert!(!self.record.path.exists(), "{what}: the directory is there");
        assert_eq!(self.journal(), None, "{what}");
        self.is_tidy(what);
        assert!(
            !self
                .shared()
                .join("worktrees")
                .join(&self.record.slug)
                .exists(),
            "{what}"
        );
    }

    /// Nothing half-made is left anywhere.
    pub fn is_tidy(&self, what: &str) {
        for dir in [
            self.root().join(".trash"),
            self.root().join(".staging"),
            self.vault().join("innkeeper/views"),
            self.vault().join("innkeeper/archives"),
            self.shared().join("innkeeper-trash"),
            self.shared().join("innkeeper-new"),
        ] {
            let names = names_in(&dir);
            assert_eq!(names, [""; 0], "{what}: {}", dir.display());
        }
    }

    /// It is kept for an added reason, as it was, and no archive is left.
    pub async fn is_refused(&self, what: &str, expected: KeepReason) {
        let before = Picture::of(self);
        let outcome = self.cleanup(&AtRisk::Archive).await;
        let Ok(Cleanup::Kept { reasons, .. }) = outcome else {
            panic!("{what}: {outcome:?}");
        };
        assert!(
            reasons.iter().any(|reason| reason.code == expected),
            "{what}: {reasons:?}"
        );
        assert_eq!(self.journal(), Some(Phase::Ready), "{what}");
        before.is_same(&Picture::of(self), what);
        self.has_no_archive(what).await;
    }

    pub async fn has_no_archive(&self, what: &str) {
        assert_eq!(
            self.workspace.archives().await.expect("listed"),
            [],
            "{what}"
        );
        self.is_tidy(what);
        assert_eq!(names_in(&self.root().join(".archive")), [""; 0], "{what}");
        let pins = self.fixture.git(
            &self.vault(),
            &[
                "for-each-ref",
                "--format=%(refname)",
                "refs/innkeeper/archive",
            ],
        );
        assert_eq!(pins, "", "{what}");
    }

    pub async fn restore(&self, id: &str) -> Result<Restored, WorkspaceError> {
        self.workspace
            .restore(id, &self.remote.target(), &self.cancel)
            .await
    }

    /// Restores what has to come back as it was; the checkout is the new one.
    pub async fn is_restored(&mut self, archive: &ArchiveSummary, what: &str) {
        let restored = self
            .restore(&archive.id)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(restored.differs, [""; 0], "{what}");
        let record = restored.record.expect("it is a checkout");
        assert_eq!(record.path, self.record.path, "{what}");
        self.record = record;
        assert_eq!(self.journal(), Some(Phase::Ready), "{what}");
        self.is_tidy(what);
    }

    /// What somebody does to the shared clone who wants space.
    pub fn forget_unreachable(&self) {
        let shared = self.shared();
        if shared.exists() {
            self.fixture
                .git(&shared, &["reflog", "expire", "--expire=now", "--all"]);
            self.fixture.git(&shared, &["gc", "-q", "--prune=now"]);
        }
    }

    pub fn journal(&self) -> Option<Phase> {
        Journal::read(&self.vault(), &self.record.slug)
            .expect("readable")
            .map(|journal| journal.phase)
    }

    pub fn root(&self) -> PathBuf {
        self.fixture.root()
    }

    pub fn vault(&self) -> PathBuf {
        self.root().join(".vault/git.test/acme/widgets.git")
    }

    pub fn shared(&self) -> PathBuf {
        self.root().join("git.test/acme/widgets")
    }

    pub fn admin(&self) -> PathBuf {
        match self.record.strategy {
            Strategy::Worktree => self.shared().join("worktrees").join(&self.record.slug),
            Strategy::Clone => self.record.path.join(".git"),
        }
    }

    pub fn archive_dir(&self, archive: &ArchiveSummary) -> PathBuf {
        self.root()
            .join(".archive")
            .join(&self.record.slug)
            .join(&archive.id)
    }
}

/// Opens the root as soon as whoever had it has let go of it.
pub async fn open(workspace: &Workspace) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match workspace.open(&CancellationToken::new()).await {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

pub fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|entry| {
            let entry = entry.expect("listed");
            entry.file_name().to_string_lossy().into_owned()
        })
        .collect();
    names.sort();
    names
}
