//! Removing a checkout, if the gate says that nothing in it is at risk.
//!
//! | step | journal | directory | git's record |
//! | --- | --- | --- | --- |
//! | look, every file hashed | ready | in place | in place |
//! | say that it goes | removing | in place | in place |
//! | rename the directory | removing | `.trash/<id>` | in place |
//! | look again; put back if anything is another | removing | `.trash/<id>` | in place |
//! | rename the record | removing | `.trash/<id>` | `innkeeper-trash/<id>` |
//! | branch, by compare and delete | removing | `.trash/<id>` | `innkeeper-trash/<id>` |
//! | mark the directory, delete the record | removing | `.trash/<id>.deleting` | gone |
//! | see that everything is gone | none | deleted in the background | gone |
//!
//! A clone has no record; for it the mark takes the place of that rename. Up to
//! that rename a crash is undone, from it on it is gone through with: both are
//! done by whoever comes next, [`Workspace::cleanup`] or
//! [`Workspace::recover_removals`].
//!
//! If something is at risk and may be archived, that is done after the first
//! look; the archive is there for good once the removal is gone through with, and
//! is taken away again if it is undone ([`super::archive`]).

mod look_again;
mod missing;
mod settle;
mod steps;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::domain::archive::{ArchiveSummary, AtRisk, Decision, decide};
use crate::domain::checkout::{CheckoutRecord, Strategy};
use crate::domain::code::FailureCode;
use crate::domain::gate::Verdict;
use crate::domain::reason::{KeepReason, Kept};
use crate::domain::repo_target::RepoTarget;
use crate::process::CrashPoint;
use crate::workspace::archive::{Refusal, Subject};
use crate::workspace::gate::{Answer, Facts, Gate, Seen, Sight, reasons, require_names};
use crate::workspace::journal::{Journal, Phase};
use crate::workspace::layout::Layout;
use crate::workspace::probe::asked::Form;
use crate::workspace::{Inner, Workspace, WorkspaceError, archive, blocking};
use missing::Missing;
pub(super) use settle::recover;
use settle::{Start, put_back, settle_archives, start};
use steps::{commit, finish, take_away};

/// What became of a checkout that was to go.
#[allow(clippy::large_enum_variant)] // it is made once a removal, and never kept
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Directory, record and branch are gone.
    Cleaned {
        /// The archive of what existed only there.
        archive: Option<ArchiveSummary>,
        /// How many bytes it took, if that is known.
        bytes: Option<u64>,
    },
    /// It stays as it is.
    Kept {
        /// Why.
        reasons: Vec<Kept>,
        /// The fingerprint of what was seen, which [`AtRisk::Consent`] takes;
        /// none if consent would not help.
        token: Option<String>,
    },
    /// There was nothing left to remove.
    AlreadyGone,
}

impl Workspace {
    /// Removes a checkout if nothing in it is at risk, or if what is at risk
    /// may be archived and was.
    ///
    /// Can be called again at any time: what an earlier call or a crash left
    /// half-done is first undone or gone through with.
    ///
    /// # Errors
    ///
    /// If it could be neither removed nor put back, or was cancelled. Nothing
    /// is lost; a later call goes on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels it; what was begun is put back or finished
    /// in the background.
    pub async fn cleanup(
        &self,
        record: &CheckoutRecord,
        facts: &Facts,
        at_risk: &AtRisk,
        cancel: &CancellationToken,
    ) -> Result<Cleanup, WorkspaceError> {
        let cancel = cancel.child_token();
        let _cancelled_when_dropped = cancel.clone().drop_guard();
        let inner = self.opened(&cancel).await?;
        let (this, record, facts, at_risk) =
            (self.clone(), record.clone(), facts.clone(), at_risk.clone());
        let work = async move {
            let outcome = remove(&inner, &record, &facts, &at_risk, &cancel).await?;
            if let Cleanup::Cleaned { .. } = outcome {
                tokio::spawn(async move {
                    // Told in the log; the next sweep tries again.
                    let _ = this.sweep_trash().await;
                });
            }
            Ok(outcome)
        };
        super::joined(tokio::spawn(work)).await
    }

