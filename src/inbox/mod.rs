//! The inbox: every authentic delivery, on disk before it is answered.
//!
//! # What this module promises
//!
//! 1. What [`Inbox::accept`] answered with `Ok` is on disk, together with the
//!    event that tells of it.
//! 2. A delivery id is accepted once, also at the same moment and across
//!    restarts, as long as the ledger remembers it. Only a delivery that was
//!    given up is taken up afresh when it comes again; it then stands at the end
//!    of the order of arrival.
//! 3. At a bound (waiting deliveries, free bytes) a delivery is refused, never
//!    half stored. One that is in the ledger already is answered as a duplicate
//!    even then.
//! 4. Nothing here waits for the dispatcher; it is only woken.
//!
//! # What is not here
//!
//! Verifying (the listener does it) and understanding (the dispatcher does it).

mod gist;
mod pending;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

pub use crate::store::Accepted;

use crate::clock;
use crate::domain::log_event::{Entry, LogEvent, Source};
use crate::process::CrashPoint;
use crate::store::{NewDelivery, Store, StoreError, Tx};
use gist::Gist;
use pending::PendingEstimate;

/// Bodies from this size on are packed off the async threads; below it the
/// handing over would cost more than the packing.
const LARGE_BODY_BYTES: usize = 256 * 1024;

/// How many deliveries are forgotten in one transaction, so that what arrives
/// meanwhile does not wait long.
const FORGET_BATCH: u32 = 500;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What the inbox refuses beyond.
#[derive(Clone, Copy, Debug)]
pub struct InboxLimits {
    /// The most deliveries that may wait or run.
    pub max_pending: u64,
    /// Free bytes that stay on the state's disk, so that what is running can
    /// still be finished and told.
    pub min_free_bytes: u64,
}

impl Default for InboxLimits {
    fn default() -> Self {
        Self {
            max_pending: 100_000,
            min_free_bytes: 64 * 1024 * 1024,
        }
    }
}

/// A verified delivery on its way in.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// `X-GitHub-Delivery`.
    pub id: String,
    /// `X-GitHub-Event`.
    pub gh_event: String,
    /// Where it came from.
    pub source: Source,
    /// Whether the body is a form with `payload=`.
    pub form: bool,
    /// The body as it was sent.
    pub body: Bytes,
}

/// Why a delivery was not taken. Each is "later" to the sender.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Too many wait; it is the dispatcher that has to catch up.
    #[error("{pending} deliveries are waiting, which is the limit")]
    InboxFull {
        /// How many wait.
        pending: u64,
    },
    /// The state's disk is full, or would leave less than is kept free.
    #[error("the disk that holds the state is full")]
    DiskFull,
    /// The daemon is shutting down.
    #[error("the daemon is shutting down")]
    Closed,
    /// The store failed in another way.
    #[error("the delivery could not be stored")]
    NotStored(#[source] StoreError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InboxFull { pending } => Self::InboxFull { pending },
            StoreError::Full => Self::DiskFull,
            StoreError::Closed => Self::Closed,
            other @ (StoreError::Stale { .. }
            | StoreError::TooNew { .. }
            | StoreError::Absent { .. }
            | StoreError::Senseless(_)
            | StoreError::NotCommitted(_)
            | StoreError::Sqlite(_)
            | StoreError::Thread(_)) => Self::NotStored(other),
        }
    }
}

