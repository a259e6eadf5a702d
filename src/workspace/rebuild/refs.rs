//! Carrying refs from a damaged repository into a new one.
//!
//! A ref keeps what it says if that can be read. One that says nothing, or
//! names what is lost, gets the newest commit of its reflog that can be read,
//! else what the packed refs said, else what the vault knows of the remote's
//! branch of that name. One of which nothing can be read is told.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use git2::{Oid, Repository};

use super::swap;
use crate::files;
use crate::workspace::rawrefs::{RawRefs, Value, path_below};
use crate::workspace::{WorkspaceError, vault};

/// The file that remembers what was carried over, until all is done.
const CARRIED: &str = "carried-refs";

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Carried {
    /// Refs that are at an older commit than they were, or gone.
    pub(super) told: Vec<String>,
}

/// Writes the refs of `from` into `to`, a new repository that has the objects.
/// `reflogs` is where their logs are; `known` is what else is known of a ref.
/// Blocking.
pub(super) fn carry(
    from: &RawRefs,
    reflogs: &Path,
    to: &Path,
    known: &dyn Fn(&[u8]) -> Option<Oid>,
) -> Result<Carried, WorkspaceError> {
    let repository = vault::open(to)?;
    let mut carried = Carried::default();
    let mut packed = BTreeMap::new();
    for (name, value) in &from.refs {
        let (said, older) = match value {
            Value::Symbolic(target) => {
                write_symbolic(to, name, target)?;
                continue;
            }
            Value::Id(id) => (Some(*id), None),
            Value::Broken(older) => (None, *older),
        };
        let is_readable = |id: &Oid| repository.find_object(*id, None).is_ok();
        if let Some(id) = said.filter(is_readable) {
            packed.insert(name.clone(), id);
            continue;
        }
        let shown = String::from_utf8_lossy(name).into_owned();
        let logged = path_below(reflogs, name)
            .map(|log| logged(&log))
            .unwrap_or_default();
        let found = logged
            .into_iter()
            .rev()
            .chain(older)
            .chain(known(name))
            .find(is_readable);
        match found {
            Some(id) => {
                carried.told.push(format!("{shown} is at {id} now"));
                packed.insert(name.clone(), id);
            }
            None => carried.told.push(format!("{shown} is lost")),
        }
    }
    write_packed(&to.join("packed-refs"), &packed)?;
    write_packed(&to.join(CARRIED), &packed)?;
    Ok(carried)
}

/// Commits that a ref has been at, oldest first.
fn logged(log: &Path) -> Vec<Oid> {
    let bytes = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .lines()
        .filter_map(|line| vault::parse_oid(line.split(' ').nth(1)?).ok())
        .collect()
}

fn write_symbolic(to: &Path, name: &[u8], target: &[u8]) -> Result<(), WorkspaceError> {
    let Some(path) = path_below(to, name) else {
        return Ok(());
    };
    if let Some(parent) = path.parent() {
        files::create_dirs(parent)?;
    }
    Ok(files::create_new(
        &path,
        &[b"ref: ", target, b"\n"].concat(),
    )?)
}

pub(super) fn write_packed(
    path: &Path,
    refs: &BTreeMap<Vec<u8>, Oid>,
) -> Result<(), WorkspaceError> {
    let mut text = b"# pack-refs with: sorted \n".to_vec();
    for (name, id) in refs {
        text.extend_from_slice(format!("{id} ").as_bytes());
        text.extend_from_slice(name);
        text.push(b'\n');
    }
    Ok(files::atomic_write(path, &text, true)?)
}

/// Carries over what somebody's git changed between carrying and swapping: a
/// ref that nobody has moved since gets its newer value. Blocking.
pub(super) fn carry_late(aside: &Path, staged: &Path, view: &Path) -> Result<(), WorkspaceError> {
    let carried = as_ids(&fs::read(staged.join(CARRIED)).unwrap_or_default());
    let repository = vault::open(view)?;
    for (name, id) in late(aside)? {
        let before = carried.get(&name).copied();
        let Ok(text) = std::str::from_utf8(&name) else {
            continue;
        };
        if before == Some(id) || !is_valid(text) || repository.find_object(id, None).is_err() {
            continue;
        }
        if vault::tip(&repository, text)? == before {
            set(&repository, text, id)?;
        }
    }
    Ok(())
}

fn set(repository: &Repository, name: &str, id: Oid) -> Result<(), WorkspaceError> {
    repository.reference(name, id, true, "innkeeper: carried over")?;
    Ok(())
}

fn is_valid(name: &str) -> bool {
    git2::Reference::is_valid_name(name)
}

/// What the refs that were set aside say now.
fn late(aside: &Path) -> Result<BTreeMap<Vec<u8>, Oid>, WorkspaceError> {
    let mut found = BTreeMap::new();
    for packed in swap::set_aside(aside, "packed-refs") {
        found.extend(as_ids(&fs::read(packed).unwrap_or_default()));
    }
    for refs in swap::set_aside(aside, "refs") {
        for (name, value) in RawRefs::below(&refs)?.refs {
            if let Value::Id(id) = value {
                found.insert(name, id);
            }
        }
    }
    Ok(found)
}

fn as_ids(packed: &[u8]) -> BTreeMap<Vec<u8>, Oid> {
    RawRefs::of_packed(packed)
        .refs
        .into_iter()
        .filter_map(|(name, value)| match value {
            Value::Id(id) => Some((name, id)),
            Value::Symbolic(_) | Value::Broken(_) => None,
        })
        .collect()
}
