//! `innkeeper item`.

use clap::Subcommand;
use serde_json::json;

use super::client::Client;
use super::exit::print_answer;
use super::progress::Progress;
use super::reference::Reference;
use super::{Failure, Format, Global, Output};
use crate::dispatch::request::Answer;

/// `item …`
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Arm the item, prepare its checkout and start its session.
    Start(Arguments),
    /// End the session, keep the checkout, disarm the item.
    Stop(Arguments),
    /// Drop the item's later events until it is resumed.
    Pause(Arguments),
    /// Take the item's events again.
    Resume(Arguments),
    /// End the item: its session, and its checkout as when the item closes.
    Cleanup(Arguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The issue or pull request.
    #[arg(value_name = "REF")]
    reference: Reference,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(global: &Global, command: Command) -> Result<(), Failure> {
    let (word, arguments) = match command {
        Command::Start(arguments) => ("start", arguments),
        Command::Stop(arguments) => ("stop", arguments),
        Command::Pause(arguments) => ("pause", arguments),
        Command::Resume(arguments) => ("resume", arguments),
        Command::Cleanup(arguments) => ("cleanup", arguments),
    };
    let client = Client::new(global, arguments.format)?;
    let progress = Progress::new(format!("{word} {}", arguments.reference.as_str()));
    let answer: Answer = client.post(
        &format!("/api/v1/items/{}/{word}", arguments.reference.segment()),
        &json!({ "source": "cli" }),
    )?;
    drop(progress);
    print_answer(&mut Output::new(arguments.format), &answer)
}
