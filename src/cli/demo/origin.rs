//! The throw-away origin: a bare repository with a pull request.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio_util::sync::CancellationToken;

use crate::process::{self, Spec};

/// Owner and name of the repository.
pub(super) const OWNER: &str = "acme";
pub(super) const REPO: &str = "widgets";

/// The pull request's branch.
pub(super) const BRANCH: &str = "fix-greeting";

/// The repository and somebody's clone of it.
pub(super) struct Origin {
    bare: PathBuf,
    work: PathBuf,
    home: PathBuf,
}

impl Origin {
    /// Makes the repository with one commit on `main` and a pull request, number
    /// 1, with one commit more. Returns it with the head commit.
    pub(super) async fn make(root: &Path) -> anyhow::Result<(Self, String)> {
        let origin = Self {
            bare: root.join("origin").join(OWNER).join(format!("{REPO}.git")),
            work: root.join("somebody"),
            home: root.join("home"),
        };
        for dir in [&origin.bare, &origin.work, &origin.home] {
            std::fs::create_dir_all(dir).context("the demonstration's directories")?;
        }
        let bare = origin.bare.display().to_string();
        origin
            .git(&origin.bare, &["init", "--quiet", "--bare", "-b", "main"])
            .await?;
        origin
            .git(&origin.work, &["init", "--quiet", "-b", "main"])
            .await?;
        origin
            .git(&origin.work, &["remote", "add", "origin", &bare])
            .await?;
        origin.write("greeting.txt", "hello\n")?;
        origin.write(".gitignore", "/build/\n")?;
        origin.commit("Say hello").await?;
        origin
            .git(&origin.work, &["push", "--quiet", "origin", "main"])
            .await?;
        origin
            .git(&origin.work, &["checkout", "--quiet", "-b", BRANCH])
            .await?;
        origin.write("greeting.txt", "hello, world\n")?;
        let head = origin.commit("Greet the world").await?;
        origin.publish().await?;
        Ok((origin, head))
    }

    /// Adds a commit of somebody else to the pull request; returns it.
    pub(super) async fn push_more(&self) -> anyhow::Result<String> {
        self.write("reviewed.txt", "looks good\n")?;
        let head = self.commit("Review").await?;
        self.publish().await?;
        Ok(head)
    }

    /// Returns where a branch of the origin is.
    pub(super) async fn tip(&self, branch: &str) -> anyhow::Result<String> {
        self.git(&self.bare, &["rev-parse", &format!("refs/heads/{branch}")])
            .await
    }

    /// Makes the origin's pull request follow its branch, as a forge does.
    pub(super) async fn follow(&self) -> anyhow::Result<()> {
        let branch = format!("refs/heads/{BRANCH}");
        self.git(&self.bare, &["update-ref", "refs/pull/1/head", &branch])
            .await?;
        Ok(())
    }

    async fn publish(&self) -> anyhow::Result<()> {
        self.git(&self.work, &["push", "--quiet", "origin", BRANCH])
            .await?;
        self.follow().await
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        std::fs::write(self.work.join(name), text).context("a file of the demonstration")
    }

    async fn commit(&self, message: &str) -> anyhow::Result<String> {
        self.git(&self.work, &["add", "--all"]).await?;
        self.git(&self.work, &["commit", "--quiet", "-m", message])
            .await?;
        self.git(&self.work, &["rev-parse", "HEAD"]).await
    }

    /// Runs git as a person would, without this machine's configuration; returns
    /// what it printed.
    pub(super) async fn git(&self, dir: &Path, arguments: &[&str]) -> anyhow::Result<String> {
        let spec = Spec {
            program: PathBuf::from("git"),
            args: arguments.iter().map(OsString::from).collect(),
            env: self.environment(),
            dir: dir.to_owned(),
            stdin: None,
            stdout_max: 1 << 20,
            stderr_max: 1 << 16,
            deadline: Duration::from_secs(30),
            grace: Duration::from_secs(2),
        };
        let output = process::run(spec, &CancellationToken::new())
            .await
            .context("git cannot be run; install git 2.39 or later")?;
        if !output.status.success() {
            bail!(
                "git {} failed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns an environment in which git knows who commits and nothing else.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let path = crate::config::Environment::of_process()
            .var("PATH")
            .map_or_else(
                || OsString::from("/usr/bin:/bin"),
                std::ffi::OsStr::to_owned,
            );
        let mut environment = vec![
            ("PATH".into(), path),
            ("HOME".into(), self.home.clone().into()),
        ];
        for (name, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "Demo"),
            ("GIT_AUTHOR_EMAIL", "demo@example.invalid"),
            ("GIT_COMMITTER_NAME", "Demo"),
            ("GIT_COMMITTER_EMAIL", "demo@example.invalid"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LC_ALL", "C"),
        ] {
            environment.push((name.into(), value.into()));
        }
        environment
    }
}
