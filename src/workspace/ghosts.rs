//! Records of worktrees that somebody's killed git left half-made.
//!
//! One with an empty `commondir` makes every git in the shared clone fail, one
//! whose `HEAD` names a commit that is not there every fetch and gc, and one
//! that is `locked initializing` keeps its branch for ever; `git worktree prune`
//! clears none of them. One of these is set aside, whole, if it is not ours,
//! had time to be finished, and no directory points to it. Whatever else is
//! there is left alone: the daemon itself works through a view that has no
//! worktrees.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use git2::Repository;

use super::identity::{NONCE_FILE, read_line};
use super::layout::names_in;
use super::vault;

/// A foreign record is in the making for a moment; after this it is left over.
pub(super) const AGE: Duration = Duration::from_mins(1);

/// Returns the records that break others, are not ours, and are older than
/// `age`. `view` shows the shared clone's objects; without it what `HEAD` names
/// is not looked up. Blocking.
pub(super) fn half_made_records(
    shared: &Path,
    view: Option<&Repository>,
    age: Duration,
) -> Vec<PathBuf> {
    let worktrees = shared.join("worktrees");
    names_in(&worktrees)
        .into_iter()
        .map(|name| worktrees.join(name))
        .filter(|admin| !admin.join(NONCE_FILE).exists())
        .filter(|admin| is_half_made(admin, view))
        .filter(|admin| is_older(admin, age))
        .filter(|admin| !is_pointed_to(admin))
        .collect()
}

fn is_half_made(admin: &Path, view: Option<&Repository>) -> bool {
    let is_initializing =
        read_line(&admin.join("locked")).is_ok_and(|reason| reason == "initializing");
    has_no_commondir(admin) || is_initializing || has_dead_head(admin, view)
}

fn has_no_commondir(admin: &Path) -> bool {
    match fs::metadata(admin.join("commondir")) {
        Ok(stat) => stat.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether `HEAD` is missing, empty, or names a commit that is not there.
fn has_dead_head(admin: &Path, view: Option<&Repository>) -> bool {
    let path = admin.join("HEAD");
    let Ok(head) = read_line(&path) else {
        return fs::symlink_metadata(&path).is_err();
    };
    if head.starts_with("ref: ") {
        return false;
    }
    match (vault::parse_oid(&head), view) {
        (Ok(id), Some(view)) => view.find_commit(id).is_err(),
        (Ok(_), None) => false,
        // The null id, or nothing.
        (Err(_), _) => head.is_empty() || head.bytes().all(|byte| byte == b'0'),
    }
}

fn is_older(admin: &Path, age: Duration) -> bool {
    // Any of its files that was just written says that somebody is at it.
    let newest = fs::read_dir(admin)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.metadata().and_then(|stat| stat.modified()).ok())
        .chain(fs::symlink_metadata(admin).and_then(|stat| stat.modified()))
        .max();
    newest.is_some_and(|then| then.elapsed().is_ok_and(|passed| passed >= age))
}

/// Whether the directory that the record names has a `.git` that names the
/// record.
fn is_pointed_to(admin: &Path) -> bool {
    read_line(&admin.join("gitdir")).is_ok_and(|back| {
        read_line(Path::new(&back)).is_ok_and(|names| {
            names.strip_prefix("gitdir: ").is_some_and(|named| {
                Path::new(named) == admin
                    || fs::canonicalize(named).is_ok_and(|named| {
                        fs::canonicalize(admin).is_ok_and(|admin| admin == named)
                    })
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn record(shared: &Path, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let admin = shared.join("worktrees").join(name);
        fs::create_dir_all(&admin).expect("made");
        let usual = [
            ("commondir", "../..\n"),
            ("gitdir", "/nonexistent/.git\n"),
            ("HEAD", "ref: refs/heads/x\n"),
        ];
        for (file, text) in usual.iter().chain(files) {
            fs::write(admin.join(file), text).expect("written");
        }
        admin
    }

    fn age(admin: &Path) {
        let then = SystemTime::now() - Duration::from_mins(2);
        for entry in fs::read_dir(admin).expect("listed").flatten() {
            let file = fs::File::options().write(true).open(entry.path());
            file.and_then(|file| file.set_modified(then)).expect("set");
        }
        fs::File::open(admin)
            .and_then(|dir| dir.set_modified(then))
            .expect("set");
    }

    #[test]
    fn what_breaks_others_is_found_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let shared = dir.path();
        let checkout = shared.join("theirs");
        fs::create_dir(&checkout).expect("made");
        let zero = format!("{}\n", "0".repeat(40));
        let live = shared.join("worktrees/live");
        fs::write(
            checkout.join(".git"),
            format!("gitdir: {}\n", live.display()),
        )
        .expect("written");
        let back = format!("{}\n", checkout.join(".git").display());
        for (name, files) in [
            ("empty", vec![("commondir", "")]),
            ("null", vec![("HEAD", zero.as_str())]),
            ("nothing", vec![("HEAD", "")]),
            ("initializing", vec![("locked", "initializing\n")]),
            ("whole", vec![]),
            ("locked", vec![("locked", "on a disk\n")]),
            ("ours", vec![("HEAD", &zero), (NONCE_FILE, "n\n")]),
            ("live", vec![("HEAD", &zero), ("gitdir", &back)]),
        ] {
            age(&record(shared, name, &files));
        }
        record(shared, "young", &[("commondir", "")]);
        let mut found: Vec<String> = half_made_records(shared, None, AGE)
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        found.sort();
        assert_eq!(found, ["empty", "initializing", "nothing", "null"]);
    }
}
