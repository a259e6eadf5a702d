//! Which commits exist only in a checkout.
//!
//! A commit is not at risk if it is an ancestor of a ref in the vault that our
//! own fetch wrote, or of a commit that an authenticated payload named as a
//! head; or if what it changes is on a remote branch under another id, as after
//! a squash or a rebase: proved by the very lines it changes, or by an equal
//! tree, never by names. The refs that agents can write prove nothing.
//!
//! Everything is asked in process, through a view of the repository that has
//! neither grafts nor a shallow boundary nor somebody's commit-graph.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use git2::{Delta, Diff, DiffDelta, DiffFormat, DiffOptions, Oid, Repository, Sort};
use sha2::{Digest, Sha256};

/// Refs of the vault that say that a commit is on a remote.
const ON_REMOTE: [&str; 3] = [
    "refs/innkeeper/heads/*",
    "refs/innkeeper/pull/*",
    "refs/innkeeper/seen/*",
];
/// How many commits of the remote, the newest, are compared by what they change.
const COMPARED_MAX: usize = 4000;
/// How many of the remote's branches, the newest, a request may have been based on.
const HEADS_MAX: usize = 64;
/// A commit that holds a change was made after the change was written, give or
/// take what clocks differ by. Older ones are not compared: that would be a
/// repository's whole history.
const CLOCKS_DIFFER_SECONDS: i64 = 24 * 60 * 60;
/// How many commits at risk are compared by what they change; with more, the
/// whole range may still be proved.
const PROVED_MAX: usize = 200;

/// A commit that exists only here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AtRisk {
    /// Its full id.
    pub id: String,
    /// `<short id> <subject>`.
    pub shown: String,
    /// Whether a branch holds it.
    pub on_branch: bool,
}

/// What a checkout's commits are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Landed<'a> {
    /// View of the checkout's refs and objects.
    pub ctl: &'a Path,
    /// The vault.
    pub vault: &'a Path,
    /// Commits that authenticated payloads named as heads.
    pub heads: &'a [String],
}

/// Why the question was not answered.
#[derive(Debug, thiserror::Error)]
pub enum LandedError {
    /// The repository could not be read.
    #[error("{}", .0.message())]
    Git(#[from] git2::Error),
    /// A tip that should be there is not.
    #[error("commit {0} is not in the repository")]
    Missing(String),
}

impl Landed<'_> {
    /// Returns which of `tips` and their ancestors are at risk. Blocking.
    ///
    /// # Errors
    ///
    /// If a tip is missing or anything on the way cannot be read; that counts
    /// as work.
    pub fn at_risk(&self, tips: &BTreeSet<String>) -> Result<Vec<AtRisk>, LandedError> {
        let vault = Repository::open(self.vault)?;
        let remote = on_remote(&vault)?;
        let mut unknown = BTreeSet::new();
        for tip in tips {
            let id = Oid::from_str(tip)?;
            if !remote.contains(&id) && !self.heads.contains(tip) {
                unknown.insert(id);
            }
        }
        if unknown.is_empty() {
            return Ok(Vec::new());
        }
        let repo = Repository::open(self.ctl)?;
        // A clone has objects of its own; what was fetched since is in the vault.
        repo.odb()?
            .add_disk_alternate(&self.vault.join("objects").to_string_lossy())?;
        let mut known: BTreeSet<Oid> = remote.iter().copied().collect();
        for head in self.heads {
            // A head that is not here holds nothing that is here.
            if let Ok(id) = Oid::from_str(head)
                && repo.find_commit(id).is_ok()
            {
                known.insert(id);
            }
        }
        let commits = new_commits(&repo, &unknown, &known)?;
        if commits.is_empty() {
            return Ok(Vec::new());
        }
        // A tip that the remote reaches, such as what a rebase went through, must
        // not hide the remote's history from the comparison.
        let tips: BTreeSet<Oid> = commits
            .iter()
            .copied()
            .filter(|id| unknown.contains(id))
            .collect();
        let question = Question::new(&repo, &vault, &tips, &known, &commits)?;
        let left = Proof::new(&repo, &question)?.unproved(&question, &commits);
        describe(&repo, &known, &left)
    }
}

/// The commits on which our own fetch set a ref.
fn on_remote(vault: &Repository) -> Result<BTreeSet<Oid>, git2::Error> {
    let mut ids = BTreeSet::new();
    for glob in ON_REMOTE {
        for reference in vault.references_glob(glob)? {
            if let Ok(commit) = reference?.peel_to_commit() {
                ids.insert(commit.id());
            }
        }
    }
    Ok(ids)
}

/// The commits reachable from `tips` and not from `known`.
pub(super) fn new_commits(
    repo: &Repository,
    tips: &BTreeSet<Oid>,
    known: &BTreeSet<Oid>,
) -> Result<Vec<Oid>, LandedError> {
    let mut walk = repo.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::TIME)?;
    for tip in tips {
        if repo.find_commit(*tip).is_err() {
            return Err(LandedError::Missing(tip.to_string()));
        }
        walk.push(*tip)?;
    }
    for id in known {
        if repo.find_commit(*id).is_ok() {
            walk.hide(*id)?;
        }
    }
    Ok(walk.collect::<Result<_, _>>()?)
}

