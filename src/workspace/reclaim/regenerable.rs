//! Output that can be made again, in checkouts that are kept though their item
//! is closed.
//!
//! A directory goes if git ignores it as a whole, a pattern of
//! `removal.regenerable` names it, nothing in it is tracked, no repository is
//! nested in it, nothing in it is hidden from us, and no process works anywhere
//! in the checkout. It is renamed into the trash from below the opened checkout,
//! so no link on the way can lead elsewhere.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use tokio_util::sync::CancellationToken;

use super::carried_out;
use crate::domain::checkout::CheckoutRecord;
use crate::domain::code::FailureCode;
use crate::domain::reclaim::{Holding, HoldingKind, Judged};
use crate::workspace::gate::{identify, inside, require_names};
use crate::workspace::identity::Located;
use crate::workspace::probe::asked::{self, Form};
use crate::workspace::probe::private::Private;
use crate::workspace::probe::regenerable::Regenerable;
use crate::workspace::probe::status::Kind;
use crate::workspace::probe::walk::{open_below, walk};
use crate::workspace::repository::Repository;
use crate::workspace::{Inner, Workspace, WorkspaceError, blocking, trash};

impl Workspace {
    /// Gives back what can be made again in a checkout, or says what would go.
    /// The caller knows that the checkout is kept, its item closed, and nobody
    /// about to work in it.
    ///
    /// # Errors
    ///
    /// If the root cannot be opened, or git cannot be asked. Nothing is touched
    /// then.
    pub async fn reclaim_regenerable(
        &self,
        record: &CheckoutRecord,
        dry_run: bool,
        cancel: &CancellationToken,
    ) -> Result<Vec<Holding>, WorkspaceError> {
        let inner = self.opened(cancel).await?;
        if require_names(record).is_err() {
            return Ok(Vec::new());
        }
        let repository = inner.repository_of(record)?;
        let _one = inner.slug_lock(&repository, &record.slug, cancel).await?;
        of_checkout(&inner, &repository, record, dry_run, cancel).await
    }
}

async fn of_checkout(
    inner: &Arc<Inner>,
    repository: &Arc<Repository>,
    record: &CheckoutRecord,
    dry_run: bool,
    cancel: &CancellationToken,
) -> Result<Vec<Holding>, WorkspaceError> {
    let unanswered = |why: String| WorkspaceError::new(FailureCode::Internal, why);
    let patterns = Regenerable::parse(&inner.options.regenerable)
        .map_err(|error| WorkspaceError::new(FailureCode::BadInput, error.to_string()))?;
    let layout = inner.layout()?.clone();
    let scratch = repository.vault.join("innkeeper/views").join(format!(
        "gate-{}-{}",
        record.slug,
        crate::workspace::nonce()
    ));
    let (place, vault, stored) = (layout.clone(), repository.vault.clone(), record.clone());
    let located = blocking(move || Ok(identify(&place, &vault, &stored))).await?;
    // Not the one: it is explained as what it is, and nothing in it is touched.
    let Ok(located) = located else {
        return Ok(Vec::new());
    };
    let here = located.clone();
    let private = blocking(move || {
        Private::make(&scratch, &here.common, &here.admin)
            .map_err(|error| unanswered(error.to_string()))
    })
    .await?;
    let status = asked::status(inner.git()?, &private, &located.path, Form::Normal, cancel)
        .await
        .map_err(unanswered)?;
    let tracked: BTreeSet<Vec<u8>> = private
        .entries
        .iter()
        .map(|entry| entry.path.clone())
        .collect();
    let candidates: Vec<PathBuf> = status
        .entries
        .iter()
        .filter(|entry| entry.kind == Kind::Ignored && patterns.matches(&entry.path))
        .filter_map(|entry| entry.path.strip_suffix(b"/"))
        .filter(|path| !holds_tracked(&tracked, path))
        .map(|path| PathBuf::from(OsStr::from_bytes(path)))
        .collect();
    blocking(move || {
        let mut found = Vec::new();
        for path in candidates {
            let judged = judge(&located, &path);
            let full = located.path.join(&path);
            found.push(carried_out(
                HoldingKind::Regenerable,
                &full,
                judged,
                dry_run,
                || take_away(&located.path, &path, &layout.trash()),
            ));
        }
        Ok(found)
    })
    .await
}

