//! The event log: an append-only JSONL file that tells what happened and why.
//!
//! # What this module promises
//!
//! An event is born in the store, in the transaction of the transition that it
//! tells of. From there one task copies it, in order, into the file.
//!
//! 1. At every moment each event is in the store, or flushed to disk in the
//!    file: the store forgets only what was flushed before.
//! 2. Numbers in the file rise by one from line to line, across rotations,
//!    restarts and kills. Where that cannot be had, because a file was deleted
//!    or a database restored, it is said loudly and the log goes on.
//! 3. A line is whole or absent. What a kill left half-written is cut off at the
//!    next start and copied again.
//! 4. A full disk loses nothing: the events wait in the store.
//!
//! # On disk
//!
//! ```text
//! events.jsonl      being written, mode 0600
//! events.jsonl.1    the newest finished one; higher numbers are older
//! ```
//!
//! Lines are not flushed one by one, since the store still has them: flushing
//! comes before forgetting and before rotating.
//!
//! # What is not here
//!
//! Making events: [`crate::store::Tx::append`].

mod file;
mod reader;
mod rotation;
mod writer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use reader::{EventFilter, EventReader};

use crate::store::{Store, StoreError};

/// Where the log is, and how large it may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLogSettings {
    /// The file being written.
    pub path: PathBuf,
    /// It is rotated before it becomes larger.
    pub rotate_bytes: u64,
    /// How many finished files are kept.
    pub keep_files: u32,
    /// How long nothing happens before what was copied is flushed and the store
    /// forgets it, so that this does not compete with deliveries.
    pub settle: Duration,
}

impl EventLogSettings {
    /// Returns the settings with everything but the path at its default.
    pub fn at(path: PathBuf) -> Self {
        Self {
            path,
            rotate_bytes: 104_857_600,
            keep_files: 10,
            settle: Duration::from_secs(1),
        }
    }
}

/// How the file fitted the store when the log was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// Nothing is missing.
    Whole,
    /// The file ends at `file`, and the store had given numbers up to `store`
    /// only: it was replaced or restored. Numbering goes on after `file`.
    FileAhead {
        /// Last number in the file.
        file: u64,
        /// Last number that the store gave.
        store: u64,
    },
    /// The events from `first` to `last` are neither in the file nor in the store.
    Gap {
        /// First one missing.
        first: u64,
        /// Last one missing.
        last: u64,
    },
}

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EventLogError {
    /// The file or its directory; an operator has to look.
    #[error("the event log `{}` cannot be opened", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The store.
    #[error("the events that wait for the log cannot be read")]
    Store(#[from] StoreError),
}

/// The task that copies events. Dropping it stops copying at once, as a kill
/// would; nothing is lost by that.
pub struct EventLog {
    settings: Arc<Mutex<EventLogSettings>>,
    written: watch::Receiver<u64>,
    continuity: Continuity,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl EventLog {
    /// Opens the file, mends what a kill left, and starts copying.
    ///
    /// # Errors
    ///
    /// Returns [`EventLogError`] if the file cannot be written or the store not
    /// be read.
    pub async fn open(store: Store, settings: EventLogSettings) -> Result<Self, EventLogError> {
        let opened = writer::open(&store, &settings).await?;
        let continuity = opened.continuity;
        let settings = Arc::new(Mutex::new(settings));
        let stop = CancellationToken::new();
        let (newest, written) = watch::channel(opened.last);
        let copier = writer::Copier::new(store, Arc::clone(&settings), opened, newest);
        let task = tokio::spawn(copier.run(stop.clone()));
        Ok(Self {
            settings,
            written,
            continuity,
            stop,
            task: Some(task),
        })
    }

    /// Returns how the file fitted the store.
    pub fn continuity(&self) -> Continuity {
        self.continuity
    }

    /// Returns a watch on the number of the newest event in the file.
    pub fn written(&self) -> watch::Receiver<u64> {
        self.written.clone()
    }

    /// Rotates at another size, or keeps another number of files, from now on.
    pub fn set_rotation(&self, rotate_bytes: u64, keep_files: u32) {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        settings.rotate_bytes = rotate_bytes;
        settings.keep_files = keep_files;
    }

    /// Copies and flushes everything that is committed by now, then ends. What a
    /// failing disk does not take stays in the store for the next start.
    pub async fn close(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take()
            && task.await.is_err()
        {
            tracing::warn!("The event log's task ended in a panic.");
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
