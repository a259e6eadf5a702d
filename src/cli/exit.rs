//! `innkeeper exit`.

use serde_json::json;

use super::client::Client;
use super::output::size;
use super::progress::Progress;
use super::reference::Reference;
use super::{Failure, Format, Global, Output};
use crate::dispatch::request::Answer;

/// Arguments of `exit`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("action").required(true).args(["keep", "remove"]),
    after_help = "Removing refuses if anything in the checkout exists only there, and says what \
(exit code 1); nothing is touched then. The refusal names a token: given back with \
--discard-changes, what was at risk is archived and the checkout goes. A change after the refusal \
voids the token. A session that runs refuses everything without --stop.

Examples:
  innkeeper exit acme/app#15 --keep --stop
  innkeeper exit acme/app#15 --remove
  innkeeper exit acme/app#15 --remove --discard-changes TOKEN"
)]
pub(super) struct Arguments {
    /// The issue or pull request.
    #[arg(value_name = "REF")]
    reference: Reference,
    /// End the session and leave the checkout where it is.
    #[arg(long)]
    keep: bool,
    /// Remove the checkout if nothing in it is at risk.
    #[arg(long)]
    remove: bool,
    /// Remove it although something in it exists only there, which is archived
    /// first; the token is that of the refusal.
    #[arg(
        long,
        value_name = "TOKEN",
        requires = "remove",
        conflicts_with = "keep"
    )]
    discard_changes: Option<String>,
    /// End a session that runs.
    #[arg(long)]
    stop: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    let client = Client::new(global, arguments.format)?;
    let action = if arguments.remove { "remove" } else { "keep" };
    let progress = Progress::new(format!("leaving {}", arguments.reference.as_str()));
    let answer: Answer = client.post(
        &format!("/api/v1/checkouts/{}/exit", arguments.reference.segment()),
        &json!({
            "action": action,
            "stop": arguments.stop,
            "discard_changes": arguments.discard_changes,
            "source": "cli",
        }),
    )?;
    drop(progress);
    print_answer(&mut Output::new(arguments.format), &answer)
}

/// Prints what came of a request.
pub(super) fn print_answer(output: &mut Output, answer: &Answer) -> Result<(), Failure> {
    if output.is_json() {
        output.json(answer)?;
        return output.flush();
    }
    match answer {
        Answer::Removed { checkout, archive } => {
            output.line(&format!("Removed {checkout}"))?;
            if let Some(archive) = archive {
                output.line(&format!(
                    "What existed only there is in archive {archive}; `innkeeper archive restore {archive}` brings it back."
                ))?;
            }
        }
        Answer::Restored {
            archive,
            checkout,
            alone,
            differs,
        } => {
            let what = if *alone {
                "a repository"
            } else {
                "the checkout"
            };
            output.line(&format!("Restored archive {archive} as {what} {checkout}"))?;
            if differs.is_empty() {
                output.line("Nothing differs from what was removed.")?;
            }
            for one in differs {
                output.line(&format!("Differs from what was removed: {one}"))?;
            }
        }
        Answer::Purged { archive, bytes } => {
            output.line(&format!("Deleted archive {archive}, {}", size(*bytes)))?;
        }
        Answer::Done { message } => output.line(message)?,
        Answer::Prepared { checkout, .. } => output.path(checkout.as_ref())?,
        Answer::Kept {
            reasons, checkout, ..
        } => {
            output.line(&format!("Kept {checkout}, for:"))?;
            super::explain::print_reasons(output, reasons)?;
        }
        Answer::Explained { checkout, .. } => output.line(checkout)?,
    }
    output.flush()
}
