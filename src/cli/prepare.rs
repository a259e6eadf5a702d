//! `innkeeper prepare`.

use serde_json::json;

use super::client::Client;
use super::progress::Progress;
use super::reference::Reference;
use super::{Failure, Format, Global, Output};
use crate::dispatch::request::Answer;

/// Arguments of `prepare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints only the path, so that it can be used in a command:
  cd \"$(innkeeper prepare acme/app#15)\"
  innkeeper prepare acme/app#15 --strategy clone
  innkeeper prepare acme/app#15 --sha 1f0c3a5e9b7d2c4a6e8f0b1d3c5a7e9f1b3d5c7a

An item that no event has told of has an author that is not known, so that its checkout is made with
routing.workspace.untrustedStrategy unless --strategy says otherwise. A checkout that exists is given
back as it is; one that differs from what --sha, --branch or --strategy ask for is an error.

What was begun goes on when this command is interrupted."
)]
pub(super) struct Arguments {
    /// The issue or pull request; made known if it is not.
    #[arg(value_name = "REF")]
    reference: Reference,
    /// The commit to check out, as a full id; else the pull request's head, else
    /// the default branch.
    #[arg(long, value_name = "COMMIT", value_parser = full_id)]
    sha: Option<String>,
    /// The branch of the repository to check out.
    #[arg(long)]
    branch: Option<String>,
    /// How to make the checkout; else as the configuration says.
    #[arg(long, value_enum)]
    strategy: Option<StrategyName>,
    #[command(flatten)]
    format: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum StrategyName {
    /// A linked worktree of the repository's shared clone.
    Worktree,
    /// A full clone with objects of its own.
    Clone,
}

fn full_id(text: &str) -> Result<String, &'static str> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex && (text.len() == 40 || text.len() == 64) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(
            "write the full commit id, 40 or 64 hex digits: a shortened one may mean another commit tomorrow",
        )
    }
}

pub(super) fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let client = Client::new(global, arguments.format)?;
    let mut body = json!({ "work_item": arguments.reference.as_str(), "source": "cli" });
    let options = [
        ("commit", arguments.sha),
        ("branch", arguments.branch),
        (
            "strategy",
            arguments.strategy.map(|strategy| match strategy {
                StrategyName::Worktree => "worktree".to_owned(),
                StrategyName::Clone => "clone".to_owned(),
            }),
        ),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            body[name] = value.into();
        }
    }
    let progress = Progress::new(format!("preparing {}", arguments.reference.as_str()));
    let answer: Answer = client.post("/api/v1/checkouts", &body)?;
    drop(progress);
    let mut output = Output::new(arguments.format);
    match &answer {
        _ if output.is_json() => output.json(&answer)?,
        Answer::Prepared { checkout, .. } => output.path(checkout.as_ref())?,
        _ => {
            return Err(Failure::failed(anyhow::anyhow!(
                "the daemon answered something else than a checkout"
            )));
        }
    }
    output.flush()
}
