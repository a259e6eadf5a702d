//! What agents do in their checkouts: everything that people and programs do
//! with files and git, the careless things too.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::random::Random;
use crate::snapshot::odd_name;
use crate::support::world::git_output;

/// Names that tools stumble over.
const ODD: &[&[u8]] = &[
    b"-rf",
    b"a b",
    b"line\nbreak",
    "\u{fc}n\u{ef}c\u{f6}d\u{e9}".as_bytes(),
    b"\xff\xfe",
    b"\"quoted\"",
    b"#hash",
    b":(glob)x",
    b"CON",
];

/// One agent's hands.
pub struct Agent<'a> {
    pub home: &'a Path,
    pub dir: &'a Path,
    /// Stands in everything that it writes, and is never used again.
    pub mark: String,
}

impl Agent<'_> {
    /// Does something; returns what, and commits that only it knows.
    pub fn act(&self, random: &mut Random) -> (&'static str, Vec<String>) {
        match random.below(19) {
            0 | 1 => self.edit("README"),
            2 => self.edit("notes/deep/draft.txt"),
            3 => self.edit(".env"),
            4 => self.edit("build.log"),
            5 => {
                let name = random.one_of(ODD).expect("there are some");
                let _occupied = fs::write(self.dir.join(odd_name(name)), &self.mark);
                ("odd name", Vec::new())
            }
            6 => {
                let link = self.dir.join(format!("link-{}", random.below(5)));
                let _gone = fs::remove_file(&link);
                let _occupied = symlink(format!("../{}", self.mark), link);
                ("link", Vec::new())
            }
            7 => {
                let script = self.dir.join("run.sh");
                fs::write(&script, &self.mark).expect("a file");
                let mode = if random.percent(50) { 0o755 } else { 0o644 };
                fs::set_permissions(&script, fs::Permissions::from_mode(mode)).expect("ours");
                ("script", Vec::new())
            }
            8 => {
                let _gone = fs::remove_file(self.dir.join("README"));
                ("deletion", Vec::new())
            }
            9 => {
                self.add_all();
                ("add", Vec::new())
            }
            10 | 11 => {
                self.edit("committed.txt");
                self.add_all();
                self.git(&["commit", "-q", "--allow-empty", "-m", &self.mark]);
                ("commit", self.head())
            }
            12 => {
                let branch = format!("agent-{}", self.mark);
                self.git(&["switch", "-q", "-c", &branch]);
                self.git(&["commit", "-q", "--allow-empty", "-m", &self.mark]);
                ("branch", self.head())
            }
            13 => {
                self.git(&["switch", "-q", "--detach"]);
                self.git(&["commit", "-q", "--allow-empty", "-m", &self.mark]);
                ("detached commit", self.head())
            }
            14 => {
                self.edit("README");
                let top = || self.git(&["rev-parse", "-q", "--verify", "refs/stash"]);
                // All worktrees share the stack: what was there may be another's.
                let before = top();
                self.git(&["stash", "push", "-q", "--include-untracked"]);
                let made = top().filter(|made| before.as_ref() != Some(made));
                ("stash", made.into_iter().collect())
            }
            15 => ("paused rebase", self.pause_a_rebase()),
            16 => {
                self.nest(random);
                // Its commits are files of the checkout like any other.
                ("nested repository", Vec::new())
            }
            17 => {
                self.git(&["update-index", "--skip-worktree", "README"]);
                self.edit("README");
                ("hidden edit", Vec::new())
            }
            _ => {
                fs::create_dir_all(self.dir.join("target/debug")).expect("a directory");
                fs::write(self.dir.join("target/debug/junk"), &self.mark).expect("a file");
                let empty = self.dir.join(format!("empty-{}", random.below(4)));
                let _there = fs::create_dir(empty);
                ("build output, empty directory", Vec::new())
            }
        }
    }

    fn add_all(&self) {
        self.git(&["add", "--all", "--", ".", ":(exclude)nested"]);
    }

    /// Puts its HEAD on a branch of the remote; returns the commit.
    pub fn push(&self, branch: &str) -> Option<String> {
        let target = format!("HEAD:refs/heads/{branch}");
        self.git(&["push", "-q", "--force", "origin", &target])?;
        self.head().pop()
    }

    /// Throws everything away that is not committed, and says so.
    pub fn tidy(&self) {
        for name in ["rebase", "merge", "cherry-pick"] {
            self.git(&[name, "--abort"]);
        }
        self.git(&["update-index", "--no-skip-worktree", "README"]);
        self.git(&["reset", "-q", "--hard"]);
        self.git(&["clean", "-q", "-ffdx"]);
    }

    fn edit(&self, name: &str) -> (&'static str, Vec<String>) {
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).expect("a directory");
        }
        fs::write(path, format!("{name}\n{}\n", self.mark)).expect("a file");
        ("edit", Vec::new())
    }

    /// Stops a rebase in the middle, with a clean tree or a conflict.
    fn pause_a_rebase(&self) -> Vec<String> {
        let mut made = Vec::new();
        for part in ["one", "two"] {
            fs::write(
                self.dir.join("rebased.txt"),
                format!("{part} {}", self.mark),
            )
            .expect("a file");
            self.git(&["add", "--", "rebased.txt"]);
            self.git(&["commit", "-q", "-m", part, "--", "rebased.txt"]);
            made.extend(self.head());
        }
        self.git(&[
            "-c",
            "sequence.editor=sed -i 1s/pick/edit/",
            "rebase",
            "-q",
            "-i",
            "HEAD~2",
        ]);
        made.extend(self.head());
        made
    }

    /// Makes a repository of its own inside, tracked by nobody.
    fn nest(&self, random: &mut Random) {
        let name = if random.percent(50) {
            "nested"
        } else {
            "notes/nested"
        };
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).expect("a directory");
        let inside = Agent {
            home: self.home,
            dir: &dir,
            mark: self.mark.clone(),
        };
        inside.git(&["init", "-q", "-b", "main"]);
        inside.edit("inside.txt");
        inside.git(&["add", "--all"]);
        inside.git(&["commit", "-q", "-m", &self.mark]);
    }

    fn head(&self) -> Vec<String> {
        self.git(&["rev-parse", "-q", "--verify", "HEAD"])
            .into_iter()
            .collect()
    }

    /// Returns what git printed; none if it refused, as it does in the middle of
    /// things.
    fn git(&self, arguments: &[&str]) -> Option<String> {
        let output = git_output(self.home, self.dir, arguments);
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}
