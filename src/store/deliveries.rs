//! Deliveries: stored before they are answered, finished once.

use rusqlite::{OptionalExtension, Row, params};

use super::{Reader, StoreError, Tx};
use crate::clock;
use crate::domain::code::FailureCode;
use crate::domain::reason::DropReason;

/// How much effort goes into compressing a body; more costs time for little.
const COMPRESSION: i32 = 1;

/// For bodies up to this size each thread keeps its compressor: making one takes
/// longer than the compressing. What larger ones need is not worth keeping.
const KEPT_COMPRESSOR_BYTES_MAX: usize = 256 * 1024;

thread_local! {
    static COMPRESSOR: std::cell::RefCell<Option<zstd::bulk::Compressor<'static>>> =
        const { std::cell::RefCell::new(None) };
}

/// The largest body that is unpacked; what was stored is never larger.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a delivery is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Stored, waits for its turn or for the next attempt.
    Received,
    /// Being worked on.
    Running,
    /// Had its effect.
    Done,
    /// Needed none.
    Dropped,
    /// Given up; can be replayed.
    Parked,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: &'static [Self] = &[
        Self::Received,
        Self::Running,
        Self::Done,
        Self::Dropped,
        Self::Parked,
    ];

    /// Returns the state as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Running => "running",
            Self::Done => "done",
            Self::Dropped => "dropped",
            Self::Parked => "parked",
        }
    }

    /// Returns the state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|state| state.as_str() == name)
    }
}

/// A delivery on its way in.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// `X-GitHub-Delivery`.
    pub id: String,
    /// `webhook`, `sweep`, `poll`.
    pub source: &'static str,
    /// `X-GitHub-Event`.
    pub gh_event: String,
    /// Whether the body is a form with `payload=`.
    pub form: bool,
    /// The body, compressed by [`NewDelivery::compress`].
    pub body: Vec<u8>,
}

impl NewDelivery {
    /// Compresses a body as it is stored. Costs about a microsecond a kilobyte.
    ///
    /// # Errors
    ///
    /// Returns the compressor's error; memory is all that it can lack.
    pub fn compress(body: &[u8]) -> std::io::Result<Vec<u8>> {
        if body.len() > KEPT_COMPRESSOR_BYTES_MAX {
            return zstd::bulk::compress(body, COMPRESSION);
        }
        COMPRESSOR.with_borrow_mut(|kept| match kept {
            Some(compressor) => compressor.compress(body),
            None => kept
                .insert(zstd::bulk::Compressor::new(COMPRESSION)?)
                .compress(body),
        })
    }
}

/// What became of a delivery on its way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Stored, with its place in the order of arrival.
    New(i64),
    /// Was there before; nothing was stored.
    Duplicate,
}

/// A delivery without its body.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct DeliveryRow {
    /// Order of arrival.
    pub seq: i64,
    /// Its id.
    pub id: String,
    /// Where it came from.
    pub source: String,
    /// Event.
    pub gh_event: String,
    /// Whether the body is a form.
    pub form: bool,
    /// When it came.
    pub received_at: i64,
    /// Where it is in its life.
    pub state: DeliveryState,
    /// The item it belongs to, once known.
    pub item: Option<i64>,
    /// Action, once understood.
    pub action: Option<String>,
    /// `owner/name`, once understood.
    pub repository: Option<String>,
    /// How often it was tried.
    pub attempt: u32,
    /// How often in a row the daemon died with it as the only one running.
    pub crashes: u32,
    /// Not to be tried before.
    pub not_before: i64,
    /// Reason or code.
    pub outcome: Option<String>,
    /// Message beside it.
    pub error: Option<String>,
    /// When it was finished.
    pub finished_at: Option<i64>,
}

/// What waits after a start, or came since.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The row.
    pub row: DeliveryRow,
    /// Its body, unpacked.
    pub body: Vec<u8>,
}

