//! What is compared at start: the store with the disk and with the sessions.
//!
//! Nothing is removed here that was not on its way out already, and nothing that
//! is not known is touched.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::actor::RequestWork;
use super::failure::Stop;
use super::{Context, judging, reconcile, rounds};
use crate::domain::code::FailureCode;
use crate::domain::log_event::{Entry, LogEvent};
use crate::domain::reconcile::{Occasion, Step, Tally};
use crate::store::{ItemRow, StoreError};

/// How often in a row the daemon may die with one delivery as the only one
/// running before that delivery is parked.
const CRASHES_MAX: u32 = 5;

/// Takes up what a daemon that ended left unfinished.
pub(super) async fn recover(context: &Arc<Context>) -> Result<(), StoreError> {
    interrupted_deliveries(context).await?;
    let mut tally = Tally::default();
    sessions(context, &mut tally).await?;
    checkouts(context, &mut tally).await?;
    rounds::tell(context, tally).await
}

/// Puts back what was being worked on. One that was the only one each time the
/// daemon died is not taken up for ever.
async fn interrupted_deliveries(context: &Context) -> Result<(), StoreError> {
    context
        .store
        .write(|tx| {
            let running = tx.running_deliveries()?;
            let alone = running.len() == 1;
            for row in running {
                let crashes = if alone { row.crashes + 1 } else { 0 };
                tx.postpone_delivery(row.seq)?;
                tx.set_delivery_crashes(row.seq, crashes)?;
                if crashes >= CRASHES_MAX {
                    let code = FailureCode::Interrupted;
                    let error = code.meaning().to_owned();
                    tx.delivery_parked(row.seq, code, &error)?;
                    tx.append(
                        &Entry::new(LogEvent::DeliveryParked { code, error }).of_delivery(row.id),
                    )?;
                }
            }
            Ok(())
        })
        .await
}

async fn item_of(context: &Context, id: i64) -> Result<ItemRow, StoreError> {
    context.store.read(move |reader| reader.item(id)).await
}

fn settle(session: String) -> RequestWork {
    RequestWork::Settle {
        session,
        told_to_wait: false,
    }
}

/// Sessions outlive the daemon: those that run are watched again, those that
/// ended meanwhile are settled in their lanes.
async fn sessions(context: &Context, tally: &mut Tally) -> Result<(), StoreError> {
    let live = context
        .store
        .read(|reader| reader.sessions(true, u32::MAX))
        .await?;
    for row in live {
        let item = item_of(context, row.item).await?;
        if rounds::is_running(context, &row.id, row.run) {
            tally.adopted += 1;
        } else {
            tally.finished += 1;
        }
        rounds::ask(context, &item, settle(row.id));
    }
    // Texts that waited when the daemon ended, for a session whose run is over.
    let waiting = context
        .store
        .read(|reader| reader.sessions_with_waiting_inputs())
        .await?;
    for row in waiting.into_iter().filter(|row| !row.state.is_live()) {
        let item = item_of(context, row.item).await?;
        rounds::ask(context, &item, settle(row.id));
    }
    Ok(())
}

/// Compares checkouts with the disk. What is half-done is nobody's, so it need
/// not take its turn; only removals do, which take their time.
async fn checkouts(context: &Arc<Context>, tally: &mut Tally) -> Result<(), StoreError> {
    for one in reconcile::compare(context, Occasion::Start, tally).await? {
        match one.step {
            Step::FinishPreparing => {
                let finished = judging::carry_out(context, one.item.id, one.step).await;
                match finished {
                    Ok(adopted) => tally.adopted += u64::from(adopted),
                    Err(Stop::Store(error)) => return Err(error),
                    Err(_other) => tracing::warn!(
                        work_item = one.item.reference,
                        "A preparation that was interrupted could not be looked at; the next round does it."
                    ),
                }
            }
            step => {
                tally.finished += 1;
                let (done, _nobody_waits) = oneshot::channel();
                rounds::ask(
                    context,
                    &one.item,
                    RequestWork::Reconcile {
                        item: one.item.id,
                        step,
                        done,
                    },
                );
            }
        }
    }
    Ok(())
}
