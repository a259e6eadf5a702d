//! Sessions, their runs, and the texts handed to them.

use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::{Claim, Reader, StoreError, Tx};
use crate::clock;
use crate::domain::log_event::ExitStatus;

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Planned; nothing of it has run yet.
    Queued,
    /// A run is being started.
    Starting,
    /// Its command runs.
    Running,
    /// Its last run is over; it can be resumed.
    Exited,
    /// Its last run is over, and nothing says how; it can be resumed.
    Lost,
    /// Over for good.
    Closed,
}

impl SessionState {
    /// Every state.
    pub const ALL: &'static [Self] = &[
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Exited,
        Self::Lost,
        Self::Closed,
    ];

    /// Returns the state as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Lost => "lost",
            Self::Closed => "closed",
        }
    }

    /// Returns the state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|state| state.as_str() == name)
    }

    /// Returns whether its command may be running.
    pub const fn is_live(self) -> bool {
        match self {
            Self::Starting | Self::Running => true,
            Self::Queued | Self::Exited | Self::Lost | Self::Closed => false,
        }
    }
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    /// UUID version 7.
    pub id: String,
    /// The item it belongs to.
    pub item: i64,
    /// The checkout it runs in; none while no workspace is configured.
    pub checkout: Option<i64>,
    /// Name of its profile.
    pub profile: String,
    /// Where it runs.
    pub directory: String,
    /// Where it is in its life.
    pub state: SessionState,
    /// How often its command was started.
    pub run: u32,
    /// How the last run ended.
    pub status: Option<ExitStatus>,
    /// When it was planned.
    pub created_at: i64,
    /// When it last changed.
    pub updated_at: i64,
}

/// A text handed to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRow {
    /// Order of handing over.
    pub id: i64,
    /// The delivery it came with.
    pub delivery: Option<String>,
    /// Event it tells of.
    pub event: String,
    /// Action it tells of.
    pub action: Option<String>,
    /// The text.
    pub text: String,
}

const COLUMNS: &str =
    "id, item, checkout, profile, directory, state, run, status, created_at, updated_at";

fn row_of(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    let bad = |column, what: String| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            format!("no such value: {what}").into(),
        )
    };
    let state: String = row.get(5)?;
    let status: Option<String> = row.get(7)?;
    Ok(SessionRow {
        id: row.get(0)?,
        item: row.get(1)?,
        checkout: row.get(2)?,
        profile: row.get(3)?,
        directory: row.get(4)?,
        state: SessionState::from_name(&state).ok_or_else(|| bad(5, state))?,
        run: row.get(6)?,
        status: status
            .map(|text| serde_json::from_str(&text).map_err(|_| bad(7, text)))
            .transpose()?,
        created_at: row.get(8)?,
        updated_at: row.get(9)?,
    })
}

