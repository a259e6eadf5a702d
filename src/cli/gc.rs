//! `innkeeper gc`.

use serde_json::json;

use super::client::Client;
use super::output::size;
use super::progress::Progress;
use super::{Failure, Format, Global, Output};
use crate::dispatch::gc::GcReport;

/// Arguments of `gc`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Store and disk are compared first. Given back are the trash, leftovers of \
preparations, packs that a killed git left, output that can be made again in kept checkouts of \
closed items, and clones of repositories that nobody has needed for 30 days. Checkouts go only \
when their item ends and nothing in them is at risk; archives when their days are over.

The columns, in a pipe separated by tabs: kind, bytes, what becomes of it, why, path. Every byte \
below the workspace root is in exactly one row.

When many checkouts were gone or would have gone at once, removals are halted until you say that \
this is as it should be.

Examples:
  innkeeper gc --dry-run
  innkeeper gc
  innkeeper gc --resume-removals"
)]
pub(super) struct Arguments {
    /// Change nothing, only say what would go and why the rest stays.
    #[arg(long)]
    dry_run: bool,
    /// Let removals go on that were halted because too many checkouts went at once.
    #[arg(long, conflicts_with = "dry_run")]
    resume_removals: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    let client = Client::new(global, arguments.format)?;
    let what = if arguments.dry_run {
        "looking at everything below the workspace root"
    } else {
        "giving back what nobody needs"
    };
    let progress = Progress::new(what.to_owned());
    let report: GcReport = client.post(
        "/api/v1/gc",
        &json!({
            "dry_run": arguments.dry_run,
            "resume_removals": arguments.resume_removals,
        }),
    )?;
    drop(progress);
    let mut output = Output::new(arguments.format);
    if output.is_json() {
        output.json(&report)?;
    } else {
        print(&mut output, &report)?;
    }
    output.flush()
}

fn print(output: &mut Output, report: &GcReport) -> Result<(), Failure> {
    let is_terminal = output.is_terminal();
    let rows: Vec<_> = report
        .holdings
        .iter()
        .map(|one| {
            vec![
                one.kind.as_str().to_owned(),
                if is_terminal {
                    size(one.bytes)
                } else {
                    one.bytes.to_string()
                },
                one.fate.as_str().to_owned(),
                one.reason.clone(),
                one.path.display().to_string(),
            ]
        })
        .collect();
    output.table(&["KIND", "SIZE", "FATE", "WHY", "PATH"], &rows)?;
    if !is_terminal {
        return Ok(());
    }
    if let Some(halt) = &report.resumed {
        output.line(&format!(
            "Removals go on; they were halted because {}.",
            halt.sentence()
        ))?;
    }
    if let Some(halt) = &report.halted {
        output.line(&format!(
            "Removals are halted: {}. `innkeeper gc --resume-removals` lets them go on.",
            halt.sentence()
        ))?;
    }
    if report.roots.is_empty() {
        return output.line("No workspace is configured (routing.workspace.root).");
    }
    let total = size(report.total_bytes);
    if report.dry_run {
        output.line(&format!(
            "{} of {total} could be given back.",
            size(report.reclaimable_bytes)
        ))
    } else {
        output.line(&format!(
            "{} were given back; {total} are left.",
            size(report.reclaimed_bytes)
        ))
    }
}
