//! Events that wait to be copied into the event log.

use rusqlite::{Connection, params};

use super::{Reader, Store, StoreError, Tx};
use crate::clock;
use crate::domain::log_event::{Entry, Line};

/// Returns the sequence number that the next event gets. SQLite remembers the
/// largest number given, also when the rows are gone.
pub(super) fn next_seq(connection: &Connection) -> Result<u64, StoreError> {
    let last: Option<i64> = connection.query_row(
        "SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'",
        [],
        |row| row.get(0),
    )?;
    Ok(u64::try_from(last.unwrap_or(0)).unwrap_or(0) + 1)
}

impl Tx<'_> {
    /// Stores an event with the transition it tells of.
    pub fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let line = serde_json::to_string(&Line {
            seq: self.next_seq,
            ts: clock::rfc3339(clock::now_ms()),
            level: entry.event.level(),
            node: self.node.to_owned(),
            entry: entry.clone(),
        })?;
        self.connection
            .prepare_cached("INSERT INTO events (seq, line) VALUES (?1, ?2)")?
            .execute(params![
                i64::try_from(self.next_seq).unwrap_or(i64::MAX),
                line
            ])?;
        self.next_seq += 1;
        Ok(())
    }

    /// Gives no number up to `seq` any more: the event log has them already,
    /// from a database that this one took the place of.
    pub fn skip_events_through(&mut self, seq: u64) {
        self.next_seq = self.next_seq.max(seq + 1);
    }

    /// Forgets events that the event log has on disk.
    pub fn forget_events_through(&mut self, seq: u64) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("DELETE FROM events WHERE seq <= ?1")?
            .execute(params![i64::try_from(seq).unwrap_or(i64::MAX)])?;
        Ok(())
    }
}

impl Reader<'_> {
    /// Returns up to `limit` events after `seq`, in order: number and line.
    pub fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<(u64, String)>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT seq, line FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
        let rows = statement.query_map(
            params![i64::try_from(seq).unwrap_or(i64::MAX), limit],
            |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)),
        )?;
        rows.map(|row| {
            let (seq, line) = row?;
            Ok((u64::try_from(seq).unwrap_or(0), line))
        })
        .collect()
    }
}

impl Store {
    /// Stores an event that tells of no stored transition.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if it could not be stored.
    pub async fn tell(&self, entry: Entry) -> Result<(), StoreError> {
        self.write(move |tx| tx.append(&entry)).await
    }
}
