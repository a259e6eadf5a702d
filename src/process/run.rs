//! Running a child to its end.
//!
//! # Invariants
//!
//! 1. The child leads a process group of its own. At the deadline, and when the
//!    caller cancels or drops the future, the group gets SIGTERM, a grace, then
//!    SIGKILL. The group is signalled only while its leader has not been
//!    reaped, so its number cannot have been given to anybody else.
//! 2. What the child writes is read to the end, whatever the limits; only the
//!    first bytes are kept.
//! 3. A descendant that keeps our pipes open after the leader's end does not
//!    keep the caller: it gets the grace, then SIGKILL.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// What to run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program; with a slash in it, it is started without a search, and
    /// cheaply.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub dir: PathBuf,
    /// What it reads; none for `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// How many bytes of its output are kept.
    pub stdout_max: usize,
    /// How many bytes of its diagnostics are kept.
    pub stderr_max: usize,
    /// How long it may run.
    pub deadline: Duration,
    /// How long it has between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// The first bytes it wrote.
    pub stdout: Vec<u8>,
    /// The first bytes of its diagnostics.
    pub stderr: Vec<u8>,
    /// Whether either was longer than what was kept.
    pub truncated: bool,
}

/// Why there is no [`Output`].
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program could not be started: it is missing, or not executable.
    #[error("could not start `{}`", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The directory to run in is not there.
    #[error("could not enter `{}`", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ran past its deadline and was ended, with its whole group.
    #[error("took longer than {limit:?} and was ended")]
    TimedOut {
        /// The deadline.
        limit: Duration,
    },
    /// The caller cancelled; the whole group was ended.
    #[error("was cancelled")]
    Cancelled,
    /// The child could not be watched.
    #[error("could not watch the child process")]
    Watch {
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Runs a child to its end.
///
/// # Cancel safety
///
/// Dropping the future ends the child's group as cancelling does; the ending
/// goes on in the background.
pub async fn run(spec: Spec, cancel: &CancellationToken) -> Result<Output, RunError> {
    let stop = cancel.child_token();
    let _stop_when_dropped = stop.clone().drop_guard();
    match tokio::spawn(run_to_end(spec, stop)).await {
        Ok(outcome) => outcome,
        Err(panic_or_shutdown) => Err(RunError::Watch {
            source: io::Error::other(panic_or_shutdown),
        }),
    }
}

async fn run_to_end(spec: Spec, stop: CancellationToken) -> Result<Output, RunError> {
    if stop.is_cancelled() {
        return Err(RunError::Cancelled);
    }
    let mut group = Group::start(&spec)?;
    let stdin = group.child.stdin.take();
    let stdout = group.child.stdout.take();
    let stderr = group.child.stderr.take();
    let input = spec.stdin;
    let feed = tokio::spawn(async move {
        if let (Some(mut pipe), Some(bytes)) = (stdin, input) {
            // A child that does not want to read it all is no error of ours.
            let _ = pipe.write_all(&bytes).await;
        }
    });
    let out = tokio::spawn(keep_first(stdout, spec.stdout_max));
    let err = tokio::spawn(keep_first(stderr, spec.stderr_max));
    let deadline = tokio::time::sleep(spec.deadline);

    let ended = tokio::select! {
        biased;
        exited = group.exited() => exited.map(|()| None),
        () = stop.cancelled() => Ok(Some(RunError::Cancelled)),
        () = deadline => Ok(Some(RunError::TimedOut { limit: spec.deadline })),
    };
    match ended {
        Ok(None) => {}
        Ok(Some(early)) => {
            group.end(spec.grace).await;
            feed.abort();
            out.abort();
            err.abort();
            return Err(early);
        }
        Err(source) => {
            group.end(spec.grace).await;
            return Err(RunError::Watch { source });
        }
    }

    // The leader is gone but not reaped. If a signal took it, what it started
    // would live on; and whoever still holds its pipes gets the grace.
    if group.was_killed() {
        group.signal(Signal::KILL);
    }
    let mut read = std::pin::pin!(async { tokio::join!(out, err) });
    let (out, err) = tokio::select! {
        biased;
        read = &mut read => read,
        () = tokio::time::sleep(spec.grace) => {
            group.signal(Signal::KILL);
            read.await
        }
    };
    feed.abort();
    let status = group
        .reap()
        .await
        .map_err(|source| RunError::Watch { source })?;
    let (stdout, more_out) = out.unwrap_or_default();
    let (stderr, more_err) = err.unwrap_or_default();
    Ok(Output {
        status,
        stdout,
        stderr,
        truncated: more_out || more_err,
    })
}

/// Reads to the end, keeps the first `max` bytes, and says whether there was more.
async fn keep_first(pipe: Option<impl AsyncRead + Unpin>, max: usize) -> (Vec<u8>, bool) {
    let mut kept = Vec::new();
    let mut more = false;
    let Some(mut pipe) = pipe else {
        return (kept, more);
    };
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match pipe.read(&mut chunk).await {
            Ok(0) | Err(_) => return (kept, more),
            Ok(n) => {
                let room = max.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&chunk[..room]);
                more |= room < n;
            }
        }
    }
}

