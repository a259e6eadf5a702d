//! The one thread that writes, and the transaction it lends out.
//!
//! Pieces of work are run as they come, in one open transaction. It is committed
//! when the thread that flushes is free, so that preparing the next group and
//! flushing the last one go on side by side.

use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::StoreError;
use super::flush::{Committed, Flusher};
use crate::process::CrashPoint;

/// How many pieces of work are run before the thread looks whether it may
/// commit them.
const GROUP_MAX: usize = 512;

/// A piece of work; returns how to answer once the commit's outcome is known.
/// Without a transaction it is not run, and only answered.
type Job = Box<dyn FnOnce(Option<&mut Tx<'_>>) -> Answer + Send>;

/// Tells whoever asked for a piece of work what became of it.
pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What wakes the thread.
pub(super) enum Message {
    /// Something is to be written.
    Work(Job),
    /// The last group is on disk, or could not be flushed.
    Flushed(std::io::Result<()>),
    /// What is queued up is the last.
    Close,
}

/// The writing side of a transaction; see the `impl` blocks beside each table.
pub struct Tx<'a> {
    pub(crate) connection: &'a Connection,
    /// Stands in every event.
    pub(crate) node: &'a str,
    /// The sequence number that the next event gets.
    pub(crate) next_seq: u64,
}

pub(super) struct Handle {
    jobs: Sender<Message>,
    committed: watch::Receiver<u64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Starts the thread for the database at `path`, which `connection` has open.
pub(super) fn start(
    connection: Connection,
    path: &Path,
    node: String,
) -> Result<Handle, StoreError> {
    // The flusher does what FULL would do within each commit.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let next_seq = super::events::next_seq(&connection)?;
    let (jobs, queue) = channel();
    let (newest, committed) = watch::channel(next_seq - 1);
    let flusher = Flusher::start(path, jobs.clone(), newest).map_err(StoreError::Thread)?;
    let thread = std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || {
            let mut writer = Writer::new(&connection, &node, flusher, next_seq);
            writer.run(&queue);
            writer.end();
        })
        .map_err(StoreError::Thread)?;
    Ok(Handle {
        jobs,
        committed,
        thread: Mutex::new(Some(thread)),
    })
}

impl Handle {
    pub(super) fn submit<T, F>(
        &self,
        work: F,
        answer: oneshot::Sender<Result<T, StoreError>>,
    ) -> Result<(), StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let job: Job = Box::new(move |tx| {
            let result = match tx {
                Some(tx) => in_savepoint(tx, work),
                None => Err(StoreError::Closed),
            };
            Box::new(move |committed| {
                // Nobody may be waiting any more; the write stands all the same.
                let _unheard = answer.send(result.and_then(|value| committed.map(|()| value)));
            })
        });
        self.jobs
            .send(Message::Work(job))
            .map_err(|_gone| StoreError::Closed)
    }

    pub(super) fn committed(&self) -> watch::Receiver<u64> {
        self.committed.clone()
    }

    pub(super) fn close(&self) {
        let _already_gone = self.jobs.send(Message::Close);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _panicked = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The thread that flushes has an end of the queue too, so that the writer
        // would not learn of it otherwise.
        let _already_gone = self.jobs.send(Message::Close);
    }
}

/// Runs a statement that is run for every piece, without parsing it every time.
fn run(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}

fn in_savepoint<T>(
    tx: &mut Tx<'_>,
    work: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let seq_before = tx.next_seq;
    run(tx.connection, "SAVEPOINT piece")?;
    let result = work(tx);
    let ended = if result.is_ok() {
        run(tx.connection, "RELEASE piece")
    } else {
        tx.connection
            .execute_batch("ROLLBACK TO piece; RELEASE piece")
    };
    if result.is_err() {
        tx.next_seq = seq_before;
    }
    ended?;
    result
}

/// The thread's own state.
struct Writer<'a> {
    connection: &'a Connection,
    flusher: Flusher,
    tx: Tx<'a>,
    /// What the next transaction's first event is numbered, if this one fails.
    next_seq: u64,
    /// Pieces that were run in the transaction that is open.
    answers: Vec<Answer>,
    /// Whether that transaction can still be committed.
    outcome: Result<(), StoreError>,
    is_flushing: bool,
    /// Nothing can be promised any more, and why.
    broken: Option<String>,
}

impl<'a> Writer<'a> {
    fn new(connection: &'a Connection, node: &'a str, flusher: Flusher, next_seq: u64) -> Self {
        Self {
            connection,
            flusher,
            tx: Tx {
                connection,
                node,
                next_seq,
            },
            next_seq,
            answers: Vec::new(),
            outcome: Ok(()),
            is_flushing: false,
            broken: None,
        }
    }

