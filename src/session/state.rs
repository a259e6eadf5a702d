//! What a run is doing, told from its files and `/proc` alone, so that a daemon
//! that has just started knows as much as the one that launched it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::run_files::{Claim, End, RunFiles};
use crate::domain::log_event::ExitStatus;
use crate::process::tree::Identity;

/// The first and the longest wait between two looks at files that are about to change.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));

/// Where one run of a session is in its life.
///
/// ```text
/// NotClaimed ─► Starting ─► Running ─► Exited
///                  ├─► FailedToStart      └─► Lost
///                  └─► Lost
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Nothing has started it.
    NotClaimed,
    /// A launcher has claimed it; the command does not run yet.
    Starting,
    /// The command runs, or has ended and its launcher is about to say how.
    Running {
        /// The command's process.
        child: Identity,
    },
    /// The command ended.
    Exited {
        /// How.
        status: ExitStatus,
        /// When, milliseconds since 1970.
        ended_at: i64,
    },
    /// The command never ran and never will in this run, and why.
    FailedToStart(String),
    /// It was claimed, nothing of it runs, and nothing says how it ended.
    Lost,
}

impl RunState {
    /// Returns whether nothing more will happen to this run.
    pub const fn is_over(&self) -> bool {
        match self {
            Self::NotClaimed | Self::Starting | Self::Running { .. } => false,
            Self::Exited { .. } | Self::FailedToStart(_) | Self::Lost => true,
        }
    }
}

/// Returns what the run is doing. Reads a few small files; does not wait.
pub fn observe(files: &RunFiles) -> RunState {
    if let Some(over) = ended(files) {
        return over;
    }
    let claim = match files.load_claim() {
        None => return RunState::NotClaimed,
        Some(Err(_)) => return RunState::Lost,
        Some(Ok(claim)) => claim,
    };
    let Claim {
        launcher: Some(launcher),
        child,
        ..
    } = claim
    else {
        return RunState::FailedToStart("it was ended before its command was started".into());
    };
    let has_launcher = launcher.is_alive();
    match child {
        None if has_launcher => RunState::Starting,
        Some(child) if has_launcher || child.is_alive() => RunState::Running { child },
        // It may have been written between the two looks.
        _ => ended(files).unwrap_or(RunState::Lost),
    }
}

fn ended(files: &RunFiles) -> Option<RunState> {
    let record = files.load_end()?;
    let status = match record.end {
        End::Error(reason) => return Some(RunState::FailedToStart(reason)),
        End::Code(code) => ExitStatus::Code(code),
        End::Signal(signal) => ExitStatus::Signal(signal),
    };
    Some(RunState::Exited {
        status,
        ended_at: record.ended_at,
    })
}

/// Waits until the run is over, nothing has claimed it, or `cancel`, and returns
/// what it is doing then.
///
/// # Cancel safety
///
/// Nothing is lost by dropping the future.
pub async fn wait(files: &RunFiles, cancel: &CancellationToken) -> RunState {
    let (mut pause, longest) = LOOK_AGAIN;
    loop {
        let state = observe(files);
        let child = match &state {
            RunState::Running { child } if child.is_alive() => Some(child),
            RunState::Running { .. } | RunState::Starting => None,
            RunState::NotClaimed
            | RunState::Exited { .. }
            | RunState::FailedToStart(_)
            | RunState::Lost => return state,
        };
        let something = async {
            match child {
                Some(child) => child.wait_gone().await,
                None => tokio::time::sleep(pause).await,
            }
        };
        tokio::select! {
            () = something => {}
            () = cancel.cancelled() => return observe(files),
        }
        if child.is_none() {
            pause = (pause * 2).min(longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::run_files::EndRecord;

    fn files(dir: &tempfile::TempDir) -> RunFiles {
        RunFiles::new(dir.path(), "s", 1).expect("a plain id")
    }

    fn gone() -> Identity {
        let me = Identity::current().expect("this process is in /proc");
        Identity {
            start: me.start.wrapping_sub(1),
            ..me
        }
    }

    fn claim(launcher: Option<Identity>, child: Option<Identity>) -> Claim {
        Claim {
            launcher,
            child,
            claimed_at: 1,
        }
    }

    #[test]
    fn files_and_processes_together_tell_the_state() {
        let me = Identity::current().expect("this process is in /proc");
        let running = RunState::Running { child: me.clone() };
        let ended = RunState::FailedToStart("it was ended before its command was started".into());
        let table = [
            (claim(Some(me.clone()), None), RunState::Starting),
            (claim(Some(me.clone()), Some(me.clone())), running.clone()),
            (claim(Some(gone()), Some(me.clone())), running),
            (
                claim(Some(me), Some(gone())),
                RunState::Running { child: gone() },
            ),
            (claim(Some(gone()), None), RunState::Lost),
            (claim(Some(gone()), Some(gone())), RunState::Lost),
            (claim(None, None), ended),
        ];
        for (claim, expected) in table {
            let dir = tempfile::tempdir().expect("a temporary directory can be made");
            let files = files(&dir);
            assert_eq!(observe(&files), RunState::NotClaimed);
            assert!(files.claim(&claim).expect("written"));
            assert_eq!(observe(&files), expected, "{claim:?}");
            let end = EndRecord {
                end: End::Code(3),
                ended_at: 9,
            };
            files.record_end(&end).expect("written");
            assert_eq!(
                observe(&files),
                RunState::Exited {
                    status: ExitStatus::Code(3),
                    ended_at: 9
                },
                "an exit file outweighs everything else"
            );
        }
    }

    #[test]
    fn a_claim_that_cannot_be_understood_is_never_started_again() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let files = files(&dir);
        std::fs::write(files.started(), b"").expect("written");
        assert_eq!(observe(&files), RunState::Lost);
        assert!(!files.claim(&claim(None, None)).expect("no error"));
    }
}