/// Which deliveries are asked for.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// Only in this state.
    pub state: Option<DeliveryState>,
    /// Only of this item.
    pub item: Option<i64>,
    /// Only received at or after.
    pub since: Option<i64>,
    /// At most so many, the newest.
    pub limit: u32,
}

const COLUMNS: &str = "seq, id, source, gh_event, form, received_at, state, item, action, \
                       repository, attempt, crashes, not_before, outcome, error, finished_at";

fn row_of(row: &Row<'_>) -> rusqlite::Result<DeliveryRow> {
    let state: String = row.get(6)?;
    Ok(DeliveryRow {
        seq: row.get(0)?,
        id: row.get(1)?,
        source: row.get(2)?,
        gh_event: row.get(3)?,
        form: row.get(4)?,
        received_at: row.get(5)?,
        state: DeliveryState::from_name(&state).ok_or_else(|| {
            rusqlite::Error::FromSqlConversionFailure(
                6,
                rusqlite::types::Type::Text,
                format!("no such state: {state}").into(),
            )
        })?,
        item: row.get(7)?,
        action: row.get(8)?,
        repository: row.get(9)?,
        attempt: row.get(10)?,
        crashes: row.get(11)?,
        not_before: row.get(12)?,
        outcome: row.get(13)?,
        error: row.get(14)?,
        finished_at: row.get(15)?,
    })
}

