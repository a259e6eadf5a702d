//! The small process that stands between the daemon and a session's command.
//!
//! The daemon starts `innkeeper session-launcher <spec.json>`, gives it the
//! command's environment on its standard input (a file would keep the secrets
//! in it), and reads one line of JSON from its standard output: what became of
//! the start. From then on the two share nothing but files, so the daemon may
//! end, be killed or be replaced while the command runs.
//!
//! # What is promised
//!
//! 1. Of any number of launchers for one run exactly one starts the command:
//!    the one that made `<id>.started`.
//! 2. The command's process is on disk before the command runs: it is born as a
//!    [`stub`] that waits for that and only then becomes the command. A launcher
//!    that dies before has started nothing.
//! 3. The command runs in the directory that was asked for or not at all: the
//!    directory is opened once, compared, and entered through that descriptor.
//! 4. How the command ended is in `<id>.exit` promptly, also while background
//!    processes of it keep its output open. A full disk only delays it.
//! 5. Output never blocks the command, whatever becomes of the log.
//!
//! The launcher leads a session of its own, so that neither a closing terminal
//! nor a signal to the daemon's group reaches it; it disregards the signals that
//! ask to end, for the command's group gets them from the daemon. It adopts what
//! the command leaves behind, so that everything the command ever started is
//! below it in the process tree, and ends when all of that has ended.

mod output;
mod stub;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::run_files::{Claim, End, EndRecord, RunFiles};
use crate::clock;
use crate::process::tree::{Identity, boot_id};

/// The hidden first argument that makes the binary a launcher.
pub const ARGUMENT: &str = "session-launcher";

/// The argument after it that makes it the command's stub.
const STUB_ARGUMENT: &str = "--exec";

/// How long `.exit` is tried to be written while the disk refuses it.
const EXIT_PATIENCE: Duration = Duration::from_hours(1);

/// How long output is still copied after every process of the command is gone:
/// only something that got the pipe by another way can hold it then.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(1);

/// What tells a directory apart from another at the same path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    /// Inode.
    pub inode: u64,
    /// Device; it may change with a reboot and is compared within one only.
    pub device: u64,
    /// The kernel's boot id when `device` was read.
    pub boot_id: String,
}

/// What the launcher is to start, as it stands in `<id>.spec.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StartSpec {
    /// The run's files.
    pub(super) files: RunFiles,
    /// Where the command runs.
    pub(super) directory: PathBuf,
    /// Which directory that has to be, if it is known.
    pub(super) identity: Option<DirectoryIdentity>,
    /// The command and its arguments.
    pub(super) command: Vec<String>,
    /// The longest log.
    pub(super) log_bytes: u64,
}

/// The one line that the launcher tells the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The command runs.
    Started,
    /// Another launcher has claimed the run.
    ClaimedElsewhere,
    /// The run is over; its command could not be started.
    NotStarted(String),
    /// Nothing was claimed.
    Refused(String),
}

/// Runs the launcher: `arguments` are those after [`ARGUMENT`].
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    match arguments.next() {
        Some(first) if first == STUB_ARGUMENT => stub::main(arguments),
        Some(spec) => supervise(Path::new(&spec)),
        None => ExitCode::from(2),
    }
}

fn supervise(spec: &Path) -> ExitCode {
    detach();
    let (spec, environment) = match read_orders(spec) {
        Ok(orders) => orders,
        Err(reason) => return refuse(reason),
    };
    let files = &spec.files;
    let mut claim = Claim {
        launcher: Identity::current(),
        child: None,
        claimed_at: clock::now_ms(),
    };
    match files.claim(&claim) {
        Ok(true) => {}
        Ok(false) => {
            report(&Report::ClaimedElsewhere);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            return refuse(format!(
                "could not write `{}`: {error}",
                files.started().display()
            ));
        }
    }
    match start(&spec, &environment, &mut claim) {
        Ok((child, copier)) => {
            report(&Report::Started);
            accompany(files, child, copier);
            ExitCode::SUCCESS
        }
        Err(reason) => {
            let record = end_record(End::Error(reason.clone()));
            let is_written = files.record_end(&record).is_ok();
            report(&Report::NotStarted(reason));
            if !is_written {
                insist_on(files, &record);
            }
            ExitCode::FAILURE
        }
    }
}

/// Cuts every tie to whoever started this process but the two pipes.
///
/// Each step can only fail where there is nothing to cut or the kernel is older
/// than any that runs this; none is worth giving up a session for.
fn detach() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    // A handler, unlike an ignored signal, is not inherited by the command.
    let seen = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGHUP,
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGQUIT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGUSR1,
        signal_hook::consts::SIGUSR2,
    ] {
        drop(signal_hook::flag::register(signal, Arc::clone(&seen)));
    }
}

fn read_orders(path: &Path) -> Result<(StartSpec, BTreeMap<OsString, OsString>), String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("`{}`: {error}", path.display());
    let text = fs::read(path).map_err(|error| unreadable(&error))?;
    let spec: StartSpec = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
    let mut environment = Vec::new();
    io::stdin()
        .read_to_end(&mut environment)
        .map_err(|error| format!("could not read the environment: {error}"))?;
    let environment = decode_environment(&environment)
        .ok_or_else(|| "the environment came incomplete".to_owned())?;
    Ok((spec, environment))
}

/// Returns `environment` as it goes through the pipe: `name=value` and a NUL
/// each, and one NUL more, without which it is incomplete.
pub(super) fn encode_environment(environment: &BTreeMap<OsString, OsString>) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, value) in environment {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    text.push(0);
    text
}

