//! What the daemon knows, kept in SQLite: deliveries, items, checkouts,
//! sessions, and the events that wait to be copied into the event log.
//!
//! # What this module promises
//!
//! 1. A write that was answered with `Ok` is on disk.
//! 2. There is one writer: a thread that runs what has queued up, each piece in
//!    a savepoint of its own, and commits all of it together. A piece that fails
//!    takes nothing with it but itself.
//! 3. An event is stored in the transaction of the transition that it tells of;
//!    its sequence number has no gap, whatever is rolled back or killed.
//! 4. A work item is claimed before anything is done for it: owner, lease and a
//!    fencing epoch, which every later write of the claimant checks.
//!
//! # What is not here
//!
//! Decisions. The closures given to [`Store::write`] are written by the caller;
//! [`Tx`] only has the words they need.

mod breaker;
mod checkouts;
mod checkpoint;
mod deliveries;
mod error;
mod events;
mod flush;
mod items;
mod schema;
mod sessions;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{oneshot, watch};

pub use checkouts::CheckoutRow;
pub use deliveries::{Accepted, DeliveryFilter, DeliveryRow, DeliveryState, NewDelivery, Pending};
pub use error::StoreError;
pub use items::{Claim, ItemFilter, ItemRow, StoredFacts};
pub use sessions::{InputRow, SessionRow, SessionState};
pub use writer::Tx;

/// How many connections answer reads at once.
const READERS: usize = 4;

/// A handle to the database; cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    writer: writer::Handle,
    readers: Mutex<Vec<Connection>>,
    permits: tokio::sync::Semaphore,
}

/// What a read may ask; see the `impl` blocks beside each table.
pub struct Reader<'a> {
    pub(crate) connection: &'a Connection,
}

impl Store {
    /// Opens the database at `path`, makes or migrates its tables, and starts
    /// the writer. `node` stands in every event.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the file cannot be opened, is not ours, or was
    /// written by a newer version.
    pub fn open(path: &Path, node: &str) -> Result<Self, StoreError> {
        let mut connection = Connection::open(path)?;
        schema::prepare(&mut connection)?;
        let mut readers = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let reader = Connection::open_with_flags(
                path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            schema::prepare_reader(&reader)?;
            readers.push(reader);
        }
        checkpoint::start(path, &mut connection)?;
        let writer = writer::start(connection, path, node.to_owned())?;
        Ok(Self {
            inner: Arc::new(Inner {
                writer,
                readers: Mutex::new(readers),
                permits: tokio::sync::Semaphore::new(READERS),
            }),
        })
    }

    /// Runs `work` in the writer, and returns when it is on disk.
    ///
    /// # Errors
    ///
    /// Returns what `work` returned, or [`StoreError`] if it could not be
    /// committed; nothing of it is then stored.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not undo the write.
    pub async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.inner.writer.submit(work, answer)?;
        answered.await.map_err(|_gone| StoreError::Closed)?
    }

    /// Runs `question` on a connection of its own, off the async threads.
    ///
    /// # Errors
    ///
    /// Returns what `question` returned.
    pub async fn read<T, F>(&self, question: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let _permit = self
            .inner
            .permits
            .acquire()
            .await
            .map_err(|_closed| StoreError::Closed)?;
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || {
            let connection = inner.take_reader()?;
            let answer = question(&Reader {
                connection: &connection,
            });
            inner.put_reader(connection);
            answer
        })
        .await
        .map_err(|_panicked| StoreError::Closed)?
    }

    /// Returns a watch on the sequence number of the newest committed event.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.inner.writer.committed()
    }

    /// Finishes what is queued, moves the write-ahead log into the database, and
    /// ends the writer. Later writes answer [`StoreError::Closed`].
    pub async fn close(&self) {
        let inner = Arc::clone(&self.inner);
        // The writer cannot be waited for on an async thread.
        let joined = tokio::task::spawn_blocking(move || inner.writer.close()).await;
        if joined.is_err() {
            tracing::warn!("the store's writer ended in a panic");
        }
    }
}

impl Inner {
    fn take_reader(&self) -> Result<Connection, StoreError> {
        let mut readers = self
            .readers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        readers.pop().ok_or(StoreError::Closed)
    }

    fn put_reader(&self, connection: Connection) {
        let mut readers = self
            .readers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        readers.push(connection);
    }
}

#[cfg(test)]
mod tests;
