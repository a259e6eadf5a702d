//! What stands below the root, compared with what is known to stand there.
//!
//! Only names are looked at, and the few files that tell a checkout from
//! another: however many checkouts there are, no git is asked. What is not ours
//! is named at its topmost directory, and never touched.
//!
//! The daemon works meanwhile. A journal is written before anything is made and
//! removed after everything is gone, so names are listed first and journals
//! read then: what has none, and is still there afterwards, is nobody's of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::identity::{self, IdentityError, NONCE_FILE, read_line};
use super::journal::{Journal, Phase};
use super::layout::{Layout, RepoPath, names_in};
use super::trash::DELETING;
use super::{DirectoryState, Workspace, WorkspaceError, blocking, shared};
use crate::domain::checkout::{CheckoutRecord, Strategy};

/// What a survey saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// What is where each checkout should be, in the order in which they were
    /// given.
    pub states: Vec<DirectoryState>,
    /// What is nobody's of ours: directories, files, git's records.
    pub strangers: Vec<PathBuf>,
}

/// Names below the root that are ours, beside hosts.
pub(super) const AREAS: [&str; 7] = [
    ".vault",
    ".worktrees",
    ".work-items",
    ".staging",
    ".trash",
    ".archive",
    ".pool",
];

/// What a file system puts at its own top.
const LOST_AND_FOUND: &str = "lost+found";

impl Workspace {
    /// Looks what is where each of these checkouts should be, and what else
    /// stands below the root. Asks no git.
    ///
    /// # Errors
    ///
    /// If the root cannot be opened.
    pub async fn survey(&self, records: Vec<CheckoutRecord>) -> Result<Survey, WorkspaceError> {
        let inner = self.opened(&CancellationToken::new()).await?;
        blocking(move || {
            let layout = inner.layout()?;
            Ok(Survey {
                states: records.iter().map(|one| state_of(layout, one)).collect(),
                strangers: strangers(layout, &records),
            })
        })
        .await
    }

    /// Looks what is where each of these checkouts should be.
    ///
    /// # Errors
    ///
    /// If the root cannot be opened.
    pub async fn directory_states(
        &self,
        records: Vec<CheckoutRecord>,
    ) -> Result<Vec<DirectoryState>, WorkspaceError> {
        let inner = self.opened(&CancellationToken::new()).await?;
        blocking(move || {
            let layout = inner.layout()?;
            Ok(records.iter().map(|one| state_of(layout, one)).collect())
        })
        .await
    }
}

pub(super) fn state_of(layout: &Layout, record: &CheckoutRecord) -> DirectoryState {
    match identity::locate(layout, record) {
        Ok(_) => DirectoryState::Present,
        Err(IdentityError::Missing { .. }) => DirectoryState::Missing,
        Err(error @ IdentityError::Foreign { .. }) => DirectoryState::Foreign(error.to_string()),
    }
}

/// Returns what stands below the root and is nobody's of ours. Blocking.
pub(super) fn strangers(layout: &Layout, records: &[CheckoutRecord]) -> Vec<PathBuf> {
    let listed = Listed::below(layout);
    let known = Known::read(layout, records);
    let mut found = listed.strangers(layout, &known);
    // What went meanwhile was on its way out.
    found.retain(|path| fs::symlink_metadata(path).is_ok());
    found.sort();
    found
}

/// Names as they were listed, before any journal was read.
struct Listed {
    /// Everything four levels below `.worktrees` and `.work-items`, or less deep
    /// where that is a file.
    places: Vec<PathBuf>,
    /// Git's records, by shared clone.
    records: BTreeMap<PathBuf, Vec<String>>,
    trash: Vec<String>,
}

impl Listed {
    fn below(layout: &Layout) -> Self {
        let mut places = Vec::new();
        for area in [".worktrees", ".work-items"] {
            // host, owner, repository, slug; slug, host, owner, repository.
            descend(&layout.root().join(area), 4, &mut places);
        }
        let records = layout
            .known_repositories()
            .iter()
            .map(|names| layout.repo_dir(names))
            .map(|shared| {
                let records = names_in(&shared.join("worktrees"));
                (shared, records)
            })
            .collect();
        Self {
            places,
            records,
            trash: entries(&layout.trash()),
        }
    }

