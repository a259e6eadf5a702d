//! The bulk breaker in the store: asked before a removal that no event asked
//! for, and after looking at what vanished. It is decided in
//! `domain::breaker`, and survives a restart.

use super::Context;
use crate::clock;
use crate::domain::breaker::{Breaker, Cause, Halt};
use crate::domain::log_event::{Entry, LogEvent};
use crate::store::{StoreError, Tx};

/// Returns what the breaker remembers.
pub(super) async fn read(context: &Context) -> Result<Breaker, StoreError> {
    context.store.read(|reader| reader.breaker()).await
}

/// Returns the halt if removals are halted because checkouts vanished.
pub(super) async fn vanished(context: &Context) -> Result<Option<Halt>, StoreError> {
    let halted = read(context).await?.halted;
    Ok(halted.filter(|halt| halt.cause == Cause::Vanished))
}

/// Looks at what vanished; returns whether removals are halted now.
pub(super) async fn look(context: &Context) -> Result<bool, StoreError> {
    change(context, |breaker, now, vanished, checkouts| {
        breaker.look(now, vanished, checkouts)
    })
    .await
}

/// Asks for one removal that no event asked for; returns whether it may begin.
pub(super) async fn admit(context: &Context) -> Result<bool, StoreError> {
    let halted = change(context, |breaker, now, vanished, checkouts| {
        breaker.admit(now, vanished, checkouts)
    })
    .await?;
    Ok(!halted)
}

/// Lets removals go on; returns what had halted them.
pub(super) async fn resume(context: &Context) -> Result<Option<Halt>, StoreError> {
    context
        .store
        .write(|tx| {
            let mut breaker = tx.breaker()?;
            let halt = breaker.resume(clock::now_ms());
            tx.set_breaker(&breaker)?;
            Ok(halt)
        })
        .await
}

async fn change(
    context: &Context,
    ask: impl FnOnce(&mut Breaker, i64, &[i64], u64) -> Option<Halt> + Send + 'static,
) -> Result<bool, StoreError> {
    let (tripped, halted) = context
        .store
        .write(move |tx| {
            let mut breaker = tx.breaker()?;
            let before = breaker.clone();
            let (vanished, checkouts) = (tx.missing_since()?, tx.live_checkout_count()?);
            let tripped = ask(&mut breaker, clock::now_ms(), &vanished, checkouts);
            if breaker != before {
                tx.set_breaker(&breaker)?;
            }
            if let Some(halt) = &tripped {
                tell(tx, halt)?;
            }
            Ok((tripped, breaker.halted.is_some()))
        })
        .await?;
    if let Some(halt) = tripped {
        tracing::error!(
            "Removals are halted: {}. `innkeeper gc --resume-removals` lets them go on.",
            halt.sentence()
        );
    }
    Ok(halted)
}

fn tell(tx: &mut Tx<'_>, halt: &Halt) -> Result<(), StoreError> {
    tx.append(&Entry::new(LogEvent::RemovalHalted {
        reason: halt.sentence(),
        count: halt.count,
        checkouts: halt.checkouts,
    }))
}
