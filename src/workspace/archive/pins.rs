//! Which objects of git's an archive has to hold, and the knot that ties them.
//!
//! What is collected: HEAD, branches, reflogs, stash entries, every object whose
//! id stands in a state file (a paused rebase's list, an autostash, `ORIG_HEAD`),
//! and every blob of every index stage that HEAD's tree does not have.
//!
//! They are tied together by one commit, whose parents are the commits and whose
//! tree holds the rest, so that one ref pins them all and one bundle carries
//! them. Annotated tags get a ref each: no tree can hold them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use git2::{ErrorCode, ObjectType, Oid, Repository};

use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::git::ctl;
use crate::workspace::identity::Located;
use crate::workspace::landed::new_commits;
use crate::workspace::layout::names_in;
use crate::workspace::probe::index::parse_index;
use crate::workspace::probe::private::{Head, Private};
use crate::workspace::probe::read::{LARGE_BYTES_MAX, read_if_present};
use crate::workspace::probe::submodule::logs_below;
use crate::workspace::probe::tips::{self, Stashed};

/// What the knot ties, and what a manifest tells of it.
pub(super) struct Pins {
    /// Refs of the knot's repository: `all`, and one for each annotated tag.
    pub refs: BTreeMap<String, String>,
    /// Everything that they are there for.
    pub objects: BTreeSet<String>,
    /// What the bundle leaves out: it is on the remote.
    pub remote: BTreeSet<String>,
    /// How many commits are nowhere else.
    pub commits: u64,
    pub head_commit: Option<String>,
    pub branches: BTreeMap<String, String>,
    pub stash: Vec<Stashed>,
}

/// Refs of a vault that say what the remote has, and will have again when the
/// vault has to be made anew.
const ON_REMOTE: [&str; 2] = ["refs/innkeeper/heads/*", "refs/innkeeper/pull/*"];
/// How long the ids are of every repository that is worked with.
const ID_BYTES: usize = 20;
/// Git knows it without having it.
const EMPTY_BLOB: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
/// The same.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Collects, and ties the knot in a repository made at [`Private::knot`].
/// Blocking.
///
/// # Errors
///
/// In words, whatever is missing or could not be read.
pub(super) fn tie(
    located: &Located,
    record: &CheckoutRecord,
    private: &Private,
    vault: &Path,
) -> Result<Pins, String> {
    let view = Repository::open_bare(private.ctl()).map_err(words)?;
    let alternate = vault.join("objects");
    let odb = view.odb().map_err(words)?;
    odb.add_disk_alternate(&alternate.to_string_lossy())
        .map_err(words)?;
    let tips = tips::tips(located, record, private)?;
    let stash = tips::stashed(located, record, private, &tips)?;
    let head_commit = match &private.head {
        Head::Commit(id) => Some(id.clone()),
        Head::Ref(name) => match view.refname_to_id(name) {
            Ok(id) => Some(id.to_string()),
            Err(error) if error.code() == ErrorCode::NotFound => None,
            Err(error) => return Err(words(error)),
        },
    };
    let mut held = Held::default();
    for id in tips
        .commits
        .iter()
        .chain(stash.iter().map(|one| &one.commit))
        .chain(&head_commit)
    {
        held.require(&view, id)?;
    }
    for id in state_ids(&located.admin)? {
        held.add_if_there(&view, &id)?;
    }
    for id in index_ids(&view, private, head_commit.as_deref())? {
        held.require(&view, &id)?;
    }
    if record.strategy == Strategy::Clone {
        for id in worktree_index_ids(&located.common)? {
            held.add_if_there(&view, &id)?;
        }
        for reference in view.references().map_err(words)?.flatten() {
            if let Some(id) = reference.target() {
                held.add_if_there(&view, &id.to_string())?;
            }
        }
    }

    let remote = remote_commits(vault)?;
    let new = new_commits(&view, &held.commits, &remote).map_err(|error| error.to_string())?;
    // One that another leads to is held by it.
    let mut below = HashSet::new();
    for id in &new {
        below.extend(view.find_commit(*id).map_err(words)?.parent_ids());
    }
    let mut parents: BTreeSet<Oid> = new
        .iter()
        .copied()
        .filter(|id| held.commits.contains(id) && !below.contains(id))
        .collect();
    // What is on the remote is named, so that a bundle says what it needs.
    for id in [
        Some(&record.base),
        Some(&record.commit),
        head_commit.as_ref(),
    ]
    .into_iter()
    .flatten()
    .chain(tips.branch_tips.values())
    {
        parents.insert(oid(id)?);
    }
    let refs = write_knot(&private.knot(), &parents, &held)?;
    Ok(Pins {
        refs,
        objects: held.all().map(|id| id.to_string()).collect(),
        remote: remote.iter().map(ToString::to_string).collect(),
        commits: new.len() as u64,
        head_commit,
        branches: tips.branch_tips,
        stash,
    })
}

