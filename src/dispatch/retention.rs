//! Archives that have been kept for long enough are let go.

use std::sync::Arc;
use std::time::Duration;

use super::actor::{Message, RequestWork};
use super::{Context, archives, repository_key};
use crate::store::StoreError;

/// How often is looked for them.
const LET_GO_EVERY: Duration = Duration::from_hours(24);

/// Lets archives go when they have been kept for long enough: at start, daily,
/// and when the settings change. Each goes in the lane of its item, where it is
/// asked again whether that is still so.
pub(super) async fn let_go(context: Arc<Context>) {
    let mut settings = context.settings.clone();
    loop {
        let days = settings.borrow_and_update().removal.archive_days;
        if days > 0
            && let Err(error) = ask_to_let_go(&context, days).await
            && !matches!(error, StoreError::Closed)
        {
            tracing::warn!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "Whose archives are cannot be read; tried again later."
            );
        }
        tokio::select! {
            () = tokio::time::sleep(LET_GO_EVERY) => {}
            Ok(()) = settings.changed() => {}
            () = context.watching.cancelled() => return,
        }
    }
}

async fn ask_to_let_go(context: &Context, days: u64) -> Result<(), StoreError> {
    for archived in archives::all(context).await? {
        if !archived.is_expired(days) {
            continue;
        }
        let Some(item) = &archived.item else { continue };
        context.send(Message::Request {
            lane: item.slug.clone(),
            repository: repository_key(&item.name),
            work: RequestWork::Expire {
                item: item.id,
                archived: Box::new(archived),
            },
        });
    }
    Ok(())
}
