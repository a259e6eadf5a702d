//! The tables, and how an older file becomes a present one.

use rusqlite::Connection;

use super::StoreError;

/// Each step brings a file from the format of its index to the next.
const MIGRATIONS: &[&str] = &[include_str!("schema.sql"), include_str!("breaker.sql")];

/// Sets a connection up for writing and brings the file up to date.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // See `checkpoint`: the writer does not stop for it.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    let done = usize::try_from(found).unwrap_or(0);
    for (index, step) in MIGRATIONS.iter().enumerate().skip(done) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(
            None,
            "user_version",
            i64::try_from(index + 1).unwrap_or(known),
        )?;
        transaction.commit()?;
    }
    Ok(())
}

/// Sets a connection up for reading.
pub(super) fn prepare_reader(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}
