//! Repositories of a given size, and what bare git takes for the same work.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// The host whose repositories these are.
pub const HOST: &str = "forge.example";

/// Files in one directory; a large project has about this many.
const FILES_A_DIRECTORY: usize = 16;

fn git(home: &Path, dir: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("LC_ALL", "C")
        .current_dir(dir);
    command
}

fn run<S: AsRef<OsStr>>(home: &Path, dir: &Path, arguments: &[S]) -> anyhow::Result<String> {
    let output = git(home, dir)
        .args(arguments)
        .output()
        .context("git runs")?;
    ensure!(
        output.status.success(),
        "git failed in {}: {}",
        dir.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A bare repository that is fetched from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Where it is.
    pub path: PathBuf,
    /// The tip of `main`.
    pub main: String,
    /// Heads of pull requests, which are on no branch: number 1 first.
    pub pulls: Vec<String>,
}

impl Origin {
    /// Makes one with `files` files on `main` and `pulls` pull requests, each
    /// with one commit more.
    pub fn make(path: &Path, files: usize, pulls: usize) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path)?;
        run(path, path, &["init", "--quiet", "--bare", "-b", "main"])?;
        let mut import = git(path, path)
            .args(["fast-import", "--quiet"])
            .stdin(Stdio::piped())
            .spawn()
            .context("git fast-import")?;
        {
            let stdin = import.stdin.take().context("its input")?;
            let mut stream = std::io::BufWriter::new(stdin);
            write_history(&mut stream, files, pulls)?;
            stream.flush()?;
        }
        ensure!(import.wait()?.success(), "git fast-import failed");
        let main = run(path, path, &["rev-parse", "refs/heads/main"])?;
        let pulls = (1..=pulls)
            .map(|number| {
                run(
                    path,
                    path,
                    &["rev-parse", &format!("refs/pull/{number}/head")],
                )
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            path: path.to_owned(),
            main,
            pulls,
        })
    }
}

fn write_history(out: &mut impl std::io::Write, files: usize, pulls: usize) -> anyhow::Result<()> {
    let who = "A <a@example.invalid> 1700000000 +0000";
    write!(
        out,
        "commit refs/heads/main\nmark :1\ncommitter {who}\ndata 5\nfirst\n"
    )?;
    for index in 0..files {
        let directory = index / FILES_A_DIRECTORY;
        let content = content(index);
        write!(
            out,
            "M 100644 inline src/part-{:02}/unit-{directory:05}/file-{index:06}.txt\ndata {}\n{content}\n",
            directory % 40,
            content.len()
        )?;
    }
    writeln!(out)?;
    for number in 1..=pulls {
        let text = format!("of pull request {number}\n");
        write!(
            out,
            "commit refs/pull/{number}/head\ncommitter {who}\ndata 4\nmore\nfrom :1\n\
             M 100644 inline pull-{number}.txt\ndata {}\n{text}\n\n",
            text.len()
        )?;
    }
    Ok(())
}

/// Text of half a kilobyte to eight, as source files are: most of them small.
fn content(index: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let lines = 8 + next() % 24 * (1 + next() % 6);
    let mut text = String::new();
    for line in 0..lines {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "    let value_{line} = compute({:x}, index);",
            next() >> 40
        );
    }
    text
}

/// A bare clone in which bare git does the same.
#[derive(Clone, Debug)]
pub struct Floor {
    dir: PathBuf,
    made: usize,
}

impl Floor {
    /// Clones an origin, heads of pull requests included.
    pub fn clone(origin: &Origin, dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let url = format!("file://{}", origin.path.display());
        run(
            dir,
            dir,
            &["clone", "--quiet", "--mirror", &url, "bare.git"],
        )?;
        Ok(Self {
            dir: dir.to_owned(),
            made: 0,
        })
    }

    /// Adds a worktree; returns it and how long git took.
    pub fn add(&mut self, commit: &str) -> anyhow::Result<(PathBuf, Duration)> {
        self.made += 1;
        let worktree = self.dir.join(format!("w-{}", self.made));
        let began = Instant::now();
        run(
            &self.dir,
            &self.dir.join("bare.git"),
            &[
                OsStr::new("worktree"),
                OsStr::new("add"),
                OsStr::new("--quiet"),
                OsStr::new("--detach"),
                worktree.as_os_str(),
                OsStr::new(commit),
            ],
        )?;
        Ok((worktree, began.elapsed()))
    }

    /// Stashes everything in a worktree; returns how long git took.
    pub fn stash(&self, worktree: &Path) -> anyhow::Result<Duration> {
        let began = Instant::now();
        run(
            &self.dir,
            worktree,
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "stash",
                "--quiet",
                "--include-untracked",
            ],
        )?;
        Ok(began.elapsed())
    }

    /// Removes a worktree; returns how long git took.
    pub fn remove(&self, worktree: &Path) -> anyhow::Result<Duration> {
        let began = Instant::now();
        run(
            &self.dir,
            &self.dir.join("bare.git"),
            &[
                OsStr::new("worktree"),
                OsStr::new("remove"),
                OsStr::new("--force"),
                worktree.as_os_str(),
            ],
        )?;
        Ok(began.elapsed())
    }
}