fn holds_tracked(tracked: &BTreeSet<Vec<u8>>, dir: &[u8]) -> bool {
    let below = [dir, b"/"].concat();
    tracked.contains(dir)
        || tracked
            .range(below.clone()..)
            .next()
            .is_some_and(|path| path.starts_with(&below))
}

fn judge(located: &Located, path: &Path) -> Judged {
    let busy = inside(&[&located.path, &located.admin], &[])?;
    if let Some(kept) = busy.first() {
        return Err(format!("a process works inside: {}", kept.paths.join(", ")));
    }
    let top = located.path.join(path);
    if std::fs::canonicalize(&top).map_err(|error| error.to_string())? != top {
        return Err("it is reached through a link".to_owned());
    }
    let seen = walk(&top, &BTreeSet::new()).map_err(|error| error.to_string())?;
    // A walk does not take its own top for nested.
    if top.join(".git").symlink_metadata().is_ok() || !seen.nested.is_empty() {
        return Err("a repository is nested in it".to_owned());
    }
    if let Some((path, why)) = seen.unreadable.first() {
        return Err(format!("{}: {why}", path.display()));
    }
    Ok("ignored output that can be made again, in a kept checkout of a closed item".to_owned())
}

/// Renames a directory of the checkout into the trash, from below the opened
/// checkout.
fn take_away(checkout: &Path, path: &Path, trash_dir: &Path) -> Result<(), String> {
    let words = |error: rustix::io::Errno| std::io::Error::from(error).to_string();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: OwnedFd = rustix::fs::open(checkout, flags, Mode::empty()).map_err(words)?;
    let device = std::fs::symlink_metadata(checkout)
        .map_err(|error| error.to_string())?
        .dev();
    let name = path.file_name().ok_or("it has no name")?;
    for part in path.parent().into_iter().flat_map(Path::components) {
        at = open_below(&at, part.as_os_str(), device).map_err(words)?;
    }
    // A directory, not a link and not a mount, at the moment it is looked at.
    drop(open_below(&at, name, device).map_err(words)?);
    let id = format!("regenerable-{}", crate::workspace::nonce());
    let to = trash::deleting(trash_dir, &id);
    rustix::fs::renameat_with(&at, name, CWD, &to, RenameFlags::NOREPLACE).map_err(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_anything_tracked_in_it_is_told_from_its_neighbours() {
        let tracked = ["a", "out-of/x", "out/deep/x", "target.rs"]
            .map(|path| path.as_bytes().to_vec())
            .into();
        for (dir, holds) in [
            ("out", true),
            ("out/deep", true),
            ("out-of", true),
            ("a", true),
            ("target", false),
            ("ou", false),
            ("z", false),
        ] {
            assert_eq!(holds_tracked(&tracked, dir.as_bytes()), holds, "{dir}");
        }
    }

    #[test]
    fn it_is_moved_from_below_the_checkout_and_never_through_a_link() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |path: &str| dir.path().join(path);
        for made in ["co/a/target/x", "outside/target", "trash"] {
            std::fs::create_dir_all(at(made)).expect("made");
        }
        std::os::unix::fs::symlink(at("outside"), at("co/link")).expect("linked");
        std::os::unix::fs::symlink(at("outside"), at("co/target")).expect("linked");
        for path in ["link/target", "target", "none"] {
            let moved = take_away(&at("co"), Path::new(path), &at("trash"));
            assert!(moved.is_err(), "{path}");
        }
        assert!(at("outside/target").is_dir());
        take_away(&at("co"), Path::new("a/target"), &at("trash")).expect("moved");
        assert!(!at("co/a/target").exists());
        let moved = std::fs::read_dir(at("trash")).expect("there").count();
        assert_eq!(moved, 1);
    }
}
