//! Checkouts: the row that must agree with the disk before one is removed.

use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::{Claim, Reader, StoreError, Tx};
use crate::clock;
use crate::domain::checkout::{CheckoutRecord, CheckoutState, Strategy};
use crate::domain::reason::Kept;

/// A checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutRow {
    /// Number in the store.
    pub id: i64,
    /// The item it belongs to.
    pub item: i64,
    /// `host/owner/repo`.
    pub repository: String,
    /// Where it is in its life.
    pub state: CheckoutState,
    /// The workspace root it stands below.
    pub root: String,
    /// How it is made.
    pub strategy: Strategy,
    /// Its identity, once it is ready.
    pub record: Option<CheckoutRecord>,
    /// Why it was kept the last time it was to go.
    pub kept: Option<Vec<Kept>>,
    /// When it was begun.
    pub created_at: i64,
    /// When it last changed.
    pub updated_at: i64,
}

const COLUMNS: &str =
    "id, item, repository, state, root, strategy, record, kept, created_at, updated_at";

fn json<T: serde::de::DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                column,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        })
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<CheckoutRow> {
    let state: String = row.get(3)?;
    let strategy: String = row.get(5)?;
    let bad = |column, what: &str| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            format!("no such value: {what}").into(),
        )
    };
    Ok(CheckoutRow {
        id: row.get(0)?,
        item: row.get(1)?,
        repository: row.get(2)?,
        state: CheckoutState::from_name(&state).ok_or_else(|| bad(3, &state))?,
        root: row.get(4)?,
        strategy: Strategy::from_name(&strategy).ok_or_else(|| bad(5, &strategy))?,
        record: json(row, 6)?,
        kept: json(row, 7)?,
        created_at: row.get(8)?,
        updated_at: row.get(9)?,
    })
}

impl Tx<'_> {
    /// Begins a checkout of `repository`, or takes up the one that is there.
    pub fn begin_checkout(
        &mut self,
        claim: Claim,
        repository: &str,
        root: &str,
        strategy: Strategy,
    ) -> Result<CheckoutRow, StoreError> {
        self.require_claim(claim)?;
        if let Some(found) = self.live_checkout(claim.item)? {
            return Ok(found);
        }
        self.connection
            .prepare_cached(
                "INSERT INTO checkouts (item, repository, state, root, strategy, created_at,
                 updated_at) VALUES (?1, ?2, 'preparing', ?3, ?4, ?5, ?5)",
            )?
            .execute(params![
                claim.item,
                repository,
                root,
                strategy.as_str(),
                clock::now_ms()
            ])?;
        self.live_checkout(claim.item)?
            .ok_or_else(|| StoreError::Absent {
                what: "the checkout just begun".to_owned(),
            })
    }

    /// Stores that a checkout is ready, or was moved.
    pub fn checkout_ready(
        &mut self,
        claim: Claim,
        id: i64,
        record: &CheckoutRecord,
    ) -> Result<(), StoreError> {
        self.require_claim(claim)?;
        self.connection
            .prepare_cached(
                "UPDATE checkouts SET state = 'ready', record = ?2, strategy = ?3, updated_at = ?4
                 WHERE id = ?1",
            )?
            .execute(params![
                id,
                serde_json::to_string(record)?,
                record.strategy.as_str(),
                clock::now_ms()
            ])?;
        Ok(())
    }

    /// Moves a checkout to another state.
    pub fn set_checkout_state(
        &mut self,
        claim: Claim,
        id: i64,
        state: CheckoutState,
    ) -> Result<(), StoreError> {
        self.require_claim(claim)?;
        self.connection
            .prepare_cached("UPDATE checkouts SET state = ?2, updated_at = ?3 WHERE id = ?1")?
            .execute(params![id, state.as_str(), clock::now_ms()])?;
        Ok(())
    }

    /// Stores why a checkout was kept; it is ready again.
    pub fn checkout_kept(
        &mut self,
        claim: Claim,
        id: i64,
        reasons: &[Kept],
    ) -> Result<(), StoreError> {
        self.require_claim(claim)?;
        self.connection
            .prepare_cached(
                "UPDATE checkouts SET state = 'ready', kept = ?2, updated_at = ?3 WHERE id = ?1",
            )?
            .execute(params![
                id,
                serde_json::to_string(reasons)?,
                clock::now_ms()
            ])?;
        Ok(())
    }

    /// Forgets why a checkout was kept, as its item is open again.
    pub fn checkout_wanted(&mut self, claim: Claim, id: i64) -> Result<(), StoreError> {
        self.require_claim(claim)?;
        self.connection
            .prepare_cached("UPDATE checkouts SET kept = NULL WHERE id = ?1")?
            .execute(params![id])?;
        Ok(())
    }

    /// Returns the item's checkout that may be on disk.
    pub fn live_checkout(&self, item: i64) -> Result<Option<CheckoutRow>, StoreError> {
        Reader {
            connection: self.connection,
        }
        .live_checkout(item)
    }

    /// Returns how many checkouts may be on disk.
    pub fn live_checkout_count(&self) -> Result<u64, StoreError> {
        Reader {
            connection: self.connection,
        }
        .live_checkout_count()
    }
}

impl Reader<'_> {
    /// Returns the item's checkout that may be on disk.
    pub fn live_checkout(&self, item: i64) -> Result<Option<CheckoutRow>, StoreError> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM checkouts WHERE item = ?1
                 AND state IN ('preparing', 'ready', 'missing', 'removing') ORDER BY id LIMIT 1"
            ))?
            .query_row(params![item], row_of)
            .optional()?)
    }

    /// Returns every checkout that may be on disk, oldest first.
    pub fn live_checkouts(&self) -> Result<Vec<CheckoutRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM checkouts
             WHERE state IN ('preparing', 'ready', 'missing', 'removing') ORDER BY id"
        ))?;
        let rows = statement.query_map([], row_of)?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns every root that a checkout ever stood below.
    pub fn checkout_roots(&self) -> Result<Vec<String>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT DISTINCT root FROM checkouts ORDER BY root")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns how many checkouts may be on disk.
    pub fn live_checkout_count(&self) -> Result<u64, StoreError> {
        let count: i64 = self
            .connection
            .prepare_cached(
                "SELECT count(*) FROM checkouts
                 WHERE state IN ('preparing', 'ready', 'missing', 'removing')",
            )?
            .query_row([], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}