    fn strangers(&self, layout: &Layout, known: &Known) -> Vec<PathBuf> {
        let mut found = BTreeSet::new();
        for place in &self.places {
            if !known.checkouts.contains(place) {
                found.insert(known.topmost(layout, place));
            }
        }
        for (shared, records) in &self.records {
            for name in records {
                let admin = shared.join("worktrees").join(name);
                let is_ours = known.records.get(&admin).is_some_and(|nonce| {
                    // An agent that took the file away did not make it foreign.
                    read_line(&admin.join(NONCE_FILE)).is_ok_and(|found| found == *nonce)
                        || !admin.join(NONCE_FILE).exists()
                });
                if !is_ours {
                    found.insert(admin);
                }
            }
        }
        for name in &self.trash {
            if !name.ends_with(DELETING) && !known.trash.contains(name) {
                found.insert(layout.trash().join(name));
            }
        }
        for slug in entries(&layout.archives()) {
            let dir = layout.archives().join(&slug);
            let archives = entries(&dir);
            for id in archives {
                if !dir.join(&id).join("manifest.json").is_file() {
                    found.insert(dir.join(&id));
                }
            }
            if !dir.is_dir() {
                found.insert(dir);
            }
        }
        let pool = layout.root().join(".pool");
        found.extend(entries(&pool).iter().map(|name| pool.join(name)));
        found.extend(clones(layout, known));
        found.into_iter().collect()
    }
}

/// What journals and the store say that there is.
struct Known {
    checkouts: BTreeSet<PathBuf>,
    /// Every directory that stands above one of them, or would.
    above: BTreeSet<PathBuf>,
    /// Git's records, with the nonce of each.
    records: BTreeMap<PathBuf, String>,
    /// Names in the trash that are on their way out or back.
    trash: BTreeSet<String>,
    repositories: BTreeSet<RepoPath>,
}

impl Known {
    fn read(layout: &Layout, records: &[CheckoutRecord]) -> Self {
        let mut known = Self {
            checkouts: BTreeSet::new(),
            above: BTreeSet::new(),
            records: BTreeMap::new(),
            trash: BTreeSet::new(),
            repositories: layout.known_repositories().into_iter().collect(),
        };
        for record in records {
            known.add(layout, record);
        }
        for names in known.repositories.clone() {
            let vault = layout.vault_dir(&names);
            known.stand_above(layout, &layout.worktree_dir(&names, "any"));
            for slug in Journal::slugs(&vault) {
                let Ok(Some(journal)) = Journal::read(&vault, &slug) else {
                    // Nothing under a name whose journal cannot be read is called foreign.
                    let (tree, clone) = (
                        layout.worktree_dir(&names, &slug),
                        layout.clone_dir(&names, &slug),
                    );
                    known.place(layout, &tree);
                    known.place(layout, &clone);
                    continue;
                };
                if let Phase::Removing { trash, .. } = &journal.phase {
                    known.trash.insert(trash.clone());
                }
                known.add(layout, &journal.record);
            }
        }
        known
    }

    fn add(&mut self, layout: &Layout, record: &CheckoutRecord) {
        self.place(layout, &record.path);
        if record.strategy == Strategy::Worktree
            && let Some(name) = &record.record
        {
            let admin = layout
                .repo_dir(&identity::repo_of(record))
                .join("worktrees")
                .join(name);
            self.records.insert(admin, record.nonce.clone());
        }
    }

    fn place(&mut self, layout: &Layout, path: &Path) {
        self.checkouts.insert(path.to_owned());
        self.stand_above(layout, path);
    }

    fn stand_above(&mut self, layout: &Layout, path: &Path) {
        let above = path.ancestors().skip(1);
        self.above.extend(
            above
                .take_while(|dir| *dir != layout.root())
                .map(Path::to_owned),
        );
    }

    /// Returns the topmost directory above `place` with nothing of ours below it.
    fn topmost(&self, layout: &Layout, place: &Path) -> PathBuf {
        let mut top = place.to_owned();
        for dir in place.ancestors().skip(1) {
            let is_area = dir.parent() == Some(layout.root());
            if is_area || self.above.contains(dir) {
                break;
            }
            dir.clone_into(&mut top);
        }
        top
    }
}