    /// Removes a checkout that is a worktree; see [`Workspace::cleanup`].
    ///
    /// # Errors
    ///
    /// `bad_input` for one that is none; otherwise as for `cleanup`.
    pub async fn remove_worktree(
        &self,
        record: &CheckoutRecord,
        facts: &Facts,
        at_risk: &AtRisk,
        cancel: &CancellationToken,
    ) -> Result<Cleanup, WorkspaceError> {
        require_strategy(record, Strategy::Worktree)?;
        self.cleanup(record, facts, at_risk, cancel).await
    }

    /// Removes a checkout that is a clone; see [`Workspace::cleanup`].
    ///
    /// # Errors
    ///
    /// `bad_input` for one that is none; otherwise as for `cleanup`.
    pub async fn remove_workitem_clone(
        &self,
        record: &CheckoutRecord,
        facts: &Facts,
        at_risk: &AtRisk,
        cancel: &CancellationToken,
    ) -> Result<Cleanup, WorkspaceError> {
        require_strategy(record, Strategy::Clone)?;
        self.cleanup(record, facts, at_risk, cancel).await
    }

    /// Undoes or finishes the removals that a crash interrupted, and returns
    /// the slugs of those that were undone: they are ready again, and to be
    /// judged again.
    ///
    /// # Errors
    ///
    /// If the root is not open. What cannot be settled is logged and left.
    pub async fn recover_removals(&self) -> Result<Vec<String>, WorkspaceError> {
        recover(&self.inner).await
    }
}

fn require_strategy(record: &CheckoutRecord, strategy: Strategy) -> Result<(), WorkspaceError> {
    if record.strategy == strategy {
        return Ok(());
    }
    Err(WorkspaceError::new(
        FailureCode::BadInput,
        format!("`{}` is no {}", record.slug, strategy.as_str()),
    ))
}

fn kept(code: KeepReason, why: impl Into<String>) -> Cleanup {
    Cleanup::Kept {
        reasons: vec![Kept::new(code, [why.into()])],
        token: None,
    }
}

async fn remove(
    inner: &Arc<Inner>,
    record: &CheckoutRecord,
    facts: &Facts,
    at_risk: &AtRisk,
    cancel: &CancellationToken,
) -> Result<Cleanup, WorkspaceError> {
    if let Err(why) = require_names(record) {
        return Ok(kept(KeepReason::IdentityMismatch, why));
    }
    let layout = inner.layout()?.clone();
    if record.root != layout.root() {
        let why = format!("it belongs below `{}`", record.root.display());
        return Ok(kept(KeepReason::IdentityMismatch, why));
    }
    if !layout.vaults().is_dir() {
        // Not mounted, perhaps: then nothing is known to be gone.
        return Err(WorkspaceError::new(
            FailureCode::Internal,
            format!("`{}` is not there", layout.vaults().display()),
        ));
    }
    let repository = inner.repository_of(record)?;
    let _one = inner.slug_lock(&repository, &record.slug, cancel).await?;

    let (repo, place, stored, heads) = (
        Arc::clone(&repository),
        layout.clone(),
        record.clone(),
        facts.heads.clone(),
    );
    let start = blocking(move || start(&place, &repo, &stored, &heads)).await?;
    let record = match start {
        Start::Done(outcome) => return Ok(outcome),
        Start::Missing(record) => {
            let missing = Missing {
                inner,
                layout: &layout,
                repository: &repository,
                record: &record,
                facts,
            };
            let outcome = missing.remove(at_risk, cancel).await;
            settle_archives(&layout, &repository, &record).await?;
            return outcome;
        }
        Start::Ready(record) => record,
    };

    let gate = Gate::new(inner, &repository, facts)?;
    let Sight { inspection, seen } = gate.look(&record, Form::Paranoid, cancel).await?;
    CrashPoint::GateLooked.pass();
    let reasons = match inspection.verdict {
        Verdict::Removable => Vec::new(),
        Verdict::Keep(reasons) => reasons,
    };
    let fingerprint = seen.as_ref().map(|_| inspection.fingerprint.as_str());
    let archives = !reasons.is_empty();
    if archives && let Decision::Keep { token } = decide(at_risk, &reasons, fingerprint) {
        return Ok(Cleanup::Kept { reasons, token });
    }
    let Some(seen) = seen else {
        return Ok(kept(KeepReason::ProbeFailed, "it was not seen whole"));
    };
    if cancel.is_cancelled() {
        return Err(WorkspaceError::Cancelled);
    }
    let archive = if archives {
        let subject = Subject {
            gate: &gate,
            layout: &layout,
            record: &record,
            located: &seen.located,
            private: Arc::clone(&seen.private),
            status: Some(&seen.status.entries),
            nested: &seen.tree.nested,
            reasons: &reasons,
        };
        match subject.archive(cancel).await? {
            Ok(summary) => Some(summary),
            Err(refusal) => return Ok(refused(inner, reasons, refusal)),
        }
    } else {
        None
    };
    let removal = Removal {
        gate: &gate,
        layout: &layout,
        record: &record,
        id: format!("{}-{}", record.slug, super::nonce()),
        archive,
    };
    let outcome = removal.run(seen, cancel).await;
    settle_archives(&layout, &repository, &record).await?;
    outcome
}

