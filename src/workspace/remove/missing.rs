//! Removing what is left of a checkout whose directory is gone.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::settle::{exists, is_ours};
use super::steps::{drop_record, finish};
use super::{Cleanup, kept, or_failed, refused};
use crate::domain::archive::{AtRisk, Decision, decide};
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::reason::{KeepReason, Kept};
use crate::workspace::archive::Subject;
use crate::workspace::gate::{Facts, Gate, fingerprint, reasons};
use crate::workspace::identity::{Located, read_line};
use crate::workspace::journal::{Journal, Phase};
use crate::workspace::layout::Layout;
use crate::workspace::probe::operation::operations;
use crate::workspace::probe::private::Private;
use crate::workspace::probe::read::{SMALL_BYTES_MAX, read_if_present};
use crate::workspace::probe::submodule::Asker;
use crate::workspace::probe::tips;
use crate::workspace::probe::walk::walk_git_dir;
use crate::workspace::repository::Repository;
use crate::workspace::worktree;
use crate::workspace::{Inner, WorkspaceError, blocking};

/// What is left of a checkout whose directory is gone.
pub(super) struct Missing<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) layout: &'a Layout,
    pub(super) repository: &'a Arc<Repository>,
    pub(super) record: &'a CheckoutRecord,
    pub(super) facts: &'a Facts,
}

/// What git's record of a missing directory holds that is nowhere else.
pub(super) struct Left {
    reasons: Vec<Kept>,
    /// None if it was not seen whole.
    seen: Option<(Arc<Private>, String)>,
}

impl Missing<'_> {
    /// Removes it, unless it holds what is nowhere else and may not be archived.
    pub(super) async fn remove(
        &self,
        at_risk: &AtRisk,
        cancel: &CancellationToken,
    ) -> Result<Cleanup, WorkspaceError> {
        let (repository, record) = (self.repository, self.record);
        let admin = worktree::admin_dir(repository, &record.slug);
        if record.strategy == Strategy::Clone || !exists(&admin)? {
            let nonce = record.nonce.clone();
            self.finish(nonce, None, false).await?;
            return Ok(Cleanup::AlreadyGone);
        }
        if let Err(kept) = self.require_ours(&admin)? {
            return Ok(kept);
        }
        let gate = Gate::new(self.inner, repository, self.facts)?;
        let located = Located {
            path: record.path.clone(),
            admin,
            common: repository.shared.clone(),
        };
        let Left { reasons, seen } = left_in_record(&gate, &located, record, cancel).await?;
        let fingerprint = seen.as_ref().map(|(_, fingerprint)| fingerprint.as_str());
        let mut archive = None;
        if !reasons.is_empty() {
            if let Decision::Keep { token } = decide(at_risk, &reasons, fingerprint) {
                return Ok(Cleanup::Kept { reasons, token });
            }
            let Some((private, _)) = seen else {
                return Ok(kept(KeepReason::ProbeFailed, "it was not seen whole"));
            };
            let subject = Subject {
                gate: &gate,
                layout: self.layout,
                record,
                located: &located,
                private,
                status: None,
                nested: &[],
                reasons: &reasons,
            };
            match subject.archive(cancel).await? {
                Ok(summary) => archive = Some(summary),
                Err(refusal) => return Ok(refused(self.inner, reasons, refusal)),
            }
        }
        let id = format!("{}-{}", record.slug, crate::workspace::nonce());
        self.finish(id, archive.as_ref().map(|one| one.id.clone()), true)
            .await?;
        Ok(match archive {
            Some(archive) => Cleanup::Cleaned {
                archive: Some(archive),
                bytes: None,
            },
            None => Cleanup::AlreadyGone,
        })
    }

    fn require_ours(&self, admin: &Path) -> Result<Result<(), Cleanup>, WorkspaceError> {
        let record = self.record;
        if !is_ours(admin, record) {
            let why = "its directory is gone, and git's record is another's";
            return Ok(Err(kept(KeepReason::IdentityMismatch, why)));
        }
        let back = read_line(&admin.join("gitdir")).unwrap_or_default();
        if Path::new(&back) != record.path.join(".git") {
            let why = format!("git's record says that it is at `{back}`");
            return Ok(Err(kept(KeepReason::IdentityMismatch, why)));
        }
        let lock = read_if_present(&admin.join("locked"), SMALL_BYTES_MAX)?.unwrap_or_default();
        let lock = String::from_utf8_lossy(&lock);
        if !lock.is_empty() && !lock.contains(&format!("(nonce {})", record.nonce)) {
            return Ok(Err(kept(KeepReason::Locked, lock.trim_end())));
        }
        Ok(Ok(()))
    }

    /// Takes the record away, if there is one, and forgets the checkout.
    async fn finish(
        &self,
        id: String,
        archive: Option<String>,
        has_record: bool,
    ) -> Result<(), WorkspaceError> {
        let (repo, place, stored, heads) = (
            Arc::clone(self.repository),
            self.layout.clone(),
            self.record.clone(),
            self.facts.heads.clone(),
        );
        blocking(move || {
            if has_record {
                let phase = Phase::Removing {
                    trash: id.clone(),
                    archive: archive.clone(),
                };
                Journal::new(phase, stored.clone()).write(&repo.vault)?;
                drop_record(&repo, &stored, &id)?;
            }
            finish(&place, &repo, &stored, &id, &heads, archive.as_deref())
        })
        .await
    }
}

pub(super) async fn left_in_record(
    gate: &Gate<'_>,
    located: &Located,
    record: &CheckoutRecord,
    cancel: &CancellationToken,
) -> Result<Left, WorkspaceError> {
    let (scratch, place, stored) = (gate.scratch(&record.slug), located.clone(), record.clone());
    let asked = blocking(move || {
        let ask = || -> Result<_, String> {
            let walked = walk_git_dir(&place.admin).map_err(|error| error.to_string())?;
            let operations = operations(&place.admin).map_err(|error| error.to_string())?;
            let private = Private::make(&scratch, &place.common, &place.admin)
                .map_err(|error| error.to_string())?;
            let tips = tips::tips(&place, &stored, &private)?;
            let stash = tips::stashed(&place, &stored, &private, &tips)?;
            let staged = tips::staged(&private)?;
            let seen = fingerprint([walked.fingerprint].into_iter(), Some(&tips), &stash);
            Ok((operations, private, tips, stash, staged, seen))
        };
        Ok(ask())
    })
    .await?;
    let (operations, private, tips, stash, staged, seen) = match asked {
        Ok(asked) => asked,
        Err(why) => {
            return Ok(Left {
                reasons: reasons([(KeepReason::ProbeFailed, vec![why])]),
                seen: None,
            });
        }
    };
    let mut found = reasons([
        (
            KeepReason::OpInProgress,
            operations.into_iter().map(str::to_owned).collect(),
        ),
        (KeepReason::TrackedDirty, staged),
        (
            KeepReason::StashFromHere,
            stash.into_iter().map(|one| one.shown).collect(),
        ),
    ]);
    found.extend(or_failed(gate.commits(&private, &Ok(tips), cancel).await?));
    let asker = Asker {
        git: gate.inner.git()?,
        scratch: &gate.scratch(&record.slug),
        regenerable: &gate.regenerable,
        cancel,
    };
    let inside = asker
        .ask(&located.path, &located.admin, &private.entries)
        .await
        .map(|found| reasons([(KeepReason::SubmoduleUnlanded, found)]));
    let _ = fs::remove_dir(asker.scratch);
    found.extend(or_failed(inside));
    Ok(Left {
        reasons: found,
        seen: Some((Arc::new(private), seen)),
    })
}