/// Objects that have to be held, by kind.
#[derive(Default)]
struct Held {
    commits: BTreeSet<Oid>,
    trees: BTreeSet<Oid>,
    blobs: BTreeSet<Oid>,
    tags: BTreeSet<Oid>,
}

impl Held {
    fn require(&mut self, view: &Repository, id: &str) -> Result<(), String> {
        if self.add_if_there(view, id)? || [EMPTY_BLOB, EMPTY_TREE].contains(&id) {
            return Ok(());
        }
        Err(format!("object {id} is missing"))
    }

    fn add_if_there(&mut self, view: &Repository, id: &str) -> Result<bool, String> {
        let id = oid(id)?;
        let kind = match view.odb().and_then(|odb| odb.read_header(id)) {
            Ok((_, kind)) => kind,
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(false),
            Err(error) => return Err(words(error)),
        };
        match kind {
            ObjectType::Commit => self.commits.insert(id),
            ObjectType::Tree => self.trees.insert(id),
            ObjectType::Blob => self.blobs.insert(id),
            ObjectType::Tag => {
                let of = view.find_tag(id).map_err(words)?.target_id();
                self.tags.insert(id);
                return self.add_if_there(view, &of.to_string());
            }
            ObjectType::Any => return Err(format!("object {id} is of no kind")),
        };
        Ok(true)
    }

    fn all(&self) -> impl Iterator<Item = &Oid> {
        self.commits
            .iter()
            .chain(&self.trees)
            .chain(&self.blobs)
            .chain(&self.tags)
    }
}

/// Every object id that stands in a file of a checkout's own git directory, but
/// for its index, its objects, and the repositories of submodules.
fn state_ids(admin: &Path) -> Result<BTreeSet<String>, String> {
    let mut ids = BTreeSet::new();
    let mut places = vec![];
    for entry in fs::read_dir(admin).map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !matches!(name.as_ref(), "objects" | "modules" | "index" | "hooks")
            && !name.starts_with("sharedindex.")
        {
            places.push(entry);
        }
    }
    for place in places {
        let is_dir = place.file_type().is_ok_and(|kind| kind.is_dir());
        let files = if is_dir {
            logs_below(&place.path()).map_err(|error| error.to_string())?
        } else {
            vec![place.path()]
        };
        for file in files {
            // Links and the like are told by the gate, or hold no ids.
            let is_file = fs::symlink_metadata(&file).is_ok_and(|stat| stat.is_file());
            if is_file
                && let Some(bytes) =
                    read_if_present(&file, LARGE_BYTES_MAX).map_err(|error| error.to_string())?
            {
                ids.extend(ids_in(&bytes));
            }
        }
    }
    Ok(ids)
}

/// Returns the full object ids that stand in a text.
fn ids_in(text: &[u8]) -> impl Iterator<Item = String> {
    text.split(|byte| !byte.is_ascii_hexdigit())
        .filter(|word| word.len() == 40 && word.iter().any(|byte| *byte != b'0'))
        .filter_map(|word| std::str::from_utf8(word).ok())
        .map(str::to_ascii_lowercase)
        .collect::<BTreeSet<_>>()
        .into_iter()
}

/// The ids of all stages of the index that HEAD's tree does not have.
fn index_ids(
    view: &Repository,
    private: &Private,
    head: Option<&str>,
) -> Result<BTreeSet<String>, String> {
    let mut known = HashSet::new();
    if let Some(head) = head {
        let commit = view.find_commit(oid(head)?).map_err(words)?;
        let mut trees = vec![commit.tree_id()];
        while let Some(id) = trees.pop() {
            if known.insert(id) {
                for entry in &view.find_tree(id).map_err(words)? {
                    if entry.kind() == Some(ObjectType::Tree) {
                        trees.push(entry.id());
                    } else {
                        known.insert(entry.id());
                    }
                }
            }
        }
    }
    let mut ids = BTreeSet::new();
    for entry in private.entries.iter().filter(|one| !one.is_submodule()) {
        if !known.contains(&oid(&entry.id)?) {
            ids.insert(entry.id.clone());
        }
    }
    Ok(ids)
}

