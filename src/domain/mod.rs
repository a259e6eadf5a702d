//! What Innkeeper is about, as values and pure decisions.
//!
//! Nothing here does I/O, waits, or reads the time: everything comes in as a
//! value, and what should happen goes out as one.

pub mod archive;
pub mod backoff;
pub mod breaker;
pub mod checkout;
pub mod code;
pub mod envelope;
pub mod gate;
pub mod lane;
pub mod lock;
pub mod log_event;
pub mod maintenance;
pub mod reason;
pub mod reclaim;
pub mod reconcile;
pub mod removal;
pub mod repo_target;
pub mod retention;
pub mod routing;
pub mod work_item;
