//! The checkouts that may be on disk.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Control, ControlError, size};
use crate::clock;
use crate::domain::checkout::{CheckoutState, Strategy};
use crate::domain::reason::Kept;
use crate::domain::removal::OnClose;
use crate::store::{CheckoutRow, ItemRow, SessionRow, SessionState};

/// A checkout, with the item it belongs to and its session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckoutView {
    /// Reference of its work item.
    pub work_item: String,
    /// Slug of its work item.
    pub slug: String,
    /// `host/owner/repo`.
    pub repository: String,
    /// Where it is in its life.
    pub state: CheckoutState,
    /// Whether its item is open.
    pub open: bool,
    /// How it is made.
    pub strategy: Strategy,
    /// The directory, once it is ready.
    pub path: Option<String>,
    /// The local branch; none when detached.
    pub branch: Option<String>,
    /// The commit that Innkeeper put there last.
    pub commit: Option<String>,
    /// The commit it was first made at.
    pub base: Option<String>,
    /// Why it was kept when it was last to go; empty if it never was. What is
    /// in it now is told by explaining it.
    pub kept: Vec<Kept>,
    /// The item's session.
    pub session: Option<SessionBrief>,
    /// When it was begun.
    pub created_at: String,
    /// How old it is.
    pub age_seconds: i64,
    /// What happens to it when its item closes, as configured.
    pub on_close: OnClose,
    /// Bytes on disk, if they were asked for.
    pub bytes: Option<u64>,
}

/// A session in one word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionBrief {
    /// Its id.
    pub id: String,
    /// Name of its profile.
    pub profile: String,
    /// Where it is in its life.
    pub state: SessionState,
}

impl CheckoutView {
    pub(super) fn new(
        item: &ItemRow,
        row: &CheckoutRow,
        session: Option<&SessionRow>,
        on_close: OnClose,
    ) -> Self {
        let record = row.record.as_ref();
        Self {
            work_item: item.reference.clone(),
            slug: item.slug.clone(),
            repository: row.repository.clone(),
            state: row.state,
            open: item.open,
            strategy: row.strategy,
            path: record.map(|record| record.path.display().to_string()),
            branch: record.and_then(|record| record.branch.clone()),
            commit: record.map(|record| record.commit.clone()),
            base: record.map(|record| record.base.clone()),
            kept: row.kept.clone().unwrap_or_default(),
            session: session.map(|session| SessionBrief {
                id: session.id.clone(),
                profile: session.profile.clone(),
                state: session.state,
            }),
            created_at: clock::rfc3339(row.created_at),
            age_seconds: (clock::now_ms() - row.created_at).max(0) / 1000,
            on_close,
            bytes: None,
        }
    }
}

impl Control {
    /// Returns every checkout that may be on disk, oldest first. Measuring their
    /// sizes reads every directory and takes its time.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::Store`] if the store does not answer.
    pub async fn checkouts(&self, with_size: bool) -> Result<Vec<CheckoutView>, ControlError> {
        let on_close = self.facts().on_close;
        let views =
            self.store()
                .read(move |reader| {
                    let mut items = HashMap::new();
                    let mut views = Vec::new();
                    for row in reader.live_checkouts()? {
                        let item = match items.entry(row.item) {
                            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                            std::collections::hash_map::Entry::Vacant(entry) => entry
                                .insert((reader.item(row.item)?, reader.last_session(row.item)?)),
                        };
                        views.push(CheckoutView::new(&item.0, &row, item.1.as_ref(), on_close));
                    }
                    Ok(views)
                })
                .await?;
        if with_size {
            return Ok(size::measured(views).await);
        }
        Ok(views)
    }
}
