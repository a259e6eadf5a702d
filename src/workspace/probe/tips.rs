//! Where commits of a checkout may hang: HEAD, branches made or moved here,
//! refs that only this checkout has, and every commit its reflog names. Of a
//! clone, every ref and every reflog.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use git2::{ErrorCode, Oid, Repository};

use super::private::{Head, Private};
use super::read::{LARGE_BYTES_MAX, SMALL_BYTES_MAX, read_if_present};
use super::reflog::{self, Entry};
use super::submodule::logs_below;
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::workspace::identity::Located;
use crate::workspace::worktree::holder_of;

/// Commits, and how they were found.
#[derive(Debug)]
pub struct Tips {
    /// Full ids.
    pub commits: BTreeSet<String>,
    /// The branches that count as this checkout's.
    pub branches: BTreeSet<String>,
    /// Where those of them are that have a commit; of a clone, none are told.
    pub branch_tips: BTreeMap<String, String>,
    /// The reflog of HEAD.
    pub head_log: Vec<Entry>,
}

/// Returns the tips of a checkout. Blocking.
///
/// # Errors
///
/// In words, whatever could not be read or understood.
pub fn tips(located: &Located, record: &CheckoutRecord, private: &Private) -> Result<Tips, String> {
    let view = Repository::open_bare(private.ctl()).map_err(|error| words(&error))?;
    let head_log = read_log(&located.admin.join("logs/HEAD"))?;
    let mut tips = Tips {
        commits: reflog::ids(&head_log),
        branches: BTreeSet::new(),
        branch_tips: BTreeMap::new(),
        head_log,
    };
    tips.commits
        .extend([record.base.clone(), record.commit.clone()]);
    match &private.head {
        Head::Commit(id) => {
            tips.commits.insert(id.clone());
        }
        Head::Ref(name) => {
            if let Some(branch) = name.strip_prefix("refs/heads/") {
                tips.branches.insert(branch.to_owned());
            }
            // A branch without a commit holds none.
            tips.commits.extend(tip(&view, name)?);
        }
    }
    let original = read_if_present(&located.admin.join("ORIG_HEAD"), SMALL_BYTES_MAX)
        .map_err(|error| error.to_string())?;
    if let Some(id) = original
        .as_deref()
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .and_then(|text| Oid::from_str(text.trim_end()).ok())
        && view.find_commit(id).is_ok()
    {
        tips.commits.insert(id.to_string());
    }
    match record.strategy {
        Strategy::Worktree => of_worktree(&mut tips, located, record, &view)?,
        Strategy::Clone => of_clone(&mut tips, located, &view)?,
    }
    Ok(tips)
}

fn of_worktree(
    tips: &mut Tips,
    located: &Located,
    record: &CheckoutRecord,
    view: &Repository,
) -> Result<(), String> {
    tips.branches.extend(record.branch.clone());
    tips.branches.extend(reflog::names(&tips.head_log));
    let own = record.record.as_deref();
    tips.branches.retain(|branch| {
        let name = format!("refs/heads/{branch}");
        git2::Reference::is_valid_name(&name)
            && (record.branch.as_ref() == Some(branch)
                || holder_of(&located.common, &name, own).is_none())
    });
    for branch in &tips.branches {
        if let Some(id) = tip(view, &format!("refs/heads/{branch}"))? {
            tips.commits.insert(id.clone());
            tips.branch_tips.insert(branch.clone(), id);
        }
    }
    // `refs/worktree`, `refs/bisect` and the like are files of the record.
    for file in logs_below(&located.admin.join("refs")).map_err(|error| error.to_string())? {
        let bytes = read_if_present(&file, SMALL_BYTES_MAX).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
        let text = text.trim_end();
        if let Some(name) = text.strip_prefix("ref: ") {
            tips.commits.extend(tip(view, name)?);
        } else {
            let id = Oid::from_str(text).map_err(|error| words(&error))?;
            tips.commits.insert(id.to_string());
        }
    }
    for log in logs_below(&located.admin.join("logs/refs")).map_err(|error| error.to_string())? {
        tips.commits.extend(reflog::ids(&read_log(&log)?));
    }
    Ok(())
}

fn of_clone(tips: &mut Tips, located: &Located, view: &Repository) -> Result<(), String> {
    for reference in view.references().map_err(|error| words(&error))? {
        let reference = reference.map_err(|error| words(&error))?;
        if reference.name_bytes() == b"refs/stash" {
            continue;
        }
        let shown = String::from_utf8_lossy(reference.name_bytes()).into_owned();
        match reference.peel_to_commit() {
            Ok(commit) => {
                tips.commits.insert(commit.id().to_string());
            }
            // A dangling symbolic ref, as `origin/HEAD` after a rename.
            Err(error)
                if error.code() == ErrorCode::NotFound
                    && reference.symbolic_target_bytes().is_some() => {}
            Err(error) => return Err(format!("{shown}: {}", error.message())),
        }
    }
    for log in logs_below(&located.admin.join("logs")).map_err(|error| error.to_string())? {
        if log != located.admin.join("logs/refs/stash") {
            tips.commits.extend(reflog::ids(&read_log(&log)?));
        }
    }
    Ok(())
}

