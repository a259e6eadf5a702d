//! What happened, as the event log tells it.

use std::collections::VecDeque;

use globset::GlobMatcher;
use serde_json::value::RawValue;

use super::{Control, ControlError};
use crate::domain::work_item::{Forge, HOST_OF_SHORT_REFERENCES, ItemName, ItemQuery};
use crate::event_log::{EventFilter, EventReader};

/// Which events are asked for.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Only events whose name this matches.
    pub kind: Option<GlobMatcher>,
    /// Only events of this item.
    pub item: Option<ItemQuery>,
    /// Only events of this delivery.
    pub delivery: Option<String>,
    /// Only events at or after, milliseconds since 1970.
    pub since: Option<i64>,
    /// Only events with a larger sequence number.
    pub after: u64,
}

impl EventQuery {
    /// Returns the reference under which the log tells of the item; none for a
    /// slug, which only the store can translate.
    pub fn reference(&self) -> Option<String> {
        match self.item.as_ref()? {
            ItemQuery::Slug(_) => None,
            ItemQuery::Name {
                host,
                owner,
                repo,
                number,
            } => Some(
                ItemName {
                    forge: Forge::Github,
                    host: host
                        .clone()
                        .unwrap_or_else(|| HOST_OF_SHORT_REFERENCES.to_owned()),
                    owner: owner.clone(),
                    repo: repo.clone(),
                    repo_id: None,
                    number: *number,
                }
                .reference(),
            ),
        }
    }

    /// Returns the filter for a reader of the log, `work_item` being the
    /// reference of [`EventQuery::item`].
    pub fn filter(self, work_item: Option<String>) -> EventFilter {
        EventFilter {
            event: self.kind,
            work_item,
            delivery: self.delivery,
            since: self.since,
            after: self.after,
        }
    }
}

impl Control {
    /// Returns the newest events that are asked for, at most `limit`, in order,
    /// each as its line stands in the log.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::File`] if the log cannot be read.
    pub async fn events(
        &self,
        query: EventQuery,
        limit: usize,
    ) -> Result<Vec<Box<RawValue>>, ControlError> {
        // An item that is known goes by the reference it was first seen under.
        let work_item = match &query.item {
            None => None,
            Some(named) => match self.item(named).await {
                Ok(item) => Some(item.reference),
                Err(ControlError::NotFound(message)) => {
                    Some(query.reference().ok_or(ControlError::NotFound(message))?)
                }
                Err(error) => return Err(error),
            },
        };
        let filter = query.filter(work_item);
        let path = self.facts().event_log.clone();
        let asked = path.clone();
        tokio::task::spawn_blocking(move || {
            let mut reader = EventReader::open(&asked, filter)?;
            let mut newest = VecDeque::new();
            while let Some(line) = reader.next_line()? {
                if newest.len() >= limit {
                    newest.pop_front();
                }
                newest.push_back(line);
            }
            newest.truncate(limit);
            Ok(newest
                .into_iter()
                .filter_map(|line| RawValue::from_string(line).ok())
                .collect())
        })
        .await
        .map_err(|_ended| ControlError::ShuttingDown)?
        .map_err(|source| ControlError::File { path, source })
    }
}