/// What has to be found on the remote for some commits to count as landed.
struct Question {
    /// The remote's branches that may hold it.
    heads: Vec<Oid>,
    /// What the tips are made of is no proof of them.
    tips: BTreeSet<Oid>,
    /// Nothing older can hold it; seconds since 1970.
    since: i64,
    /// Single commits, with what each changes.
    singles: Vec<(Oid, Change)>,
    /// Everything from where a tip left the remote's history, as one change.
    ranges: Vec<Range>,
}

/// All that a tip has beyond the remote.
struct Range {
    commits: Vec<Oid>,
    tree: Oid,
    /// From each commit that it may be based on.
    changes: Vec<Change>,
}

/// What lies between two trees.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// None for the root of a history.
    from: Option<Oid>,
    to: Oid,
}

impl Question {
    fn new(
        repo: &Repository,
        vault: &Repository,
        tips: &BTreeSet<Oid>,
        known: &BTreeSet<Oid>,
        commits: &[Oid],
    ) -> Result<Self, LandedError> {
        let mut since = i64::MAX;
        for id in commits {
            since = since.min(repo.find_commit(*id)?.author().when().seconds());
        }
        let since = since.saturating_sub(CLOCKS_DIFFER_SECONDS);
        let heads = heads_since(vault, since)?;
        let mut singles = Vec::new();
        if commits.len() <= PROVED_MAX {
            for id in commits {
                let commit = repo.find_commit(*id)?;
                // What a merge changes cannot be told from one parent.
                if commit.parent_count() == 1 {
                    let (from, to) = (Some(commit.parent(0)?.tree_id()), commit.tree_id());
                    singles.push((*id, Change { from, to }));
                }
            }
        }
        let mut ranges = Vec::new();
        if !heads.is_empty() {
            for tip in tips {
                ranges.extend(Range::new(repo, *tip, known, &heads)?);
            }
        }
        Ok(Self {
            heads,
            tips: tips.clone(),
            since,
            singles,
            ranges,
        })
    }
}

/// The remote's branches, newest first, whose last commit is not older.
fn heads_since(vault: &Repository, since: i64) -> Result<Vec<Oid>, git2::Error> {
    let mut heads = Vec::new();
    for reference in vault.references_glob("refs/innkeeper/heads/*")? {
        if let Ok(commit) = reference?.peel_to_commit()
            && commit.time().seconds() >= since
        {
            heads.push((commit.time().seconds(), commit.id()));
        }
    }
    heads.sort_unstable_by(|one, other| other.cmp(one));
    heads.truncate(HEADS_MAX);
    Ok(heads.into_iter().map(|(_, id)| id).collect())
}

impl Range {
    /// None if the tip's commits cancel each other out: then they are not on the
    /// remote at all, whatever is equal there.
    fn new(
        repo: &Repository,
        tip: Oid,
        known: &BTreeSet<Oid>,
        heads: &[Oid],
    ) -> Result<Option<Self>, LandedError> {
        let commits = new_commits(repo, &BTreeSet::from([tip]), known)?;
        let new: BTreeSet<Oid> = commits.iter().copied().collect();
        let mut bases = BTreeSet::new();
        for id in &commits {
            bases.extend(
                repo.find_commit(*id)?
                    .parent_ids()
                    .filter(|parent| !new.contains(parent)),
            );
        }
        let tree = repo.find_commit(tip)?.tree_id();
        for base in &bases {
            if repo.find_commit(*base)?.tree_id() == tree {
                return Ok(None);
            }
        }
        // A squash on the base holds the whole request: also those commits of
        // it that are on the remote under their own ids.
        for head in heads {
            if let Ok(base) = repo.merge_base(*head, tip) {
                bases.insert(base);
            }
        }
        let mut changes = Vec::new();
        for base in bases {
            let from = Some(repo.find_commit(base)?.tree_id());
            changes.push(Change { from, to: tree });
        }
        Ok(Some(Self {
            commits,
            tree,
            changes,
        }))
    }
}

/// What of it the remote's branches hold, by content.
struct Proof<'a> {
    repo: &'a Repository,
    changes: HashSet<[u8; 32]>,
    trees: HashSet<Oid>,
}

