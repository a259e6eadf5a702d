//! `innkeeper events`: reads the log itself, so it works without a daemon.

use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;

use super::client::Client;
use super::moment::Moment;
use super::reference::Reference;
use super::{Failure, Format, Global, Output};
use crate::config::{Config, Environment};
use crate::control::{EventQuery, ItemView};
use crate::domain::log_event::CATALOGUE;
use crate::domain::work_item::{ItemQuery, parse_item_query};
use crate::event_log::EventReader;

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs no daemon, except to translate a slug. In a pipe and with --json \
each event is a line of JSON, as it stands in the log.

Examples:
  innkeeper events --item acme/app#15
  innkeeper events --follow --type 'workspace.*'
  innkeeper events --since 2h | jq -r 'select(.level == \"error\") | .error'
  innkeeper events --types"
)]
pub(super) struct Arguments {
    /// Go on with events as they come.
    #[arg(short, long)]
    follow: bool,
    /// Only events whose name matches, such as 'workspace.*'.
    #[arg(long = "type", value_name = "GLOB", value_parser = glob)]
    kind: Option<GlobMatcher>,
    /// Only events of this issue or pull request.
    #[arg(long, value_name = "REF")]
    item: Option<Reference>,
    /// Only events of this delivery.
    #[arg(long, value_name = "ID")]
    delivery: Option<String>,
    /// Only events since: a time, a date, or how long ago (2h, 3d).
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Print the catalogue instead: every event with its fields and its meaning.
    #[arg(long, conflicts_with_all = ["follow", "kind", "item", "delivery", "since"])]
    types: bool,
    #[command(flatten)]
    format: Format,
}

fn glob(text: &str) -> Result<GlobMatcher, globset::Error> {
    Ok(GlobBuilder::new(text).build()?.compile_matcher())
}

pub(super) fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let mut output = Output::new(arguments.format);
    if arguments.types {
        return print_types(&mut output);
    }
    let config = global.load(&Environment::of_process())?.config;
    let query = EventQuery {
        kind: arguments.kind,
        item: arguments
            .item
            .as_ref()
            .map(|reference| parse_item_query(reference.as_str()))
            .transpose()
            .map_err(Failure::usage)?,
        delivery: arguments.delivery,
        since: arguments.since.map(|since| since.0),
        after: 0,
    };
    let work_item = match (&query.item, &arguments.item) {
        (Some(ItemQuery::Slug(_)), Some(slug)) => Some(known_as(&config, slug, arguments.format)?),
        _ => query.reference(),
    };
    let path = config.event_log.path;
    let unreadable = |error: std::io::Error| {
        Failure::failed(
            anyhow::Error::from(error)
                .context(format!("could not read the event log `{}`", path.display())),
        )
    };
    let mut reader = EventReader::open(&path, query.filter(work_item)).map_err(unreadable)?;
    while let Some(line) = reader.next_line().map_err(unreadable)? {
        print(&mut output, &line)?;
    }
    output.flush()?;
    if !arguments.follow {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    loop {
        let line = runtime.block_on(reader.follow_line()).map_err(unreadable)?;
        print(&mut output, &line)?;
        output.flush()?;
    }
}

/// Returns the reference of the item with this slug, which only the daemon knows.
fn known_as(config: &Config, slug: &Reference, format: Format) -> Result<String, Failure> {
    let client = Client::at(config.control.socket.clone(), format)?;
    let item: ItemView = client.get(&format!("/api/v1/checkouts/{}", slug.segment()))?;
    Ok(item.work_item)
}

/// Prints an event: as it stands in the log, or for people on a terminal.
fn print(output: &mut Output, line: &str) -> Result<(), Failure> {
    if output.is_json() || !output.is_terminal() {
        output.bytes(line.as_bytes())?;
        return output.bytes(b"\n");
    }
    let Ok(Value::Object(mut event)) = serde_json::from_str(line) else {
        return output.line(line);
    };
    let mut taken = |key: &str| match event.remove(key) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let time = taken("ts");
    let level = taken("level");
    let name = taken("event");
    let item = taken("work_item");
    for unsaid in ["seq", "node"] {
        event.remove(unsaid);
    }
    let mark = match level.as_str() {
        "error" => "!",
        "warn" => "?",
        _ => " ",
    };
    let mut text = format!("{time} {mark} {name:<24} {item}");
    for (key, value) in &event {
        text.push_str("  ");
        text.push_str(key);
        text.push('=');
        match value {
            Value::String(value) => text.push_str(value),
            other => text.push_str(&other.to_string()),
        }
    }
    if level == "error" {
        output.heading(&text)
    } else {
        output.line(&text)
    }
}

fn print_types(output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        output.json(&CATALOGUE)?;
        return output.flush();
    }
    let rows: Vec<Vec<String>> = CATALOGUE
        .iter()
        .map(|row| {
            vec![
                row.name.to_owned(),
                format!("{:?}", row.level).to_lowercase(),
                row.fields.join(", "),
                row.meaning.to_owned(),
            ]
        })
        .collect();
    output.table(&["EVENT", "LEVEL", "FIELDS", "MEANING"], &rows)?;
    output.flush()
}
