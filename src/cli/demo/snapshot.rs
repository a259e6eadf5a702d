//! A checkout as a person could look at it, to be compared with what it was.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::origin::Origin;

/// Files with their modes and contents, and what git says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    files: BTreeMap<PathBuf, (u32, Vec<u8>)>,
    git: Vec<String>,
}

/// What git is asked: HEAD, index, work at risk.
const QUESTIONS: [&[&str]; 5] = [
    &["symbolic-ref", "HEAD"],
    &["rev-parse", "HEAD"],
    &["ls-files", "--stage"],
    &[
        "status",
        "--porcelain=v2",
        "--untracked-files=all",
        "--ignored",
    ],
    &["stash", "list"],
];

impl Snapshot {
    /// Looks at a checkout.
    pub(super) async fn take(origin: &Origin, checkout: &Path) -> anyhow::Result<Self> {
        let mut git = Vec::new();
        for question in QUESTIONS {
            git.push(origin.git(checkout, question).await?);
        }
        let mut files = BTreeMap::new();
        collect(checkout, checkout, &mut files).context("the files of the checkout")?;
        Ok(Self { files, git })
    }

    /// Returns how many files there are.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }
}

fn collect(
    dir: &Path,
    top: &Path,
    files: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path == top.join(".git") {
            continue;
        }
        let stat = path.symlink_metadata()?;
        if stat.is_dir() {
            collect(&path, top, files)?;
        } else {
            let name = path.strip_prefix(top).unwrap_or(&path).to_owned();
            files.insert(name, (stat.permissions().mode(), std::fs::read(&path)?));
        }
    }
    Ok(())
}
