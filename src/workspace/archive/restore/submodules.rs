//! Repositories of submodules: their configuration is made harmless, and where
//! they stand elsewhere than before, the two ends are made to find each other.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Loaded;
use super::unpack::set_directory;
use crate::files;
use crate::workspace::archive::manifest::{TREE, What};
use crate::workspace::probe::read::{SMALL_BYTES_MAX, read_if_present};
use crate::workspace::{WorkspaceError, shared};

/// Takes everything that runs out of the configurations below `modules`.
/// Blocking.
pub(super) fn tame(modules: &Path) -> Result<(), WorkspaceError> {
    for git_dir in repositories_below(modules) {
        let config = git_dir.join("config");
        let Some(text) = read_if_present(&config, SMALL_BYTES_MAX)? else {
            continue;
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let tamed = shared::tamed(&text);
        if tamed != text {
            files::atomic_write(&config, tamed.as_bytes(), false)?;
        }
        tame(&git_dir.join("modules"))?;
    }
    Ok(())
}

/// Points the `.git` files of submodules below `tree` at the repositories below
/// `git/modules`, and those back. Blocking.
pub(super) fn reconnect(loaded: &Loaded, tree: &Path, git: &Path) -> Result<(), WorkspaceError> {
    for entry in &loaded.entries {
        let Some(place) = entry
            .below(TREE)
            .and_then(|path| path.strip_suffix(b"/.git"))
        else {
            continue;
        };
        if !matches!(entry.what, What::File { .. }) {
            continue;
        }
        let place = Path::new(OsStr::from_bytes(place));
        let dot_git = tree.join(place).join(".git");
        let text = read_if_present(&dot_git, SMALL_BYTES_MAX)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let Some((_, name)) = text.trim_end().split_once("/modules/") else {
            continue;
        };
        let module = git.join("modules").join(name);
        if name.split('/').any(|part| matches!(part, "" | "." | "..")) || !module.is_dir() {
            continue;
        }
        let up = |path: &Path| "../".repeat(path.components().count());
        files::atomic_write(
            &dot_git,
            format!("gitdir: {}.git/modules/{name}\n", up(place)).as_bytes(),
            false,
        )?;
        let config = module.join("config");
        let mut text = fs::read_to_string(&config).unwrap_or_default();
        text.push_str(&format!(
            "[core]\n\tworktree = {}\n",
            crate::git::quoted(&format!("../../{}{}", up(Path::new(name)), place.display()))
        ));
        files::atomic_write(&config, text.as_bytes(), false)?;
        let above = entry.path.0.strip_suffix(b"/.git");
        if let Some(above) = loaded
            .entries
            .iter()
            .find(|one| Some(&*one.path.0) == above)
        {
            set_directory(&tree.join(place), above)?;
        }
    }
    Ok(())
}

/// Whether an entry is changed by [`reconnect`] or [`tame`].
pub(super) fn is_rewritten(path: &[u8]) -> bool {
    path.ends_with(b"/.git")
}

fn repositories_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        let names = crate::workspace::layout::names_in(&dir);
        if dir.join("HEAD").is_file() {
            found.push(dir);
        } else {
            waiting.extend(names.into_iter().map(|name| dir.join(name)));
        }
    }
    found
}
