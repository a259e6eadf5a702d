//! Archives, below whichever root their checkouts stood: found, and deleted.
//!
//! What is on disk is what there is. The store only knows which roots there
//! were, and whose an archive is.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::failure::{Failure, Stop};
use super::request::{Answer, Request, RequestError, What};
use super::{Context, Dispatcher, restoring};
use crate::clock;
use crate::domain::archive::ArchiveSummary;
use crate::domain::code::FailureCode;
use crate::domain::log_event::{Entry, LogEvent, Source};
use crate::domain::retention::{self, ItemAge, Kept};
use crate::domain::work_item::ItemQuery;
use crate::store::{ItemRow, StoreError};

/// An archive, with whose it is and where.
#[derive(Clone, Debug)]
pub struct Archived {
    /// What it tells of itself.
    pub summary: ArchiveSummary,
    /// The work item; none if the store does not know it.
    pub item: Option<ItemRow>,
    /// The workspace root it stands below.
    pub root: PathBuf,
}

impl Archived {
    /// Returns when it may go, milliseconds since 1970, if it is kept for this
    /// many days; none for never.
    pub fn expires_at(&self, days: u64) -> Option<i64> {
        retention::expires_at(self.kept(), days)
    }

    /// Returns whether it is to go now.
    pub(super) fn is_expired(&self, days: u64) -> bool {
        retention::is_expired(self.kept(), days, clock::now_ms())
    }

    fn kept(&self) -> Kept {
        Kept {
            created_at: self.summary.created_at,
            item: self.item.as_ref().map(|item| ItemAge {
                open: item.open,
                changed_at: item.updated_at,
            }),
        }
    }

    /// Returns an event about it as one of its item.
    pub(super) fn entry(&self, event: LogEvent) -> Entry {
        let known = self.item.as_ref().map(|item| item.reference.clone());
        Entry {
            work_item: known.or_else(|| self.summary.work_item.clone()),
            delivery: None,
            event,
        }
    }
}

impl Dispatcher {
    /// Returns every archive, newest first. What cannot be read is told in the
    /// daemon's log and left out.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the store does not answer.
    pub async fn archives(&self) -> Result<Vec<Archived>, StoreError> {
        all(&self.context).await
    }

    /// Restores an archive: as the checkout of its item, or into a directory.
    /// One whose item is not known can only be restored into a directory.
    ///
    /// # Errors
    ///
    /// Returns [`RequestError`] if it was not restored; nothing is left then.
    pub async fn restore(
        &self,
        archived: Archived,
        to: Option<PathBuf>,
        source: Source,
    ) -> Result<Answer, RequestError> {
        let archive = archived.summary.id.clone();
        match (&archived.item, to) {
            (Some(item), to) => {
                let item = ItemQuery::Slug(item.slug.clone());
                let what = What::Restore { archive, to };
                self.request(Request { item, what, source }).await
            }
            (None, Some(to)) => restoring::alone(&self.context, &archived, &to)
                .await
                .unwrap_or_else(|stop| Err(stop.into())),
            (None, None) => Err(RequestError::Refused(format!(
                "the work item of archive {archive} is not known here; restore it into a directory (--to)"
            ))),
        }
    }

    /// Deletes an archive.
    ///
    /// # Errors
    ///
    /// Returns [`RequestError`] if it was not deleted.
    pub async fn purge(&self, archived: Archived, source: Source) -> Result<Answer, RequestError> {
        let archive = archived.summary.id.clone();
        match &archived.item {
            Some(item) => {
                let item = ItemQuery::Slug(item.slug.clone());
                let what = What::Purge { archive };
                self.request(Request { item, what, source }).await
            }
            None => Ok(purge(&self.context, &archived).await?),
        }
    }

    /// Returns why an archive is not listed, if there is one of this id: it
    /// cannot be read.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the store does not answer.
    pub async fn damage_of(&self, id: &str) -> Result<Option<RequestError>, StoreError> {
        for root in roots(&self.context).await? {
            let workspace = self.context.workspace(&root);
            if workspace.may_have_archives().await
                && let Err(error) = workspace.archive_summary(id).await
                && error.code() == FailureCode::Corrupt
            {
                return Ok(Some(Stop::from(Failure::of_workspace(error)).into()));
            }
        }
        Ok(None)
    }

