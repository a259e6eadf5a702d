//! Making an archive of a checkout.
//!
//! | step | mark | directory | pins |
//! | --- | --- | --- | --- |
//! | say that it is being made | making | | |
//! | write bundle, contents, list, manifest | making | `.staging/<id>` | |
//! | read everything back and compare | making | `.staging/<id>` | |
//! | read the bundle into the vault | making | `.staging/<id>` | there |
//! | rename | making | `.archive/<slug>/<id>` | there |
//! | remove the checkout, elsewhere | making | `.archive/<slug>/<id>` | there |
//! | say that it is there for good | none | `.archive/<slug>/<id>` | there |
//!
//! Whatever fails or is killed before the checkout is gone takes all of it away.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::copy::{self, Copied, Source};
use super::manifest::{FORMAT, Manifest, PARTS, Part, StashEntry, read_files, write_files};
use super::pins::{self, Pins};
use super::undecided::{Mark, State};
use super::{Refusal, bundle, shelf, too_big};
use crate::clock;
use crate::domain::archive::ArchiveSummary;
use crate::domain::checkout::CheckoutRecord;
use crate::domain::code::FailureCode;
use crate::domain::reason::Kept;
use crate::files;
use crate::process::CrashPoint;
use crate::workspace::gate::Gate;
use crate::workspace::identity::{Located, read_line};
use crate::workspace::layout::{Layout, names_in};
use crate::workspace::probe::private::{Head, Private};
use crate::workspace::probe::read::{SMALL_BYTES_MAX, read_if_present};
use crate::workspace::probe::status::Entry as StatusEntry;
use crate::workspace::probe::submodule;
use crate::workspace::{WorkspaceError, blocking, nonce, shared};

/// What is archived.
pub(in crate::workspace) struct Subject<'a> {
    pub gate: &'a Gate<'a>,
    pub layout: &'a Layout,
    pub record: &'a CheckoutRecord,
    pub located: &'a Located,
    pub private: Arc<Private>,
    /// What the closest look said; none if the directory is gone.
    pub status: Option<&'a [StatusEntry]>,
    pub nested: &'a [PathBuf],
    pub reasons: &'a [Kept],
}

