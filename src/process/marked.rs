//! Ending what a daemon that was killed left running.
//!
//! A child does not end with its parent. Every git that the daemon starts
//! carries a mark in its environment, which its own children inherit; a daemon
//! that holds the lock of the workspace root, and has started nothing yet,
//! knows that whatever carries the root's mark is left over.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Ends every process whose environment holds exactly `name=value`, and waits
/// until each is gone. Returns how many there were.
///
/// Blocking. Processes of other users cannot be read and are not ours.
pub fn end_marked(name: &str, value: &Path, patience: Duration) -> usize {
    let mut mark = format!("{name}=").into_bytes();
    mark.extend_from_slice(value.as_os_str().as_bytes());
    let own = rustix::process::getpid();
    let since = Instant::now();
    let mut ended = Vec::new();
    loop {
        let found: Vec<Pid> = marked(&mark)
            .into_iter()
            .filter(|pid| *pid != own)
            .collect();
        if found.is_empty() {
            return ended.len();
        }
        let signal = if since.elapsed() < patience {
            Signal::TERM
        } else {
            Signal::KILL
        };
        for pid in found {
            let first = !ended.contains(&pid);
            if first {
                ended.push(pid);
            }
            if first || signal == Signal::KILL {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
        if since.elapsed() > patience * 2 + Duration::from_secs(2) {
            return ended.len();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes that live (a zombie has no environment) and carry the mark.
fn marked(mark: &[u8]) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            environment
                .split(|byte| *byte == 0)
                .any(|one| one == mark)
                .then_some(pid)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_carries_the_mark_is_ended() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let start = |value: &Path| {
            std::process::Command::new("/bin/sleep")
                .arg("60")
                .env("INNKEEPER_TEST_MARK", value)
                .spawn()
                .expect("sleep starts")
        };
        let mut ours = start(dir.path());
        let mut other = start(&dir.path().join("other"));
        let ended = std::thread::scope(|scope| {
            let ended = scope
                .spawn(|| end_marked("INNKEEPER_TEST_MARK", dir.path(), Duration::from_secs(5)));
            ours.wait().expect("it was ended");
            ended.join().expect("no panic")
        });
        assert_eq!(ended, 1);
        assert!(other.try_wait().expect("it can be asked").is_none());
        other.kill().expect("it is ours");
        other.wait().expect("it ended");
    }
}
