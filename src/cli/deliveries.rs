//! `innkeeper deliveries`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::client::Client;
use super::failure::say;
use super::moment::Moment;
use super::reference::{Reference, percent_encoded};
use super::{Failure, Format, Global, Output};
use crate::control::DeliveryView;
use crate::domain::reason::DropReason;
use crate::store::DeliveryState;

/// The most deliveries that are replayed by one command.
const REPLAYED_MAX: u32 = 100_000;

/// `deliveries …`
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List deliveries, newest last.
    #[command(
        after_help = "The columns, in a pipe separated by tabs: id, received, event and \
action, work item (or repository), state, attempts, outcome.

Examples:
  innkeeper deliveries list --state parked
  innkeeper deliveries list --item acme/app#15 --since 2h"
    )]
    List {
        /// Only those in this state.
        #[arg(long, value_enum)]
        state: Option<StateName>,
        /// Only those of this issue or pull request.
        #[arg(long, value_name = "REF")]
        item: Option<Reference>,
        /// Only those received since: a time, a date, or how long ago (2h, 3d).
        #[arg(long, value_name = "TIME")]
        since: Option<Moment>,
        /// At most so many, the newest.
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        limit: u32,
        #[command(flatten)]
        format: Format,
    },
    /// Show a delivery: what it is about and what became of it.
    Show {
        /// The delivery's id (X-GitHub-Delivery).
        id: String,
        /// Print what was delivered, too.
        #[arg(long)]
        payload: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Take finished deliveries up afresh, as if they had just come.
    #[command(
        group = clap::ArgGroup::new("which").required(true).args(["ids", "since"]),
        after_help = "With --since: those that were parked or dropped, but not those that would \
only be dropped again for their kind (ping, superseded, own-event). One that had its effect is \
taken up only with --force.

Examples:
  innkeeper deliveries replay 72d3162e-cc78-11e3-81ab-4c9367dc0958
  innkeeper deliveries replay --since 2h"
    )]
    Replay {
        /// The deliveries' ids.
        #[arg(value_name = "ID")]
        ids: Vec<String>,
        /// All that came since: a time, a date, or how long ago (2h, 3d).
        #[arg(long, value_name = "TIME")]
        since: Option<Moment>,
        /// Take up those too that had their effect.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum StateName {
    /// Stored, wait for their turn or the next attempt.
    Received,
    /// Being worked on.
    Running,
    /// Had their effect.
    Done,
    /// Needed none.
    Dropped,
    /// Given up.
    Parked,
}

impl StateName {
    const fn state(self) -> DeliveryState {
        match self {
            Self::Received => DeliveryState::Received,
            Self::Running => DeliveryState::Running,
            Self::Done => DeliveryState::Done,
            Self::Dropped => DeliveryState::Dropped,
            Self::Parked => DeliveryState::Parked,
        }
    }
}

pub(super) fn run(global: &Global, command: Command) -> Result<(), Failure> {
    match command {
        Command::List {
            state,
            item,
            since,
            limit,
            format,
        } => {
            let client = Client::new(global, format)?;
            let mut path = format!("/api/v1/deliveries?limit={limit}");
            if let Some(state) = state {
                path.push_str("&state=");
                path.push_str(state.state().as_str());
            }
            if let Some(item) = &item {
                path.push_str("&item=");
                path.push_str(&item.segment());
            }
            if let Some(since) = since {
                path.push_str("&since=");
                path.push_str(&since.0.to_string());
            }
            let views: Vec<DeliveryView> = client.get(&path)?;
            let mut output = Output::new(format);
            if output.is_json() {
                output.json(&views)?;
            } else if views.is_empty() && output.is_terminal() {
                output.line("There are no such deliveries.")?;
            } else {
                print_table(&mut output, &views)?;
            }
            output.flush()
        }
        Command::Show {
            id,
            payload,
            format,
        } => {
            let client = Client::new(global, format)?;
            let view: DeliveryView = client.get(&format!(
                "/api/v1/deliveries/{}?payload={payload}",
                percent_encoded(&id)
            ))?;
            let mut output = Output::new(format);
            if output.is_json() {
                output.json(&view)?;
            } else {
                print(&mut output, &view)?;
            }
            output.flush()
        }
        Command::Replay {
            ids,
            since,
            force,
            format,
        } => {
            let client = Client::new(global, format)?;
            let ids = match since {
                Some(since) => since_then(&client, since, force)?,
                None => ids,
            };
            replay(&client, &ids, force, format)
        }
    }
}