/// A handle to the inbox; cheap to clone.
#[derive(Clone)]
pub struct Inbox {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    /// A directory on the disk that holds the state.
    state_root: PathBuf,
    limits: Mutex<InboxLimits>,
    /// Touched only by the store's writer, so that it needs no order of its own.
    pending: Mutex<PendingEstimate>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Inbox {
    /// Returns the inbox of `store`, whose files are below `state_root`. `wake`
    /// is called after each delivery that was stored, and must not block.
    pub fn new(
        store: Store,
        state_root: PathBuf,
        limits: InboxLimits,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                state_root,
                limits: Mutex::new(limits),
                pending: Mutex::new(PendingEstimate::default()),
                wake: Box::new(wake),
            }),
        }
    }

    /// Sets other limits from now on.
    pub fn set_limits(&self, limits: InboxLimits) {
        *self.inner.limits() = limits;
    }

    /// Stores a delivery, and answers when it is on disk.
    ///
    /// # Errors
    ///
    /// Returns [`Refused`] if it was not stored; the sender may send it again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the delivery stored, or not.
    pub async fn accept(&self, arrival: Arrival) -> Result<Accepted, Refused> {
        let (delivery, received) = if arrival.body.len() < LARGE_BODY_BYTES {
            pack(arrival)?
        } else {
            tokio::task::spawn_blocking(move || pack(arrival))
                .await
                .map_err(|_stopped| Refused::Closed)??
        };
        let inner = Arc::clone(&self.inner);
        let accepted = self
            .inner
            .store
            .write(move |tx| inner.store_one(tx, &delivery, received))
            .await?;
        CrashPoint::InboxStored.pass();
        if let Accepted::New(_) = accepted {
            (self.inner.wake)();
        }
        Ok(accepted)
    }

    /// Stores an event about what did not come in. One that cannot be stored is
    /// only logged: there is nobody to tell.
    pub async fn report(&self, event: LogEvent) {
        if let Err(error) = self.inner.store.tell(Entry::new(event)).await {
            tracing::warn!(%error, "An event about the intake could not be stored.");
        }
    }

    /// Forgets deliveries that were finished more than `ledger_days` ago;
    /// returns how many.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the store failed; calling again continues.
    pub async fn prune(&self, ledger_days: u32) -> Result<usize, StoreError> {
        let before = clock::now_ms() - i64::from(ledger_days) * DAY_MS;
        let mut forgotten = 0;
        loop {
            let batch = self
                .inner
                .store
                .write(move |tx| tx.forget_some_deliveries(before, FORGET_BATCH))
                .await?;
            forgotten += batch;
            if batch < FORGET_BATCH as usize {
                return Ok(forgotten);
            }
        }
    }
}

impl Inner {
    fn limits(&self) -> std::sync::MutexGuard<'_, InboxLimits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store_one(
        &self,
        tx: &mut Tx<'_>,
        delivery: &NewDelivery,
        received: LogEvent,
    ) -> Result<Accepted, StoreError> {
        let limits = *self.limits();
        let mut estimate = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let room = match estimate.admit(limits.max_pending, || tx.pending_deliveries()) {
            Ok(()) => self.require_space(limits.min_free_bytes, delivery.body.len()),
            refused => refused,
        };
        if let Err(refused) = room {
            return match tx.delivery(&delivery.id)? {
                Some(_) => Ok(Accepted::Duplicate),
                None => Err(refused),
            };
        }
        let accepted = match tx.accept_delivery(delivery)? {
            Accepted::Duplicate if tx.forget_parked_delivery(&delivery.id)? => {
                tx.accept_delivery(delivery)?
            }
            accepted => accepted,
        };
        let event = match accepted {
            Accepted::New(_) => {
                estimate.admitted();
                received
            }
            Accepted::Duplicate => LogEvent::DeliveryDuplicate {
                of: delivery.id.clone(),
            },
        };
        tx.append(&Entry::new(event).of_delivery(&delivery.id))?;
        Ok(accepted)
    }

    fn require_space(&self, min_free_bytes: u64, body: usize) -> Result<(), StoreError> {
        // A disk that cannot be asked is left to the write itself.
        let Ok(disk) = rustix::fs::statvfs(&self.state_root) else {
            return Ok(());
        };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < min_free_bytes.saturating_add(body as u64) {
            return Err(StoreError::Full);
        }
        Ok(())
    }
}

fn pack(arrival: Arrival) -> Result<(NewDelivery, LogEvent), Refused> {
    let gist = if arrival.form {
        Gist::default()
    } else {
        Gist::of(&arrival.body)
    };
    let body = NewDelivery::compress(&arrival.body)
        .map_err(|error| Refused::NotStored(StoreError::Senseless(error.to_string())))?;
    let received = LogEvent::WebhookReceived {
        gh_event: arrival.gh_event.clone(),
        action: gist.action,
        repository: gist.repository,
        source: arrival.source,
    };
    let delivery = NewDelivery {
        id: arrival.id,
        source: arrival.source.as_str(),
        gh_event: arrival.gh_event,
        form: arrival.form,
        body,
    };
    Ok((delivery, received))
}

#[cfg(test)]
mod tests;