/// Watches a descriptor.
#[expect(
    deprecated,
    reason = "unsound only for types whose descriptor may change; an owned one cannot, and its successor is unsafe to call"
)]
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}

/// A process group whose leader has not been reaped.
struct Group {
    child: Child,
    leader: Pid,
    exited: AsyncFd<OwnedFd>,
    reaped: bool,
}

impl Group {
    fn start(spec: &Spec) -> Result<Self, RunError> {
        let piped = |wanted| {
            if wanted {
                Stdio::piped()
            } else {
                Stdio::null()
            }
        };
        let mut child = Command::new(&spec.program)
            .args(&spec.args)
            .env_clear()
            .envs(spec.env.iter().map(|(k, v)| (k, v)))
            .current_dir(&spec.dir)
            .stdin(piped(spec.stdin.is_some()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|source| {
                if spec.dir.is_dir() {
                    RunError::Start {
                        program: spec.program.clone(),
                        source,
                    }
                } else {
                    RunError::Directory {
                        dir: spec.dir.clone(),
                        source,
                    }
                }
            })?;
        let watched = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            .ok_or_else(|| io::Error::other("the child has no process id"))
            .and_then(|leader| {
                let fd = rustix::process::pidfd_open(leader, PidfdFlags::empty())?;
                Ok((leader, watch(fd)?))
            });
        match watched {
            Ok((leader, exited)) => Ok(Self {
                child,
                leader,
                exited,
                reaped: false,
            }),
            Err(source) => {
                let _ = child.start_kill();
                Err(RunError::Watch { source })
            }
        }
    }

    /// Waits until the leader has ended, without reaping it.
    async fn exited(&self) -> io::Result<()> {
        self.exited.readable().await.map(drop)
    }

    /// Returns whether a signal ended the leader, which is left unreaped.
    fn was_killed(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        rustix::process::waitid(WaitId::Pid(self.leader), look)
            .ok()
            .flatten()
            .is_some_and(|status| !status.exited())
    }

    fn signal(&self, signal: Signal) {
        debug_assert!(!self.reaped, "a reaped leader's number may be another's");
        let _ = rustix::process::kill_process_group(self.leader, signal);
    }

    /// Ends the whole group: SIGTERM, grace, SIGKILL; then reaps the leader.
    async fn end(mut self, grace: Duration) {
        self.signal(Signal::TERM);
        let _ = tokio::time::timeout(grace, self.exited()).await;
        self.signal(Signal::KILL);
        let _ = self.reap().await;
    }

    async fn reap(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.reaped = true;
        Ok(status)
    }
}

impl Drop for Group {
    /// Reached with a living leader only when the runtime itself goes away.
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(script: &str) -> Spec {
        Spec {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            dir: "/".into(),
            stdin: None,
            stdout_max: 1024,
            stderr_max: 1024,
            deadline: Duration::from_secs(20),
            grace: Duration::from_millis(200),
        }
    }

