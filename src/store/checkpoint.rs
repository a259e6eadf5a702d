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

/// After so many new pages in the write-ahead log they are moved: 4 MiB. Each
/// time flushes both files, which slows down the commits meanwhile.
const PAGES: i32 = 1000;

/// Pages from which on the writer moves the rest itself, after which the log
/// begins again at its start: 32 MiB.
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
    let mut pace = Pace { asked_at: 0 };
    writer.wal_hook(Some(move |wal: &mut Wal, pages| {
        match pace.step(pages) {
            Step::Nothing => {}
            Step::Ask => ask(&wanted),
            Step::Move => {
                // The commit stands whatever comes of it.
                if let Err(error) = wal.checkpoint() {
                    tracing::warn!(%error, "The write-ahead log was not moved into the database; tried again.");
                }
            }
        }
        Ok(())
    }))?;
    Ok(())
}

fn ask(wanted: &SyncSender<()>) {
    if let Err(TrySendError::Disconnected(())) = wanted.try_send(()) {
        tracing::warn!("The thread that moves the write-ahead log has ended.");
    }
}

/// What is to be done after a commit.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// The thread moves what is there.
    Ask,
    /// The writer does.
    Move,
}

/// Remembers how long the log was when it was last moved.
struct Pace {
    asked_at: i32,
}

impl Pace {
    fn step(&mut self, pages: i32) -> Step {
        if pages < self.asked_at {
            // It was moved whole, and began again.
            self.asked_at = 0;
        }
        if pages - self.asked_at < PAGES {
            return Step::Nothing;
        }
        self.asked_at = pages;
        if pages < PAGES_MAX {
            Step::Ask
        } else {
            Step::Move
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_moved_once_for_so_many_new_pages_and_by_the_writer_when_it_is_long() {
        let mut pace = Pace { asked_at: 0 };
        let steps = [
            (999, Step::Nothing),
            (1000, Step::Ask),
            (1999, Step::Nothing),
            (2004, Step::Ask),
            (30, Step::Nothing),
            (1000, Step::Ask),
            (7990, Step::Ask),
            (8200, Step::Nothing),
            (8991, Step::Move),
            (9500, Step::Nothing),
            (10_000, Step::Move),
            (3, Step::Nothing),
        ];
        for (pages, step) in steps {
            assert_eq!(pace.step(pages), step, "{pages}");
        }
    }
}
