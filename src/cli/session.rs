//! `innkeeper session`.

use std::time::Duration;

use clap::Subcommand;
use hyper::Method;
use serde_json::json;

use super::client::{Client, Reply};
use super::exit::print_answer;
use super::output::age;
use super::progress::Progress;
use super::reference::{Reference, percent_encoded};
use super::{Failure, Format, Global, Output};
use crate::control::{ItemView, SessionView};
use crate::dispatch::request::Answer;

/// How often a followed log is looked at.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// `session …`
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List sessions, newest last.
    #[command(
        after_help = "The columns, in a pipe separated by tabs: id, work item, profile, state, \
runs, how the last one ended, age, directory."
    )]
    List {
        /// Only those whose command runs.
        #[arg(long)]
        live: bool,
        /// At most so many, the newest.
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        format: Format,
    },
    /// Print what a session's command wrote.
    #[command(after_help = "Examples:
  innkeeper session logs acme/app#15 -f
  innkeeper session logs 0198c0de-0000-7000-8000-000000000000 --tail 4096")]
    Logs {
        /// The issue or pull request, or the session's id.
        #[arg(value_name = "REF")]
        which: Which,
        /// Go on until the session's command ends.
        #[arg(short, long)]
        follow: bool,
        /// Only the last so many bytes.
        #[arg(long, value_name = "BYTES")]
        tail: Option<u64>,
        /// Print the log as one JSON object; not together with --follow.
        #[arg(long, conflicts_with = "follow")]
        json: bool,
    },
    /// End a session with everything it started, and nothing else.
    Stop {
        /// The issue or pull request, or the session's id.
        #[arg(value_name = "REF")]
        which: Which,
        #[command(flatten)]
        format: Format,
    },
}

/// A session, by its id or by its item.
#[derive(Clone, Debug)]
pub(super) enum Which {
    Id(String),
    Item(Reference),
}

impl std::str::FromStr for Which {
    type Err = crate::domain::work_item::BadReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match uuid::Uuid::try_parse(text) {
            Ok(id) => Ok(Self::Id(id.to_string())),
            Err(_not_an_id) => text.parse().map(Self::Item),
        }
    }
}

impl Which {
    /// Returns the id of the session that is meant: an item's newest.
    fn id(&self, client: &Client) -> Result<String, Failure> {
        match self {
            Self::Id(id) => Ok(id.clone()),
            Self::Item(reference) => {
                let item: ItemView =
                    client.get(&format!("/api/v1/checkouts/{}", reference.segment()))?;
                item.session.map(|session| session.id).ok_or_else(|| {
                    Failure::failed(anyhow::anyhow!("{} has no session", item.work_item))
                })
            }
        }
    }
}

pub(super) fn run(global: &Global, command: Command) -> Result<(), Failure> {
    match command {
        Command::List {
            live,
            limit,
            format,
        } => list(global, live, limit, format),
        Command::Logs {
            which,
            follow,
            tail,
            json,
        } => logs(global, &which, follow, tail, Format { json }),
        Command::Stop { which, format } => {
            let client = Client::new(global, format)?;
            let progress = Progress::new("ending the session".to_owned());
            let id = which.id(&client)?;
            let answer: Answer = client.post(
                &format!("/api/v1/sessions/{}/close", percent_encoded(&id)),
                &json!({ "source": "cli" }),
            )?;
            drop(progress);
            print_answer(&mut Output::new(format), &answer)
        }
    }
}

fn list(global: &Global, live: bool, limit: u32, format: Format) -> Result<(), Failure> {
    let client = Client::new(global, format)?;
    let views: Vec<SessionView> =
        client.get(&format!("/api/v1/sessions?live={live}&limit={limit}"))?;
    let mut output = Output::new(format);
    if output.is_json() {
        output.json(&views)?;
        return output.flush();
    }
    if views.is_empty() && output.is_terminal() {
        output.line("There are no sessions.")?;
        return output.flush();
    }
    let rows: Vec<Vec<String>> = views
        .iter()
        .map(|view| {
            vec![
                view.id.clone(),
                view.work_item.clone(),
                view.profile.clone(),
                view.state.as_str().to_owned(),
                view.run.to_string(),
                view.status
                    .map_or_else(|| "-".to_owned(), |status| status.to_string()),
                age(view.age_seconds),
                view.directory.clone(),
            ]
        })
        .collect();
    output.table(
        &[
            "SESSION",
            "WORK ITEM",
            "PROFILE",
            "STATE",
            "RUNS",
            "ENDED WITH",
            "AGE",
            "DIRECTORY",
        ],
        &rows,
    )?;
    output.flush()
}

fn logs(
    global: &Global,
    which: &Which,
    follow: bool,
    tail: Option<u64>,
    format: Format,
) -> Result<(), Failure> {
    let client = Client::new(global, format)?;
    let id = which.id(&client)?;
    let path = format!("/api/v1/sessions/{}/log", percent_encoded(&id));
    let mut output = Output::new(format);
    let mut whole = Vec::new();
    let mut query = match tail {
        Some(bytes) => format!("?tail={bytes}"),
        None => "?from=0".to_owned(),
    };
    loop {
        let reply = client.exchange(Method::GET, &format!("{path}{query}"), None)?;
        let next = header(&reply, "innkeeper-log-next");
        let more = header(&reply, "innkeeper-log-more").as_deref() == Some("true");
        if output.is_json() {
            whole.extend_from_slice(&reply.body);
        } else {
            output.bytes(&reply.body)?;
            output.flush()?;
        }
        // An empty answer is the end for now; more comes only while it runs.
        if !more || (reply.body.is_empty() && !follow) {
            break;
        }
        if reply.body.is_empty() {
            std::thread::sleep(FOLLOW_INTERVAL);
        }
        query = format!("?from={}", next.as_deref().unwrap_or("0"));
    }
    if output.is_json() {
        output.json(&json!({ "session": id, "log": String::from_utf8_lossy(&whole) }))?;
    }
    output.flush()
}

fn header(reply: &Reply, name: &str) -> Option<String> {
    reply
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
}
