//! The daemon end to end: signed deliveries in, checkouts and sessions out.
//!
//! Each test drives the built binary through a path that a payload takes,
//! against real repositories over `file` and over smart HTTP.

#[path = "../support/mod.rs"]
mod support;

mod inn;
mod work;

mod archives;
mod archives_kept;
mod commands;
mod damage;
mod gc;
mod hostile;
mod issues;
mod late;
mod life;
mod names;
mod nothing_to_do;
mod reconcile;
mod refs;
mod sessions;
mod settings;
