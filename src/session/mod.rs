//! Sessions: a profile's command, started once in its checkout, outliving the
//! daemon, and ended with everything that it started.
//!
//! # What this module promises
//!
//! 1. A run of a session starts its command once: not zero times if [`launch`]
//!    said so, not twice however often it is called, whoever is killed.
//! 2. A command runs in the directory that was asked for, or not at all.
//! 3. What a run is doing can be told from its files and `/proc` at any time
//!    ([`observe`]), also by a daemon that did not launch it.
//! 4. After [`end()`] nothing of the session runs, or what does is named.
//! 5. No secret is in an argument list or a file; the environment goes through
//!    a pipe.
//! 6. Text from a payload reaches a prompt only as marked, fenced, bounded data.
//!
//! # What is not here
//!
//! Which session an item has, whether it may run now, its time limit and what
//! happens after its end are the dispatcher's, which stores all of it.

pub mod end;
pub mod environment;
pub mod error;
pub mod launcher;
pub mod placeholders;
pub mod profile;
pub mod prompt;
pub mod run_files;
pub mod runner;
pub mod state;

pub use end::{Ended, end};
pub use error::SessionError;
pub use launcher::DirectoryIdentity;
pub use profile::ProfileSpec;
pub use prompt::PromptSource;
pub use run_files::RunFiles;
pub use runner::{LaunchSpec, Launched, launch};
pub use state::{RunState, observe, wait};