/// What stays because no archive could be made of it.
fn refused(inner: &Inner, mut reasons: Vec<Kept>, refusal: Refusal) -> Cleanup {
    reasons.push(refusal.kept(inner.options.archive_max_bytes));
    Cleanup::Kept {
        reasons,
        token: None,
    }
}

/// One removal, from the first look to the end.
struct Removal<'a> {
    gate: &'a Gate<'a>,
    layout: &'a Layout,
    record: &'a CheckoutRecord,
    id: String,
    archive: Option<ArchiveSummary>,
}

fn or_failed(answer: Answer) -> Vec<Kept> {
    answer.unwrap_or_else(|why| reasons([(KeepReason::ProbeFailed, vec![why])]))
}

/// Returns what the gate is told when nothing but the remote is known.
impl Facts {
    /// Returns facts without a payload.
    pub fn of(target: RepoTarget) -> Self {
        Self {
            merged: None,
            heads: Vec::new(),
            target,
            own_processes: Vec::new(),
        }
    }
}

impl Removal<'_> {
    async fn run(&self, seen: Seen, cancel: &CancellationToken) -> Result<Cleanup, WorkspaceError> {
        let bytes = seen.tree.bytes;
        let in_trash = self.layout.trash().join(&self.id);
        let repository = self.gate.repository;
        let archive = self.archive.as_ref().map(|archive| archive.id.clone());
        let (repo, record, to) = (
            Arc::clone(repository),
            self.record.clone(),
            in_trash.clone(),
        );
        let phase = Phase::Removing {
            trash: self.id.clone(),
            archive: archive.clone(),
        };
        blocking(move || take_away(&repo, &record, &to, phase)).await?;

        CrashPoint::DirectoryTrashed.pass();
        let again = self.look_again(seen, &in_trash, cancel).await;
        CrashPoint::TrashLooked.pass();
        let stays = match again {
            Ok(reasons) if reasons.is_empty() => None,
            Ok(reasons) => Some(Ok(Cleanup::Kept {
                reasons,
                token: None,
            })),
            Err(error) => Some(Err(error)),
        };
        let (repo, layout, record, id, heads) = (
            Arc::clone(repository),
            self.layout.clone(),
            self.record.clone(),
            self.id.clone(),
            self.gate.facts.heads.clone(),
        );
        if let Some(outcome) = stays {
            blocking(move || {
                put_back(&in_trash, &record)?;
                Journal::new(Phase::Ready, record).write(&repo.vault)
            })
            .await?;
            return outcome;
        }
        blocking(move || {
            // From here on the archive is all that there is.
            if let Some(archive) = &archive
                && let Err(error) = archive::require(&layout, &repo.vault, archive)
            {
                put_back(&in_trash, &record)?;
                Journal::new(Phase::Ready, record).write(&repo.vault)?;
                return Err(error);
            }
            commit(&layout, &repo, &record, &id)?;
            CrashPoint::RemovalCertain.pass();
            finish(&layout, &repo, &record, &id, &heads, archive.as_deref())
        })
        .await?;
        Ok(Cleanup::Cleaned {
            archive: self.archive.clone(),
            bytes: Some(bytes),
        })
    }
}
