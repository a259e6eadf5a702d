//! The probes of the removal gate: each asks one question about a checkout.
//!
//! They read what agents may have prepared, so none follows a link, waits on a
//! fifo, runs what a repository names, or believes a ref that our own fetch did
//! not write.

pub mod asked;
pub mod index;
pub mod operation;
pub mod private;
pub mod read;
pub mod reflog;
pub mod regenerable;
pub mod status;
pub mod submodule;
pub mod tips;
pub mod walk;
