//! `notify`: a command that is told of chosen events.
//!
//! The event goes to its standard input as one line of JSON. The command is for
//! people; that it fails or hangs is logged and changes nothing else.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Notify;
use crate::event_log::{EventFilter, EventReader};
use crate::process;

/// How long the command may take.
const LIMIT: Duration = Duration::from_secs(30);

/// How long it has to end after it was asked.
const GRACE: Duration = Duration::from_secs(2);

/// How much of what it prints is kept for the log.
const OUTPUT_BYTES_MAX: usize = 4096;

/// What the command inherits of the daemon's environment.
const INHERITED: [&str; 9] = [
    "HOME",
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "USER",
    "SHELL",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
];

/// Starts the command for each chosen event that is written from now on, one
/// after the other.
pub(super) async fn run(
    path: PathBuf,
    mut written: watch::Receiver<u64>,
    notify: watch::Receiver<Notify>,
    environment: Vec<(OsString, OsString)>,
    stop: CancellationToken,
) {
    let environment: Vec<_> = environment
        .into_iter()
        .filter(|(name, _)| INHERITED.iter().any(|inherited| name == inherited))
        .collect();
    let after = *written.borrow_and_update();
    let filter = EventFilter {
        after,
        ..EventFilter::default()
    };
    let mut reader = None;
    loop {
        tokio::select! {
            changed = written.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
        let chosen = notify.borrow().clone();
        if chosen.command.is_empty() {
            // What happens while nobody listens is not told later.
            reader = None;
            continue;
        }
        let reader = match &mut reader {
            Some(reader) => reader,
            None => match EventReader::open(&path, filter_from(&filter, &written)) {
                Ok(opened) => reader.insert(opened),
                Err(error) => {
                    tracing::warn!(%error, "The event log cannot be read for notices.");
                    continue;
                }
            },
        };
        while let Ok(Some(line)) = reader.next_line() {
            if is_chosen(&chosen, &line) {
                tokio::select! {
                    () = tell(&chosen.command, &environment, line) => {}
                    () = stop.cancelled() => return,
                }
            }
        }
    }
}

/// Returns a filter that begins with the events written last.
fn filter_from(first: &EventFilter, written: &watch::Receiver<u64>) -> EventFilter {
    let newest = *written.borrow();
    EventFilter {
        after: first.after.max(newest.saturating_sub(1)),
        ..EventFilter::default()
    }
}

fn is_chosen(notify: &Notify, line: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Named {
        event: String,
    }
    serde_json::from_str::<Named>(line).is_ok_and(|named| notify.on.contains(&named.event))
}

async fn tell(command: &[String], environment: &[(OsString, OsString)], line: String) {
    let Some((program, args)) = command.split_first() else {
        return;
    };
    let spec = process::Spec {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: environment.to_vec(),
        dir: PathBuf::from("/"),
        stdin: Some(format!("{line}\n").into_bytes()),
        stdout_max: OUTPUT_BYTES_MAX,
        stderr_max: OUTPUT_BYTES_MAX,
        deadline: LIMIT,
        grace: GRACE,
    };
    match process::run(spec, &CancellationToken::new()).await {
        Ok(output) if output.status.success() => {}
        Ok(output) => tracing::warn!(
            program,
            status = %output.status,
            stderr = %String::from_utf8_lossy(&output.stderr).trim(),
            "The notify command failed."
        ),
        Err(error) => tracing::warn!(program, %error, "The notify command was not run to its end."),
    }
}
