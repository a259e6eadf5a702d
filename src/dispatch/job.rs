//! What is being worked on: an item, under a claim, for a delivery or for
//! somebody who asked.

use std::sync::Arc;

use tokio::time::Instant;

use super::Context;
use super::settings::Settings;
use crate::clock;
use crate::domain::envelope::Envelope;
use crate::domain::log_event::{Entry, LogEvent, Source};
use crate::process::CrashPoint;
use crate::store::{Claim, ItemRow, StoreError, Tx};

/// The delivery that a job is about.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) seq: i64,
    pub(super) id: String,
    pub(super) envelope: Envelope,
    pub(super) began: Instant,
}

/// A job in the lane of its item.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) context: Arc<Context>,
    pub(super) settings: Arc<Settings>,
    pub(super) item: ItemRow,
    pub(super) claim: Claim,
    pub(super) delivery: Option<Delivery>,
    pub(super) source: Source,
    /// Whether this will not be tried again by itself.
    pub(super) last_attempt: bool,
}

impl Job {
    /// Returns `event` as one about this item and delivery.
    pub(super) fn entry(&self, event: LogEvent) -> Entry {
        Entry {
            work_item: Some(self.item.reference.clone()),
            delivery: self.delivery.as_ref().map(|delivery| delivery.id.clone()),
            event,
        }
    }

    /// Stores `change` together with the delivery's end, if there is a delivery.
    pub(super) async fn finish<F>(&self, change: F) -> Result<(), StoreError>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static,
    {
        let done = self.delivery.as_ref().map(|delivery| {
            let ms = clock::millis(delivery.began.elapsed());
            (delivery.seq, self.entry(LogEvent::DeliveryDone { ms }))
        });
        self.context
            .store
            .write(move |tx| {
                change(tx)?;
                if let Some((seq, entry)) = done {
                    tx.delivery_done(seq)?;
                    tx.append(&entry)?;
                }
                Ok(())
            })
            .await?;
        CrashPoint::JobFinished.pass();
        Ok(())
    }

    /// Stores `event` alone.
    pub(super) async fn tell(&self, event: LogEvent) -> Result<(), StoreError> {
        self.context.store.tell(self.entry(event)).await
    }

    /// Returns the envelope of the delivery, if there is one.
    pub(super) fn envelope(&self) -> Option<&Envelope> {
        self.delivery.as_ref().map(|delivery| &delivery.envelope)
    }
}
