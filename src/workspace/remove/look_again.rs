//! The second look: what was renamed must be what was judged.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Removal, or_failed};
use crate::domain::checkout::Strategy;
use crate::domain::reason::{KeepReason, Kept};

use crate::workspace::gate::{Seen, inside, reasons};
use crate::workspace::identity::Located;
use crate::workspace::probe::asked::{Form, Status};
use crate::workspace::probe::private::Private;
use crate::workspace::probe::status::Entry;
use crate::workspace::probe::submodule;
use crate::workspace::{WorkspaceError, blocking};

/// A change this recent may have the time stamp of an earlier look: kernels
/// take a file's time from a clock that goes on every 10 ms at the slowest.
pub(super) const RECENT_NS: i128 = 50_000_000;

/// The same on file systems that keep whole seconds.
pub(super) const RECENT_COARSE_NS: i128 = 2_000_000_000;

/// Whether two looks at the same files said the same. A submodule or a nested
/// repository that is found by a path may not be found from the trash; what is in
/// it is compared by the walks.
pub(super) fn is_same_status(one: &Status, other: &Status, inside: &[&PathBuf]) -> bool {
    let without = |status: &Status| -> Vec<Entry> {
        let is_inside = |entry: &Entry| {
            let path = Path::new(OsStr::from_bytes(&entry.path));
            inside.iter().any(|one| path.starts_with(one))
        };
        let entries = status.entries.iter();
        entries.filter(|one| !is_inside(one)).cloned().collect()
    };
    one == other || (!inside.is_empty() && without(one) == without(other))
}

pub(super) fn changed() -> Vec<Kept> {
    let why = "it was changed while it was looked at".to_owned();
    reasons([(KeepReason::ProbeFailed, vec![why])])
}

impl Removal<'_> {
    /// Looks at what was renamed: it must be what was judged, to the byte.
    pub(super) async fn look_again(
        &self,
        seen: Seen,
        in_trash: &Path,
        cancel: &CancellationToken,
    ) -> Result<Vec<Kept>, WorkspaceError> {
        let is_clone = self.record.strategy == Strategy::Clone;
        let located = Located {
            path: in_trash.to_owned(),
            admin: if is_clone {
                in_trash.join(".git")
            } else {
                seen.located.admin.clone()
            },
            common: if is_clone {
                in_trash.join(".git")
            } else {
                seen.located.common.clone()
            },
        };
        let private = if is_clone {
            // The view of before leads to a path that is gone.
            let (scratch, place) = (self.gate.scratch(&self.record.slug), located.clone());
            let made = blocking(move || {
                Ok(Private::make(&scratch, &place.common, &place.admin)
                    .map_err(|error| error.to_string()))
            })
            .await?;
            match made {
                Ok(private) => Arc::new(private),
                Err(why) => return Ok(reasons([(KeepReason::ProbeFailed, vec![why])])),
            }
        } else {
            seen.private
        };
        // Equal times prove that nothing was written since the first look,
        // unless the last write came so shortly before it that the clock of the
        // file system had not gone on.
        let newest = seen.tree.newest_ns.max(seen.admin.newest_ns);
        let recent = if newest % 1_000_000_000 == 0 {
            RECENT_COARSE_NS
        } else {
            RECENT_NS
        };
        let form = if newest > seen.began_ns - recent {
            Form::Paranoid
        } else {
            Form::Normal
        };
        let submodules = submodule::paths(&private.entries);
        let (walks, asked) = self
            .gate
            .walk_and_ask(&located, &private, &submodules, form, cancel)
            .await;
        let (place, own) = (located.clone(), self.gate.facts.own_processes.clone());
        let processes = blocking(move || Ok(inside(&[&place.path, &place.admin], &own))).await?;
        if cancel.is_cancelled() {
            return Err(WorkspaceError::Cancelled);
        }
        let mut found = or_failed(processes);
        let inside_too: Vec<&PathBuf> = submodules.iter().chain(&seen.tree.nested).collect();
        match &asked {
            Ok(status) if is_same_status(status, &seen.status, &inside_too) => {}
            _ => {
                let files = self.gate.classify(&private, &asked, &walks);
                found.extend(or_failed(files.seen));
                found.extend(or_failed(files.hidden));
                if found.is_empty() {
                    found.extend(changed());
                }
            }
        }
        match &walks {
            Ok((tree, admin)) => {
                let same = tree.fingerprint == seen.tree.fingerprint
                    && admin.fingerprint == seen.admin.fingerprint;
                if !same && found.is_empty() {
                    found.extend(changed());
                }
            }
            Err(why) => found.extend(reasons([(KeepReason::ProbeFailed, vec![why.clone()])])),
        }
        Ok(found)
    }
}
