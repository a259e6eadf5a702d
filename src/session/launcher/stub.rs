//! What the command is before it is the command.
//!
//! A process whose pid is not yet on disk must not run the command, or a
//! launcher that is killed at that instant leaves something that nobody knows.
//! So the process is made first, waits until it is written down, and then
//! becomes the command, with the same pid and start time.
//!
//! Standard input is a socket to the launcher: one byte comes in and means go;
//! the errno of a failed exec goes out, or nothing, and then it closes.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The byte that means go.
pub(super) const GO: u8 = b'g';

/// What it exits with if it never becomes the command.
const NOT_STARTED: u8 = 127;

pub(super) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut go = [0];
    match std::io::stdin().read(&mut go) {
        Ok(1) if go == [GO] => {}
        _ => return ExitCode::from(NOT_STARTED),
    }
    let code = match become_command(arguments) {
        Ok(never) => match never {},
        Err(Failure::Unconnected) => return ExitCode::from(NOT_STARTED),
        Err(Failure::Exec(answer, error)) => {
            let errno = error.raw_os_error().unwrap_or(22);
            let _ = rustix::io::write(&answer, &errno.to_le_bytes());
            NOT_STARTED
        }
    };
    ExitCode::from(code)
}

enum Failure {
    Unconnected,
    Exec(std::os::fd::OwnedFd, std::io::Error),
}

fn become_command(
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<std::convert::Infallible, Failure> {
    // Closed by a successful exec, which is how the launcher learns of it.
    let answer = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(|_| Failure::Unconnected)?;
    let null = match File::open("/dev/null") {
        Ok(null) => null,
        Err(error) => return Err(Failure::Exec(answer, error)),
    };
    if let Err(error) = rustix::stdio::dup2_stdin(&null) {
        return Err(Failure::Exec(answer, error.into()));
    }
    let program = arguments.next().unwrap_or_default();
    #[allow(
        clippy::disallowed_methods,
        reason = "this process becomes the command; it starts no other"
    )]
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::Exec(answer, error))
}
