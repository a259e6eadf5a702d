//! `innkeeper show`.

use super::archive;
use super::client::Client;
use super::deliveries;
use super::explain::print_reasons;
use super::output::{age, size};
use super::reference::Reference;
use super::{Failure, Format, Global, Output};
use crate::control::{CheckoutView, ItemView, SessionView};
use crate::domain::work_item::ItemKind;

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  innkeeper show acme/app#15
  innkeeper show https://github.com/acme/app/pull/15 --json")]
pub(super) struct Arguments {
    /// The issue or pull request.
    #[arg(value_name = "REF")]
    reference: Reference,
    /// Measure what the checkout takes of the disk.
    #[arg(long)]
    size: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    let client = Client::new(global, arguments.format)?;
    let item: ItemView = client.get(&format!(
        "/api/v1/checkouts/{}?size={}",
        arguments.reference.segment(),
        arguments.size
    ))?;
    let mut output = Output::new(arguments.format);
    if output.is_json() {
        output.json(&item)?;
    } else {
        print(&mut output, &item)?;
    }
    output.flush()
}

fn print(output: &mut Output, item: &ItemView) -> Result<(), Failure> {
    output.heading(format!("{}  {}", item.work_item, item.title).trim_end())?;
    let kind = match item.kind {
        ItemKind::Issue => "issue",
        ItemKind::PullRequest => "pull request",
    };
    let mut state = vec![if item.open { "open" } else { "closed" }];
    state.extend(item.merged.unwrap_or(false).then_some("merged"));
    state.push(if item.armed { "armed" } else { "not armed" });
    state.extend(item.paused.then_some("paused"));
    let labels = (!item.labels.is_empty()).then(|| item.labels.join(", "));
    output.pairs(&[
        ("kind", Some(kind.to_owned())),
        ("state", Some(state.join(", "))),
        ("slug", Some(item.slug.clone())),
        ("address", item.url.clone()),
        ("author", item.author.clone()),
        ("labels", labels),
        ("head", item.head.clone()),
        ("head branch", item.head_branch.clone()),
        ("base", item.base.clone()),
        ("first seen", Some(item.created_at.clone())),
    ])?;
    output.line("")?;
    match &item.checkout {
        Some(checkout) => print_checkout(output, checkout)?,
        None => output.line("There is no checkout.")?,
    }
    output.line("")?;
    match &item.session {
        Some(session) => print_session(output, session)?,
        None => output.line("There is no session.")?,
    }
    if !item.archives.is_empty() {
        output.line("")?;
        output.heading("Archives")?;
        archive::print_table(output, &item.archives)?;
    }
    if !item.deliveries.is_empty() {
        output.line("")?;
        output.heading("Last deliveries")?;
        deliveries::print_table(output, &item.deliveries)?;
    }
    Ok(())
}

fn print_checkout(output: &mut Output, view: &CheckoutView) -> Result<(), Failure> {
    output.heading("Checkout")?;
    output.pairs(&[
        ("state", Some(view.state.as_str().to_owned())),
        ("path", view.path.clone()),
        ("strategy", Some(view.strategy.as_str().to_owned())),
        (
            "branch",
            Some(
                view.branch
                    .clone()
                    .unwrap_or_else(|| "(detached)".to_owned()),
            ),
        ),
        ("commit", view.commit.clone()),
        ("made at", view.base.clone()),
        ("age", Some(age(view.age_seconds))),
        ("size", view.bytes.map(size)),
        ("on close", Some(view.on_close.meaning().to_owned())),
    ])?;
    if !view.kept.is_empty() {
        output.line("It was kept when it was last to go, for:")?;
        print_reasons(output, &view.kept)?;
    }
    Ok(())
}

/// Prints a session.
pub(super) fn print_session(output: &mut Output, view: &SessionView) -> Result<(), Failure> {
    output.heading("Session")?;
    output.pairs(&[
        ("id", Some(view.id.clone())),
        ("profile", Some(view.profile.clone())),
        ("state", Some(view.state.as_str().to_owned())),
        ("runs", Some(view.run.to_string())),
        ("ended with", view.status.map(|status| status.to_string())),
        ("directory", Some(view.directory.clone())),
        ("output", Some(view.log.display().to_string())),
        ("age", Some(age(view.age_seconds))),
    ])
}
