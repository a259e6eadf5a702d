//! One work item with everything that is known of it.

use serde::{Deserialize, Serialize};

use super::{ArchiveView, CheckoutView, Control, ControlError, DeliveryView, SessionView, size};
use crate::clock;
use crate::domain::work_item::{ItemKind, ItemQuery};
use crate::store::DeliveryFilter;

/// How many of an item's last deliveries are shown with it.
const DELIVERIES_SHOWN: u32 = 10;

/// A work item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ItemView {
    /// Reference as first seen.
    pub work_item: String,
    /// Slug as first made.
    pub slug: String,
    /// Issue or pull request.
    pub kind: ItemKind,
    /// Title, as somebody on the forge wrote it.
    pub title: String,
    /// Address for people.
    pub url: Option<String>,
    /// Open or closed.
    pub open: bool,
    /// Whether it was merged, once a payload said so.
    pub merged: Option<bool>,
    /// Whether it was armed to start sessions.
    pub armed: bool,
    /// Whether later events are dropped.
    pub paused: bool,
    /// Login of who opened it.
    pub author: Option<String>,
    /// Labels.
    pub labels: Vec<String>,
    /// The newest head that a payload named.
    pub head: Option<String>,
    /// Branch of the head.
    pub head_branch: Option<String>,
    /// Base branch.
    pub base: Option<String>,
    /// When it was first seen.
    pub created_at: String,
    /// When it last changed.
    pub updated_at: String,
    /// Its checkout, if one may be on disk.
    pub checkout: Option<CheckoutView>,
    /// Its newest session.
    pub session: Option<SessionView>,
    /// Archives of its checkouts, newest first.
    pub archives: Vec<ArchiveView>,
    /// Its last deliveries, newest last.
    pub deliveries: Vec<DeliveryView>,
}

impl Control {
    /// Returns an item with its checkout, its session, its archives and its last
    /// deliveries.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::NotFound`] or [`ControlError::Ambiguous`].
    pub async fn show(&self, query: &ItemQuery, with_size: bool) -> Result<ItemView, ControlError> {
        let item = self.item(query).await?;
        let id = item.id;
        let (checkout, session, deliveries) = self
            .store()
            .read(move |reader| {
                Ok((
                    reader.live_checkout(id)?,
                    reader.last_session(id)?,
                    reader.deliveries(&DeliveryFilter {
                        item: Some(id),
                        limit: DELIVERIES_SHOWN,
                        ..DeliveryFilter::default()
                    })?,
                ))
            })
            .await?;
        let on_close = self.facts().on_close;
        let mut checkout =
            checkout.map(|row| CheckoutView::new(&item, &row, session.as_ref(), on_close));
        let mut archives = self.archives().await?;
        archives.retain(|archive| archive.slug == item.slug);
        if with_size && let Some(view) = checkout.take() {
            checkout = size::measured(vec![view]).await.pop();
        }
        let head = item.facts.head.clone();
        Ok(ItemView {
            session: session.map(|row| self.session_view(&item.reference, row)),
            checkout,
            archives,
            deliveries: deliveries
                .into_iter()
                .map(|row| DeliveryView::new(row, Some(item.reference.clone())))
                .collect(),
            work_item: item.reference,
            slug: item.slug,
            kind: item.kind,
            title: item.facts.title,
            url: item.facts.url,
            open: item.open,
            merged: item.facts.merged,
            armed: item.armed,
            paused: item.paused,
            author: item.facts.author.map(|author| author.login),
            labels: item.facts.labels,
            head: head.as_ref().and_then(|head| head.sha.clone()),
            head_branch: head.and_then(|head| head.branch),
            base: item.facts.base,
            created_at: clock::rfc3339(item.created_at),
            updated_at: clock::rfc3339(item.updated_at),
        })
    }
}
