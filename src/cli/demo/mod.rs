//! `innkeeper demo`: the whole life of a pull request on this machine.
//!
//! Everything is real: an origin that git fetches from, a daemon on a free port,
//! signed webhooks, a session that edits and commits. Each step is checked; the
//! first that is not as it says ends the demonstration.

mod origin;
mod snapshot;
mod story;
mod webhook;

use std::path::PathBuf;

use super::{Failure, Global};

/// Arguments of `demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Leave everything that was made where it is, and say where.
    #[arg(long)]
    pub keep: bool,
}

/// Runs the demonstration.
///
/// # Errors
///
/// Returns the first step that did not go as it says.
pub fn run(_global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let place = tempfile::Builder::new()
        .prefix("innkeeper-demo-")
        .tempdir()
        .map_err(|error| anyhow::Error::from(error).context("no temporary directory can be made"))
        .map_err(Failure::failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    // A real path: git names its directories that way.
    let root = place.path().canonicalize().map_err(Failure::failed)?;
    let told = runtime.block_on(story::tell(&root));
    drop(runtime);
    let kept: Option<PathBuf> = arguments.keep.then(|| place.keep());
    if let Some(kept) = kept {
        super::failure::say(&format!("kept: {}\n", kept.display()));
    }
    told
}