    fn is_alive(pid: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }

    async fn wait_until_gone(pid: &str) {
        let since = Instant::now();
        while is_alive(pid) {
            assert!(
                since.elapsed() < Duration::from_secs(10),
                "process {pid} lives on"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn output_status_and_stdin_come_through_and_nothing_is_inherited() {
        let mut spec = shell("cat; echo problem >&2; echo \"$HOME\"; exit 3");
        spec.stdin = Some(b"given ".to_vec());
        let output = run(spec, &CancellationToken::new()).await.expect("it runs");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, b"given \n");
        assert_eq!(output.stderr, b"problem\n");
        assert!(!output.truncated);
    }

    #[tokio::test]
    async fn more_output_than_is_kept_does_not_block_the_child() {
        let mut spec = shell("head -c 1000000 /dev/zero");
        spec.stdout_max = 10;
        let output = run(spec, &CancellationToken::new()).await.expect("it runs");
        assert!(output.status.success());
        assert_eq!(output.stdout.len(), 10);
        assert!(output.truncated);
    }

    #[tokio::test]
    async fn a_missing_program_and_a_missing_directory_are_told_apart() {
        let mut spec = shell("true");
        spec.program = "/nonexistent/program".into();
        let error = run(spec, &CancellationToken::new())
            .await
            .expect_err("no program");
        assert!(matches!(error, RunError::Start { .. }), "{error}");
        let mut spec = shell("true");
        spec.dir = "/nonexistent".into();
        let error = run(spec, &CancellationToken::new())
            .await
            .expect_err("no directory");
        assert!(matches!(error, RunError::Directory { .. }), "{error}");
    }

    #[tokio::test]
    async fn at_the_deadline_the_whole_group_is_ended_even_if_it_ignores_sigterm() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("pids");
        let script = format!(
            "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > {0}; sleep 60; sleep 60' & wait; sleep 60",
            file.display()
        );
        let mut spec = shell(&script);
        spec.deadline = Duration::from_millis(500);
        let error = run(spec, &CancellationToken::new())
            .await
            .expect_err("too long");
        assert!(matches!(error, RunError::TimedOut { .. }), "{error}");
        wait_until_gone(&std::fs::read_to_string(file).expect("the grandchild began")).await;
    }

    #[tokio::test]
    async fn cancelling_and_dropping_end_the_group() {
        for dropped in [false, true] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let file = dir.path().join("pid");
            let script = format!(
                "echo $$ > {0}.new; mv {0}.new {0}; sleep 60 & wait",
                file.display()
            );
            let cancel = CancellationToken::new();
            let running = tokio::spawn({
                let cancel = cancel.clone();
                async move { run(shell(&script), &cancel).await }
            });
            let since = Instant::now();
            while !file.exists() {
                assert!(
                    since.elapsed() < Duration::from_secs(10),
                    "the child never began"
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if dropped {
                running.abort();
            } else {
                cancel.cancel();
                let outcome = running.await.expect("no panic");
                assert!(matches!(outcome, Err(RunError::Cancelled)));
            }
            wait_until_gone(&std::fs::read_to_string(&file).expect("a pid")).await;
        }
    }

    #[tokio::test]
    async fn a_descendant_that_holds_the_pipes_does_not_hold_the_caller() {
        let since = Instant::now();
        let output = run(shell("sleep 60 & echo done"), &CancellationToken::new())
            .await
            .expect("it runs");
        assert_eq!(output.stdout, b"done\n");
        assert!(since.elapsed() < Duration::from_secs(30));
    }
}
