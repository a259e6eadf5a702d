//! Real bare repositories that play the remote, and workspaces that reach them
//! over `file://` as a configured host. Nothing of the user's configuration is
//! read, and everything is below one temporary directory.
#![allow(dead_code)] // Each test binary uses its own part.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use innkeeper::domain::checkout::{Strategy, Wanted};
use innkeeper::domain::repo_target::RepoTarget;
use innkeeper::workspace::{Workspace, WorkspaceOptions};
use tempfile::TempDir;

/// The host that all remotes are on.
pub const HOST: &str = "git.test";

/// A temporary world: a home, remotes, a workspace root.
pub struct Fixture {
    dir: TempDir,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture {
    /// Makes an empty world.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("innkeeper-test-")
            .tempdir()
            .expect("a temporary directory");
        let home = dir.path().join("home");
        fs::create_dir(&home).expect("a home");
        fs::write(
            home.join(".gitconfig"),
            "[user]\n\tname = Agent\n\temail = agent@example.com\n[init]\n\tdefaultBranch = main\n",
        )
        .expect("a git configuration");
        Self { dir }
    }

    /// Returns the directory of everything, as a real path.
    pub fn path(&self) -> PathBuf {
        fs::canonicalize(self.dir.path()).expect("it exists")
    }

    /// Returns the workspace root.
    pub fn root(&self) -> PathBuf {
        self.path().join("root")
    }

    /// Returns the environment of agents and of the daemon.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("HOME".into(), self.path().join("home").into()),
            (
                "PATH".into(),
                std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
            ),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ]
    }

    /// Returns options for a workspace that reaches the remotes.
    pub fn options(&self) -> WorkspaceOptions {
        WorkspaceOptions {
            strategy: Strategy::Worktree,
            git_timeout: Duration::from_mins(1),
            git_grace: Duration::from_secs(2),
            min_free_bytes: 0,
            min_free_inodes: 0,
            protocols: BTreeMap::from([(HOST.to_owned(), vec!["file".to_owned()])]),
            environment: Some(self.environment()),
            ..WorkspaceOptions::new(self.root())
        }
    }

    /// Returns a workspace with these options.
    pub fn workspace(&self) -> Workspace {
        Workspace::with_options(self.options())
    }

    /// Runs git as an agent would, and expects it to succeed.
    pub fn git(&self, dir: &Path, args: &[&str]) -> String {
        let output = self.try_git(dir, args);
        assert!(
            output.status.success(),
            "git {args:?} in {}: {}",
            dir.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Runs git as an agent would.
    pub fn try_git(&self, dir: &Path, args: &[&str]) -> Output {
        Command::new("git")
            .args(args)
            .current_dir(dir)
            .env_clear()
            .envs(self.environment())
            .output()
            .expect("git starts")
    }

    /// Makes a remote with one commit on `main`.
    pub fn remote(&self, owner: &str, repo: &str) -> Remote<'_> {
        let remote = self.empty_remote(owner, repo);
        remote.commit("main", "README", "hello\n");
        remote
    }

    /// Makes a remote without a commit.
    pub fn empty_remote(&self, owner: &str, repo: &str) -> Remote<'_> {
        let bare = self
            .path()
            .join("remotes")
            .join(owner)
            .join(format!("{repo}.git"));
        let work = self.path().join("work").join(owner).join(repo);
        fs::create_dir_all(&bare).expect("made");
        fs::create_dir_all(&work).expect("made");
        self.git(&bare, &["init", "-q", "--bare", "-b", "main"]);
        self.git(&work, &["init", "-q", "-b", "main"]);
        self.git(
            &work,
            &["remote", "add", "origin", &bare.display().to_string()],
        );
        Remote {
            fixture: self,
            bare,
            work,
            owner: owner.into(),
            repo: repo.into(),
        }
    }

    /// Writes a program.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        // Written beside and renamed: a file that is open for writing cannot be run.
        let new = self.path().join(format!("{name}.new"));
        fs::write(&new, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("made executable");
        fs::rename(&new, &path).expect("renamed");
        path
    }

    /// Returns every file below a directory, relative to it.
    pub fn files_below(dir: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![dir.to_owned()];
        while let Some(one) = dirs.pop() {
            let Ok(entries) = fs::read_dir(&one) else {
                continue;
            };
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    dirs.push(entry.path());
                } else {
                    let path = entry.path();
                    found.push(
                        path.strip_prefix(dir)
                            .unwrap_or(&path)
                            .display()
                            .to_string(),
                    );
                }
            }
        }
        found.sort();
        found
    }
}

