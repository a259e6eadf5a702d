//! A lock that the kernel gives up when its holder ends, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// An exclusive lock on a file, which names the holder's process. Children do
/// not inherit it.
#[derive(Debug)]
pub struct LockFile {
    _file: File,
}

/// How long a lock may outlive its holder: a child that the holder was about to
/// start has it too until it becomes another program.
const OUTLIVES: Duration = Duration::from_secs(3);

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("`{}` is held by {}", path.display(), match pid { Some(pid) => format!("pid {pid}"), None => "another process".into() })]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Who, if the file says so.
        pid: Option<u32>,
    },
    /// The file could not be opened or locked.
    #[error("could not lock `{}`", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl LockFile {
    /// Takes the lock, without waiting for a holder that lives.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let failed = |source: io::Error| LockError::Io {
            path: path.to_owned(),
            source,
        };
        let since = Instant::now();
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(failed)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    let pid = holder.trim().parse().ok();
                    if pid.is_some_and(is_gone) && since.elapsed() < OUTLIVES {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    }
                    return Err(LockError::Held {
                        path: path.to_owned(),
                        pid,
                    });
                }
                Err(errno) => return Err(failed(errno.into())),
            }
            // Somebody may have unlinked the file between opening and locking:
            // then the next one would lock another file of that name.
            let locked = file.metadata().map_err(failed)?;
            let named = match std::fs::metadata(path) {
                Ok(named) => named,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            if (locked.dev(), locked.ino()) != (named.dev(), named.ino()) {
                continue;
            }
            file.set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| writeln!(file, "{}", std::process::id()))
                .map_err(failed)?;
            return Ok(Self { _file: file });
        }
    }
}

/// Whether there is no such process.
fn is_gone(pid: u32) -> bool {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_outlives_its_holder_for_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("lock");
        let mut gone = std::process::Command::new("/bin/true")
            .spawn()
            .expect("it starts");
        gone.wait().expect("it ended");
        std::fs::write(&path, format!("{}\n", gone.id())).expect("written");
        let child = File::open(&path).expect("opened");
        rustix::fs::flock(&child, FlockOperation::NonBlockingLockExclusive).expect("free");
        let taker = {
            let path = path.clone();
            std::thread::spawn(move || LockFile::acquire(&path))
        };
        // Long enough for the taker to find it held.
        std::thread::park_timeout(Duration::from_millis(50));
        drop(child);
        let taken = taker.join().expect("no panic").expect("waited for");
        LockFile::acquire(&path).expect_err("its holder lives");
        drop(taken);
    }

    #[test]
    fn a_second_taker_is_told_who_has_it_until_it_is_given_up() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("lock");
        let lock = LockFile::acquire(&path).expect("free");
        let error = LockFile::acquire(&path).expect_err("held");
        assert!(
            error
                .to_string()
                .contains(&format!("pid {}", std::process::id())),
            "{error}"
        );
        drop(lock);
        LockFile::acquire(&path).expect("free again");
    }

    #[test]
    fn a_child_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("lock");
        let lock = LockFile::acquire(&path).expect("free");
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        drop(lock);
        // A process that another test is just starting has it too for a moment.
        let since = Instant::now();
        let again = loop {
            match LockFile::acquire(&path) {
                Err(_) if since.elapsed() < Duration::from_secs(10) => {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                outcome => break outcome,
            }
        };
        child.kill().expect("it is ours");
        child.wait().expect("it ended");
        again.expect("free although the child lives");
    }
}
