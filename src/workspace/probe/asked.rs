//! Asking git for the status of a checkout, through a private git directory.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::private::Private;
use super::status::{Entry, parse_status};
use crate::git::Git;

/// What is asked for: everything, whatever the configuration or `.gitmodules`
/// say. Without `--ignore-submodules=dirty` git would run itself inside each
/// submodule, with the submodule's own configuration.
pub const ARGS: [&str; 6] = [
    "--porcelain=v2",
    "-z",
    "--untracked-files=all",
    "--ignored=matching",
    "--ignore-submodules=dirty",
    "--no-renames",
];

/// How far the index is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As git does it: a file whose recorded stat data is equal is not read.
    Normal,
    /// Every file is hashed, which finds edits behind forged stat data.
    Paranoid,
}

/// An answer of git's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// As it came.
    pub raw: Vec<u8>,
    /// As it was understood.
    pub entries: Vec<Entry>,
}

/// Asks for the status of `place`.
///
/// # Errors
///
/// In words: git failed, said anything on its standard error (an unreadable
/// directory is only a warning to it), or was not understood.
pub async fn status(
    git: &Git,
    private: &Private,
    place: &Path,
    form: Form,
    cancel: &CancellationToken,
) -> Result<Status, String> {
    match form {
        Form::Normal => private.trust(),
        Form::Paranoid => private.distrust(),
    }
    .map_err(|error| error.to_string())?;
    let output = git
        .command("status")
        .args(ARGS)
        .git_dir(&private.git_dir())
        .work_tree(place)
        .index_file(&private.index_file())
        .env("GIT_OPTIONAL_LOCKS", "0")
        // Expanding a sparse index can write trees: not into what is looked at.
        .env("GIT_OBJECT_DIRECTORY", private.scratch_objects())
        .env(
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            private.ctl().join("objects"),
        )
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("HOME", "/nonexistent")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .run(cancel)
        .await
        .map_err(|error| error.to_string())?;
    if !output.stderr.is_empty() {
        return Err(format!(
            "git status: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        ));
    }
    let entries = parse_status(&output.stdout).map_err(|error| error.to_string())?;
    Ok(Status {
        raw: output.stdout,
        entries,
    })
}
