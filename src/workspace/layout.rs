//! What stands where below the root.
//!
//! ```text
//! <root>/<host>/<owner>/<repo>/                  shared clone
//! <root>/.vault/<host>/<owner>/<repo>.git/       vault; in its innkeeper/:
//!     repository.json   which repository this is; written before it is renamed in
//!     checkouts/<slug>.json   the journal of one checkout
//!     archives/<id>.json      an archive being made or deleted
//!     ctl/              the private view of the shared clone
//!     clone-url, default-branch   what was last known of the remote
//!     maintained        when the last maintenance was
//!     rebuild.json, rebuilding/   a damaged repository being made anew
//!     set-aside/        what was damaged; nothing sweeps it
//!     views/<slug>/     private views of clones
//! <root>/.worktrees/<host>/<owner>/<repo>/<slug>/
//! <root>/.work-items/<slug>/<host>/<owner>/<repo>/
//! <root>/.staging/<nonce>/                       in the making
//! <root>/.trash/<id>/                            to be deleted
//! <root>/.archive/<slug>/<id>/                    what a removed checkout held
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use super::WorkspaceError;
use crate::domain::code::FailureCode;
use crate::domain::repo_target::RepoTarget;

/// The names of a repository as they stand in paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepoPath {
    /// `host`, or `host+port`.
    pub host: String,
    /// Owner, as first seen.
    pub owner: String,
    /// Name, as first seen.
    pub repo: String,
}

impl RepoPath {
    /// Returns the names for a target.
    ///
    /// # Errors
    ///
    /// `bad_input` if one of them cannot be a directory below the root.
    pub fn of(target: &RepoTarget) -> Result<Self, WorkspaceError> {
        let path = Self {
            host: target.host.to_lowercase().replace(':', "+"),
            owner: target.owner.clone(),
            repo: target.repo.clone(),
        };
        for (what, name) in [
            ("host", &path.host),
            ("owner", &path.owner),
            ("repository", &path.repo),
        ] {
            let fits = !name.is_empty()
                && name.len() <= 200
                && name != "."
                && name != ".."
                && !name.starts_with('-')
                && !name
                    .chars()
                    .any(|c| c == '/' || c == '\\' || c.is_control() || c == '\0');
            // Directories of ours begin with a dot where hosts stand.
            if !fits || (what == "host" && name.starts_with('.')) {
                return Err(WorkspaceError::new(
                    FailureCode::BadInput,
                    format!("{name:?} is no acceptable name of a {what}"),
                ));
            }
        }
        Ok(path)
    }

    /// Returns `host/owner/repo`.
    pub fn rel(&self) -> PathBuf {
        [&self.host, &self.owner, &self.repo].iter().collect()
    }

    /// Returns the key under which spellings that differ in case are one.
    pub(super) fn key(&self) -> String {
        format!("{}/{}/{}", self.host, self.owner, self.repo).to_lowercase()
    }
}

