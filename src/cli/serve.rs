//! `innkeeper serve`: the daemon in the foreground.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify_debouncer_mini::notify::RecursiveMode;
use notify_debouncer_mini::{DebounceEventResult, new_debouncer};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Failure, Format, Global, Output};
use crate::config::{self, Environment};
use crate::daemon::{Daemon, DaemonError, Options, logging};
use crate::process::crash_point;

/// How long a changed file is left alone before it is read: editors write more
/// than once.
const SETTLE: Duration = Duration::from_millis(200);

/// The most threads for work with files; most of it is short.
const BLOCKING_THREADS_MAX: usize = 64;

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
///
/// Returns what kept it from starting.
pub fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let environment = Environment::of_process();
    let path = global.config_file(&environment)?;
    if let Some(order) = environment.non_empty(crash_point::VARIABLE) {
        crash_point::arm(&order.to_string_lossy()).map_err(Failure::usage)?;
    }
    // Before it is read: a change in between is seen afterwards.
    let seen = stamp(&path);
    let loaded = config::load(&path, &environment).map_err(Failure::configuration)?;
    logging::start(&loaded.config.log);
    for warning in &loaded.warnings {
        tracing::warn!("{}", warning.one_line());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let options = Options {
        config_path: Some(path.clone()),
        ..Options::new(loaded.config, environment)
    };
    let outcome = runtime.block_on(serve(options, &path, seen, arguments.format));
    // What is still blocked in a system call must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(
    options: Options,
    path: &Path,
    mut seen: Option<Stamp>,
    format: Format,
) -> Result<(), Failure> {
    let mut stops = Stops::listen().map_err(Failure::failed)?;
    let mut hangups = signal(SignalKind::hangup()).map_err(Failure::failed)?;
    let daemon = Daemon::start(options).await.map_err(not_started)?;
    announce(&daemon, format)?;
    // Without a service manager there is nobody to tell.
    drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
    let (changed, mut changes) = mpsc::channel(1);
    // What changed between reading the file and watching it is not missed, nor
    // read while it is still being written.
    let first = changed.clone();
    tokio::spawn(async move {
        tokio::time::sleep(SETTLE).await;
        let _full = first.try_send(());
    });
    let _watcher = watch(path, changed);
    let reason = loop {
        tokio::select! {
            reason = stops.next() => break reason,
            _ = hangups.recv() => { daemon.reload().await; }
            Some(()) = changes.recv() => {
                let now = stamp(path);
                if now != seen {
                    seen = now;
                    daemon.reload().await;
                }
            }
        }
    };
    drop(sd_notify::notify(&[sd_notify::NotifyState::Stopping]));
    tracing::info!(reason, "Stopping; what runs is finished, sessions live on.");
    let now = CancellationToken::new();
    let stopped = daemon.stop(reason, now.clone());
    tokio::pin!(stopped);
    tokio::select! {
        () = &mut stopped => return Ok(()),
        _ = stops.next() => {
            tracing::warn!("Asked again: stopping at once; the next start takes up the rest.");
            now.cancel();
        }
    }
    stopped.await;
    Ok(())
}

fn not_started(error: DaemonError) -> Failure {
    if let DaemonError::Secrets(errors) = error {
        return Failure::configuration(errors);
    }
    let usage = error.is_configuration();
    let remedy = error.remedy();
    let error = anyhow::Error::from(error);
    let failure = if usage {
        Failure::usage(error)
    } else {
        Failure::failed(error)
    };
    match remedy {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

/// Prints what the daemon listens on: whoever reads it knows that it is ready.
fn announce(daemon: &Daemon, format: Format) -> Result<(), Failure> {
    let mut output = Output::new(format);
    let facts = daemon.control().facts();
    if output.is_json() {
        output.json(&facts.listeners)?;
    } else {
        match &facts.listeners.webhooks {
            Some(address) => output.line(&format!("webhooks  {address}"))?,
            None => output.line("webhooks  off (webhooks.github.enabled)")?,
        }
        output.line(&format!("control   {}", facts.listeners.control))?;
        output.line("ready")?;
    }
    output.flush()
}

/// The signals that ask to stop.
struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// What tells one state of a file from another without opening it: a watch
/// tells of reading too, among it our own, which would have no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// Returns the present state of a file; none if there is none.
fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

type Watcher = notify_debouncer_mini::Debouncer<notify_debouncer_mini::notify::RecommendedWatcher>;

/// Watches the directory of the configuration: editors and config maps rename a
/// new file into place.
fn watch(path: &Path, changed: mpsc::Sender<()>) -> Option<Watcher> {
    let file = path.file_name()?.to_owned();
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = parent.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let told = move |events: DebounceEventResult| {
        let Ok(events) = events else { return };
        // A config map swaps a link beside the file.
        let is_ours = events.iter().any(|event| {
            event
                .path
                .file_name()
                .is_some_and(|name| *name == file || name == "..data")
        });
        if is_ours {
            // One is waiting already: it will see this change too.
            let _full = changed.try_send(());
        }
    };
    let watcher = new_debouncer(SETTLE, told).and_then(|mut watcher| {
        watcher.watcher().watch(&dir, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watcher {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(%error, "The configuration is not watched; SIGHUP reads it again.");
            None
        }
    }
}
