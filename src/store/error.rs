//! How the store can fail, and what a caller does about it.

use rusqlite::ErrorCode;

/// A read or write that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No space is left; the caller answers "later".
    #[error("the disk that holds the state is full")]
    Full,
    /// The writer has ended; the daemon is shutting down.
    #[error("the store is closed")]
    Closed,
    /// Somebody else has claimed the item since; the caller stops.
    #[error("work item {item} is claimed by another owner (epoch {epoch} is over)")]
    Stale {
        /// The item's number in the store.
        item: i64,
        /// The epoch that the caller held.
        epoch: i64,
    },
    /// The inbox holds as many waiting deliveries as it may.
    #[error("{pending} deliveries are waiting, which is the limit")]
    InboxFull {
        /// How many wait.
        pending: u64,
    },
    /// The file was written by a newer version.
    #[error("the state was written by a newer version (format {found}, this one knows {known})")]
    TooNew {
        /// Format of the file.
        found: i64,
        /// Format of this version.
        known: i64,
    },
    /// What was asked for does not exist.
    #[error("{what} does not exist")]
    Absent {
        /// What was asked for.
        what: String,
    },
    /// A value in the database is not what this version writes.
    #[error("the state holds a value that makes no sense: {0}")]
    Senseless(String),
    /// The group of writes that this one was in could not be committed.
    #[error("the state could not be written: {0}")]
    NotCommitted(String),
    /// Anything else that SQLite says.
    #[error("the state could not be read or written")]
    Sqlite(#[source] rusqlite::Error),
    /// The writer's thread could not be started.
    #[error("the store's writer could not be started")]
    Thread(#[source] std::io::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            _ => Self::Sqlite(error),
        }
    }
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Senseless(error.to_string())
    }
}
