//! What goes on beside the deliveries: telling what workspaces did of their own
//! accord, and maintaining repositories that nobody needs at the moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::workspaces::Workspaces;
use crate::domain::log_event::{Entry, LogEvent};
use crate::store::Store;
use crate::workspace::Maintained;

/// How often is looked whether a repository is due.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// Stores what workspaces tell, until the daemon stops and all is stored.
pub(super) async fn tell(
    store: Store,
    mut told: UnboundedReceiver<LogEvent>,
    stop: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            biased;
            event = told.recv() => event,
            () = stop.cancelled() => return,
        };
        let Some(event) = event else { return };
        if let Err(error) = store.tell(Entry::new(event)).await {
            tracing::error!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "An event could not be stored."
            );
        }
    }
}

/// Maintains one repository after the other as their turns come.
pub(super) async fn maintain(workspaces: Arc<Workspaces>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = stop.cancelled() => return,
        }
        for workspace in workspaces.all() {
            match workspace.maintain_next(&stop).await {
                Ok(Some((vault, Maintained::Done))) => {
                    tracing::info!(vault = %vault.display(), "A repository was maintained.");
                }
                Ok(Some((_, Maintained::GaveWay)) | None) => {}
                Err(_) if stop.is_cancelled() => return,
                Err(error) => {
                    tracing::warn!(%error, "A repository could not be maintained; tried again in a day.");
                }
            }
        }
    }
}