impl Tx<'_> {
    /// Stores a delivery, unless one with its id is there.
    pub fn accept_delivery(&mut self, delivery: &NewDelivery) -> Result<Accepted, StoreError> {
        let stored = self
            .connection
            .prepare_cached(
                "INSERT INTO deliveries (id, source, gh_event, form, body, received_at, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'received') ON CONFLICT (id) DO NOTHING",
            )?
            .execute(params![
                delivery.id,
                delivery.source,
                delivery.gh_event,
                delivery.form,
                delivery.body,
                clock::now_ms()
            ])?;
        Ok(if stored == 0 {
            Accepted::Duplicate
        } else {
            Accepted::New(self.connection.last_insert_rowid())
        })
    }

    /// Remembers what a delivery was understood to be about.
    pub fn describe_delivery(
        &mut self,
        seq: i64,
        item: Option<i64>,
        action: Option<&str>,
        repository: Option<&str>,
    ) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "UPDATE deliveries SET item = coalesce(?2, item), action = ?3, repository = ?4
                 WHERE seq = ?1",
            )?
            .execute(params![seq, item, action, repository])?;
        Ok(())
    }

    /// Marks a delivery as running and counts the attempt; returns its number.
    pub fn begin_delivery(&mut self, seq: i64) -> Result<u32, StoreError> {
        Ok(self
            .connection
            .prepare_cached(
                "UPDATE deliveries SET state = 'running', attempt = attempt + 1 WHERE seq = ?1
                 RETURNING attempt",
            )?
            .query_row(params![seq], |row| row.get(0))?)
    }

    /// Puts a delivery back, to be taken again at `not_before`.
    pub fn retry_delivery(
        &mut self,
        seq: i64,
        code: FailureCode,
        error: &str,
        not_before: i64,
    ) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "UPDATE deliveries SET state = 'received', outcome = ?2, error = ?3,
                 not_before = ?4, crashes = 0 WHERE seq = ?1",
            )?
            .execute(params![seq, code.as_str(), error, not_before])?;
        Ok(())
    }

    /// Puts a delivery back without counting the attempt: it was interrupted, or
    /// waits for something that is not a failure.
    pub fn postpone_delivery(&mut self, seq: i64) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "UPDATE deliveries SET state = 'received', attempt = max(attempt - 1, 0)
                 WHERE seq = ?1",
            )?
            .execute(params![seq])?;
        Ok(())
    }

    /// Sets how often in a row the daemon died with this delivery alone.
    pub fn set_delivery_crashes(&mut self, seq: i64, crashes: u32) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("UPDATE deliveries SET crashes = ?2 WHERE seq = ?1")?
            .execute(params![seq, crashes])?;
        Ok(())
    }

    /// Finishes a delivery.
    fn finish_delivery(
        &mut self,
        seq: i64,
        state: DeliveryState,
        outcome: Option<&str>,
        error: Option<&str>,
    ) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "UPDATE deliveries SET state = ?2, outcome = ?3, error = ?4, finished_at = ?5,
                 crashes = 0 WHERE seq = ?1",
            )?
            .execute(params![
                seq,
                state.as_str(),
                outcome,
                error,
                clock::now_ms()
            ])?;
        Ok(())
    }

    /// The delivery had its effect.
    pub fn delivery_done(&mut self, seq: i64) -> Result<(), StoreError> {
        self.finish_delivery(seq, DeliveryState::Done, None, None)
    }

    /// The delivery needed no effect.
    pub fn delivery_dropped(&mut self, seq: i64, reason: DropReason) -> Result<(), StoreError> {
        self.finish_delivery(seq, DeliveryState::Dropped, Some(reason.as_str()), None)
    }

    /// The delivery is given up.
    pub fn delivery_parked(
        &mut self,
        seq: i64,
        code: FailureCode,
        error: &str,
    ) -> Result<(), StoreError> {
        self.finish_delivery(seq, DeliveryState::Parked, Some(code.as_str()), Some(error))
    }

    /// Starts a finished delivery afresh, as if nothing had been decided about it.
    pub fn replay_delivery(&mut self, seq: i64) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "UPDATE deliveries SET state = 'received', attempt = 0, crashes = 0,
                 not_before = 0, item = NULL, outcome = NULL, error = NULL, finished_at = NULL
                 WHERE seq = ?1",
            )?
            .execute(params![seq])?;
        Ok(())
    }

    /// Forgets finished deliveries older than `before`; parked ones too, as
    /// nobody asked for them in all that time. Returns how many.
    pub fn forget_deliveries(&mut self, before: i64) -> Result<usize, StoreError> {
        Ok(self
            .connection
            .prepare_cached("DELETE FROM deliveries WHERE finished_at < ?1")?
            .execute(params![before])?)
    }

    /// Forgets at most `limit` finished deliveries older than `before`; returns
    /// how many. Calling until it returns less leaves others their turn.
    pub fn forget_some_deliveries(&mut self, before: i64, limit: u32) -> Result<usize, StoreError> {
        Ok(self
            .connection
            .prepare_cached(
                "DELETE FROM deliveries WHERE seq IN
                 (SELECT seq FROM deliveries WHERE finished_at < ?1 LIMIT ?2)",
            )?
            .execute(params![before, limit])?)
    }

    /// Forgets the delivery of this id if it was given up, so that it can be
    /// accepted anew. Returns whether it was.
    pub fn forget_parked_delivery(&mut self, id: &str) -> Result<bool, StoreError> {
        let forgotten = self
            .connection
            .prepare_cached("DELETE FROM deliveries WHERE id = ?1 AND state = 'parked'")?
            .execute(params![id])?;
        Ok(forgotten > 0)
    }

    /// Returns the row of this id.
    pub fn delivery(&self, id: &str) -> Result<Option<DeliveryRow>, StoreError> {
        Reader {
            connection: self.connection,
        }
        .delivery(id)
    }

    /// Returns how many deliveries wait or run.
    pub fn pending_deliveries(&self) -> Result<u64, StoreError> {
        Reader {
            connection: self.connection,
        }
        .pending_deliveries()
    }

    /// Returns the deliveries that are marked as running, in order.
    pub fn running_deliveries(&self) -> Result<Vec<DeliveryRow>, StoreError> {
        Reader {
            connection: self.connection,
        }
        .running_deliveries()
    }
}

