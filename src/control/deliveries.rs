//! Deliveries as people look at them, and taking one up afresh.

use serde::{Deserialize, Serialize};

use super::references::References;
use super::{Control, ControlError};
use crate::clock;
use crate::domain::work_item::ItemQuery;
use crate::store::{DeliveryFilter, DeliveryRow, DeliveryState};

/// A delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryView {
    /// Its id.
    pub id: String,
    /// Order of arrival.
    pub seq: i64,
    /// Where it is in its life.
    pub state: DeliveryState,
    /// Where it came from.
    pub source: String,
    /// `X-GitHub-Event`.
    pub event: String,
    /// Action, once understood.
    pub action: Option<String>,
    /// `owner/name`, once understood.
    pub repository: Option<String>,
    /// Reference of its work item, once understood.
    pub work_item: Option<String>,
    /// How often it was tried.
    pub attempt: u32,
    /// Why it was dropped or parked, or why the last attempt failed.
    pub outcome: Option<String>,
    /// The message beside it.
    pub error: Option<String>,
    /// When it came.
    pub received_at: String,
    /// When it is tried again, if it waits for that.
    pub retry_at: Option<String>,
    /// When it was finished.
    pub finished_at: Option<String>,
    /// What it says, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<serde_json::Value>,
}

impl DeliveryView {
    pub(super) fn new(row: DeliveryRow, work_item: Option<String>) -> Self {
        let waits = row.state == DeliveryState::Received && row.not_before > 0;
        Self {
            id: row.id,
            seq: row.seq,
            state: row.state,
            source: row.source,
            event: row.gh_event,
            action: row.action,
            repository: row.repository,
            work_item,
            attempt: row.attempt,
            outcome: row.outcome,
            error: row.error,
            received_at: clock::rfc3339(row.received_at),
            retry_at: waits.then(|| clock::rfc3339(row.not_before)),
            finished_at: row.finished_at.map(clock::rfc3339),
            payload: None,
        }
    }
}

/// Which deliveries are asked for.
#[derive(Clone, Debug)]
pub struct DeliveryQuery {
    /// Only in this state.
    pub state: Option<DeliveryState>,
    /// Only of this item.
    pub item: Option<ItemQuery>,
    /// Only received at or after, milliseconds since 1970.
    pub since: Option<i64>,
    /// At most so many, the newest.
    pub limit: u32,
}

impl Control {
    /// Returns deliveries, newest last.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::NotFound`] if the item is not known.
    pub async fn deliveries(
        &self,
        query: DeliveryQuery,
    ) -> Result<Vec<DeliveryView>, ControlError> {
        let item = match &query.item {
            Some(named) => Some(self.item(named).await?.id),
            None => None,
        };
        let filter = DeliveryFilter {
            state: query.state,
            item,
            since: query.since,
            limit: query.limit,
        };
        Ok(self
            .store()
            .read(move |reader| {
                let mut references = References::default();
                let mut views = Vec::new();
                for row in reader.deliveries(&filter)? {
                    let reference = row
                        .item
                        .map(|item| references.of(reader, item))
                        .transpose()?;
                    views.push(DeliveryView::new(row, reference));
                }
                Ok(views)
            })
            .await?)
    }

    /// Returns one delivery, with what it says if asked.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::NotFound`] if there is none of this id.
    pub async fn delivery(
        &self,
        id: &str,
        with_payload: bool,
    ) -> Result<DeliveryView, ControlError> {
        let asked = id.to_owned();
        let found = self
            .store()
            .read(move |reader| {
                let Some(row) = reader.delivery(&asked)? else {
                    return Ok(None);
                };
                let reference = match row.item {
                    Some(item) => Some(reader.item(item)?.reference),
                    None => None,
                };
                let body = if with_payload {
                    reader
                        .delivery_with_body(row.seq)?
                        .map(|pending| pending.body)
                } else {
                    None
                };
                let mut view = DeliveryView::new(row, reference);
                view.payload = body.map(|body| {
                    // A body that is not JSON (a form, or garbage) is shown as it is.
                    serde_json::from_slice(&body).unwrap_or_else(|_not_json| {
                        serde_json::Value::String(String::from_utf8_lossy(&body).into_owned())
                    })
                });
                Ok(Some(view))
            })
            .await?;
        found.ok_or_else(|| no_delivery(id))
    }

    /// Takes a finished delivery up afresh; one that had its effect only with
    /// `force`.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::NotFound`] or [`ControlError::Refused`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop what was begun.
    pub async fn replay(&self, id: &str, force: bool) -> Result<(), ControlError> {
        let dispatcher = self.dispatcher().clone();
        let asked = id.to_owned();
        let found = tokio::spawn(async move { dispatcher.replay(&asked, force).await })
            .await
            .map_err(|_ended| ControlError::ShuttingDown)??;
        if found { Ok(()) } else { Err(no_delivery(id)) }
    }
}

fn no_delivery(id: &str) -> ControlError {
    ControlError::NotFound(format!("no delivery `{id}` is known here"))
}
