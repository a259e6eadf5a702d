//! Everything that can be seen of a checkout, taken with nothing of the code
//! that is tested.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use innkeeper::domain::checkout::Strategy;

use crate::git_fixture::Fixture;
use crate::world::World;

/// Questions to git; an error is an answer too.
const ASKED: &[&[&str]] = &[
    &["ls-files", "--stage", "-v", "-z"],
    &["ls-files", "--deleted", "-z"],
    &["ls-files", "--resolve-undo", "-z"],
    &[
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--ignored",
        "--untracked-files=all",
    ],
    &["diff", "HEAD"],
    &["diff", "--cached"],
    &["symbolic-ref", "-q", "HEAD"],
    &["rev-parse", "-q", "--verify", "HEAD"],
    &[
        "for-each-ref",
        "refs/heads",
        "refs/bisect",
        "refs/worktree",
        "refs/tags",
    ],
    &["stash", "list", "--format=%gd %H %gs"],
    &["reflog", "show", "HEAD", "--format=%H %gd %gs"],
    &["sparse-checkout", "list"],
    &["bisect", "log"],
    &["config", "--get-regexp", "^branch\\."],
    &["submodule", "status", "--recursive"],
    &[
        "submodule",
        "foreach",
        "-q",
        "--recursive",
        "git log --format=%H -g HEAD; git status --porcelain; git for-each-ref refs/heads",
    ],
];

/// Files of the record or of `.git` that hold an operation's state.
const STATE: &[&str] = &[
    "HEAD",
    "ORIG_HEAD",
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "BISECT_START",
    "BISECT_TERMS",
    "BISECT_NAMES",
    "logs/HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "info/sparse-checkout",
    "refs/bisect",
];

/// Kind, mode, time, content.
type Seen = (&'static str, u32, (i64, i64), Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    files: BTreeMap<PathBuf, Seen>,
    state: BTreeMap<PathBuf, Vec<u8>>,
    answers: Vec<(String, bool, Vec<u8>)>,
}

impl Picture {
    pub fn of(world: &World<'_>) -> Self {
        Self::at(world.fixture, &world.record.path, &world.admin())
    }

    /// Takes one of a repository whose own git directory is `admin`.
    pub fn at(fixture: &Fixture, path: &Path, admin: &Path) -> Self {
        let mut answers = Vec::new();
        for args in ASKED {
            let output = fixture.try_git(path, args);
            answers.push((args.join(" "), output.status.success(), output.stdout));
        }
        let mut files = BTreeMap::new();
        walk(path, path, &mut |name, full, meta| {
            files.insert(name.to_owned(), described(full, meta));
        });
        let mut state = BTreeMap::new();
        for name in STATE {
            let full = admin.join(name);
            if full.is_file() {
                state.insert(PathBuf::from(name), fs::read(&full).expect("read"));
            } else if full.is_dir() {
                walk(&full, &full, &mut |below, full, meta| {
                    let content = if meta.is_file() {
                        fs::read(full).expect("read")
                    } else {
                        b"directory".to_vec()
                    };
                    state.insert(Path::new(name).join(below), content);
                });
            }
        }
        Self {
            files,
            state,
            answers,
        }
    }

    /// Compares, and says what differs.
    pub fn is_same(&self, other: &Self, what: &str) {
        self.is_same_but(other, what, &[]);
    }

    /// Compares all but the answers to some questions.
    pub fn is_same_but(&self, other: &Self, what: &str, except: &[&str]) {
        for (path, one) in &self.files {
            match other.files.get(path) {
                None => panic!("{what}: {} is missing", path.display()),
                Some(found) if found.3 != one.3 || found.0 != one.0 => panic!(
                    "{what}: {} is {} {:?} and was {} {:?}",
                    path.display(),
                    found.0,
                    String::from_utf8_lossy(&found.3),
                    one.0,
                    String::from_utf8_lossy(&one.3)
                ),
                Some(found) => assert_eq!(
                    (found.1, found.2),
                    (one.1, one.2),
                    "{what}: mode or time of {}",
                    path.display()
                ),
            }
        }
        for path in other.files.keys() {
            assert!(
                self.files.contains_key(path),
                "{what}: {} is new",
                path.display()
            );
        }
        for ((asked, ok, one), (_, found_ok, found)) in self.answers.iter().zip(&other.answers) {
            if !except.iter().any(|word| asked.starts_with(word)) {
                assert_eq!(
                    (ok, String::from_utf8_lossy(one)),
                    (found_ok, String::from_utf8_lossy(found)),
                    "{what}: git {asked}"
                );
            }
        }
        for (path, one) in &self.state {
            assert_eq!(
                other
                    .state
                    .get(path)
                    .map(|found| String::from_utf8_lossy(found)),
                Some(String::from_utf8_lossy(one)),
                "{what}: {}",
                path.display()
            );
        }
        assert_eq!(self.state.len(), other.state.len(), "{what}: state");
    }

    /// Leaves out the files by which submodules find their repositories.
    pub fn without_pointers(mut self) -> Self {
        self.files.retain(|path, (kind, ..)| {
            !(path.ends_with(".git") && *kind == "file") && path != Path::new("lib")
        });
        self
    }

    /// Whether there is anything that git tells of or a file to compare.
    pub fn files(&self) -> usize {
        self.files.len()
    }
}

fn described(path: &Path, meta: &fs::Metadata) -> Seen {
    let time = (meta.mtime(), meta.mtime_nsec());
    let mode = meta.mode() & 0o7777;
    if meta.is_symlink() {
        let target = fs::read_link(path).expect("a link");
        ("link", 0, time, OsString::from(target).into_vec())
    } else if meta.is_dir() {
        ("directory", mode, time, Vec::new())
    } else if meta.is_file() {
        ("file", mode, time, fs::read(path).unwrap_or_default())
    } else {
        ("special", mode, time, Vec::new())
    }
}

fn walk(top: &Path, dir: &Path, each: &mut dyn FnMut(&Path, &Path, &fs::Metadata)) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("listed").path();
        let below = path.strip_prefix(top).expect("below").to_owned();
        if below == Path::new(".git") {
            continue;
        }
        let meta = fs::symlink_metadata(&path).expect("examined");
        each(&below, &path, &meta);
        if meta.is_dir() {
            walk(top, &path, each);
        }
    }
}

/// The own git directory of a repository that stands alone.
pub fn git_dir(path: &Path) -> PathBuf {
    path.join(".git")
}

/// Names the strategy in a failure.
pub fn named(strategy: Strategy, what: &str) -> String {
    format!("{} / {what}", strategy.as_str())
}
