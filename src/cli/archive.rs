//! `innkeeper archive`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::json;

use super::client::Client;
use super::exit::print_answer;
use super::explain::print_reasons;
use super::list::dirt;
use super::output::{age, short, size};
use super::progress::Progress;
use super::reference::percent_encoded;
use super::{Failure, Format, Global, Output};
use crate::control::ArchiveView;
use crate::dispatch::request::Answer;

/// `archive …`
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the archives, newest first.
    #[command(
        after_help = "The columns, in a pipe separated by tabs: id, work item, age, what was at \
risk, files, commits, size, where the checkout was.

An archive is kept for routing.workspace.removal.archiveDays after it was made and its item last \
changed, and for as long as its item is open."
    )]
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Show what an archive holds, and until when it is kept.
    Show(Arguments),
    /// Bring back what an archive holds.
    ///
    /// Without --to it becomes the checkout of its item again, at the place of the
    /// one that was removed, and the item's session can go on in it. That is
    /// refused while the item has a checkout. The archive stays.
    #[command(after_help = "Examples:
  innkeeper archive restore 01a22f7b6216711b92a525a2495e8efc
  innkeeper archive restore 01a22f7b6216711b92a525a2495e8efc --to ~/rescued")]
    Restore {
        #[command(flatten)]
        which: Arguments,
        /// Make it a repository that stands alone, in this directory, which must be
        /// empty or not exist.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Delete an archive for good; nothing else has what it holds.
    Purge(Arguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The archive's whole id, as `archive list` and the event log tell it.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    format: Format,
}

impl Arguments {
    fn route(&self) -> String {
        format!("/api/v1/archives/{}", percent_encoded(&self.id))
    }
}

pub(super) fn run(global: &Global, command: Command) -> Result<(), Failure> {
    match command {
        Command::List { format } => list(global, format),
        Command::Show(which) => show(global, &which),
        Command::Restore { which, to } => restore(global, &which, to),
        Command::Purge(which) => {
            let client = Client::new(global, which.format)?;
            let progress = Progress::new(format!("deleting archive {}", which.id));
            let answer: Answer = client.delete(&format!("{}?source=cli", which.route()))?;
            drop(progress);
            print_answer(&mut Output::new(which.format), &answer)
        }
    }
}

fn restore(global: &Global, which: &Arguments, to: Option<PathBuf>) -> Result<(), Failure> {
    // The daemon has another working directory.
    let to = to
        .map(|to| std::path::absolute(&to).with_context(|| format!("`{}`", to.display())))
        .transpose()
        .map_err(Failure::usage)?;
    if let Some(to) = to.as_deref().filter(|to| to.to_str().is_none()) {
        return Err(Failure::usage(anyhow::anyhow!(
            "`{}` is no text, which a directory to restore into must be",
            to.display()
        )));
    }
    let client = Client::new(global, which.format)?;
    let progress = Progress::new(format!("restoring archive {}", which.id));
    let answer: Answer = client.post(
        &format!("{}/restore", which.route()),
        &json!({ "to": to, "source": "cli" }),
    )?;
    drop(progress);
    print_answer(&mut Output::new(which.format), &answer)
}

fn list(global: &Global, format: Format) -> Result<(), Failure> {
    let client = Client::new(global, format)?;
    let views: Vec<ArchiveView> = client.get("/api/v1/archives")?;
    let mut output = Output::new(format);
    if output.is_json() {
        output.json(&views)?;
    } else if views.is_empty() && output.is_terminal() {
        output.line("There are no archives.")?;
    } else {
        print_table(&mut output, &views)?;
    }
    output.flush()
}

/// Prints archives, one a row.
pub(super) fn print_table(output: &mut Output, views: &[ArchiveView]) -> Result<(), Failure> {
    let headings = [
        "ID",
        "WORK ITEM",
        "AGE",
        "AT RISK WAS",
        "FILES",
        "COMMITS",
        "SIZE",
        "CHECKOUT WAS",
    ];
    let rows: Vec<Vec<String>> = views
        .iter()
        .map(|view| {
            vec![
                view.id.clone(),
                view.work_item.clone().unwrap_or_else(|| view.slug.clone()),
                age(view.age_seconds),
                dirt(&view.reasons).unwrap_or_else(|| "-".to_owned()),
                view.files.to_string(),
                view.commits.to_string(),
                size(view.bytes),
                view.checkout.clone(),
            ]
        })
        .collect();
    output.table(&headings, &rows)
}

fn show(global: &Global, which: &Arguments) -> Result<(), Failure> {
    let client = Client::new(global, which.format)?;
    let view: ArchiveView = client.get(&which.route())?;
    let mut output = Output::new(which.format);
    if output.is_json() {
        output.json(&view)?;
    } else {
        print(&mut output, &view)?;
    }
    output.flush()
}

fn print(output: &mut Output, view: &ArchiveView) -> Result<(), Failure> {
    output.heading(&format!("Archive {}", view.id))?;
    let item = view.work_item.clone().unwrap_or_else(|| view.slug.clone());
    let state = match view.open {
        Some(true) => "open",
        Some(false) => "closed",
        None => "not known here",
    };
    let kept = match (&view.expires_at, view.open) {
        (Some(at), _) => at.clone(),
        (None, Some(true)) => "for as long as its item is open".to_owned(),
        (None, _) => "it is purged by hand".to_owned(),
    };
    let head = view.head.as_deref().map(|head| {
        if head.starts_with("refs/") {
            head.to_owned()
        } else {
            short(head)
        }
    });
    output.pairs(&[
        ("work item", Some(format!("{item} ({state})"))),
        ("repository", Some(view.repository.clone())),
        ("strategy", Some(view.strategy.as_str().to_owned())),
        ("checkout was", Some(view.checkout.clone())),
        ("head was", head),
        ("made", Some(view.created_at.clone())),
        ("age", Some(age(view.age_seconds))),
        ("kept until", Some(kept)),
        ("size", Some(size(view.bytes))),
        ("files", Some(view.files.to_string())),
        ("commits", Some(view.commits.to_string())),
        ("below", Some(view.root.display().to_string())),
    ])?;
    output.line("What was at risk:")?;
    print_reasons(output, &view.reasons)?;
    output.line(&format!(
        "`innkeeper archive restore {}` brings it back.",
        view.id
    ))
}
