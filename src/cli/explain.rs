//! `innkeeper explain`.

use super::client::Client;
use super::progress::Progress;
use super::reference::Reference;
use super::{Failure, Format, Global, Output};
use crate::dispatch::request::Answer;
use crate::domain::gate::{ProbeOutcome, ProbeResult, Verdict};
use crate::domain::reason::Kept;
use crate::domain::removal::Fate;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs the probes that decide at the end of an item, and changes nothing. \
Exit code 0 whatever the verdict; --json has it as `explained.verdict`, and what would become \
of the checkout as `explained.on_close`: removed, archived or kept."
)]
pub(super) struct Arguments {
    /// The issue or pull request.
    #[arg(value_name = "REF")]
    reference: Reference,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    let client = Client::new(global, arguments.format)?;
    let progress = Progress::new(format!("looking at {}", arguments.reference.as_str()));
    let answer: Answer = client.get(&format!(
        "/api/v1/checkouts/{}/explain?source=cli",
        arguments.reference.segment()
    ))?;
    drop(progress);
    let mut output = Output::new(arguments.format);
    match &answer {
        _ if output.is_json() => output.json(&answer)?,
        Answer::Explained {
            probes,
            verdict,
            checkout,
            on_close,
        } => print(&mut output, probes, verdict, checkout, *on_close)?,
        _ => {
            return Err(Failure::failed(anyhow::anyhow!(
                "the daemon answered something else than an explanation"
            )));
        }
    }
    output.flush()
}

fn print(
    output: &mut Output,
    probes: &[ProbeResult],
    verdict: &Verdict,
    checkout: &str,
    on_close: Fate,
) -> Result<(), Failure> {
    output.heading(checkout)?;
    let rows: Vec<Vec<String>> = probes
        .iter()
        .map(|probe| {
            let (word, more) = match &probe.outcome {
                ProbeOutcome::Clear => ("clear", String::new()),
                ProbeOutcome::Found(kept) => ("found", super::list::dirt(kept).unwrap_or_default()),
                ProbeOutcome::Failed(why) => ("failed", why.clone()),
                ProbeOutcome::Skipped(why) => ("skipped", why.clone()),
            };
            vec![
                probe.probe.as_str().to_owned(),
                word.to_owned(),
                more,
                probe.ran.clone(),
            ]
        })
        .collect();
    output.table(&["PROBE", "OUTCOME", "WHAT", "HOW IT WAS ASKED"], &rows)?;
    output.line("")?;
    match verdict {
        Verdict::Removable => {
            output.line("Verdict: it could be removed; nothing in it exists only there.")?;
        }
        Verdict::Keep(reasons) => {
            output.line("Verdict: something stands against removing it:")?;
            print_reasons(output, reasons)?;
        }
    }
    output.line(match on_close {
        Fate::Removed => "When its item closes it is removed.",
        Fate::Archived => "When its item closes this is archived, then it is removed.",
        Fate::Kept => "When its item closes it stays.",
    })
}

/// Prints reasons to keep a checkout, with what each means and the first paths.
pub(super) fn print_reasons(output: &mut Output, reasons: &[Kept]) -> Result<(), Failure> {
    for line in reason_lines(reasons) {
        output.line(&line)?;
    }
    Ok(())
}

/// Returns reasons to keep a checkout as lines, with what each means and the
/// first paths.
pub(super) fn reason_lines(reasons: &[Kept]) -> Vec<String> {
    let mut lines = Vec::new();
    for kept in reasons {
        lines.push(format!(
            "  {} ({}): {}",
            kept.code,
            kept.count,
            kept.code.meaning()
        ));
        lines.extend(kept.paths.iter().map(|path| format!("    {path}")));
        let shown = kept.paths.len() as u64;
        if kept.count > shown {
            lines.push(format!("    and {} more", kept.count - shown));
        }
    }
    lines
}
