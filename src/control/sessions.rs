//! Sessions and what their commands wrote.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::references::References;
use super::{Control, ControlError};
use crate::clock;
use crate::dispatch::request::{Answer, What};
use crate::domain::log_event::{ExitStatus, Source};
use crate::domain::work_item::ItemQuery;
use crate::store::{SessionRow, SessionState};

/// The most bytes of a log that are given at once.
const CHUNK_BYTES_MAX: u64 = 1024 * 1024;

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionView {
    /// UUID version 7.
    pub id: String,
    /// Reference of its work item.
    pub work_item: String,
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
    /// Where its output is.
    pub log: PathBuf,
    /// When it was planned.
    pub created_at: String,
    /// When it last changed.
    pub updated_at: String,
    /// How old it is.
    pub age_seconds: i64,
}

/// A piece of a session's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where to go on.
    pub next: u64,
    /// Whether more may come: the command runs, or there is more already.
    pub more: bool,
}

impl Control {
    pub(super) fn session_view(&self, reference: &str, row: SessionRow) -> SessionView {
        SessionView {
            work_item: reference.to_owned(),
            log: self.log_path(&row.id),
            profile: row.profile,
            directory: row.directory,
            state: row.state,
            run: row.run,
            status: row.status,
            created_at: clock::rfc3339(row.created_at),
            updated_at: clock::rfc3339(row.updated_at),
            age_seconds: (clock::now_ms() - row.created_at).max(0) / 1000,
            id: row.id,
        }
    }

    fn log_path(&self, id: &str) -> PathBuf {
        self.facts()
            .state_root
            .join("sessions")
            .join(format!("{id}.log"))
    }

    /// Returns the newest sessions, newest last; only those whose command may be
    /// running, if asked.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::Store`] if the store does not answer.
    pub async fn sessions(&self, live: bool, limit: u32) -> Result<Vec<SessionView>, ControlError> {
        let rows = self
            .store()
            .read(move |reader| {
                let mut references = References::default();
                let mut rows = Vec::new();
                for row in reader.sessions(live, limit)? {
                    rows.push((references.of(reader, row.item)?, row));
                }
                Ok(rows)
            })
            .await?;
        Ok(rows
            .into_iter()
            .map(|(reference, row)| self.session_view(&reference, row))
            .collect())
    }

    /// Returns one session by its id.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::NotFound`] if there is none.
    pub async fn session(&self, id: &str) -> Result<SessionView, ControlError> {
        let row = self.session_row(id).await?;
        let item = row.item;
        let reference = self
            .store()
            .read(move |reader| Ok(reader.item(item)?.reference))
            .await?;
        Ok(self.session_view(&reference, row))
    }

    async fn session_row(&self, id: &str) -> Result<SessionRow, ControlError> {
        let asked = id.to_owned();
        self.store()
            .read(move |reader| reader.session(&asked))
            .await?
            .ok_or_else(|| ControlError::NotFound(format!("no session `{id}` is known here")))
    }

    /// Ends a session and nothing else.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError`] if it was not done.
    pub async fn close_session(&self, id: &str, source: Source) -> Result<Answer, ControlError> {
        let row = self.session_row(id).await?;
        let item = row.item;
        let slug = self
            .store()
            .read(move |reader| Ok(reader.item(item)?.slug))
            .await?;
        self.request(
            ItemQuery::Slug(slug),
            What::StopSession { session: row.id },
            source,
        )
        .await
    }

    /// Returns a piece of a session's log from byte `from` on; beyond its end
    /// nothing. With `tail`, the piece begins that many bytes before the end.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::NotFound`] if there is no such session, and
    /// [`ControlError::File`] if its log cannot be read. A log that is not there
    /// yet is empty.
    pub async fn session_log(
        &self,
        id: &str,
        from: u64,
        tail: Option<u64>,
    ) -> Result<LogChunk, ControlError> {
        // The state is read before the file: what a command wrote last is then
        // in the file by the time it counts as ended.
        let live = self.session_row(id).await?.state.is_live();
        let path = self.log_path(id);
        let opened = path.clone();
        let read = tokio::task::spawn_blocking(move || -> std::io::Result<(Vec<u8>, u64, u64)> {
            let mut file = match File::open(&opened) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0, 0)),
                Err(error) => return Err(error),
            };
            let size = file.metadata()?.len();
            let start = tail
                .map_or(from, |bytes| size.saturating_sub(bytes))
                .min(size);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.take(CHUNK_BYTES_MAX).read_to_end(&mut bytes)?;
            let next = start + bytes.len() as u64;
            Ok((bytes, next, size))
        })
        .await
        .map_err(|_ended| ControlError::ShuttingDown)?;
        let (bytes, next, size) = read.map_err(|source| ControlError::File { path, source })?;
        Ok(LogChunk {
            bytes,
            next,
            more: live || next < size,
        })
    }
}
