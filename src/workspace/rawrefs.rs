//! Refs as they stand in files, read also where git refuses to.
//!
//! One ref that was cut short makes git and libgit2 fail at every listing. Here
//! each is read for itself, so that the others are had all the same.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use git2::Oid;

use super::WorkspaceError;
use super::vault;

/// What a ref says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// An object.
    Id(Oid),
    /// Another ref.
    Symbolic(Vec<u8>),
    /// Nothing that git would take; what the packed refs say of the same name.
    Broken(Option<Oid>),
}

/// All refs of a git directory by their full name.
#[derive(Clone, Debug, Default)]
pub(super) struct RawRefs {
    /// The refs.
    pub(super) refs: BTreeMap<Vec<u8>, Value>,
    /// Whether a line of the packed refs could not be understood.
    pub(super) packed_is_broken: bool,
}

impl RawRefs {
    /// Reads the refs below `dir/refs` and in `dir/packed-refs`. Blocking.
    ///
    /// # Errors
    ///
    /// If a directory cannot be listed, or the packed refs cannot be read.
    pub(super) fn read(dir: &Path) -> Result<Self, WorkspaceError> {
        let mut found = Self::default();
        let packed = dir.join("packed-refs");
        match fs::read(&packed) {
            Ok(bytes) => found.packed(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(WorkspaceError::io("read", &packed, &error)),
        }
        found.loose(&dir.join("refs"), b"refs")?;
        Ok(found)
    }

    /// Reads the refs below `refs`, wherever that directory is now. Blocking.
    ///
    /// # Errors
    ///
    /// If a directory cannot be listed.
    pub(super) fn below(refs: &Path) -> Result<Self, WorkspaceError> {
        let mut found = Self::default();
        found.loose(refs, b"refs")?;
        Ok(found)
    }

    /// Reads the loose refs of agents: their branches, and the stash. Blocking.
    ///
    /// # Errors
    ///
    /// If a directory cannot be listed.
    pub(super) fn of_agents(dir: &Path) -> Result<Self, WorkspaceError> {
        let mut found = Self::default();
        found.loose(&dir.join("refs/heads"), b"refs/heads")?;
        let stash = dir.join("refs/stash");
        if let Ok(bytes) = fs::read(&stash) {
            let value = parsed(&bytes).unwrap_or(Value::Broken(None));
            found.refs.insert(b"refs/stash".to_vec(), value);
        }
        Ok(found)
    }

    /// Returns the refs of a `packed-refs` file.
    pub(super) fn of_packed(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        found.packed(bytes);
        found
    }

    /// Returns the names of the broken ones.
    pub(super) fn broken(&self) -> impl Iterator<Item = &[u8]> {
        self.refs
            .iter()
            .filter(|(_, value)| matches!(value, Value::Broken(_)))
            .map(|(name, _)| name.as_slice())
    }

    fn packed(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n') {
            if line.is_empty() || matches!(line[0], b'#' | b'^') {
                continue;
            }
            let parsed = line
                .get(..40)
                .and_then(|id| vault::parse_oid(std::str::from_utf8(id).ok()?).ok())
                .filter(|_| line.get(40) == Some(&b' ') && line.len() > 41);
            match parsed {
                Some(id) => {
                    self.refs.insert(line[41..].to_vec(), Value::Id(id));
                }
                None => self.packed_is_broken = true,
            }
        }
    }

    fn loose(&mut self, dir: &Path, prefix: &[u8]) -> Result<(), WorkspaceError> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(WorkspaceError::io("list", dir, &error)),
        };
        for entry in entries.flatten() {
            let base = entry.file_name().into_vec();
            let name = [prefix, b"/", &base].concat();
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                self.loose(&path, &name)?;
            } else if !base.ends_with(b".lock") {
                let value = match fs::read(&path) {
                    Ok(bytes) => parsed(&bytes),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(_) => None,
                };
                let before = match self.refs.get(&name) {
                    Some(Value::Id(id)) => Some(*id),
                    _ => None,
                };
                self.refs
                    .insert(name, value.unwrap_or(Value::Broken(before)));
            }
        }
        Ok(())
    }
}

/// What a loose ref's file says; none if git would not take it.
fn parsed(bytes: &[u8]) -> Option<Value> {
    if let Some(target) = bytes.strip_prefix(b"ref:") {
        let target = target.trim_ascii();
        return target
            .starts_with(b"refs/")
            .then(|| Value::Symbolic(target.to_vec()));
    }
    let text = std::str::from_utf8(bytes.get(..40)?).ok()?;
    let ends = bytes.get(40).is_none_or(u8::is_ascii_whitespace);
    ends.then(|| vault::parse_oid(text).ok().map(Value::Id))?
}

/// Returns the path of a ref, or of its reflog, below a directory; none for a
/// name that would lead out of it.
pub(super) fn path_below(dir: &Path, name: &[u8]) -> Option<PathBuf> {
    let inside = name.starts_with(b"refs/")
        && name
            .split(|byte| *byte == b'/')
            .all(|part| !part.is_empty() && part != b"." && part != b"..");
    inside.then(|| dir.join(std::ffi::OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ref_that_was_cut_short_hides_no_other() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let heads = dir.path().join("refs/heads");
        fs::create_dir_all(heads.join("deep")).expect("made");
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let put = |name: &str, text: &str| fs::write(heads.join(name), text).expect("written");
        put("good", &format!("{a}\n"));
        put("deep/er", &format!("{b}\n"));
        put("empty", "");
        put("short", &a[..20]);
        put("noise", &"\0".repeat(41));
        put("link", "ref: refs/heads/good\n");
        put("held.lock", "");
        fs::write(
            dir.path().join("packed-refs"),
            format!("# pack-refs with: peeled fully-peeled sorted \n{b} refs/heads/empty\n{b} refs/tags/t\n^{a}\nnoise\n"),
        )
        .expect("written");
        let found = RawRefs::read(dir.path()).expect("read");
        let id = |text: &str| Oid::from_str(text).expect("an id");
        let expected = [
            ("refs/heads/deep/er", Value::Id(id(&b))),
            ("refs/heads/empty", Value::Broken(Some(id(&b)))),
            ("refs/heads/good", Value::Id(id(&a))),
            (
                "refs/heads/link",
                Value::Symbolic(b"refs/heads/good".to_vec()),
            ),
            ("refs/heads/noise", Value::Broken(None)),
            ("refs/heads/short", Value::Broken(None)),
            ("refs/tags/t", Value::Id(id(&b))),
        ];
        let expected: BTreeMap<Vec<u8>, Value> = expected
            .into_iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value))
            .collect();
        assert_eq!(found.refs, expected);
        assert!(found.packed_is_broken);
        assert_eq!(found.broken().count(), 3);
    }

    #[test]
    fn no_name_leads_out() {
        let dir = Path::new("/x");
        assert!(path_below(dir, b"refs/../../y").is_none());
        assert!(path_below(dir, b"HEAD").is_none());
        assert_eq!(path_below(dir, b"refs/a"), Some("/x/refs/a".into()));
    }
}