/// A stash entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stashed {
    /// `stash@{n}: message`.
    pub shown: String,
    /// Its commit.
    pub commit: String,
    /// When it was made, in seconds since 1970.
    pub seconds: i64,
    /// Its message.
    pub message: String,
}

/// The message of an entry that the stash's log does not tell of.
const UNLOGGED: &str = "without a log";

/// How much earlier than the checkout an entry may claim to be: the clocks of
/// the log and of the record need not be one.
const EARLIER_SECONDS: i64 = 60;

/// Returns the stash entries that were, or may have been, made in the
/// checkout. The list is shared by all worktrees, so an entry counts if the
/// commit it was made on is one that HEAD of this checkout was ever at, or if
/// it was made on this checkout's branch; it may count for two checkouts. In a
/// clone every entry counts. Blocking.
///
/// # Errors
///
/// In words, whatever could not be read or understood.
pub fn stashed(
    located: &Located,
    record: &CheckoutRecord,
    private: &Private,
    tips: &Tips,
) -> Result<Vec<Stashed>, String> {
    let view = Repository::open_bare(private.ctl()).map_err(|error| words(&error))?;
    let log = read_log(&located.common.join("logs/refs/stash"))?;
    let mut entries: Vec<(String, i64, String)> = log
        .into_iter()
        .filter_map(|entry| Some((entry.new?, entry.seconds, entry.message)))
        .rev()
        .collect();
    if let Some(top) = tip(&view, "refs/stash")?
        && entries.first().map(|(id, _, _)| id) != Some(&top)
    {
        entries.insert(0, (top, i64::MAX, UNLOGGED.to_owned()));
    }
    let mut found = Vec::new();
    for (n, (id, seconds, message)) in entries.into_iter().enumerate() {
        let counts = record.strategy == Strategy::Clone || {
            let commit = Oid::from_str(&id)
                .and_then(|id| view.find_commit(id))
                .map_err(|error| words(&error))?;
            let on = commit.parent_ids().next().map(|id| id.to_string());
            let here = on.is_some_and(|id| tips.commits.contains(&id));
            let on_branch = tips.branches.iter().any(|branch| {
                message.starts_with(&format!("On {branch}:"))
                    || message.starts_with(&format!("WIP on {branch}:"))
            });
            (here || on_branch) && seconds >= record.created_at / 1000 - EARLIER_SECONDS
        };
        if counts {
            found.push(Stashed {
                shown: format!("stash@{{{n}}}: {message}"),
                commit: id,
                seconds,
                message,
            });
        }
    }
    Ok(found)
}

/// Returns whether the index holds anything else than `tree` of HEAD: asked
/// when there are no files that status could be asked about. Blocking.
///
/// # Errors
///
/// In words, whatever could not be read.
pub fn staged(private: &Private) -> Result<Vec<String>, String> {
    let view = Repository::open_bare(private.ctl()).map_err(|error| words(&error))?;
    let head = match &private.head {
        Head::Commit(id) => Some(id.clone()),
        Head::Ref(name) => tip(&view, name)?,
    };
    let mut expected = BTreeSet::new();
    if let Some(head) = head {
        let tree = Oid::from_str(&head)
            .and_then(|id| view.find_commit(id))
            .and_then(|commit| commit.tree())
            .map_err(|error| words(&error))?;
        tree.walk(git2::TreeWalkMode::PreOrder, |dir, entry| {
            if entry.kind() != Some(git2::ObjectType::Tree) {
                let path = [dir.as_bytes(), entry.name_bytes()].concat();
                expected.insert((path, entry.id().to_string()));
            }
            git2::TreeWalkResult::Ok
        })
        .map_err(|error| words(&error))?;
    }
    let actual: BTreeSet<_> = private
        .entries
        .iter()
        .map(|entry| (entry.path.clone(), entry.id.clone()))
        .collect();
    Ok(actual
        .symmetric_difference(&expected)
        .map(|(path, _)| String::from_utf8_lossy(path).into_owned())
        .collect())
}

fn read_log(path: &Path) -> Result<Vec<Entry>, String> {
    let bytes = read_if_present(path, LARGE_BYTES_MAX).map_err(|error| error.to_string())?;
    reflog::parse_reflog(bytes.as_deref().unwrap_or_default())
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn tip(view: &Repository, name: &str) -> Result<Option<String>, String> {
    match view.refname_to_id(name) {
        Ok(id) => Ok(Some(id.to_string())),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(format!("{name}: {}", error.message())),
    }
}

fn words(error: &git2::Error) -> String {
    error.message().to_owned()
}