    /// Deletes an archive that cannot be read, so that nobody can say whose it
    /// is.
    ///
    /// # Errors
    ///
    /// Returns [`RequestError`] if it was not deleted.
    pub async fn purge_damaged(&self, id: &str) -> Result<Answer, RequestError> {
        for root in roots(&self.context).await? {
            let workspace = self.context.workspace(&root);
            if !workspace.may_have_archives().await {
                continue;
            }
            match workspace.purge_archive(id).await {
                Ok(bytes) => {
                    let archive = id.to_owned();
                    let event = LogEvent::ArchivePurged {
                        archive: archive.clone(),
                        bytes,
                    };
                    self.context.store.tell(Entry::new(event)).await?;
                    return Ok(Answer::Purged { archive, bytes });
                }
                Err(error) if error.code() == FailureCode::BadInput => {}
                Err(error) => return Err(Stop::from(Failure::of_workspace(error)).into()),
            }
        }
        Err(unknown(id))
    }
}

/// Returns every root that a checkout stands below, or ever stood.
pub(super) async fn roots(context: &Context) -> Result<BTreeSet<PathBuf>, StoreError> {
    let known = context.store.read(|reader| reader.checkout_roots()).await?;
    let settings = context.settings();
    let configured = settings.workspace.as_ref();
    let mut roots: BTreeSet<PathBuf> = known.into_iter().map(PathBuf::from).collect();
    roots.extend(configured.map(|workspace| workspace.root.clone()));
    Ok(roots)
}

/// Returns every archive, newest first.
pub(super) async fn all(context: &Context) -> Result<Vec<Archived>, StoreError> {
    let mut seen = BTreeSet::new();
    let mut summaries = Vec::new();
    for root in roots(context).await? {
        let workspace = context.workspace(&root);
        if !workspace.may_have_archives().await {
            continue;
        }
        let found = workspace.archives().await;
        // Two names may lead to one root.
        if !seen.insert(workspace.layout().root().to_owned()) {
            continue;
        }
        match found {
            Ok(found) => summaries.extend(found.into_iter().map(|one| (root.clone(), one))),
            Err(error) => tracing::warn!(
                root = %root.display(),
                error = format!("{:#}", anyhow::Error::from(error)),
                "The archives below this root cannot be listed."
            ),
        }
    }
    summaries.sort_by_key(|(_, summary)| std::cmp::Reverse(summary.created_at));
    context
        .store
        .read(move |reader| {
            summaries
                .into_iter()
                .map(|(root, summary)| {
                    let slug = ItemQuery::Slug(summary.record.slug.clone());
                    Ok(Archived {
                        item: reader.items_named(&slug)?.into_iter().next(),
                        summary,
                        root,
                    })
                })
                .collect()
        })
        .await
}

/// Returns the archive of this id, if it is there and is one of this item.
pub(super) async fn of_item(
    context: &Context,
    item: &ItemRow,
    id: &str,
) -> Result<Option<Archived>, StoreError> {
    let is_it = |archived: &Archived| {
        archived.summary.id == id && archived.item.as_ref().is_some_and(|own| own.id == item.id)
    };
    Ok(all(context).await?.into_iter().find(is_it))
}

/// Returns the refusal for an id that no archive has.
pub(super) fn unknown(id: &str) -> RequestError {
    RequestError::NotFound(format!("no archive `{id}` is known here"))
}

/// Deletes an archive and tells it.
pub(super) async fn purge(context: &Context, archived: &Archived) -> Result<Answer, Stop> {
    let archive = archived.summary.id.clone();
    let bytes = context
        .workspace(&archived.root)
        .purge_archive(&archive)
        .await
        .map_err(Failure::of_workspace)?;
    let purged = LogEvent::ArchivePurged {
        archive: archive.clone(),
        bytes,
    };
    context.store.tell(archived.entry(purged)).await?;
    Ok(Answer::Purged { archive, bytes })
}