/// The paths below one root, which is a real path.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Returns the layout below a root.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns where the shared clone is.
    pub fn repo_dir(&self, repo: &RepoPath) -> PathBuf {
        self.root.join(repo.rel())
    }

    /// Returns where the vault is.
    pub fn vault_dir(&self, repo: &RepoPath) -> PathBuf {
        self.vaults()
            .join(&repo.host)
            .join(&repo.owner)
            .join(format!("{}.git", repo.repo))
    }

    /// Returns where a work item's worktree is.
    pub fn worktree_dir(&self, repo: &RepoPath, slug: &str) -> PathBuf {
        self.root.join(".worktrees").join(repo.rel()).join(slug)
    }

    /// Returns what holds a work item's clones.
    pub fn workitem_dir(&self, slug: &str) -> PathBuf {
        self.root.join(".work-items").join(slug)
    }

    /// Returns where a work item's clone of a repository is.
    pub fn clone_dir(&self, repo: &RepoPath, slug: &str) -> PathBuf {
        self.workitem_dir(slug).join(repo.rel())
    }

    /// Returns what holds all vaults.
    pub fn vaults(&self) -> PathBuf {
        self.root.join(".vault")
    }

    /// Returns where clones and directories are made.
    pub fn staging(&self) -> PathBuf {
        self.root.join(".staging")
    }

    /// Returns what holds what is to be deleted.
    pub fn trash(&self) -> PathBuf {
        self.root.join(".trash")
    }

    /// Returns what holds all archives.
    pub fn archives(&self) -> PathBuf {
        self.root.join(".archive")
    }

    /// Returns the configuration of the daemon's git.
    pub fn git_config(&self) -> PathBuf {
        self.vaults().join("gitconfig")
    }

    /// Returns the lock of the root.
    pub fn lock_file(&self) -> PathBuf {
        self.vaults().join("daemon.lock")
    }

    /// Returns the spelling under which the repository is known on disk, if it
    /// is, without regard to case.
    pub(super) fn known_spelling(&self, wanted: &RepoPath) -> Option<RepoPath> {
        if self.vault_dir(wanted).exists() {
            return Some(wanted.clone());
        }
        let host = self.vaults().join(&wanted.host);
        for owner in names_like(&host, &wanted.owner) {
            let repo = format!("{}.git", wanted.repo);
            if let Some(found) = names_like(&host.join(&owner), &repo).into_iter().next() {
                return Some(RepoPath {
                    host: wanted.host.clone(),
                    owner,
                    repo: found[..found.len() - ".git".len()].to_owned(),
                });
            }
        }
        None
    }

    /// Returns the repositories that have a vault.
    pub(super) fn known_repositories(&self) -> Vec<RepoPath> {
        let mut found = Vec::new();
        for host in names_in(&self.vaults()) {
            for owner in names_in(&self.vaults().join(&host)) {
                for repo in names_in(&self.vaults().join(&host).join(&owner)) {
                    if let Some(repo) = repo.strip_suffix(".git") {
                        found.push(RepoPath {
                            host: host.clone(),
                            owner: owner.clone(),
                            repo: repo.to_owned(),
                        });
                    }
                }
            }
        }
        found.sort();
        found
    }
}

/// Names of directories in `dir`; none if it cannot be read.
pub(super) fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn names_like(dir: &Path, wanted: &str) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let mut found = names_in(dir);
    found.retain(|name| name.to_lowercase() == wanted);
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str, owner: &str, repo: &str) -> RepoTarget {
        RepoTarget {
            host: host.into(),
            owner: owner.into(),
            repo: repo.into(),
            clone_url: String::new(),
        }
    }

    #[test]
    fn a_port_becomes_part_of_the_hosts_directory() {
        let path = RepoPath::of(&target("ghe.example.com:8443", "o", ".github")).expect("fits");
        assert_eq!(path.rel(), Path::new("ghe.example.com+8443/o/.github"));
    }

    #[test]
    fn names_that_leave_the_root_or_look_like_options_are_refused() {
        for (host, owner, repo) in [
            ("", "o", "r"),
            (".vault", "o", "r"),
            ("h", "..", "r"),
            ("h", "o", "."),
            ("h", "-o", "r"),
            ("h", "o", "a/b"),
            ("h", "o", "a\nb"),
            ("h", "o", "a\0b"),
        ] {
            let error = RepoPath::of(&target(host, owner, repo)).expect_err("refused");
            assert_eq!(error.code(), FailureCode::BadInput, "{host} {owner} {repo}");
        }
    }

    #[test]
    fn a_repository_is_found_in_any_case_under_the_spelling_seen_first() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let layout = Layout::new(dir.path());
        let first = RepoPath::of(&target("h", "Acme", "Widgets")).expect("fits");
        assert_eq!(layout.known_spelling(&first), None);
        fs::create_dir_all(layout.vault_dir(&first)).expect("made");
        let other = RepoPath::of(&target("h", "acme", "WIDGETS")).expect("fits");
        assert_eq!(layout.known_spelling(&other), Some(first.clone()));
        assert_eq!(layout.known_repositories(), [first]);
    }
}
