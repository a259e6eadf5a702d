//! Git as a child process, and the directories that it may be run with.
//!
//! [`Git`] is the only place that starts git. It is always run with a directory
//! whose configuration the daemon wrote itself: the vault, a private view of a
//! shared clone ([`ctl`]), or a private directory of a checkout. Never with one
//! that an agent can write: git executes what such a configuration says.

mod command;
pub mod ctl;
mod error;
mod operator;
mod runner;

pub use command::GitCommand;
pub use error::{GitError, without_secrets};
pub use operator::{operator_config, quoted};
pub use runner::{Git, GitOptions, MARK, VERSION_MIN, Version};