impl Tx<'_> {
    /// Plans a session. Its first run is not started yet.
    pub fn plan_session(
        &mut self,
        claim: Claim,
        id: &str,
        checkout: Option<i64>,
        profile: &str,
        directory: &str,
    ) -> Result<(), StoreError> {
        self.require_claim(claim)?;
        self.connection
            .prepare_cached(
                "INSERT INTO sessions (id, item, checkout, profile, directory, state, run,
                 created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, 'queued', 0, ?6, ?6)",
            )?
            .execute(params![
                id,
                claim.item,
                checkout,
                profile,
                directory,
                clock::now_ms()
            ])?;
        Ok(())
    }

    /// Hands a text to a session; the next run carries it. Returns whether it is
    /// new: the text of one delivery is handed over once.
    pub fn add_input(
        &mut self,
        claim: Claim,
        session: &str,
        delivery: Option<&str>,
        event: &str,
        action: Option<&str>,
        text: &str,
    ) -> Result<bool, StoreError> {
        self.require_claim(claim)?;
        let added = self
            .connection
            .prepare_cached(
                "INSERT INTO inputs (session, delivery, event, action, text, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (session, delivery) DO NOTHING",
            )?
            .execute(params![
                session,
                delivery,
                event,
                action,
                text,
                clock::now_ms()
            ])?;
        Ok(added == 1)
    }

    /// Gives the texts that wait for one session to another of the same item.
    pub fn move_waiting_inputs(&mut self, from: &str, to: &str) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("UPDATE inputs SET session = ?2 WHERE session = ?1 AND run IS NULL")?
            .execute(params![from, to])?;
        Ok(())
    }

    /// Begins the next run of a session with everything that waits for it;
    /// returns the run's number.
    pub fn begin_run(
        &mut self,
        claim: Claim,
        session: &str,
        checkout: Option<i64>,
        directory: &str,
    ) -> Result<u32, StoreError> {
        self.require_claim(claim)?;
        let run: u32 = self
            .connection
            .prepare_cached(
                "UPDATE sessions SET state = 'starting', run = run + 1, checkout = ?2,
                 directory = ?3, status = NULL, updated_at = ?4 WHERE id = ?1 RETURNING run",
            )?
            .query_row(
                params![session, checkout, directory, clock::now_ms()],
                |row| row.get(0),
            )?;
        self.connection
            .prepare_cached("UPDATE inputs SET run = ?2 WHERE session = ?1 AND run IS NULL")?
            .execute(params![session, run])?;
        Ok(run)
    }

    /// A run could not be started: its texts wait again, and the run's number is
    /// not used a second time.
    pub fn run_not_started(
        &mut self,
        claim: Claim,
        session: &str,
        run: u32,
    ) -> Result<(), StoreError> {
        self.require_claim(claim)?;
        self.connection
            .prepare_cached("UPDATE inputs SET run = NULL WHERE session = ?1 AND run = ?2")?
            .execute(params![session, run])?;
        self.set_session_state(session, SessionState::Exited, None)
    }

    /// Moves a session to another state.
    pub fn set_session_state(
        &mut self,
        session: &str,
        state: SessionState,
        status: Option<ExitStatus>,
    ) -> Result<(), StoreError> {
        let status = status
            .map(|status| serde_json::to_string(&status))
            .transpose()?;
        self.connection
            .prepare_cached(
                "UPDATE sessions SET state = ?2, status = coalesce(?3, status), updated_at = ?4
                 WHERE id = ?1",
            )?
            .execute(params![session, state.as_str(), status, clock::now_ms()])?;
        Ok(())
    }

    /// Returns the session of this id.
    pub fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        Reader {
            connection: self.connection,
        }
        .session(id)
    }

    /// Returns the item's newest session that is not over for good.
    pub fn current_session(&self, item: i64) -> Result<Option<SessionRow>, StoreError> {
        Reader {
            connection: self.connection,
        }
        .current_session(item)
    }

    /// Returns the item's newest session, over or not.
    pub fn last_session(&self, item: i64) -> Result<Option<SessionRow>, StoreError> {
        Reader {
            connection: self.connection,
        }
        .last_session(item)
    }

    /// Returns how many sessions may be running: of all profiles, of this one.
    pub fn live_session_counts(&self, profile: &str) -> Result<(u32, u32), StoreError> {
        Reader {
            connection: self.connection,
        }
        .live_session_counts(profile)
    }

    /// Returns the texts that the given run carries, or that wait.
    pub fn inputs(&self, session: &str, run: Option<u32>) -> Result<Vec<InputRow>, StoreError> {
        Reader {
            connection: self.connection,
        }
        .inputs(session, run)
    }

    /// Returns whether a run of the session before this one was started. Every run
    /// carries a text, and those of a run that was not started wait again.
    pub fn was_started_before(&self, session: &str, run: u32) -> Result<bool, StoreError> {
        Reader {
            connection: self.connection,
        }
        .was_started_before(session, run)
    }

    /// Returns whether the text of this delivery was handed to the session.
    pub fn has_input_of(
        &self,
        session: &str,
        delivery: &str,
    ) -> Result<Option<Option<u32>>, StoreError> {
        Ok(self
            .connection
            .prepare_cached("SELECT run FROM inputs WHERE session = ?1 AND delivery = ?2")?
            .query_row(params![session, delivery], |row| row.get(0))
            .optional()?)
    }
}

impl Reader<'_> {
    /// Returns how many sessions may be running: of all profiles, of this one.
    pub fn live_session_counts(&self, profile: &str) -> Result<(u32, u32), StoreError> {
        Ok(self
            .connection
            .prepare_cached(
                "SELECT count(*), coalesce(sum(profile = ?1), 0) FROM sessions
                 WHERE state IN ('starting', 'running')",
            )?
            .query_row(params![profile], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// Returns the session of this id.
    pub fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        Ok(self
            .connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1"))?
            .query_row(params![id], row_of)
            .optional()?)
    }

    /// Returns the item's newest session that is not over for good.
    pub fn current_session(&self, item: i64) -> Result<Option<SessionRow>, StoreError> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM sessions WHERE item = ?1 AND state <> 'closed'
                 ORDER BY id DESC LIMIT 1"
            ))?
            .query_row(params![item], row_of)
            .optional()?)
    }

    /// Returns the item's newest session, over or not.
    pub fn last_session(&self, item: i64) -> Result<Option<SessionRow>, StoreError> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM sessions WHERE item = ?1 ORDER BY id DESC LIMIT 1"
            ))?
            .query_row(params![item], row_of)
            .optional()?)
    }

    /// Returns whether a run of the session before this one was started.
    pub fn was_started_before(&self, session: &str, run: u32) -> Result<bool, StoreError> {
        Ok(self
            .connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM inputs WHERE session = ?1 AND run < ?2)")?
            .query_row(params![session, run], |row| row.get(0))?)
    }

    /// Returns sessions, oldest first; only those that may be running, if asked.
    pub fn sessions(&self, live: bool, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM sessions
             WHERE ?1 = 0 OR state IN ('starting', 'running') ORDER BY id DESC LIMIT ?2"
        ))?;
        let rows = statement.query_map(params![live, limit], row_of)?;
        let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
        rows.reverse();
        Ok(rows)
    }

    /// Returns the sessions, not over for good, that texts wait for.
    pub fn sessions_with_waiting_inputs(&self) -> Result<Vec<SessionRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM sessions WHERE state <> 'closed'
             AND id IN (SELECT session FROM inputs WHERE run IS NULL) ORDER BY id"
        ))?;
        let rows = statement.query_map([], row_of)?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns the texts that the given run carries, or that wait.
    pub fn inputs(&self, session: &str, run: Option<u32>) -> Result<Vec<InputRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, delivery, event, action, text FROM inputs
             WHERE session = ?1 AND run IS ?2 ORDER BY id",
        )?;
        let rows = statement.query_map(params![session, run], |row| {
            Ok(InputRow {
                id: row.get(0)?,
                delivery: row.get(1)?,
                event: row.get(2)?,
                action: row.get(3)?,
                text: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    }
}
