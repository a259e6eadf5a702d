//! `innkeeper status`.

use super::client::Client;
use super::output::{age, size};
use super::{Failure, Format, Global, Output};
use crate::control::StatusView;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 1 if the daemon runs but is not ready.")]
pub(super) struct Arguments {
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(global: &Global, arguments: &Arguments) -> Result<(), Failure> {
    let client = Client::new(global, arguments.format)?;
    let status: StatusView = client.get("/api/v1/status")?;
    let mut output = Output::new(arguments.format);
    if output.is_json() {
        output.json(&status)?;
    } else {
        print(&mut output, &status)?;
    }
    output.flush()?;
    if status.ready {
        Ok(())
    } else {
        Err(Failure::answered_no())
    }
}

fn print(output: &mut Output, status: &StatusView) -> Result<(), Failure> {
    output.heading(&format!(
        "innkeeper {} on {}: {}",
        status.version,
        status.node,
        if status.ready { "ready" } else { "NOT READY" }
    ))?;
    for problem in &status.problems {
        output.line(&format!("problem: {problem}"))?;
    }
    if let Some(halt) = &status.removals_halted {
        output.line(&format!(
            "removals are halted since {}: {}; {}",
            halt.since, halt.reason, halt.remedy
        ))?;
    }
    let deliveries = &status.deliveries;
    let checkouts = &status.checkouts;
    let mut pairs = vec![
        (
            "process",
            Some(format!(
                "pid {}, up {}",
                status.pid,
                age(status.uptime_seconds)
            )),
        ),
        (
            "webhooks",
            Some(
                status
                    .listeners
                    .webhooks
                    .clone()
                    .unwrap_or_else(|| "no listener".to_owned()),
            ),
        ),
        ("control", Some(status.listeners.control.clone())),
        (
            "deliveries",
            Some(format!(
                "{} waiting, {} running, {} done, {} dropped, {} parked",
                deliveries.received,
                deliveries.running,
                deliveries.done,
                deliveries.dropped,
                deliveries.parked
            )),
        ),
        ("oldest waiting", status.oldest_pending_seconds.map(age)),
        (
            "lanes",
            Some(format!(
                "{} with work, {} being worked on",
                status.dispatcher.lanes, status.dispatcher.running
            )),
        ),
        ("items", Some(format!("{} live", status.items))),
        (
            "checkouts",
            Some(format!(
                "{} ready ({} of them kept), {} preparing, {} removing, {} missing; at most {}",
                checkouts.ready,
                checkouts.kept,
                checkouts.preparing,
                checkouts.removing,
                checkouts.missing,
                status.limits.max_checkouts
            )),
        ),
        (
            "archives",
            Some(format!(
                "{}, {}",
                status.archives.count,
                size(status.archives.bytes)
            )),
        ),
        (
            "sessions",
            Some(format!(
                "{} running; at most {}",
                status.sessions, status.limits.max_sessions
            )),
        ),
    ];
    for disk in &status.disks {
        let name = if disk.holds == "state" {
            "disk of the state"
        } else {
            "disk of checkouts"
        };
        let free = match (disk.free_bytes, disk.free_inodes) {
            (Some(bytes), Some(inodes)) => format!("{} and {inodes} inodes free", size(bytes)),
            (Some(bytes), None) => format!("{} free", size(bytes)),
            (None, _) => "does not answer".to_owned(),
        };
        pairs.push((name, Some(format!("{free} at {}", disk.path.display()))));
    }
    output.pairs(&pairs)
}
