//! The operations that people and programs may ask for, once, for all surfaces.
//!
//! # What this module promises
//!
//! 1. An operation that was begun goes on when whoever asked for it is gone:
//!    what changes something runs in a task of its own.
//! 2. A reference means one work item or none: more than one is an error that
//!    names them all, never a guess.
//! 3. Every answer is a value that serialises; names and units in it are stable.
//!
//! # What is not here
//!
//! Formatting, HTTP, and decisions: the dispatcher decides, in the item's lane.

mod archives;
mod checkouts;
mod deliveries;
mod error;
mod events;
mod facts;
mod gc;
mod health;
mod items;
mod references;
mod sessions;
mod size;
mod status;

use std::sync::{Arc, PoisonError, RwLock};

use crate::dispatch::Dispatcher;
use crate::dispatch::request::{Answer, Request, What};
use crate::domain::log_event::Source;
use crate::domain::work_item::{HOST_OF_SHORT_REFERENCES, ItemQuery};
use crate::store::{ItemRow, Store};

pub use archives::ArchiveView;
pub use checkouts::{CheckoutView, SessionBrief};
pub use deliveries::{DeliveryQuery, DeliveryView};
pub use error::ControlError;
pub use events::EventQuery;
pub use facts::{Facts, Limits, Listeners};
pub use gc::HaltView;
pub use health::Health;
pub use items::ItemView;
pub use sessions::{LogChunk, SessionView};
pub use status::{ArchiveCounts, CheckoutCounts, DeliveryCounts, Disk, StatusView};

/// What the daemon alone can say about its own condition: a sentence for each
/// thing that keeps it from being ready.
pub type Problems = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The operations; cheap to clone.
#[derive(Clone)]
pub struct Control {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    dispatcher: Dispatcher,
    facts: RwLock<Arc<Facts>>,
    problems: Problems,
}

impl Control {
    /// Returns the operations over a store and a dispatcher.
    ///
    /// `problems` is asked at every probe of readiness and must not block.
    pub fn new(store: Store, dispatcher: Dispatcher, facts: Facts, problems: Problems) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                dispatcher,
                facts: RwLock::new(Arc::new(facts)),
                problems,
            }),
        }
    }

    /// Puts other facts in force, as the configuration was reloaded.
    pub fn replace_facts(&self, facts: Facts) {
        *self
            .inner
            .facts
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(facts);
    }

    /// Returns the facts in force.
    pub fn facts(&self) -> Arc<Facts> {
        Arc::clone(
            &self
                .inner
                .facts
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn store(&self) -> &Store {
        &self.inner.store
    }

    fn dispatcher(&self) -> &Dispatcher {
        &self.inner.dispatcher
    }

    /// Asks for something to be done for an item, in its lane.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError`] if it was not done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop what was begun.
    pub async fn request(
        &self,
        query: ItemQuery,
        what: What,
        source: Source,
    ) -> Result<Answer, ControlError> {
        let control = self.clone();
        tokio::spawn(async move { control.request_here(query, what, source).await })
            .await
            .map_err(|_ended| ControlError::ShuttingDown)?
    }

    async fn request_here(
        &self,
        query: ItemQuery,
        what: What,
        source: Source,
    ) -> Result<Answer, ControlError> {
        let item = match self.item(&query).await {
            Ok(item) => ItemQuery::Slug(item.slug),
            // Only these make an item, and only from a name.
            Err(ControlError::NotFound(_))
                if matches!(what, What::Prepare { .. } | What::Start)
                    && matches!(query, ItemQuery::Name { .. }) =>
            {
                query
            }
            Err(error) => return Err(error),
        };
        Ok(self
            .dispatcher()
            .request(Request { item, what, source })
            .await?)
    }

    /// Returns the one item that is meant.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::NotFound`] or [`ControlError::Ambiguous`].
    pub async fn item(&self, query: &ItemQuery) -> Result<ItemRow, ControlError> {
        let asked = query.clone();
        let mut found = self
            .store()
            .read(move |reader| reader.items_named(&asked))
            .await?;
        if found.len() > 1 && matches!(query, ItemQuery::Name { host: None, .. }) {
            // A reference without a host is the full one of an item on this host.
            let full = |item: &ItemRow| item.name.host == HOST_OF_SHORT_REFERENCES;
            if found.iter().any(full) {
                found.retain(full);
            }
        }
        if found.len() > 1 {
            let names: Vec<_> = found
                .iter()
                .map(|item| format!("{} ({})", item.slug, item.reference))
                .collect();
            return Err(ControlError::Ambiguous(format!(
                "`{}` is the name of {} work items; say which one by its slug: {}",
                error::written(query),
                names.len(),
                names.join(", ")
            )));
        }
        found.pop().ok_or_else(|| {
            ControlError::NotFound(format!(
                "no work item `{}` is known here",
                error::written(query)
            ))
        })
    }
}
