//! Archives: what removed checkouts held that existed nowhere else.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Control, ControlError};
use crate::clock;
use crate::dispatch::Archived;
use crate::dispatch::request::Answer;
use crate::domain::checkout::Strategy;
use crate::domain::code::FailureCode;
use crate::domain::log_event::Source;
use crate::domain::reason::Kept;

/// How many letters may be wrong in an id that is still recognised.
const TYPOS_MAX: usize = 4;

/// An archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveView {
    /// Its id, which commands and events name.
    pub id: String,
    /// Reference of its work item; none if nobody knows it any more.
    pub work_item: Option<String>,
    /// Slug of its work item.
    pub slug: String,
    /// Whether its item is open; none if nobody knows it any more.
    pub open: Option<bool>,
    /// `host/owner/repo`.
    pub repository: String,
    /// How the checkout was made.
    pub strategy: Strategy,
    /// Where the checkout was.
    pub checkout: String,
    /// Where HEAD was: a full ref name or an object id; none if it was unborn.
    pub head: Option<String>,
    /// What was at risk.
    pub reasons: Vec<Kept>,
    /// When it was made.
    pub created_at: String,
    /// How old it is.
    pub age_seconds: i64,
    /// When it may go by itself; none for never, as long as its item is open
    /// among others.
    pub expires_at: Option<String>,
    /// What it takes of the disk.
    pub bytes: u64,
    /// How many files, directories and links are in it.
    pub files: u64,
    /// How many commits are in it that are nowhere else.
    pub commits: u64,
    /// The workspace root it is below.
    pub root: PathBuf,
}

impl ArchiveView {
    fn new(archived: Archived, days: u64) -> Self {
        let expires_at = archived.expires_at(days).map(clock::rfc3339);
        let Archived {
            summary,
            item,
            root,
        } = archived;
        let record = summary.record;
        Self {
            id: summary.id,
            open: item.as_ref().map(|item| item.open),
            work_item: item.map(|item| item.reference).or(summary.work_item),
            slug: record.slug,
            repository: format!("{}/{}/{}", record.host, record.owner, record.repo),
            strategy: record.strategy,
            checkout: record.path.display().to_string(),
            head: summary.head,
            reasons: summary.reasons,
            created_at: clock::rfc3339(summary.created_at),
            age_seconds: (clock::now_ms() - summary.created_at).max(0) / 1000,
            expires_at,
            bytes: summary.bytes,
            files: summary.files,
            commits: summary.commits,
            root,
        }
    }
}

impl Control {
    /// Returns every archive, newest first.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::Store`] if the store does not answer.
    pub async fn archives(&self) -> Result<Vec<ArchiveView>, ControlError> {
        let days = self.facts().archive_days;
        let found = self.dispatcher().archives().await?;
        Ok(found
            .into_iter()
            .map(|archived| ArchiveView::new(archived, days))
            .collect())
    }

    /// Returns one archive by its id.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::NotFound`] if there is none, with the id that was
    /// probably meant.
    pub async fn archive(&self, id: &str) -> Result<ArchiveView, ControlError> {
        let days = self.facts().archive_days;
        Ok(ArchiveView::new(self.archived(id).await?, days))
    }

    async fn archived(&self, id: &str) -> Result<Archived, ControlError> {
        let mut found = self.dispatcher().archives().await?;
        if let Some(at) = found.iter().position(|one| one.summary.id == id) {
            return Ok(found.swap_remove(at));
        }
        if let Some(damage) = self.dispatcher().damage_of(id).await? {
            return Err(damage.into());
        }
        let known: Vec<&str> = found.iter().map(|one| one.summary.id.as_str()).collect();
        Err(ControlError::NotFound(match nearest(id, &known) {
            Some(near) => {
                format!("no archive `{id}` is known here; did you mean `{near}`?")
            }
            None => format!("no archive `{id}` is known here"),
        }))
    }

    /// Restores an archive: as the checkout of its item, or into an absolute
    /// directory as a repository that stands alone.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError`] if it was not restored; nothing is left then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop what was begun.
    pub async fn restore(
        &self,
        id: &str,
        to: Option<PathBuf>,
        source: Source,
    ) -> Result<Answer, ControlError> {
        if let Some(to) = to.as_deref().filter(|to| !to.is_absolute()) {
            return Err(ControlError::Invalid(format!(
                "`{}` is no absolute path",
                to.display()
            )));
        }
        let archived = self.archived(id).await?;
        let dispatcher = self.dispatcher().clone();
        tokio::spawn(async move { dispatcher.restore(archived, to, source).await })
            .await
            .map_err(|_ended| ControlError::ShuttingDown)?
            .map_err(Into::into)
    }

    /// Deletes an archive, whatever its age, and whether it can be read or not.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError`] if it was not deleted.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop what was begun.
    pub async fn purge(&self, id: &str, source: Source) -> Result<Answer, ControlError> {
        let archived = match self.archived(id).await {
            Err(ControlError::Failed {
                code: FailureCode::Corrupt,
                ..
            }) => None,
            found => Some(found?),
        };
        let dispatcher = self.dispatcher().clone();
        let id = id.to_owned();
        let work = async move {
            match archived {
                Some(archived) => dispatcher.purge(archived, source).await,
                None => dispatcher.purge_damaged(&id).await,
            }
        };
        tokio::spawn(work)
            .await
            .map_err(|_ended| ControlError::ShuttingDown)?
            .map_err(Into::into)
    }
}

/// Returns the known id that a mistyped one most probably is. It is only ever
/// told, never taken.
fn nearest<'a>(id: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(id, known), *known))
        .filter(|(typos, _)| *typos <= TYPOS_MAX && *typos * 2 < id.len())
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_id_is_recognised_and_another_is_not() {
        let known = ["0198c0de7f00", "0198c0de8a11"];
        for (typed, meant) in [
            ("0198c0de7f0", Some("0198c0de7f00")),
            ("0198c0ed7f00", Some("0198c0de7f00")),
            ("0198c0de8a12", Some("0198c0de8a11")),
            ("d-1", None),
            ("", None),
            ("ffffffffffff", None),
        ] {
            assert_eq!(nearest(typed, &known), meant, "{typed}");
        }
    }
}