impl Reader<'_> {
    /// Returns how many deliveries wait or run.
    pub fn pending_deliveries(&self) -> Result<u64, StoreError> {
        let count: i64 = self
            .connection
            .prepare_cached(
                "SELECT count(*) FROM deliveries WHERE state IN ('received', 'running')",
            )?
            .query_row([], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Returns the deliveries that are marked as running, in order.
    pub fn running_deliveries(&self) -> Result<Vec<DeliveryRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries
             WHERE state IN ('received', 'running') AND state = 'running' ORDER BY seq"
        ))?;
        let rows = statement.query_map([], row_of)?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns whether a delivery of this item waits or runs. Deliveries that no
    /// attempt was made at yet belong to no item.
    pub fn has_pending_delivery(&self, item: i64) -> Result<bool, StoreError> {
        Ok(self
            .connection
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM deliveries
                 WHERE item = ?1 AND state IN ('received', 'running'))",
            )?
            .query_row(params![item], |row| row.get(0))?)
    }

    /// Returns when the oldest delivery that waits or runs came.
    pub fn oldest_pending(&self) -> Result<Option<i64>, StoreError> {
        Ok(self
            .connection
            .prepare_cached(
                "SELECT received_at FROM deliveries WHERE state IN ('received', 'running')
                 ORDER BY seq LIMIT 1",
            )?
            .query_row([], |row| row.get(0))
            .optional()?)
    }

    /// Returns up to `limit` unfinished deliveries that came after `seq`, in
    /// order, with their bodies.
    pub fn pending_after(&self, seq: i64, limit: u32) -> Result<Vec<Pending>, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS}, body FROM deliveries
             WHERE seq > ?1 AND state IN ('received', 'running') ORDER BY seq LIMIT ?2"
        ))?;
        let rows = statement.query_map(params![seq, limit], |row| {
            Ok((row_of(row)?, row.get::<_, Vec<u8>>(16)?))
        })?;
        rows.map(|row| {
            let (row, packed) = row?;
            Ok(Pending {
                row,
                body: unpack(&packed)?,
            })
        })
        .collect()
    }

    /// Returns one delivery with its body.
    pub fn delivery_with_body(&self, seq: i64) -> Result<Option<Pending>, StoreError> {
        let found = self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS}, body FROM deliveries WHERE seq = ?1"
            ))?
            .query_row(params![seq], |row| {
                Ok((row_of(row)?, row.get::<_, Vec<u8>>(16)?))
            })
            .optional()?;
        found
            .map(|(row, packed)| {
                Ok(Pending {
                    row,
                    body: unpack(&packed)?,
                })
            })
            .transpose()
    }

    /// Returns the row of this id.
    pub fn delivery(&self, id: &str) -> Result<Option<DeliveryRow>, StoreError> {
        Ok(self
            .connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM deliveries WHERE id = ?1"))?
            .query_row(params![id], row_of)
            .optional()?)
    }

    /// Returns the newest deliveries that fit, newest last.
    pub fn deliveries(&self, filter: &DeliveryFilter) -> Result<Vec<DeliveryRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries
             WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR item = ?2)
             AND (?3 IS NULL OR received_at >= ?3) ORDER BY seq DESC LIMIT ?4"
        ))?;
        let state = filter.state.map(DeliveryState::as_str);
        let rows = statement.query_map(
            params![state, filter.item, filter.since, filter.limit],
            row_of,
        )?;
        let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
        rows.reverse();
        Ok(rows)
    }

    /// Returns how many deliveries are in each state.
    pub fn delivery_counts(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT state, count(*) FROM deliveries GROUP BY state")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
        rows.map(|row| {
            let (state, count) = row?;
            Ok((state, u64::try_from(count).unwrap_or(0)))
        })
        .collect()
    }
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, StoreError> {
    let senseless =
        |why: String| StoreError::Senseless(format!("a stored body cannot be unpacked: {why}"));
    let size = zstd::zstd_safe::get_frame_content_size(packed)
        .map_err(|_bad| senseless("its frame is damaged".to_owned()))?
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| *size <= BODY_BYTES_MAX)
        .ok_or_else(|| senseless("its size is missing or absurd".to_owned()))?;
    zstd::bulk::decompress(packed, size).map_err(|error| senseless(error.to_string()))
}