    fn run(&mut self, queue: &Receiver<Message>) {
        let mut is_closing = false;
        while !is_closing || self.is_flushing || !self.answers.is_empty() {
            let Ok(message) = queue.recv() else {
                break;
            };
            is_closing |= self.step(message);
            for _ in 1..GROUP_MAX {
                let Ok(message) = queue.try_recv() else {
                    break;
                };
                is_closing |= self.step(message);
            }
            if !self.is_flushing && !self.answers.is_empty() {
                self.commit();
            }
        }
    }

    /// Takes one message; returns whether it was the last.
    fn step(&mut self, message: Message) -> bool {
        match message {
            Message::Work(job) => self.piece(job),
            Message::Flushed(Ok(())) => self.is_flushing = false,
            Message::Flushed(Err(error)) => {
                self.is_flushing = false;
                // What the system has of the file need not be on the disk now, and
                // flushing again would not tell.
                let text = format!("flushing the write-ahead log failed: {error}");
                tracing::error!(
                    error = text,
                    "The state cannot be written safely any more; start the daemon again once the disk is well."
                );
                self.broken = Some(text);
            }
            Message::Close => return true,
        }
        false
    }

    fn piece(&mut self, job: Job) {
        if let Some(text) = &self.broken {
            job(None)(Err(StoreError::NotCommitted(text.clone())));
            return;
        }
        if self.answers.is_empty() {
            self.tx.next_seq = self.next_seq;
            self.outcome = run(self.connection, "BEGIN IMMEDIATE").map_err(StoreError::from);
        }
        let answer = job(self.outcome.is_ok().then_some(&mut self.tx));
        self.answers.push(answer);
        // A full disk makes SQLite roll the whole transaction back by itself;
        // what follows would then be committed piece by piece.
        if self.outcome.is_ok() && self.connection.is_autocommit() {
            self.outcome = Err(StoreError::Full);
        }
    }

    fn commit(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        if let Some(text) = &self.broken {
            let error = StoreError::NotCommitted(text.clone());
            return self.refuse(answers, &error);
        }
        CrashPoint::StoreWritten.pass();
        let outcome = std::mem::replace(&mut self.outcome, Ok(()))
            .and_then(|()| run(self.connection, "COMMIT").map_err(StoreError::from));
        CrashPoint::StoreCommitted.pass();
        match outcome {
            Ok(()) => {
                self.next_seq = self.tx.next_seq;
                self.is_flushing = true;
                self.flusher.flush(Committed {
                    answers,
                    newest: self.next_seq - 1,
                });
            }
            Err(error) => self.refuse(answers, &error),
        }
    }

    fn refuse(&self, answers: Vec<Answer>, error: &StoreError) {
        let text = chain(error);
        tracing::error!(error = text, "The state could not be written.");
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "The failed write could not be rolled back.");
        }
        for answer in answers {
            answer(Err(if matches!(error, StoreError::Full) {
                StoreError::Full
            } else {
                StoreError::NotCommitted(text.clone())
            }));
        }
    }

    fn end(self) {
        self.flusher.finish();
        let moved = self
            .connection
            .execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE)");
        if let Err(error) = moved {
            tracing::warn!(%error, "The write-ahead log was not moved into the database; the next start does it.");
        }
    }
}

fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_flush_that_failed_nothing_is_written_and_everybody_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("w.db");
        let mut connection = Connection::open(&path).expect("opens");
        super::super::schema::prepare(&mut connection).expect("prepared");
        let (jobs, _queue) = channel();
        let (newest, _committed) = watch::channel(0);
        let flusher = Flusher::start(&path, jobs, newest).expect("a thread");
        let mut writer = Writer::new(&connection, "node", flusher, 1);
        let (told, answers) = channel();
        let piece = |writer: &mut Writer<'_>| {
            let told = told.clone();
            let job: Job = Box::new(move |tx| {
                let ran = tx.is_some();
                Box::new(move |outcome| told.send((ran, outcome)).expect("heard"))
            });
            writer.step(Message::Work(job));
        };
        piece(&mut writer);
        writer.step(Message::Flushed(Err(std::io::Error::other("a bad disk"))));
        writer.commit();
        piece(&mut writer);
        for ran in [true, false] {
            let (did_run, outcome) = answers.recv().expect("told");
            assert_eq!(did_run, ran);
            let Err(StoreError::NotCommitted(text)) = outcome else {
                panic!("{outcome:?}");
            };
            assert!(text.contains("a bad disk"), "{text}");
        }
        writer.end();
    }
}
