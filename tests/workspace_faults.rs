//! Git that misbehaves, and what it leaves: locks, half-made records, damaged
//! objects and refs, drift, calls that fail or hang; and maintenance, which
//! loses nothing. Real git, real files.

#[path = "support/git_fixture.rs"]
mod git_fixture;

#[path = "workspace_faults/corruption.rs"]
mod corruption;
#[path = "workspace_faults/drift.rs"]
mod drift;
#[path = "workspace_faults/faulty_git.rs"]
mod faulty_git;
#[path = "workspace_faults/ghosts.rs"]
mod ghosts;
#[path = "workspace_faults/locks.rs"]
mod locks;
#[path = "workspace_faults/maintenance.rs"]
mod maintenance;
#[path = "workspace_faults/remote.rs"]
mod remote;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use git_fixture::{Fixture, Remote};
use innkeeper::domain::checkout::{CheckoutRecord, Strategy, Wanted};
use innkeeper::domain::log_event::LogEvent;
use innkeeper::domain::work_item::ItemKind;
use innkeeper::workspace::{
    OpenReport, PrepareOptions, Prepared, Workspace, WorkspaceError, WorkspaceOptions,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

const STRATEGIES: [Strategy; 2] = [Strategy::Worktree, Strategy::Clone];

/// A repository, a workspace, and what it tells.
struct World<'a> {
    fixture: &'a Fixture,
    remote: Remote<'a>,
    workspace: Workspace,
    told: UnboundedReceiver<LogEvent>,
}

impl<'a> World<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        Self::with(fixture, fixture.options())
    }

    fn with(fixture: &'a Fixture, options: WorkspaceOptions) -> Self {
        let remote = fixture.remote("acme", "widgets");
        let (workspace, told) = workspace(options);
        Self {
            fixture,
            remote,
            workspace,
            told,
        }
    }

    /// Another daemon, after this one has ended.
    async fn reopen(&mut self) -> OpenReport {
        let (gone, _) = workspace(self.fixture.options());
        self.workspace = gone;
        (self.workspace, self.told) = workspace(self.fixture.options());
        self.workspace
            .open(&CancellationToken::new())
            .await
            .expect("opened")
    }

    async fn try_prepare(
        &self,
        number: u64,
        wanted: &Wanted,
        strategy: Strategy,
    ) -> Result<Prepared, WorkspaceError> {
        let options = PrepareOptions {
            strategy: Some(strategy),
            ..PrepareOptions::default()
        };
        self.workspace
            .prepare(
                &self.remote.target(),
                &slug(number),
                (ItemKind::PullRequest, number),
                wanted,
                options,
                &CancellationToken::new(),
            )
            .await
    }

    /// Prepares a pull request whose head is on `branch`.
    async fn prepare(&self, number: u64, branch: &str) -> Prepared {
        let (wanted, _) = self.remote.open_pull(number, branch);
        self.try_prepare(number, &wanted, Strategy::Worktree)
            .await
            .unwrap_or_else(|error| panic!("{branch}: {error}"))
    }

    fn git(&self, dir: &Path, args: &[&str]) -> String {
        self.fixture.git(dir, args)
    }

    /// Nothing is missing in a repository of ours.
    fn is_sound(&self, dir: &Path, of: &str) {
        let output = self
            .fixture
            .try_git(dir, &["fsck", "--full", "--no-dangling"]);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let wrong: Vec<&str> = said
            .lines()
            // The daemon's own directories have no branch.
            .filter(|line| !line.contains("HEAD points to something strange"))
            .collect();
        assert_eq!(wrong, [""; 0], "{} after {of}", dir.display());
    }

    fn vault(&self) -> PathBuf {
        self.fixture.root().join(".vault/git.test/acme/widgets.git")
    }

    fn shared(&self) -> PathBuf {
        self.fixture.root().join("git.test/acme/widgets")
    }

    fn told(&mut self) -> Vec<LogEvent> {
        let mut told = Vec::new();
        while let Ok(event) = self.told.try_recv() {
            told.push(event);
        }
        told
    }

    /// Where and why repositories were made anew.
    fn rebuilt(&mut self) -> Vec<(String, String)> {
        self.told()
            .into_iter()
            .filter_map(|event| match event {
                LogEvent::SharedCloneRebuilt { path, reason } => Some((path, reason)),
                _ => None,
            })
            .collect()
    }

    /// Commits a file as an agent and returns the commit.
    fn commit(&self, record: &CheckoutRecord, file: &str) -> String {
        fs::write(record.path.join(file), format!("{file}\n")).expect("written");
        self.git(&record.path, &["add", file]);
        self.git(&record.path, &["commit", "-q", "-m", file]);
        self.git(&record.path, &["rev-parse", "HEAD"])
    }
}

fn workspace(options: WorkspaceOptions) -> (Workspace, UnboundedReceiver<LogEvent>) {
    let (sender, told) = unbounded_channel();
    let workspace = Workspace::with_options(WorkspaceOptions {
        told: Some(sender),
        ..options
    });
    (workspace, told)
}

fn slug(number: u64) -> String {
    format!("acme-widgets-{number}-0123abcd")
}

/// Makes a file or directory as old as this.
fn age(path: &Path, by: Duration) {
    let file = fs::File::open(path).expect("opened");
    file.set_modified(SystemTime::now() - by).expect("set");
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
