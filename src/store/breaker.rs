//! The bulk breaker, and what it looks at.

use rusqlite::{OptionalExtension, params};

use super::{Claim, Reader, StoreError, Tx};
use crate::clock;
use crate::domain::breaker::Breaker;
use crate::domain::checkout::CheckoutState;
use crate::domain::reason::Kept;

impl Tx<'_> {
    /// Returns what the breaker remembers.
    pub fn breaker(&self) -> Result<Breaker, StoreError> {
        Reader {
            connection: self.connection,
        }
        .breaker()
    }

    /// Stores what the breaker remembers.
    pub fn set_breaker(&mut self, breaker: &Breaker) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "INSERT INTO breaker (id, value) VALUES (1, ?1)
                 ON CONFLICT (id) DO UPDATE SET value = excluded.value",
            )?
            .execute(params![serde_json::to_string(breaker)?])?;
        Ok(())
    }

    /// Returns when each checkout that is missing was found so.
    pub fn missing_since(&self) -> Result<Vec<i64>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT updated_at FROM checkouts WHERE state = 'missing'")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    }

    /// Stores why a checkout was not removed, and leaves its state as it is.
    pub fn note_kept(&mut self, claim: Claim, id: i64, reasons: &[Kept]) -> Result<(), StoreError> {
        self.require_claim(claim)?;
        self.connection
            .prepare_cached("UPDATE checkouts SET kept = ?2 WHERE id = ?1")?
            .execute(params![id, serde_json::to_string(reasons)?])?;
        Ok(())
    }

    /// Moves a checkout from one state to another if it is still as it was seen.
    /// Returns whether it was.
    pub fn change_checkout_state(
        &mut self,
        claim: Claim,
        id: i64,
        (from, seen_at): (CheckoutState, i64),
        to: CheckoutState,
    ) -> Result<bool, StoreError> {
        self.require_claim(claim)?;
        let changed = self
            .connection
            .prepare_cached(
                "UPDATE checkouts SET state = ?4, updated_at = ?5
                 WHERE id = ?1 AND state = ?2 AND updated_at = ?3",
            )?
            .execute(params![
                id,
                from.as_str(),
                seen_at,
                to.as_str(),
                clock::now_ms()
            ])?;
        Ok(changed == 1)
    }
}

impl Reader<'_> {
    /// Returns what the breaker remembers.
    pub fn breaker(&self) -> Result<Breaker, StoreError> {
        let value: Option<String> = self
            .connection
            .prepare_cached("SELECT value FROM breaker WHERE id = 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        Ok(match value {
            Some(value) => serde_json::from_str(&value)?,
            None => Breaker::default(),
        })
    }
}
