//! `innkeeper completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Failure, Format, Output};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  innkeeper completions bash > ~/.local/share/bash-completion/completions/innkeeper
  innkeeper completions zsh > ~/.zfunc/_innkeeper
  innkeeper completions fish > ~/.config/fish/completions/innkeeper.fish")]
pub(super) struct Arguments {
    /// The shell.
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Into memory first: the generator cannot be told that nobody reads.
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Cli::command(),
        "innkeeper",
        &mut script,
    );
    let mut output = Output::new(Format { json: false });
    output.bytes(&script)?;
    output.flush()
}