/// A bare repository that plays the remote.
pub struct Remote<'a> {
    fixture: &'a Fixture,
    /// The bare repository.
    pub bare: PathBuf,
    work: PathBuf,
    owner: String,
    repo: String,
}

impl Remote<'_> {
    /// Returns the target that names it.
    pub fn target(&self) -> RepoTarget {
        RepoTarget {
            host: HOST.into(),
            owner: self.owner.clone(),
            repo: self.repo.clone(),
            clone_url: format!("file://{}", self.bare.display()),
        }
    }

    /// Commits a file on a branch (made from `main` if it is new) and returns
    /// the commit.
    pub fn commit(&self, branch: &str, file: &str, text: &str) -> String {
        let commit = self.commit_unpushed(branch, file, text);
        self.push(&commit, &format!("refs/heads/{branch}"));
        commit
    }

    /// Commits a file on a branch of the remote without pushing it anywhere.
    pub fn commit_unpushed(&self, branch: &str, file: &str, text: &str) -> String {
        let git = |args: &[&str]| self.fixture.git(&self.work, args);
        let tip = |name: &str| {
            let full = format!("refs/heads/{name}");
            let output = self
                .fixture
                .try_git(&self.bare, &["rev-parse", "-q", "--verify", &full]);
            output
                .status
                .success()
                .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        if let Some(base) = tip(branch).or_else(|| tip("main")) {
            // Agents push there too.
            git(&["fetch", "-q", "origin", &base]);
            git(&["checkout", "-q", "--detach", &base]);
        }
        let path = self.work.join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, text).expect("written");
        git(&["add", "-A"]);
        git(&[
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            &format!("{file} on {branch}"),
        ]);
        git(&["rev-parse", "HEAD"])
    }

    /// Puts a commit of the working repository on a ref of the remote.
    pub fn push(&self, commit: &str, name: &str) {
        self.fixture.git(
            &self.work,
            &["push", "-q", "-f", "origin", &format!("{commit}:{name}")],
        );
    }

    /// Puts the head of a pull request in its place, as GitHub does.
    pub fn pull(&self, number: u64, commit: &str) {
        self.push(commit, &format!("refs/pull/{number}/head"));
    }

    /// Deletes a ref of the remote.
    pub fn delete(&self, name: &str) {
        self.fixture.git(&self.bare, &["update-ref", "-d", name]);
    }

    /// Drops everything that no ref reaches.
    pub fn forget_unreachable(&self) {
        self.fixture
            .git(&self.bare, &["reflog", "expire", "--expire=now", "--all"]);
        self.fixture.git(&self.bare, &["gc", "-q", "--prune=now"]);
    }

    /// Returns what a ref of the remote points at.
    pub fn tip(&self, name: &str) -> String {
        self.fixture.git(&self.bare, &["rev-parse", name])
    }

    /// Opens a pull request from a branch of this repository: a commit, its
    /// branch and its ref. Returns what an event asks for.
    pub fn open_pull(&self, number: u64, branch: &str) -> (Wanted, String) {
        let commit = self.commit(branch, &format!("pull-{number}"), "work\n");
        self.pull(number, &commit);
        (wanted(number, &commit, branch), commit)
    }

    /// Opens a pull request from a fork: only its ref is here.
    pub fn open_fork_pull(&self, number: u64) -> (Wanted, String) {
        let commit = self.commit_unpushed("main", &format!("fork-{number}"), "work\n");
        self.pull(number, &commit);
        let wanted = Wanted::PullRequest {
            number,
            commit: Some(commit.clone()),
            branch: Some("main".into()),
            fork: true,
            base: Some("main".into()),
            gone: false,
        };
        (wanted, commit)
    }
}

/// Returns what an event about a pull request of the repository's own asks for.
pub fn wanted(number: u64, commit: &str, branch: &str) -> Wanted {
    Wanted::PullRequest {
        number,
        commit: Some(commit.into()),
        branch: Some(branch.into()),
        fork: false,
        base: Some("main".into()),
        gone: false,
    }
}