fn decode_environment(text: &[u8]) -> Option<BTreeMap<OsString, OsString>> {
    let text = match text {
        [0] => return Some(BTreeMap::new()),
        _ => text.strip_suffix(&[0, 0])?,
    };
    text.split(|byte| *byte == 0)
        .map(|entry| {
            let equals = entry.iter().position(|byte| *byte == b'=')?;
            Some((
                OsString::from_vec(entry[..equals].to_vec()),
                OsString::from_vec(entry[equals + 1..].to_vec()),
            ))
        })
        .collect()
}

/// Starts the command and returns its process and what copies its output.
fn start(
    spec: &StartSpec,
    environment: &BTreeMap<OsString, OsString>,
    claim: &mut Claim,
) -> Result<(Pid, output::Copier), String> {
    let directory = open_directory(spec)?;
    let plumbing = |error: io::Error| format!("could not prepare the command's start: {error}");
    let (output, input) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| plumbing(error.into()))?;
    let copier = output::Copier::start(output, &spec.files.log(), spec.log_bytes)
        .map_err(|error| format!("could not open the session's log: {error}"))?;
    let (mut channel, stub_channel) = UnixStream::pair().map_err(plumbing)?;

    let child = {
        #[allow(
            clippy::disallowed_methods,
            reason = "the launcher hosts the command itself; it has no runtime"
        )]
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("innkeeper")
            .arg(ARGUMENT)
            .arg(STUB_ARGUMENT)
            .args(&spec.command)
            .env_clear()
            .envs(environment)
            .current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(stub_channel)))
            .stdout(Stdio::from(input.try_clone().map_err(plumbing)?))
            .stderr(Stdio::from(input));
        command
            .spawn()
            .map_err(|error| cannot_start(spec, &error))?
    };
    let pid = Pid::from_child(&child);
    drop(directory);

    claim.child = Identity::of(pid.as_raw_nonzero().get());
    if let Err(error) = spec.files.record_started(claim) {
        // The stub sees the channel close and becomes nothing.
        return Err(format!(
            "could not write `{}`: {error}",
            spec.files.started().display()
        ));
    }
    channel.write_all(&[stub::GO]).map_err(plumbing)?;
    let mut errno = [0; 4];
    if channel.read_exact(&mut errno).is_ok() {
        let error = io::Error::from_raw_os_error(i32::from_le_bytes(errno));
        return Err(cannot_start(spec, &error));
    }
    // The successful exec has closed it.
    Ok((pid, copier))
}

fn cannot_start(spec: &StartSpec, error: &io::Error) -> String {
    let program = spec.command.first().map_or("", String::as_str);
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "the command `{program}` cannot be started: there is no such program on the session's \
             PATH, or the interpreter that it names is missing"
        ),
        // The search goes on after a refusal, and tells of it if it finds nothing.
        io::ErrorKind::PermissionDenied if !program.contains('/') => format!(
            "the command `{program}` cannot be started: {error}; either that program may not be \
             executed, or it was not found and a directory of the session's PATH may not be searched"
        ),
        _ => format!("the command `{program}` cannot be started: {error}"),
    }
}

/// Opens the directory that the command is to run in, if it is the one.
fn open_directory(spec: &StartSpec) -> Result<OwnedFd, String> {
    let path = spec.directory.display();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(&spec.directory, flags, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        format!("the session's directory `{path}` cannot be entered: {error}")
    })?;
    let Some(expected) = &spec.identity else {
        return Ok(directory);
    };
    let found = rustix::fs::fstat(&directory)
        .map_err(|error| format!("`{path}`: {}", io::Error::from(error)))?;
    let is_same_device = expected.boot_id != boot_id() || expected.device == found.st_dev;
    if expected.inode != found.st_ino || !is_same_device {
        return Err(format!(
            "the session's directory `{path}` is not the one that was prepared: something else \
             stands in its place"
        ));
    }
    Ok(directory)
}

/// Stays until everything that the command started has ended.
fn accompany(files: &RunFiles, command: Pid, copier: output::Copier) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                copier.drain();
                insist_on(files, &end_record(end_of(status)));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    copier.finish(OUTPUT_PATIENCE);
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => End::Signal(signal),
        (code, None) => End::Code(code.unwrap_or(-1)),
    }
}

fn end_record(end: End) -> EndRecord {
    EndRecord {
        end,
        ended_at: clock::now_ms(),
    }
}

/// Writes `.exit`, again and again while the disk refuses it.
fn insist_on(files: &RunFiles, record: &EndRecord) {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    while let Err(error) = files.record_end(record) {
        let is_hopeless = matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        );
        if is_hopeless || begun.elapsed() > EXIT_PATIENCE {
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

fn refuse(reason: String) -> ExitCode {
    report(&Report::Refused(reason));
    ExitCode::FAILURE
}

/// Tells the daemon, if it is still there, and lets go of both pipes to it.
fn report(report: &Report) {
    let mut line = serde_json::to_vec(report).expect("a plain enum serialises");
    line.push(b'\n');
    let mut stdout = io::stdout();
    drop(stdout.write_all(&line).and_then(|()| stdout.flush()));
    if let Ok(null) = File::options()
        .read(true)
        .write(true)
        .open(OsStr::new("/dev/null"))
    {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_that_is_cut_anywhere_is_not_taken() {
        let environment: BTreeMap<OsString, OsString> = [
            ("A", ""),
            ("EQUALS", "a=b"),
            ("LINES", "one\ntwo"),
            ("Z", "z"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        let text = encode_environment(&environment);
        for end in 0..text.len() {
            assert_eq!(
                decode_environment(&text[..end]),
                None,
                "cut after {end} bytes"
            );
        }
        assert_eq!(decode_environment(&text), Some(environment));
        assert_eq!(
            decode_environment(&encode_environment(&BTreeMap::new())),
            Some(BTreeMap::new())
        );
    }
}
