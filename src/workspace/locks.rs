//! Lock files that a git left behind: found, and removed on proof.
//!
//! What is proof is decided in [`crate::domain::lock`]; here it is gathered.
//! The vault is written by the daemon's git only, under the writer's lock. In
//! the shared clone and in the records of our checkouts agents lock too: a lock
//! that is held is waited for, with a bound.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::WorkspaceError;
use super::identity::{NONCE_FILE, read_line};
use super::layout::names_in;
use crate::domain::code::FailureCode;
use crate::domain::lock::{self, LockFacts, LockKind};
use crate::process::inside::processes_inside;

/// How long a lock that somebody holds is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(20);

/// A lock that was removed, and why nobody held it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Where it was.
    pub path: PathBuf,
    /// The proof, in words.
    pub proof: String,
}

/// Removes the locks of a vault that nobody holds. Only under the writer's
/// lock, or before anything runs. Blocking.
pub fn sweep_vault(vault: &Path, started: SystemTime) -> Vec<Removed> {
    remove_proved(candidates(vault), started, |_| Some(false))
}

/// Removes the locks of a shared clone, and of our records in it, that nobody
/// holds. `checkouts` is where its checkouts stand. Blocking.
pub fn sweep_shared(shared: &Path, checkouts: &Path, started: SystemTime) -> Vec<Removed> {
    let mut found = candidates(shared);
    let worktrees = shared.join("worktrees");
    let mut places = vec![shared.to_owned(), checkouts.to_owned()];
    for name in names_in(&worktrees) {
        let admin = worktrees.join(&name);
        if admin.join(NONCE_FILE).exists() {
            found.extend(locks_in(&admin));
            found.extend(locks_below(&admin.join("refs")));
        } else if let Ok(back) = read_line(&admin.join("gitdir"))
            && let Some(dir) = Path::new(&back).parent()
        {
            places.push(dir.to_owned());
        }
    }
    remove_proved(found, started, |_| {
        let places: Vec<&Path> = places.iter().map(PathBuf::as_path).collect();
        let inside = processes_inside(&places, &[]).ok()?;
        Some(inside.iter().any(|one| one.name.starts_with("git")))
    })
}

/// Does something that a lock may stand in the way of: again as long as it is
/// held, at most for [`PATIENCE`]; then once more after `sweep`, which removes
/// what nobody holds. Blocking.
///
/// # Errors
///
/// `lock_timeout` if it is still held; any other failure at once.
pub(super) fn patiently<T>(
    sweep: impl FnOnce(),
    mut attempt: impl FnMut() -> Result<T, WorkspaceError>,
) -> Result<T, WorkspaceError> {
    let since = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_lock(&error) && since.elapsed() < PATIENCE => {
                std::thread::sleep(STEP);
            }
            Err(error) if is_lock(&error) => break,
            outcome => return outcome,
        }
    }
    sweep();
    attempt()
}

fn is_lock(error: &WorkspaceError) -> bool {
    error.code() == FailureCode::LockTimeout
}

/// Every lock of a git directory, but for those in records of worktrees.
fn candidates(dir: &Path) -> Vec<PathBuf> {
    let mut found = locks_in(dir);
    for sub in [
        "objects",
        "objects/info",
        "objects/info/commit-graphs",
        "objects/pack",
    ] {
        found.extend(locks_in(&dir.join(sub)));
    }
    found.extend(locks_below(&dir.join("refs")));
    found
}

fn locks_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        found.extend(locks_in(&dir));
        dirs.extend(names_in(&dir).into_iter().map(|name| dir.join(name)));
    }
    found
}

/// Locks right in a directory; links are none.
fn locks_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter(|entry| {
            let name = entry.file_name();
            LockKind::of(&name.to_string_lossy()).is_some()
        })
        .map(|entry| entry.path())
        .collect()
}

