//! Who a process is, who belongs to it, and when it is gone, read from `/proc`.
//!
//! # What this module promises
//!
//! 1. A pid alone names nobody: it is given out again. A process is an
//!    [`Identity`], its pid with its start time and the kernel's boot id, and a
//!    signal goes only to the process whose identity was taken, never to a later
//!    holder of the same pid.
//! 2. A zombie is dead: it runs nothing and holds nothing.
//! 3. Processes of other users that cannot be read are not found by mark.
//!
//! Where the kernel has no pidfd (or a sandbox refuses it), waiting falls back
//! to looking at growing intervals, and signalling to a look right before it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The first and the longest wait between two looks where there is no pidfd.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Returns the kernel's boot id; empty where the kernel does not tell.
pub fn boot_id() -> &'static str {
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    BOOT_ID.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    })
}

/// One process, told apart from every other that has or will have its pid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: i32,
    /// Start time, in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start: u64,
    /// The kernel's boot id at that time.
    pub boot_id: String,
}

impl Identity {
    /// Returns the identity of the process that has `pid` now; none if there is none.
    pub fn of(pid: i32) -> Option<Self> {
        read(pid).map(|process| process.identity())
    }

    /// Returns the identity of this process.
    pub fn current() -> Option<Self> {
        Self::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Returns whether this very process still runs; a zombie does not.
    pub fn is_alive(&self) -> bool {
        self.look().is_some_and(|process| !process.is_zombie())
    }

    /// Returns what `/proc` says of this very process, also while it is a zombie.
    pub fn look(&self) -> Option<Process> {
        if self.boot_id != boot_id() {
            return None;
        }
        read(self.pid).filter(|process| process.start == self.start)
    }

    /// Sends `signal` to this very process; returns whether it was there to get it.
    pub fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid).filter(|pid| !pid.is_init()) else {
            return false;
        };
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            // The descriptor pins the process; the look after it proves which one.
            Ok(pidfd) => {
                self.is_alive() && rustix::process::pidfd_send_signal(pidfd, signal).is_ok()
            }
            Err(rustix::io::Errno::SRCH) => false,
            Err(_) => self.is_alive() && rustix::process::kill_process(pid, signal).is_ok(),
        }
    }

    /// Waits until this very process runs no more.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    pub async fn wait_gone(&self) {
        if let Some(pidfd) = self.pidfd()
            && let Ok(pidfd) = watch(pidfd)
            && pidfd.readable().await.is_ok()
        {
            return;
        }
        let (mut pause, longest) = LOOK_AGAIN;
        while self.is_alive() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Opens a descriptor that becomes readable when this very process ends.
    fn pidfd(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.is_alive().then_some(pidfd)
    }
}

#[allow(
    deprecated,
    reason = "its successor is an unsafe function, because of types whose descriptor may change; \
              an OwnedFd keeps the one it has, which is all that is asked"
)]
fn watch(pidfd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

/// A process as `/proc/<pid>/stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Name of the executable, at most 15 bytes of it.
    pub name: String,
    /// State letter: `R`, `S`, `D`, `T`, `Z`…
    pub state: char,
    /// Parent.
    pub parent: i32,
    /// Process group.
    pub group: i32,
    /// Session, in the kernel's sense.
    pub session: i32,
    /// Start time, in clock ticks since boot.
    pub start: u64,
}

impl Process {
    /// Returns who this is.
    pub fn identity(&self) -> Identity {
        Identity {
            pid: self.pid,
            start: self.start,
            boot_id: boot_id().to_owned(),
        }
    }

    /// Returns whether it has ended and only waits to be collected.
    pub const fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Returns the process that has `pid` now; none if there is none.
pub fn read(pid: i32) -> Option<Process> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses a line of `/proc/<pid>/stat`. The name stands in parentheses and may
/// itself hold spaces and parentheses, so the last closing one ends it.
fn parse_stat(line: &str) -> Option<Process> {
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    Some(Process {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        session: fields.next()?.parse().ok()?,
        start: fields.nth(15)?.parse().ok()?,
    })
}

/// Returns every process there is at the moment, zombies too.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(read)
        .collect()
}

/// Returns whether the process was started with `name=value` in its environment.
pub fn has_mark(process: &Process, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    fs::read(format!("/proc/{}/environ", process.pid)).is_ok_and(|environment| {
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    })
}

/// Returns those of `processes` that descend from `ancestor`, without itself.
pub fn descendants<'a>(processes: &'a [Process], ancestor: i32) -> Vec<&'a Process> {
    let mut children: BTreeMap<i32, Vec<&'a Process>> = BTreeMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut seen, mut found, mut next) = (BTreeSet::from([ancestor]), Vec::new(), vec![ancestor]);
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.pid) {
                next.push(child.pid);
                found.push(*child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_read_whole() {
        let line = "42 (a) (b c) S 1 40 39 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 777 9 9\n";
        let process = parse_stat(line).expect("a line of the kernel's form parses");
        assert_eq!(process.name, "a) (b c");
        assert_eq!(
            (process.parent, process.group, process.session),
            (1, 40, 39)
        );
        assert_eq!((process.pid, process.start), (42, 777));
    }

    #[test]
    fn a_pid_with_another_start_time_or_boot_is_somebody_else() {
        let me = Identity::current().expect("this process is in /proc");
        assert!(me.is_alive());
        let earlier = Identity {
            start: me.start.wrapping_sub(1),
            ..me.clone()
        };
        let other_boot = Identity {
            boot_id: "another".into(),
            ..me
        };
        for stranger in [earlier, other_boot] {
            assert!(!stranger.is_alive());
            assert!(
                !stranger.signal(Signal::KILL),
                "this process would have been killed"
            );
        }
    }

    #[test]
    fn descendants_are_found_through_any_number_of_parents() {
        let process = |pid, parent| Process {
            pid,
            name: String::new(),
            state: 'S',
            parent,
            group: pid,
            session: pid,
            start: 1,
        };
        let all = [process(2, 1), process(3, 2), process(4, 3), process(5, 1)];
        let mut found: Vec<i32> = descendants(&all, 2).iter().map(|p| p.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }

    #[tokio::test]
    async fn waiting_ends_when_the_process_ends_even_before_it_is_collected() {
        let mut child = tokio::process::Command::new("sleep")
            .arg("60")
            .kill_on_drop(true)
            .spawn()
            .expect("sleep starts");
        let pid = i32::try_from(child.id().expect("it runs")).expect("a pid fits");
        let identity = Identity::of(pid).expect("it is in /proc");
        assert!(identity.signal(Signal::KILL));
        tokio::time::timeout(Duration::from_secs(20), identity.wait_gone())
            .await
            .expect("a killed process is gone within seconds");
        assert!(!identity.is_alive());
        child.wait().await.expect("it can be collected");
    }
}