/// Returns what stands where shared clones do and is none.
fn clones(layout: &Layout, known: &Known) -> Vec<PathBuf> {
    let mut hosts: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for names in &known.repositories {
        hosts
            .entry(&names.host)
            .or_default()
            .entry(&names.owner)
            .or_default()
            .insert(&names.repo);
    }
    let mut found = Vec::new();
    let is_clone = |dir: &Path| dir.join(shared::MARKER).is_file();
    for host in entries(layout.root()) {
        if AREAS.contains(&host.as_str()) || host == LOST_AND_FOUND {
            continue;
        }
        let dir = layout.root().join(&host);
        let Some(owners) = hosts.get(host.as_str()) else {
            found.push(dir);
            continue;
        };
        for owner in entries(&dir) {
            let dir = dir.join(&owner);
            let Some(repos) = owners.get(owner.as_str()) else {
                found.push(dir);
                continue;
            };
            for repo in entries(&dir) {
                let dir = dir.join(&repo);
                if !repos.contains(repo.as_str()) && !is_clone(&dir) {
                    found.push(dir);
                }
            }
        }
    }
    found
}

/// Lists what stands `depth` levels below `dir`, and files that stand higher.
fn descend(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for name in entries(dir) {
        // Worktrees that a session asked for stand beside its clones.
        if name == ".children" {
            continue;
        }
        let path = dir.join(name);
        let is_dir = fs::symlink_metadata(&path).is_ok_and(|stat| stat.is_dir());
        if is_dir && depth > 1 {
            descend(&path, depth - 1, found);
        } else {
            found.push(path);
        }
    }
}

/// Names in a directory, of whatever kind; none if it cannot be read.
pub(super) fn entries(dir: &Path) -> Vec<String> {
    let is_own = fs::symlink_metadata(dir).is_ok_and(|stat| stat.is_dir());
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    if !is_own {
        return Vec::new();
    }
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let layout = Layout::new(dir.path());
        let names = RepoPath {
            host: "h".into(),
            owner: "o".into(),
            repo: "r".into(),
        };
        fs::create_dir_all(layout.vault_dir(&names)).expect("made");
        fs::create_dir_all(layout.repo_dir(&names).join("worktrees")).expect("made");
        (dir, layout)
    }

    #[test]
    fn what_is_nobodys_is_named_at_its_top_and_empty_directories_are_not() {
        let (dir, layout) = root();
        let at = |path: &str| dir.path().join(path);
        for made in [
            "h/o/r/worktrees/somebodys",
            "h/o/other/objects",
            "h/else/x",
            "elsewhere/o/r",
            ".odd",
            "lost+found",
            ".worktrees/h/o/r/strange",
            ".worktrees/strange-host/o/r/slug",
            ".worktrees/empty/o",
            ".work-items/slug/h/o/r",
            ".work-items/slug/.children/lease/o",
            ".trash/undecided",
            ".trash/gone.deleting",
            ".archive/slug/half",
            ".archive/slug/whole",
            ".pool/h",
            ".staging/x",
        ] {
            fs::create_dir_all(at(made)).expect("made");
        }
        for written in [
            ".worktrees/h/note",
            ".archive/slug/whole/manifest.json",
            "h/file",
        ] {
            fs::write(at(written), "x").expect("written");
        }
        std::os::unix::fs::symlink(at("elsewhere"), at(".work-items/link")).expect("linked");
        let mut expected: Vec<_> = [
            ".archive/slug/half",
            ".odd",
            ".pool/h",
            ".trash/undecided",
            ".work-items/link",
            ".work-items/slug",
            ".worktrees/h/note",
            ".worktrees/h/o/r/strange",
            ".worktrees/strange-host",
            "elsewhere",
            "h/else",
            "h/file",
            "h/o/other",
            "h/o/r/worktrees/somebodys",
        ]
        .map(at)
        .into();
        expected.sort();
        assert_eq!(strangers(&layout, &[]), expected);
    }
}
