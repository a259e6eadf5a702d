//! Ends a session with everything that it started.
//!
//! Belonging to a session is, each for itself enough:
//!
//! - being below one of its launchers in the process tree, which adopt what
//!   loses its parent, so that neither `setsid` nor `env -i` leads out;
//! - being in its command's process group;
//! - having its id in the environment, which also finds what outlived a launcher.
//!
//! A process that did all of it, with its launcher killed, cannot be told from
//! any other; if it works in the checkout, the removal gate finds it there.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, timeout, timeout_at};

use super::run_files::{Claim, RunFiles};
use super::runner::MARK;
use super::state::{RunState, observe};
use crate::clock;
use crate::process::tree::{self, Identity, Process, boot_id, has_mark};

/// How long a start that is under way may take before its launcher is killed.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// How long processes have to disappear after SIGKILL; only one that hangs in
/// the kernel needs longer.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// How long a launcher has to write the end down once all that it started is gone.
const LAUNCHER_PATIENCE: Duration = Duration::from_secs(5);

/// The first and the longest wait between two looks at what is left.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// What ending a session came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What its last run came to.
    pub state: RunState,
    /// What could not be ended; empty but for processes that hang in the kernel.
    pub remaining: Vec<Process>,
    /// Whether something had to be killed because it did not end when asked.
    pub was_killed: bool,
}

/// Ends the session whose last run has `files`: asks everything that belongs to
/// it to end (SIGTERM), kills after `grace` what has not, and looks again.
///
/// A run that nothing has started yet can never be started afterwards. It can be
/// called again at any time; on a session that is over it only looks.
///
/// # Cancel safety
///
/// Dropping the future leaves the session partly ended; call it again.
pub async fn end(files: &RunFiles, grace: Duration) -> Ended {
    forbid_start(files).await;
    let mut was_killed = false;
    let mut remaining = ask(files, grace).await;
    if !remaining.is_empty() {
        was_killed = true;
        remaining = kill(files).await;
    }
    if remaining.is_empty() {
        for launcher in launchers(files) {
            // A launcher that cannot write on a full disk goes on trying.
            drop(timeout(LAUNCHER_PATIENCE, launcher.wait_gone()).await);
        }
    }
    Ended {
        state: observe(files),
        remaining,
        was_killed,
    }
}

/// Makes sure that a command that does not run yet never will.
async fn forbid_start(files: &RunFiles) {
    if observe(files) == RunState::NotClaimed {
        let claim = Claim {
            launcher: None,
            child: None,
            claimed_at: clock::now_ms(),
        };
        // Without the directory no launcher can claim it either.
        drop(files.claim(&claim));
    }
    let deadline = Instant::now() + START_PATIENCE;
    let (mut pause, longest) = LOOK_AGAIN;
    while observe(files) == RunState::Starting {
        if Instant::now() >= deadline {
            for launcher in launchers(files) {
                launcher.signal(Signal::KILL);
                drop(timeout(KILL_PATIENCE, launcher.wait_gone()).await);
            }
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// Asks everything to end, newcomers too, until nothing is left or `grace` is over.
async fn ask(files: &RunFiles, grace: Duration) -> Vec<Process> {
    let deadline = Instant::now() + grace;
    let (mut pause, longest) = LOOK_AGAIN;
    let mut asked = BTreeSet::new();
    loop {
        let members = members(files).await;
        for member in &members {
            if asked.insert((member.pid, member.start)) {
                let identity = member.identity();
                identity.signal(Signal::TERM);
                // A stopped process hears nothing before it is continued.
                if matches!(member.state, 'T' | 't') {
                    identity.signal(Signal::CONT);
                }
            }
        }
        let Some(first) = members.first() else {
            return members;
        };
        if Instant::now() >= deadline {
            return members;
        }
        let until = (Instant::now() + pause).min(deadline);
        drop(timeout_at(until, first.identity().wait_gone()).await);
        pause = (pause * 2).min(longest);
    }
}

/// Kills everything, and again what was started meanwhile, and returns what is left.
async fn kill(files: &RunFiles) -> Vec<Process> {
    let deadline = Instant::now() + KILL_PATIENCE;
    loop {
        let members = members(files).await;
        for member in &members {
            member.identity().signal(Signal::KILL);
        }
        let Some(first) = members.first() else {
            return members;
        };
        if Instant::now() >= deadline {
            return members;
        }
        let until = Instant::now() + LOOK_AGAIN.0;
        drop(timeout_at(until, first.identity().wait_gone()).await);
    }
}

/// Returns the processes that belong to the session, without its launchers.
pub async fn members(files: &RunFiles) -> Vec<Process> {
    let files = files.clone();
    // Listing is not atomic: a parent that ends while its child is born behind
    // the reader's back hides both, but not twice.
    tokio::task::spawn_blocking(move || {
        let members = members_now(&files);
        if members.is_empty() {
            members_now(&files)
        } else {
            members
        }
    })
    .await
    .unwrap_or_default()
}

fn members_now(files: &RunFiles) -> Vec<Process> {
    let claims = claims(files);
    let all = tree::all();
    let me = Identity::current().map(|me| me.pid);
    let mut pids = BTreeSet::new();
    let mut launchers = BTreeSet::new();
    for claim in &claims {
        let Some(launcher) = &claim.launcher else {
            continue;
        };
        if launcher.boot_id != boot_id() {
            continue;
        }
        if launcher.is_alive() {
            launchers.insert(launcher.pid);
            pids.extend(tree::descendants(&all, launcher.pid).iter().map(|p| p.pid));
        }
        if let Some(child) = &claim.child {
            let is_in_group = |process: &&Process| {
                process.group == child.pid
                    && process.session == launcher.pid
                    && process.start >= child.start
            };
            pids.extend(all.iter().filter(is_in_group).map(|p| p.pid));
        }
    }
    all.into_iter()
        .filter(|process| {
            let is_protected = process.pid <= 1
                || Some(process.pid) == me
                || launchers.contains(&process.pid)
                || process.is_zombie();
            !is_protected
                && (pids.contains(&process.pid) || has_mark(process, MARK, files.session()))
        })
        .collect()
}

/// Returns the claims of every run up to this one.
fn claims(files: &RunFiles) -> Vec<Claim> {
    (1..=files.run())
        .filter_map(|run| RunFiles::new(files.directory(), files.session(), run).ok())
        .filter_map(|files| files.load_claim()?.ok())
        .collect()
}

fn launchers(files: &RunFiles) -> Vec<Identity> {
    claims(files)
        .into_iter()
        .filter_map(|claim| claim.launcher)
        .collect()
}
