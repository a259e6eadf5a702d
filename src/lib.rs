//! Innkeeper checks coding agents in and out of git checkouts.
//!
//! A GitHub webhook names a work item: an issue or a pull request. Innkeeper
//! prepares a checkout for it, runs a session in it, hands later events to the
//! same session, and takes the checkout away when the pull request closes,
//! unless something in it exists nowhere else.
//!
//! The modules are layers; a lower one knows nothing of a higher one, which
//! `tests/layers.rs` holds. `docs/ARCHITECTURE.md` has the picture.

pub mod domain;

pub mod clock;
pub mod files;
pub mod process;

pub mod config;
pub mod git;
pub mod store;

pub mod event_log;
pub mod inbox;
pub mod session;
pub mod workspace;

pub mod dispatch;

pub mod control;

pub mod api;
pub mod ingress;

pub mod daemon;

pub mod cli;
