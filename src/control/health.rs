//! Whether the daemon can do its work at this moment.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Control;
use crate::files;

/// How long the store may take to answer a probe.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// Free bytes below which the state itself is about to stop working: room for
/// the write-ahead log and a few large deliveries.
const STATE_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Whether the daemon is ready, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether it takes and works on deliveries.
    pub ready: bool,
    /// One sentence for each thing that is wrong.
    pub problems: Vec<String>,
}

impl Control {
    /// Asks the store, the disks and the daemon whether work can go on.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method alone is not general enough over the reader's lifetime"
    )]
    pub async fn health(&self) -> Health {
        let mut problems = (self.inner.problems)();
        let asked = async {
            // Whether it can still promise anything shows only when it is asked to.
            self.store().write(|_tx| Ok(())).await?;
            self.store()
                .read(|reader| reader.pending_deliveries())
                .await
        };
        match tokio::time::timeout(STORE_PATIENCE, asked).await {
            Ok(Ok(pending)) => {
                let limit = self.facts().limits.max_pending;
                if limit > 0 && pending >= limit {
                    problems.push(format!(
                        "{pending} deliveries wait, which is the limit (inbox.maxPending)"
                    ));
                }
            }
            Ok(Err(error)) => problems.push(format!("the store does not answer: {error}")),
            Err(_late) => problems.push(format!(
                "the store did not answer within {} s",
                STORE_PATIENCE.as_secs()
            )),
        }
        let facts = self.facts();
        let disks = tokio::task::spawn_blocking(move || {
            let mut problems = Vec::new();
            problems.extend(short_of_room(
                "the state",
                &facts.state_root,
                STATE_BYTES_MIN,
                0,
            ));
            if let Some(root) = &facts.workspace_root {
                problems.extend(short_of_room(
                    "checkouts",
                    root,
                    facts.limits.min_free_bytes,
                    facts.limits.min_free_inodes,
                ));
            }
            problems
        });
        match disks.await {
            Ok(found) => problems.extend(found),
            Err(_ended) => problems.push("the disks could not be asked".to_owned()),
        }
        Health {
            ready: problems.is_empty(),
            problems,
        }
    }
}

fn short_of_room(what: &str, path: &Path, bytes: u64, inodes: u64) -> Option<String> {
    match files::free_space(path) {
        Ok(space) if space.bytes < bytes => Some(format!(
            "{} bytes are free for {what} at `{}`, fewer than the {bytes} that must be",
            space.bytes,
            path.display()
        )),
        Ok(space) => space.inodes.filter(|free| *free < inodes).map(|free| {
            format!(
                "{free} inodes are free for {what} at `{}`, fewer than the {inodes} that must be",
                path.display()
            )
        }),
        Err(error) => Some(format!(
            "the disk that holds {what} at `{}` cannot be asked: {error}",
            path.display()
        )),
    }
}