impl<'a> Proof<'a> {
    fn new(repo: &'a Repository, question: &Question) -> Result<Self, LandedError> {
        let mut proof = Self {
            repo,
            changes: HashSet::new(),
            trees: HashSet::new(),
        };
        // Reading what a commit changes, line by line, is dear; which files it
        // changes is not.
        let mut wanted = HashSet::new();
        let ranges = question.ranges.iter().flat_map(|range| &range.changes);
        for change in question
            .singles
            .iter()
            .map(|(_, change)| change)
            .chain(ranges)
        {
            wanted.insert(files_of(&proof.diff(*change)?));
        }
        let mut walk = repo.revwalk()?;
        walk.set_sorting(Sort::TIME)?;
        for head in &question.heads {
            walk.push(*head)?;
        }
        for tip in &question.tips {
            walk.hide(*tip)?;
        }
        for id in walk.take(COMPARED_MAX) {
            let commit = repo.find_commit(id?)?;
            if commit.time().seconds() < question.since {
                break;
            }
            proof.trees.insert(commit.tree_id());
            if commit.parent_count() != 1 {
                continue;
            }
            let diff = proof.diff(Change {
                from: Some(commit.parent(0)?.tree_id()),
                to: commit.tree_id(),
            })?;
            if wanted.contains(&files_of(&diff)) {
                proof.changes.extend(lines_of(&diff)?);
            }
        }
        Ok(proof)
    }

    /// Returns those of `commits` whose content is not on the remote.
    fn unproved(&self, question: &Question, commits: &[Oid]) -> Vec<Oid> {
        let mut left: BTreeSet<Oid> = commits.iter().copied().collect();
        for (id, change) in &question.singles {
            if self.holds(*change) {
                left.remove(id);
            }
        }
        for range in &question.ranges {
            let is_there = self.trees.contains(&range.tree)
                || range.changes.iter().any(|change| self.holds(*change));
            if is_there {
                for id in &range.commits {
                    left.remove(id);
                }
            }
        }
        commits
            .iter()
            .copied()
            .filter(|id| left.contains(id))
            .collect()
    }

    /// Whether the remote has exactly this change. What cannot be read is not there.
    fn holds(&self, change: Change) -> bool {
        if self.changes.is_empty() {
            return false;
        }
        let lines = self.diff(change).and_then(|diff| lines_of(&diff));
        matches!(lines, Ok(Some(lines)) if self.changes.contains(&lines))
    }

    fn diff(&self, change: Change) -> Result<Diff<'a>, git2::Error> {
        let from = change.from.map(|id| self.repo.find_tree(id)).transpose()?;
        let to = self.repo.find_tree(change.to)?;
        let mut options = DiffOptions::new();
        options
            .context_lines(3)
            .show_binary(false)
            .indent_heuristic(false);
        self.repo
            .diff_tree_to_tree(from.as_ref(), Some(&to), Some(&mut options))
    }
}

/// A hash over which files are changed, and how their modes are.
fn files_of(diff: &Diff<'_>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for delta in diff.deltas() {
        hash_names(&mut hash, &delta);
    }
    hash.finalize().into()
}

fn hash_names(hash: &mut Sha256, delta: &DiffDelta<'_>) {
    for file in [delta.old_file(), delta.new_file()] {
        hash.update(file.path_bytes().unwrap_or_default());
        hash.update([0]);
        hash.update(u32::from(file.mode()).to_le_bytes());
    }
    hash.update([u8::from(delta.status() == Delta::Deleted)]);
}

/// A hash over exactly what is changed: names, modes, and every line with its
/// context, white space included; a file that is not text counts with its id.
/// None if nothing is changed.
fn lines_of(diff: &Diff<'_>) -> Result<Option<[u8; 32]>, git2::Error> {
    if diff.deltas().len() == 0 {
        return Ok(None);
    }
    let mut hash = Sha256::new();
    diff.print(DiffFormat::Patch, |delta, _, line| {
        match line.origin() {
            '+' | '-' | ' ' | '>' | '<' | '=' => {
                hash.update([line.origin() as u8]);
                hash.update(line.content());
            }
            'F' => hash_names(&mut hash, &delta),
            'B' => {
                hash.update(delta.old_file().id().as_bytes());
                hash.update(delta.new_file().id().as_bytes());
            }
            // Hunk headers hold line numbers, which move.
            _ => {}
        }
        true
    })?;
    Ok(Some(hash.finalize().into()))
}

fn describe(
    repo: &Repository,
    known: &BTreeSet<Oid>,
    ids: &[Oid],
) -> Result<Vec<AtRisk>, LandedError> {
    let mut tips = BTreeSet::new();
    for reference in repo.references_glob("refs/heads/*")? {
        let reference = reference?;
        // A broken branch holds nothing; it must not hide the rest.
        if let Ok(commit) = reference.peel_to_commit() {
            tips.insert(commit.id());
        }
    }
    let held: BTreeSet<Oid> = new_commits(repo, &tips, known)?.into_iter().collect();
    ids.iter()
        .map(|id| {
            let commit = repo.find_commit(*id)?;
            let subject = commit.summary_bytes().unwrap_or_default();
            Ok(AtRisk {
                id: id.to_string(),
                shown: format!(
                    "{} {}",
                    &id.to_string()[..10],
                    String::from_utf8_lossy(subject)
                ),
                on_branch: held.contains(id),
            })
        })
        .collect()
}
