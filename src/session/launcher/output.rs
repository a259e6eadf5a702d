//! Copies a command's output into the session's log, and never lets it wait.
//!
//! The log is appended to, up to a bound for the whole file; at the bound one
//! line says so and the rest is read and dropped. What cannot be written, on a
//! full disk for instance, is dropped too.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// How much is read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// What is copied at most between the command's end and the word that it ended,
/// more than a pipe can hold: a background process may go on writing.
const DRAIN_BYTES: usize = 2 << 20;

/// The longest that the word of the command's end waits for its last output.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// A thread that copies until the last writer has closed the pipe.
pub(super) struct Copier {
    ended: OwnedFd,
    drained: Receiver<()>,
}

impl Copier {
    pub(super) fn start(output: OwnedFd, log: &Path, bound: u64) -> io::Result<Self> {
        let mut log = Log::open(log, bound)?;
        let (wake, ended) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (tell, drained) = channel();
        std::thread::Builder::new()
            .name("output".into())
            .stack_size(256 << 10)
            .spawn(move || {
                // Nobody may be waiting for it any more.
                copy(&output, &wake, &mut log, &|| {
                    tell.send(()).unwrap_or_default();
                });
            })?;
        Ok(Self { ended, drained })
    }

    /// Returns when everything is in the log that the command, which has ended,
    /// wrote.
    pub(super) fn drain(&self) {
        let _ = rustix::io::write(&self.ended, &[1]);
        let _ = self.drained.recv_timeout(DRAIN_PATIENCE);
    }

    /// Returns when the pipe is closed, at the latest after `patience`.
    pub(super) fn finish(self, patience: Duration) {
        while !matches!(
            self.drained.recv_timeout(patience),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout)
        ) {}
    }
}

fn copy(output: &OwnedFd, wake: &OwnedFd, log: &mut Log, tell_drained: &dyn Fn()) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut is_told, mut since_end) = (false, 0);
    loop {
        let mut watched = [
            PollFd::new(output, PollFlags::IN),
            PollFd::new(wake, PollFlags::IN),
        ];
        let count = if is_told { 1 } else { 2 };
        match poll(&mut watched[..count], None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let (has_output, has_ended) = (
            !watched[0].revents().is_empty(),
            !is_told && watched[1].revents().contains(PollFlags::IN),
        );
        if has_output {
            match rustix::io::read(output, &mut chunk) {
                Ok(0) => return,
                Ok(length) => {
                    log.append(&chunk[..length]);
                    since_end += if has_ended { length } else { 0 };
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
        if has_ended && (!has_output || since_end > DRAIN_BYTES) {
            tell_drained();
            is_told = true;
        }
    }
}

/// A file that grows up to a bound.
struct Log {
    file: File,
    length: u64,
    bound: u64,
}

impl Log {
    fn open(path: &Path, bound: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            length,
            bound,
        })
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = self.bound.saturating_sub(self.length);
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        // Nobody can be told that a log cannot be written.
        self.length += self.write(&bytes[..fits]);
        // Beyond the bound means that the line is there already.
        if fits < bytes.len() && self.length == self.bound {
            let line = format!(
                "\n[innkeeper: this log has reached {} bytes; what follows is not kept]\n",
                self.bound
            );
            self.length += self.write(line.as_bytes());
        }
    }

    /// Returns how much could be written.
    fn write(&mut self, mut bytes: &[u8]) -> u64 {
        let mut written = 0;
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    written += length as u64;
                    bytes = &bytes[length..];
                }
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_bound_one_line_says_so_and_later_output_is_dropped() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("log");
        for _ in 0..2 {
            let mut log = Log::open(&path, 100).expect("opens");
            for _ in 0..50 {
                log.append(b"0123456\n");
            }
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        assert_eq!(text.matches("[innkeeper:").count(), 1, "{text}");
        assert!(text.len() < 200, "{}", text.len());
        assert!(text.starts_with("0123456\n"));
    }

    #[test]
    fn a_log_that_exactly_fits_says_nothing_of_a_bound_until_more_comes() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("log");
        let mut log = Log::open(&path, 8).expect("opens");
        log.append(b"01234567");
        assert_eq!(std::fs::read(&path).expect("readable"), b"01234567");
        log.append(b"x");
        log.append(b"y");
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with("01234567\n[innkeeper:"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
