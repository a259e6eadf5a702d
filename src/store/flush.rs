//! Flushing what was committed, beside the writer.
//!
//! SQLite's own `synchronous=FULL` flushes the write-ahead log within each
//! commit, and the writer waits for the disk. Here a commit only writes the log
//! (`synchronous=NORMAL`), this thread flushes it, and only then is anybody told
//! that the write is on disk. The writer prepares the next group meanwhile.
//!
//! What SQLite itself flushes stays: the log before it is moved into the
//! database, the database before the log begins again, and the log's header.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::StoreError;
use super::writer::{Answer, Message};

/// Pieces of work that were committed together.
pub(super) struct Committed {
    /// How to tell those who asked for them.
    pub(super) answers: Vec<Answer>,
    /// The number of the newest event that is in the database now.
    pub(super) newest: u64,
}

/// The thread, as the writer sees it.
pub(super) struct Flusher {
    groups: Sender<Committed>,
    thread: JoinHandle<()>,
}

impl Flusher {
    /// Starts the thread for the database at `path`, which must be open. It says
    /// [`Message::Flushed`] to `writer` after each group.
    pub(super) fn start(
        path: &Path,
        writer: Sender<Message>,
        newest: watch::Sender<u64>,
    ) -> io::Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log = File::open(Path::new(&log))?;
        let (groups, committed) = channel();
        let thread = std::thread::Builder::new()
            .name("store-flush".to_owned())
            .spawn(move || run(&log, &committed, &writer, &newest))?;
        Ok(Self { groups, thread })
    }

    /// Has a group flushed and answered.
    pub(super) fn flush(&self, group: Committed) {
        if let Err(unsent) = self.groups.send(group) {
            for answer in unsent.0.answers {
                answer(Err(StoreError::Closed));
            }
        }
    }

    /// Ends the thread after what it has.
    pub(super) fn finish(self) {
        drop(self.groups);
        if self.thread.join().is_err() {
            tracing::error!("The thread that flushes the state ended in a panic.");
        }
    }
}

fn run(
    log: &File,
    groups: &Receiver<Committed>,
    writer: &Sender<Message>,
    newest: &watch::Sender<u64>,
) {
    for group in groups {
        let flushed = log.sync_data();
        let failed = flushed.as_ref().err().map(ToString::to_string);
        if failed.is_none() {
            newest.send_if_modified(|known| {
                let is_newer = group.newest > *known;
                *known = group.newest;
                is_newer
            });
        }
        // First of all: the next group may be committed while these are told.
        let _writer_ended = writer.send(Message::Flushed(flushed));
        for answer in group.answers {
            answer(match &failed {
                None => Ok(()),
                Some(text) => Err(StoreError::NotCommitted(text.clone())),
            });
        }
    }
}
