//! The one thread that writes, and the transaction it lends out.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::StoreError;

/// The most pieces of work that are committed together.
const GROUP_MAX: usize = 512;

/// A piece of work; returns how to answer once the commit's outcome is known.
/// Without a transaction it is not run, and only answered.
type Job = Box<dyn FnOnce(Option<&mut Tx<'_>>) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

enum Message {
    Work(Job),
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

pub(super) fn start(connection: Connection, node: String) -> Result<Handle, StoreError> {
    let next_seq = super::events::next_seq(&connection)?;
    let (jobs, queue) = channel();
    let (newest, committed) = watch::channel(next_seq - 1);
    let thread = std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || run(&connection, &queue, &node, next_seq, &newest))
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

fn in_savepoint<T>(
    tx: &mut Tx<'_>,
    work: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let seq_before = tx.next_seq;
    tx.connection.execute_batch("SAVEPOINT piece")?;
    let result = work(tx);
    let ended = if result.is_ok() {
        tx.connection.execute_batch("RELEASE piece")
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

fn run(
    connection: &Connection,
    queue: &Receiver<Message>,
    node: &str,
    mut next_seq: u64,
    newest: &watch::Sender<u64>,
) {
    let mut open = true;
    while open {
        let Ok(Message::Work(first)) = queue.recv() else {
            break;
        };
        let mut answers = Vec::new();
        let mut tx = Tx {
            connection,
            node,
            next_seq,
        };
        let mut outcome = connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(StoreError::from);
        let mut next = Some(first);
        while let Some(job) = next.take() {
            answers.push(job(outcome.is_ok().then_some(&mut tx)));
            // A full disk makes SQLite roll the whole transaction back by itself;
            // what follows would then be committed piece by piece.
            if outcome.is_ok() && connection.is_autocommit() {
                outcome = Err(StoreError::Full);
            }
            if outcome.is_ok() && answers.len() < GROUP_MAX {
                match queue.try_recv() {
                    Ok(Message::Work(job)) => next = Some(job),
                    Ok(Message::Close) => open = false,
                    Err(_none_or_gone) => {}
                }
            }
        }
        let outcome =
            outcome.and_then(|()| connection.execute_batch("COMMIT").map_err(StoreError::from));
        match outcome {
            Ok(()) => {
                if tx.next_seq != next_seq {
                    next_seq = tx.next_seq;
                    newest.send_replace(next_seq - 1);
                }
                for answer in answers {
                    answer(Ok(()));
                }
            }
            Err(error) => {
                let text = chain(&error);
                tracing::error!(error = text, "The state could not be written.");
                if !connection.is_autocommit()
                    && let Err(error) = connection.execute_batch("ROLLBACK")
                {
                    tracing::error!(%error, "The failed write could not be rolled back.");
                }
                let full = matches!(error, StoreError::Full);
                for answer in answers {
                    answer(Err(if full {
                        StoreError::Full
                    } else {
                        StoreError::NotCommitted(text.clone())
                    }));
                }
            }
        }
    }
    if let Err(error) = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(%error, "The write-ahead log was not moved into the database; the next start does it.");
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
