//! Moving the write-ahead log into the database, beside the writer.
//!
//! SQLite does it within a commit by default: every so many pages one commit
//! writes and flushes the database too, and everybody who waits for it waits
//! longer. A thread with a connection of its own does it instead. Only when it
//! cannot keep up does the writer stop for it, so that the log stays bounded.

use std::path::Path;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::StoreError;

/// Pages in the write-ahead log from which on it is moved: 4 MiB.
const PAGES: i32 = 1000;

/// Pages from which on the writer moves it itself: 32 MiB.
const PAGES_MAX: i32 = 8 * PAGES;

/// Starts the thread, which ends with the writer's connection.
pub(super) fn start(path: &Path, writer: &mut Connection) -> Result<(), StoreError> {
    let own = Connection::open(path)?;
    own.pragma_update(None, "synchronous", "FULL")?;
    own.busy_timeout(std::time::Duration::from_secs(5))?;
    let (wanted, wants) = sync_channel::<()>(1);
    std::thread::Builder::new()
        .name("store-checkpoint".to_owned())
        .spawn(move || {
            while wants.recv().is_ok() {
                // What is in use is left for the next time.
                let moved = own.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_row| Ok(()));
                if let Err(error) = moved {
                    tracing::warn!(%error, "The write-ahead log was not moved into the database; tried again.");
                }
            }
        })
        .map_err(StoreError::Thread)?;
    writer.wal_hook(Some(move |wal: &mut Wal, pages| {
        committed(wal, pages, &wanted);
        Ok(())
    }))?;
    Ok(())
}

fn committed(wal: &mut Wal, pages: i32, wanted: &SyncSender<()>) {
    if pages >= PAGES_MAX {
        // The commit stands whatever comes of it.
        if let Err(error) = wal.checkpoint() {
            tracing::warn!(%error, "The write-ahead log was not moved into the database; tried again.");
        }
    } else if pages >= PAGES
        && let Err(TrySendError::Disconnected(())) = wanted.try_send(())
    {
        tracing::warn!("The thread that moves the write-ahead log has ended.");
    }
}