/// The ids in the indexes of a clone's own worktrees: those stand inside of it,
/// and have no objects but the clone's.
fn worktree_index_ids(common: &Path) -> Result<BTreeSet<String>, String> {
    let mut ids = BTreeSet::new();
    let worktrees = common.join("worktrees");
    for name in names_in(&worktrees) {
        let admin = worktrees.join(name);
        for file in fs::read_dir(&admin).map_err(|error| error.to_string())? {
            let file = file.map_err(|error| error.to_string())?;
            let name = file.file_name();
            let name = name.to_string_lossy();
            if name != "index" && !name.starts_with("sharedindex.") {
                continue;
            }
            let bytes = read_if_present(&file.path(), LARGE_BYTES_MAX)
                .map_err(|error| error.to_string())?
                .unwrap_or_default();
            let index = parse_index(&bytes, ID_BYTES).map_err(|error| error.to_string())?;
            let entries = index.entries.into_iter();
            ids.extend(entries.filter(|one| !one.is_submodule()).map(|one| one.id));
        }
    }
    Ok(ids)
}

fn remote_commits(vault: &Path) -> Result<BTreeSet<Oid>, String> {
    let vault = Repository::open_bare(vault).map_err(words)?;
    let mut ids = BTreeSet::new();
    for glob in ON_REMOTE {
        for reference in vault.references_glob(glob).map_err(words)? {
            if let Ok(commit) = reference.map_err(words)?.peel_to_commit() {
                ids.insert(commit.id());
            }
        }
    }
    Ok(ids)
}

/// Makes a repository with the tying commit and the refs that are bundled.
fn write_knot(
    dir: &Path,
    parents: &BTreeSet<Oid>,
    held: &Held,
) -> Result<BTreeMap<String, String>, String> {
    let io = |error: std::io::Error| error.to_string();
    for sub in ["objects/info", "objects/pack", "refs/knot", "info"] {
        fs::create_dir_all(dir.join(sub)).map_err(io)?;
    }
    fs::write(dir.join("config"), format!("{}sha1\n", ctl::CONFIG)).map_err(io)?;
    fs::write(dir.join("HEAD"), "ref: refs/knot/none\n").map_err(io)?;

    let mut entries: Vec<(String, &str, &Oid)> = Vec::new();
    entries.extend(held.blobs.iter().map(|id| (id.to_string(), "100644", id)));
    entries.extend(held.trees.iter().map(|id| (id.to_string(), "40000", id)));
    entries.sort();
    let mut tree = Vec::new();
    for (name, mode, id) in entries {
        tree.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        tree.extend_from_slice(id.as_bytes());
    }
    // Opened bare of what it ties: written as bytes, so that nothing looks for it.
    let knot = Repository::open_bare(dir).map_err(words)?;
    let odb = knot.odb().map_err(words)?;
    let tree = odb.write(ObjectType::Tree, &tree).map_err(words)?;
    let mut text = format!("tree {tree}\n");
    for parent in parents {
        text.push_str(&format!("parent {parent}\n"));
    }
    let who = "Innkeeper <innkeeper@localhost> 0 +0000";
    text.push_str(&format!(
        "author {who}\ncommitter {who}\n\nEverything that an archive holds.\n"
    ));
    let all = odb
        .write(ObjectType::Commit, text.as_bytes())
        .map_err(words)?;
    let mut refs = BTreeMap::from([("all".to_owned(), all.to_string())]);
    for tag in &held.tags {
        refs.insert(format!("tag-{tag}"), tag.to_string());
    }
    for (name, id) in &refs {
        fs::write(dir.join("refs/knot").join(name), format!("{id}\n")).map_err(io)?;
    }
    Ok(refs)
}

fn oid(id: &str) -> Result<Oid, String> {
    Oid::from_str(id).map_err(words)
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` hands it over
fn words(error: git2::Error) -> String {
    error.message().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_wherever_they_stand_in_a_text() {
        let (a, b) = ("a".repeat(40), "0123456789abcdef0123456789ABCDEF01234567");
        let text = format!(
            "pick {a} subject\n{b}\nbadcafe {}\n{a}f {}",
            "0".repeat(40),
            &a[1..]
        );
        let found: Vec<String> = ids_in(text.as_bytes()).collect();
        assert_eq!(found, [b.to_ascii_lowercase(), a]);
    }
}
