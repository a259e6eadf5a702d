//! Copying events from the store into the file.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::file::{self, LogFile};
use super::{Continuity, EventLogError, EventLogSettings};
use crate::domain::log_event::{Entry, LogEvent};
use crate::process::CrashPoint;
use crate::store::{Store, StoreError};

/// How many events are copied at once.
const BATCH: u32 = 1024;

/// Pause between two batches: what comes meanwhile is copied together.
const PACE: Duration = Duration::from_millis(10);

/// Under load the store forgets after so many events.
const FORGET_AFTER: u64 = 4096;

/// How many events are forgotten in one transaction, so that a delivery that
/// arrives meanwhile does not wait long.
const FORGET_BATCH: u64 = 1024;

/// Pause after the file could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// The file as it was found, and where copying goes on.
pub(super) struct Opened {
    file: LogFile,
    /// Number of the last event that the file has, or that is missing for good.
    pub(super) last: u64,
    pub(super) continuity: Continuity,
    /// Everything up to here is out of the store.
    forgotten: u64,
}

/// Opens the file and brings it in line with the store.
pub(super) async fn open(
    store: &Store,
    settings: &EventLogSettings,
) -> Result<Opened, EventLogError> {
    let first_stored = store
        .read(|reader| reader.events_after(0, 1))
        .await?
        .first()
        .map(|(seq, _)| *seq);
    let given = *store.committed().borrow();
    let path = settings.path.clone();
    let opened = blocking(move || mend(&path, first_stored, given)).await;
    let (file, in_file) = opened.map_err(|source| EventLogError::File {
        path: settings.path.clone(),
        source,
    })?;

    let shown = settings.path.display();
    let needed = in_file + 1;
    let (last, continuity) = if in_file > given {
        tracing::error!(
            "The event log `{shown}` ends at event {in_file}, but the database gave numbers up to {given} only: one of them was replaced. Numbering goes on after {in_file}."
        );
        store
            .write(move |tx| {
                tx.skip_events_through(in_file);
                Ok(())
            })
            .await?;
        let ahead = Continuity::FileAhead {
            file: in_file,
            store: given,
        };
        (in_file, ahead)
    } else {
        let missing_through = first_stored.map_or(given, |first| first - 1);
        if missing_through >= needed {
            tracing::error!(
                "Events {needed} to {missing_through} are neither in the event log `{shown}` nor in the database: files of the log were removed or its path was changed."
            );
            let gap = Continuity::Gap {
                first: needed,
                last: missing_through,
            };
            (missing_through, gap)
        } else {
            (in_file, Continuity::Whole)
        }
    };
    Ok(Opened {
        file,
        last,
        continuity,
        forgotten: first_stored.map_or(last, |first| last.min(first - 1)),
    })
}

/// Opens the file, cuts off what is not whole, and returns the number of its
/// last line, 0 if there is none.
fn mend(
    path: &std::path::Path,
    first_stored: Option<u64>,
    given: u64,
) -> io::Result<(LogFile, u64)> {
    // The directory may be missing at the first start.
    std::fs::create_dir_all(super::rotation::directory_of(path))?;
    let before = file::last_finished(path)?;
    let (mut file, scan) = LogFile::open(path, before)?;
    let last = scan.last.unwrap_or(0);
    let Some(beyond) = scan.beyond.filter(|_| scan.beyond_end > scan.end) else {
        file.cut(scan.end)?;
        return Ok((file, last));
    };
    // A fault with good lines behind it. As long as the store still has what
    // belongs there, all of it is copied again.
    if first_stored.is_some_and(|first| first <= last + 1) && beyond <= given {
        file.cut(scan.end)?;
        return Ok((file, last));
    }
    tracing::error!(
        "The event log `{}` is damaged or has a gap behind event {last}, at byte {}; it goes on at its end.",
        path.display(),
        scan.end
    );
    file.cut(scan.beyond_end)?;
    Ok((file, beyond.max(last)))
}