fn remove_proved(
    found: Vec<PathBuf>,
    started: SystemTime,
    git_inside: impl Fn(&[PathBuf]) -> Option<bool>,
) -> Vec<Removed> {
    if found.is_empty() {
        return Vec::new();
    }
    // Asked after the locks were found: who took one then is still there now.
    let git_inside = git_inside(&found);
    let mut removed = Vec::new();
    for path in found {
        let Some(facts) = facts(&path, started, git_inside) else {
            continue;
        };
        let Some(proof) = lock::proof(&facts) else {
            continue;
        };
        match fs::remove_file(&path) {
            Ok(()) => {
                tracing::warn!(path = %path.display(), proof, "A left-over lock was removed.");
                removed.push(Removed { path, proof });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "A left-over lock could not be removed.");
            }
        }
    }
    removed
}

fn facts(path: &Path, started: SystemTime, git_inside: Option<bool>) -> Option<LockFacts> {
    let kind = LockKind::of(&path.to_string_lossy())?;
    let then = fs::symlink_metadata(path)
        .and_then(|stat| stat.modified())
        .ok();
    Some(LockFacts {
        kind,
        age: then.and_then(|then| then.elapsed().ok()),
        before_start: then.is_some_and(|then| then < started),
        open: processes_inside(&[path], &[])
            .ok()
            .map(|found| !found.is_empty()),
        git_inside,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aged(path: &Path, age: Duration) {
        let file = fs::File::options().write(true).open(path).expect("opened");
        file.set_modified(SystemTime::now() - age).expect("set");
    }

    #[test]
    fn each_kind_goes_by_its_own_age_and_what_is_open_stays() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let top = fs::canonicalize(dir.path()).expect("a real path");
        let old = Duration::from_hours(2);
        let kinds = [
            ("index.lock", Duration::from_mins(5)),
            ("HEAD.lock", Duration::from_secs(30)),
            ("packed-refs.lock", Duration::from_secs(30)),
            ("config.lock", Duration::from_secs(30)),
            ("shallow.lock", Duration::from_mins(5)),
            ("refs/heads/a/b.lock", Duration::from_secs(30)),
            ("objects/info/commit-graph.lock", Duration::from_mins(5)),
            (
                "objects/info/commit-graphs/commit-graph-chain.lock",
                Duration::from_mins(5),
            ),
            ("objects/maintenance.lock", Duration::from_mins(30)),
        ];
        let start_long_ago = SystemTime::now() - Duration::from_hours(24);
        for (name, young) in kinds {
            let path = top.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(&path, "").expect("written");
            aged(&path, young);
        }
        assert_eq!(sweep_vault(&top, start_long_ago), []);
        for (name, _) in kinds {
            aged(&top.join(name), old);
        }
        let mut holder = std::process::Command::new("sh")
            .args(["-c", "exec 9<HEAD.lock; echo; read wait"])
            .current_dir(&top)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut line = String::new();
        io::BufRead::read_line(
            &mut io::BufReader::new(holder.stdout.take().expect("piped")),
            &mut line,
        )
        .expect("it holds the lock");
        let removed = sweep_vault(&top, start_long_ago);
        holder.kill().expect("it is ours");
        holder.wait().expect("it ended");
        assert_eq!(removed.len(), kinds.len() - 1, "{removed:?}");
        assert!(top.join("HEAD.lock").exists());
        // A new daemon needs no age.
        aged(&top.join("HEAD.lock"), Duration::ZERO);
        let now = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(sweep_vault(&top, now).len(), 1);
    }

    #[test]
    fn a_lock_that_is_given_up_in_time_is_waited_for_and_one_that_is_not_fails() {
        let held = || WorkspaceError::new(FailureCode::LockTimeout, "held");
        let mut left = 3;
        let done = patiently(
            || panic!("nothing is left over"),
            || {
                left -= 1;
                if left == 0 { Ok(7) } else { Err(held()) }
            },
        );
        assert_eq!(done.expect("given up"), 7);
        let mut swept = false;
        let since = Instant::now();
        let error = patiently(|| swept = true, || Err::<(), _>(held())).expect_err("held");
        assert_eq!(error.code(), FailureCode::LockTimeout);
        assert!(swept && since.elapsed() >= PATIENCE);
    }
}