/// Returns the ids of the finished deliveries that are worth taking up again.
fn since_then(client: &Client, since: Moment, force: bool) -> Result<Vec<String>, Failure> {
    let views: Vec<DeliveryView> = client.get(&format!(
        "/api/v1/deliveries?since={}&limit={REPLAYED_MAX}",
        since.0
    ))?;
    Ok(views
        .into_iter()
        .filter(|view| match view.state {
            DeliveryState::Parked => true,
            DeliveryState::Done => force,
            DeliveryState::Dropped => force || !is_pointless(view.outcome.as_deref()),
            DeliveryState::Received | DeliveryState::Running => false,
        })
        .map(|view| view.id)
        .collect())
}

/// Returns whether a dropped delivery would be dropped again, or do harm, as
/// later ones took its place.
fn is_pointless(outcome: Option<&str>) -> bool {
    outcome
        .and_then(DropReason::from_name)
        .is_some_and(|reason| {
            matches!(
                reason,
                DropReason::Ping | DropReason::Superseded | DropReason::OwnEvent
            )
        })
}

fn replay(client: &Client, ids: &[String], force: bool, format: Format) -> Result<(), Failure> {
    let mut output = Output::new(format);
    let mut refused = None;
    let mut replayed = Vec::new();
    for id in ids {
        let answer: Result<Value, Failure> = client.post(
            &format!("/api/v1/deliveries/{}/replay", percent_encoded(id)),
            &json!({ "force": force }),
        );
        match answer {
            Ok(_) => {
                if !output.is_json() {
                    output.line(&format!("{id} is taken up afresh"))?;
                }
                replayed.push(id);
            }
            // One that cannot be replayed does not keep the others back.
            Err(failure) => {
                if let Some(earlier) = refused.replace(failure) {
                    let _its_code_is_the_same = Failure::report(earlier);
                }
            }
        }
    }
    if output.is_json() {
        output.json(&json!({ "replayed": replayed }))?;
    } else if ids.is_empty() {
        say("There is nothing to take up.\n");
    }
    output.flush()?;
    refused.map_or(Ok(()), Err)
}

/// Prints deliveries as a table.
pub(super) fn print_table(output: &mut Output, views: &[DeliveryView]) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = views
        .iter()
        .map(|view| {
            vec![
                view.id.clone(),
                view.received_at.clone(),
                event(view),
                view.work_item
                    .clone()
                    .or_else(|| view.repository.clone())
                    .unwrap_or_else(|| "-".to_owned()),
                view.state.as_str().to_owned(),
                view.attempt.to_string(),
                view.outcome.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        })
        .collect();
    output.table(
        &[
            "DELIVERY", "RECEIVED", "EVENT", "ABOUT", "STATE", "ATTEMPTS", "OUTCOME",
        ],
        &rows,
    )
}

fn event(view: &DeliveryView) -> String {
    match &view.action {
        Some(action) => format!("{}.{action}", view.event),
        None => view.event.clone(),
    }
}

fn print(output: &mut Output, view: &DeliveryView) -> Result<(), Failure> {
    output.heading(&view.id)?;
    let meaning = view.outcome.as_deref().and_then(|outcome| {
        crate::domain::code::FailureCode::from_name(outcome)
            .map(crate::domain::code::FailureCode::meaning)
            .or_else(|| DropReason::from_name(outcome).map(DropReason::meaning))
    });
    output.pairs(&[
        ("event", Some(event(view))),
        ("state", Some(view.state.as_str().to_owned())),
        ("outcome", view.outcome.clone()),
        ("", meaning.map(str::to_owned)),
        ("error", view.error.clone()),
        ("attempts", Some(view.attempt.to_string())),
        ("work item", view.work_item.clone()),
        ("repository", view.repository.clone()),
        ("source", Some(view.source.clone())),
        ("received", Some(view.received_at.clone())),
        ("next attempt", view.retry_at.clone()),
        ("finished", view.finished_at.clone()),
    ])?;
    if let Some(payload) = &view.payload {
        output.line("")?;
        let text = match payload {
            Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).map_err(Failure::failed)?,
        };
        output.line(&text)?;
    }
    Ok(())
}