/// The task.
pub(super) struct Copier {
    store: Store,
    settings: Arc<Mutex<EventLogSettings>>,
    file: Arc<Mutex<LogFile>>,
    last: u64,
    forgotten: u64,
    newest: watch::Sender<u64>,
    /// The file cannot be written, and that was said.
    is_failing: bool,
}

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("the file cannot be written")]
    File(#[source] io::Error),
    #[error("the store cannot be read or written")]
    Store(#[from] StoreError),
    #[error("the file cannot be opened again")]
    Open(#[from] EventLogError),
}

impl Copier {
    pub(super) fn new(
        store: Store,
        settings: Arc<Mutex<EventLogSettings>>,
        opened: Opened,
        newest: watch::Sender<u64>,
    ) -> Self {
        Self {
            store,
            settings,
            file: Arc::new(Mutex::new(opened.file)),
            last: opened.last,
            forgotten: opened.forgotten,
            newest,
            is_failing: false,
        }
    }

    /// Copies until told to stop, and then what is left.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut committed = self.store.committed();
        loop {
            let was_stopping = stop.is_cancelled();
            committed.borrow_and_update();
            match self.copy_some().await {
                Ok(copied) if copied > 0 => {
                    self.recovered();
                    if self.last - self.forgotten >= FORGET_AFTER {
                        self.forget_or_report().await;
                    }
                    pause(PACE, &stop).await;
                }
                Ok(_nothing) if was_stopping => {
                    self.forget_or_report().await;
                    return;
                }
                Ok(_nothing) => {
                    let settle = self.settings().settle;
                    let is_settled = self.forgotten == self.last;
                    tokio::select! {
                        changed = committed.changed() => if changed.is_err() {
                            // The store's writer has ended: nothing more comes.
                            stop.cancel();
                        },
                        () = tokio::time::sleep(settle), if !is_settled => {
                            if !self.forget_or_report().await {
                                pause(RETRY, &stop).await;
                            }
                        }
                        () = stop.cancelled() => {}
                    }
                }
                Err(error) => {
                    self.report(error).await;
                    if was_stopping {
                        return;
                    }
                    pause(RETRY, &stop).await;
                }
            }
        }
    }

    fn settings(&self) -> EventLogSettings {
        lock(&self.settings).clone()
    }

    /// Copies a batch; returns how many events it had.
    async fn copy_some(&mut self) -> Result<usize, CopyError> {
        let after = self.last;
        let events = self
            .store
            .read(move |reader| reader.events_after(after, BATCH))
            .await?;
        let Some((first, _)) = events.first() else {
            return Ok(0);
        };
        if *first != after + 1 {
            tracing::error!(
                "Events {} to {} are missing in the database.",
                after + 1,
                first - 1
            );
        }
        let count = events.len();
        let settings = self.settings();
        let file = Arc::clone(&self.file);
        let (last, written) = blocking(move || {
            let mut last = after;
            let written = write(&mut lock(&file), &events, &settings, &mut last);
            Ok((last, written))
        })
        .await
        .map_err(CopyError::File)?;
        CrashPoint::EventsWritten.pass();
        self.last = last;
        self.newest.send_replace(last);
        written.map_err(CopyError::File)?;
        Ok(count)
    }

    /// Flushes the file, then lets the store forget what it has.
    async fn forget(&mut self) -> Result<(), CopyError> {
        if self.forgotten == self.last {
            return Ok(());
        }
        let file = Arc::clone(&self.file);
        let is_in_place = blocking(move || {
            let file = lock(&file);
            file.flush()?;
            file.is_in_place()
        })
        .await
        .map_err(CopyError::File)?;
        if !is_in_place {
            tracing::error!(
                "The event log `{}` was moved or removed by somebody; it is begun again.",
                self.settings().path.display()
            );
            let opened = open(&self.store, &self.settings()).await?;
            self.last = opened.last;
            self.forgotten = opened.forgotten;
            self.file = Arc::new(Mutex::new(opened.file));
            return Ok(());
        }
        CrashPoint::EventsFlushed.pass();
        while self.forgotten < self.last {
            let through = self.last.min(self.forgotten + FORGET_BATCH);
            self.store
                .write(move |tx| tx.forget_events_through(through))
                .await?;
            CrashPoint::EventsForgotten.pass();
            self.forgotten = through;
        }
        Ok(())
    }

    async fn forget_or_report(&mut self) -> bool {
        let done = self.forget().await;
        match done {
            Ok(()) => true,
            // The daemon ends; the next start forgets.
            Err(CopyError::Store(StoreError::Closed)) => false,
            Err(error) => {
                self.report(error).await;
                false
            }
        }
    }

    /// Tells of a failure, once until it is over.
    async fn report(&mut self, error: CopyError) {
        if self.is_failing {
            return;
        }
        self.is_failing = true;
        let path = self.settings().path.display().to_string();
        let error = anyhow::Error::from(error);
        tracing::error!("The event log `{path}` waits, events stay in the database: {error:#}");
        let told = Entry::new(LogEvent::DiskRefused {
            path,
            error: format!("{error:#}"),
        });
        if let Err(error) = self.store.tell(told).await {
            tracing::warn!(%error, "That the event log waits could not be stored.");
        }
    }

    fn recovered(&mut self) {
        if self.is_failing {
            self.is_failing = false;
            tracing::info!("The event log is written again; nothing is missing.");
        }
    }
}

/// Appends events, rotating where it is time; `last` follows what is written.
fn write(
    file: &mut LogFile,
    events: &[(u64, String)],
    settings: &EventLogSettings,
    last: &mut u64,
) -> io::Result<()> {
    let mut lines = Vec::new();
    let mut through = *last;
    for (seq, line) in events {
        let len = file.len() + lines.len() as u64;
        if len > 0 && len + line.len() as u64 + 1 > settings.rotate_bytes {
            file.append(&lines)?;
            *last = through;
            lines.clear();
            file.rotate(settings.keep_files)?;
        }
        lines.extend_from_slice(line.as_bytes());
        lines.push(b'\n');
        through = *seq;
    }
    file.append(&lines)?;
    *last = through;
    Ok(())
}

async fn pause(length: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(length) => {}
        () = stop.cancelled() => {}
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