impl Subject<'_> {
    /// Makes the archive; on refusal nothing is left of it.
    ///
    /// # Errors
    ///
    /// Only if it was cancelled.
    pub async fn archive(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Result<ArchiveSummary, Refusal>, WorkspaceError> {
        let id = nonce();
        let record = self.record;
        let mark = Mark::new(State::Making, &record.slug, &id, &record.nonce);
        let made = self.make(&id, &mark, cancel).await;
        if made.is_err() {
            let (layout, vault) = (self.layout.clone(), self.gate.repository.vault.clone());
            let dropped = blocking(move || mark.drop_archive(&layout, &vault)).await;
            if let Err(error) = dropped {
                tracing::warn!(archive = id, %error, "An archive that was not finished could not be taken away.");
            }
        }
        match made {
            Ok(summary) => Ok(Ok(summary)),
            Err(_) if cancel.is_cancelled() => Err(WorkspaceError::Cancelled),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    async fn make(
        &self,
        id: &str,
        mark: &Mark,
        cancel: &CancellationToken,
    ) -> Result<ArchiveSummary, Refusal> {
        let repository = self.gate.repository;
        let vault = repository.vault.clone();
        let dir = self.layout.staging().join(id);
        let (marked, staged, at) = (mark.clone(), dir.clone(), vault.clone());
        blocking(move || {
            marked.write(&at)?;
            CrashPoint::ArchiveMarked.pass();
            fs::create_dir(&staged).map_err(|error| WorkspaceError::io("create", &staged, &error))
        })
        .await?;

        let (located, record, private, at) = (
            self.located.clone(),
            self.record.clone(),
            Arc::clone(&self.private),
            vault.clone(),
        );
        let pins = blocking(move || Ok(pins::tie(&located, &record, &private, &at)))
            .await?
            .map_err(Refusal::Failed)?;
        let prerequisites = bundle::write(
            self.gate.inner,
            repository,
            &self.private,
            &pins.remote,
            &dir,
            cancel,
        )
        .await?;
        CrashPoint::ArchiveBundled.pass();
        let limit = self.gate.inner.options.archive_max_bytes;
        if bytes_of(&dir).await? > limit {
            return Err(too_big());
        }
        let source = self.source(&pins)?;
        let manifest = self.manifest(id, pins, prerequisites);
        let (staged, token) = (dir.clone(), cancel.clone());
        let manifest =
            blocking(move || Ok(write(&source, manifest, &staged, limit, &token))).await??;
        CrashPoint::ArchiveVerified.pass();
        // Last of all: what is read into a vault stays there, as nothing is ever
        // pruned, also if there is no archive in the end.
        bundle::pin(self.gate.inner, repository, &dir, id, cancel).await?;
        CrashPoint::ArchivePinned.pass();
        let (layout, slug) = (self.layout.clone(), self.record.slug.clone());
        let summary = blocking(move || {
            let id = &manifest.summary.id;
            bundle::require_pinned(&vault, id, &manifest.pins, &manifest.objects)?;
            let to = shelf::dir_of(&layout, &slug, id);
            put_on_shelf(&dir, &to, &shelf::ensure(&layout, &slug)?)?;
            CrashPoint::ArchiveShelved.pass();
            Ok(shelf::summary(&to, manifest))
        });
        Ok(summary.await?)
    }

    fn source(&self, pins: &Pins) -> Result<Source, Refusal> {
        require_no_worktrees(self.located).map_err(Refusal::Failed)?;
        let mut whole = self.nested.to_vec();
        for one in self.nested {
            require_whole(&self.located.path, one).map_err(Refusal::Failed)?;
        }
        whole.extend(submodule::paths(&self.private.entries));
        Ok(Source {
            located: self.located.clone(),
            strategy: self.record.strategy,
            index: self.private.entries.clone(),
            is_split: self.private.is_split,
            status: self.status.map(<[_]>::to_vec),
            whole,
            regenerable: self.gate.regenerable.clone(),
            branches: pins.branches.keys().cloned().collect(),
        })
    }

    fn manifest(
        &self,
        id: &str,
        pins: Pins,
        prerequisites: std::collections::BTreeSet<String>,
    ) -> Manifest {
        let head = match &self.private.head {
            Head::Ref(name) if pins.head_commit.is_some() => Some(name.clone()),
            Head::Ref(_) => None,
            Head::Commit(id) => Some(id.clone()),
        };
        Manifest {
            format: FORMAT,
            summary: ArchiveSummary {
                id: id.to_owned(),
                record: self.record.clone(),
                work_item: None,
                reasons: self.reasons.to_vec(),
                head,
                created_at: clock::now_ms(),
                bytes: 0,
                files: 0,
                commits: pins.commits,
            },
            clone_url: self.gate.facts.target.clone_url.clone(),
            has_directory: self.status.is_some(),
            head_commit: pins.head_commit,
            branches: pins.branches,
            stash: pins
                .stash
                .into_iter()
                .map(|one| StashEntry {
                    commit: one.commit,
                    seconds: one.seconds,
                    message: one.message,
                })
                .collect(),
            settings: settings(self.located),
            pins: pins.refs,
            objects: pins.objects,
            prerequisites,
            deleted: Vec::new(),
            parts: Vec::new(),
        }
    }
}

/// Writes everything but the bundle, then reads all of it back.
fn write(
    source: &Source,
    mut manifest: Manifest,
    dir: &Path,
    limit: u64,
    cancel: &CancellationToken,
) -> Result<Manifest, Refusal> {
    let io = |error: std::io::Error| Refusal::Failed(error.to_string());
    let Copied { entries, deleted } = copy::copy(
        source,
        dir,
        limit.saturating_sub(shelf::bytes_in(dir)),
        cancel,
    )?;
    write_files(dir, &entries).map_err(io)?;
    manifest.deleted = deleted;
    manifest.summary.files = entries.len() as u64;
    for name in PARTS {
        manifest.parts.push(Part::of(dir, name).map_err(io)?);
    }
    manifest.summary.bytes = manifest.parts.iter().map(|part| part.bytes).sum();
    manifest.write(dir).map_err(io)?;
    files::sync_dir(dir).map_err(io)?;
    if shelf::bytes_in(dir) > limit {
        return Err(too_big());
    }

    let damaged = |why: String| Refusal::Failed(format!("read back: {why}"));
    let again = Manifest::read(dir).map_err(damaged)?;
    again.verify_parts(dir).map_err(damaged)?;
    if again != manifest || read_files(dir).map_err(damaged)? != entries {
        return Err(damaged("it is not what was written".to_owned()));
    }
    copy::compare(source, dir, &entries).map_err(damaged)?;
    Ok(again)
}

/// The last step: from here on it is an archive.
fn put_on_shelf(staged: &Path, to: &Path, shelf: &Path) -> Result<(), WorkspaceError> {
    files::rename_noreplace(staged, to)?;
    files::sync_dir(shelf)?;
    Ok(files::sync_dir(shelf.parent().unwrap_or(shelf))?)
}

async fn bytes_of(dir: &Path) -> Result<u64, WorkspaceError> {
    let dir = dir.to_owned();
    blocking(move || Ok(shelf::bytes_in(&dir))).await
}

/// Refuses a nested repository of which a part is somewhere else: that part is
/// not in its directory, and so would not be in the archive.
fn require_whole(top: &Path, nested: &Path) -> Result<(), String> {
    let shown = nested.display();
    let place = top.join(nested);
    let dot_git = place.join(".git");
    let git_dir = match fs::symlink_metadata(&dot_git) {
        Ok(stat) if stat.is_dir() => dot_git,
        Ok(_) => {
            let text = read_if_present(&dot_git, SMALL_BYTES_MAX)
                .map_err(|error| format!("`{shown}`: {error}"))?
                .unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let target = text.strip_prefix("gitdir: ").unwrap_or_default().trim_end();
            let real = fs::canonicalize(place.join(target)).ok();
            return match real {
                Some(real) if real.starts_with(top) => Ok(()),
                _ => Err(format!("the repository of `{shown}` is somewhere else")),
            };
        }
        // A bare one.
        Err(_) => place,
    };
    if fs::symlink_metadata(git_dir.join("objects/info/alternates")).is_ok() {
        return Err(format!("`{shown}` borrows objects from somewhere else"));
    }
    Ok(())
}

/// Refuses a clone of which a worktree stands somewhere else: it would be left
/// without its repository.
fn require_no_worktrees(located: &Located) -> Result<(), String> {
    if located.admin != located.common {
        return Ok(());
    }
    let worktrees = located.common.join("worktrees");
    for name in names_in(&worktrees) {
        let dot_git = read_line(&worktrees.join(&name).join("gitdir"))?;
        let dot_git = Path::new(&dot_git);
        if fs::symlink_metadata(dot_git).is_ok() && !dot_git.starts_with(&located.path) {
            return Err(format!(
                "worktree `{name}` of this clone stands at `{}`",
                dot_git.display()
            ));
        }
    }
    Ok(())
}

/// What the configuration that the checkout had says that is harmless.
fn settings(located: &Located) -> String {
    let mut text = String::new();
    for file in [
        located.common.join("config"),
        located.admin.join("config.worktree"),
    ] {
        if let Ok(Some(bytes)) = read_if_present(&file, SMALL_BYTES_MAX) {
            text.push_str(&shared::harmless_settings(
                &String::from_utf8_lossy(&bytes),
                "",
            ));
        }
    }
    text
}

impl From<WorkspaceError> for Refusal {
    fn from(error: WorkspaceError) -> Self {
        match error.code() {
            FailureCode::DiskFull => Self::Failed(format!("no space is left: {error}")),
            _ => Self::Failed(error.to_string()),
        }
    }
}
