//! `innkeeper list`.

use super::client::Client;
use super::output::{age, short, size};
use super::progress::Progress;
use super::{Failure, Format, Global, Output};
use crate::control::CheckoutView;
use crate::domain::reason::Kept;

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The columns, in a pipe separated by tabs: reference, state, session, age, \
what was in it when it was last to go, strategy, branch, commit, size (with --size), path.

What is in a checkout now is told by `innkeeper explain REF`."
)]
pub(super) struct Arguments {
    /// Measure what each takes of the disk; reads every directory.
    #[arg(long)]
    size: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    let client = Client::new(global, arguments.format)?;
    let progress = arguments
        .size
        .then(|| Progress::new("measuring the checkouts".to_owned()));
    let views: Vec<CheckoutView> =
        client.get(&format!("/api/v1/checkouts?size={}", arguments.size))?;
    drop(progress);
    let mut output = Output::new(arguments.format);
    if output.is_json() {
        output.json(&views)?;
        return output.flush();
    }
    if views.is_empty() && output.is_terminal() {
        output.line("There are no checkouts.")?;
        return output.flush();
    }
    let mut headings = vec![
        "WORK ITEM",
        "STATE",
        "SESSION",
        "AGE",
        "KEPT FOR",
        "STRATEGY",
        "BRANCH",
        "COMMIT",
    ];
    if arguments.size {
        headings.push("SIZE");
    }
    headings.push("PATH");
    let rows: Vec<_> = views.iter().map(|view| row(view, arguments.size)).collect();
    output.table(&headings, &rows)?;
    output.flush()
}

fn row(view: &CheckoutView, with_size: bool) -> Vec<String> {
    let none = || "-".to_owned();
    let mut row = vec![
        view.work_item.clone(),
        view.state.as_str().to_owned(),
        view.session
            .as_ref()
            .map_or_else(none, |session| session.state.as_str().to_owned()),
        age(view.age_seconds),
        dirt(&view.kept).unwrap_or_else(none),
        view.strategy.as_str().to_owned(),
        view.branch
            .clone()
            .unwrap_or_else(|| "(detached)".to_owned()),
        view.commit.as_deref().map_or_else(none, short),
    ];
    if with_size {
        row.push(view.bytes.map_or_else(none, size));
    }
    row.push(view.path.clone().unwrap_or_else(none));
    row
}

/// Returns reasons to keep a checkout in one cell.
pub(super) fn dirt(kept: &[Kept]) -> Option<String> {
    let words: Vec<_> = kept
        .iter()
        .map(|kept| format!("{} {}", kept.count, kept.code))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}
