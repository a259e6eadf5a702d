//! Everything that is in a checkout at a moment at which nobody writes there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use sha1::{Digest, Sha1};

use crate::support::world::git_output;

/// Ignored, and counted as made again by any build: it may be lost.
const REGENERABLE: &str = "target";

/// One file, link or empty directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// `f`, `x`, `l` or `d`.
    pub kind: char,
    /// The id that git gives a blob with this content.
    pub blob: String,
    pub bytes: u64,
}

/// A checkout, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By path, which need not be text.
    pub files: BTreeMap<Vec<u8>, Found>,
    /// What `git ls-files --stage -v` says.
    pub index: Vec<u8>,
    /// The branch that HEAD names, and its commit.
    pub head: (String, String),
    /// Whether a rebase, a merge or the like is stopped in the middle.
    pub operation: bool,
    /// Every commit that HEAD has been at.
    pub reflog: BTreeSet<String>,
}

impl Snapshot {
    /// Looks at a checkout.
    pub fn of(home: &Path, dir: &Path) -> Self {
        let mut files = BTreeMap::new();
        walk(dir, &mut Vec::new(), &mut files);
        let ask = |arguments: &[&str]| git_output(home, dir, arguments).stdout;
        let line = |arguments: &[&str]| String::from_utf8_lossy(&ask(arguments)).trim().to_owned();
        let git_dir = std::path::PathBuf::from(line(&["rev-parse", "--absolute-git-dir"]));
        let operation = [
            "rebase-merge",
            "rebase-apply",
            "MERGE_HEAD",
            "CHERRY_PICK_HEAD",
        ]
        .iter()
        .any(|name| git_dir.join(name).exists());
        let log = fs::read_to_string(git_dir.join("logs/HEAD")).unwrap_or_default();
        Self {
            files,
            index: ask(&["ls-files", "--stage", "-v", "-z"]),
            head: (
                line(&["symbolic-ref", "-q", "HEAD"]),
                line(&["rev-parse", "-q", "--verify", "HEAD"]),
            ),
            operation,
            reflog: log
                .lines()
                .filter_map(|line| line.split(' ').nth(1))
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Returns how many bytes of content it has.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|found| found.bytes).sum()
    }

    /// Returns in words what another one has differently; nothing if all is
    /// equal. The reflog may only grow.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let names: BTreeSet<&Vec<u8>> = self.files.keys().chain(other.files.keys()).collect();
        for name in names {
            let (before, after) = (self.files.get(name), other.files.get(name));
            if before != after {
                let name = String::from_utf8_lossy(name);
                found.push(format!("{name:?}: {before:?}, then {after:?}"));
            }
        }
        if self.index != other.index {
            found.push(format!(
                "index: {:?}, then {:?}",
                String::from_utf8_lossy(&self.index),
                String::from_utf8_lossy(&other.index)
            ));
        }
        if self.head != other.head {
            found.push(format!("HEAD: {:?}, then {:?}", self.head, other.head));
        }
        if self.operation != other.operation {
            found.push(format!("in the middle of something: {}", self.operation));
        }
        for lost in self.reflog.difference(&other.reflog) {
            found.push(format!("{lost} is not in the reflog any more"));
        }
        found
    }

    /// Returns every blob: of files, links and the index.
    pub fn blobs(&self) -> BTreeSet<String> {
        let staged = self.index.split(|byte| *byte == 0).filter_map(|entry| {
            let text = String::from_utf8_lossy(entry).into_owned();
            text.split(' ').nth(2).map(str::to_owned)
        });
        self.files
            .values()
            .filter(|found| found.kind != 'd')
            .map(|found| found.blob.clone())
            .chain(staged)
            .collect()
    }
}

fn walk(dir: &Path, below: &mut Vec<u8>, files: &mut BTreeMap<Vec<u8>, Found>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().into_vec();
        if below.is_empty() && (name == b".git" || name == REGENERABLE.as_bytes()) {
            continue;
        }
        let length = below.len();
        if length > 0 {
            below.push(b'/');
        }
        below.extend_from_slice(&name);
        look(&entry.path(), below, files);
        below.truncate(length);
    }
}

fn look(path: &Path, name: &mut Vec<u8>, files: &mut BTreeMap<Vec<u8>, Found>) {
    let Ok(stat) = fs::symlink_metadata(path) else {
        return;
    };
    let content = if stat.is_symlink() {
        let target = fs::read_link(path).expect("a link can be read");
        ('l', target.into_os_string().into_vec())
    } else if stat.is_dir() {
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            walk(path, name, files);
            return;
        }
        ('d', Vec::new())
    } else {
        let kind = if stat.permissions().mode() & 0o100 == 0 {
            'f'
        } else {
            'x'
        };
        (kind, fs::read(path).expect("a file can be read"))
    };
    let found = Found {
        kind: content.0,
        blob: blob_id(&content.1),
        bytes: u64::try_from(content.1.len()).expect("short"),
    };
    files.insert(name.clone(), found);
}

fn blob_id(content: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(content);
    hex::encode(hash.finalize())
}

/// Returns which of these objects a repository does not have.
pub fn missing_in(repository: &Path, ids: &BTreeSet<String>) -> Vec<String> {
    if ids.is_empty() {
        return Vec::new();
    }
    let mut asked = Command::new("git")
        .args(["cat-file", "--batch-check=%(objectname) %(objecttype)"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(repository)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("git starts");
    let mut input = asked.stdin.take().expect("piped");
    let mut text = ids.iter().cloned().collect::<Vec<String>>().join("\n");
    text.push('\n');
    let writer = std::thread::spawn(move || {
        let _ended = input.write_all(text.as_bytes());
    });
    let output = asked.wait_with_output().expect("it ends");
    writer.join().expect("it wrote");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_suffix(" missing"))
        .map(str::to_owned)
        .collect()
}

/// Returns a name that is no text, for a file.
pub fn odd_name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
