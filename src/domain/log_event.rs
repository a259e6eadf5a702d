//! What the event log can tell: one variant for each event, with its fields.
//!
//! Only what this version really writes has a variant; [`CATALOGUE`] lists the
//! same names with their fields for `innkeeper events --types`, and a test holds
//! the two together.

use serde::{Deserialize, Serialize};

use super::code::FailureCode;
use super::reason::{DropReason, Kept};

/// How much an event matters to somebody who skims the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Everything is as it should be.
    Info,
    /// Worth a look.
    Warn,
    /// Something failed for good.
    Error,
}

/// Where a delivery or a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A verified webhook.
    Webhook,
    /// A request over HTTP.
    Api,
    /// The command line.
    Cli,
}

impl Source {
    /// Returns the word as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Api => "api",
            Self::Cli => "cli",
        }
    }
}

/// How a session's command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitStatus {
    /// It exited by itself with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

macro_rules! events {
    ($($(#[$meta:meta])* $variant:ident = $name:literal, $level:ident, $doc:literal {
        $($(#[$fmeta:meta])* $field:ident : $type:ty),* $(,)?
    })*) => {
        /// One event, without what the log itself adds (`seq`, `ts`, `level`,
        /// `node`) and without the item and delivery that an [`Entry`] carries.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "event")]
        pub enum LogEvent {
            $(
                #[doc = $doc]
                #[serde(rename = $name)]
                $variant { $($(#[$fmeta])* #[allow(missing_docs)] $field: $type,)* },
            )*
        }

        impl LogEvent {
            /// Returns the name of the event.
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $name,)* }
            }

            /// Returns how much the event matters.
            pub const fn level(&self) -> Level {
                match self { $(Self::$variant { .. } => Level::$level,)* }
            }
        }

        /// Every event: name, level, fields beyond those of the line, meaning.
        pub const CATALOGUE: &[CatalogueRow] = &[
            $(CatalogueRow {
                name: $name,
                level: Level::$level,
                fields: &[$(stringify!($field)),*],
                meaning: $doc,
            },)*
        ];
    };
}

/// A row of [`CATALOGUE`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CatalogueRow {
    /// Name of the event.
    pub name: &'static str,
    /// Its level.
    pub level: Level,
    /// Names of its own fields.
    pub fields: &'static [&'static str],
    /// What it tells, as one sentence.
    pub meaning: &'static str,
}

events! {
    DaemonStarted = "daemon.started", Info, "The daemon is ready." {
        version: String, pid: u32,
        #[serde(skip_serializing_if = "Option::is_none")] webhooks: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")] control: Option<String>,
    }
    DaemonStopped = "daemon.stopped", Info, "The daemon ended in an orderly way." { reason: String }
    ConfigReloaded = "config.reloaded", Info, "A changed configuration is in force." { changed: Vec<String>, needs_restart: Vec<String> }
    ConfigRejected = "config.rejected", Error, "A changed configuration has errors; the old one stays in force." { error: String }
    WebhookReceived = "webhook.received", Info, "A delivery was verified and stored." {
        gh_event: String,
        #[serde(skip_serializing_if = "Option::is_none")] action: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")] repository: Option<String>,
        source: Source,
    }
    WebhookRejected = "webhook.rejected", Warn, "A request to the webhook's path was refused." { reason: String }
    DeliveryDuplicate = "delivery.duplicate", Info, "A delivery had come before; nothing is done again." { of: String }
    DeliveryDropped = "delivery.dropped", Info, "A delivery needs nothing to be done." { reason: DropReason }
    DeliveryRetrying = "delivery.retrying", Warn, "An attempt failed; the delivery is taken again." { attempt: u32, code: FailureCode, after_ms: u64, error: String }
    DeliveryParked = "delivery.parked", Error, "A delivery was given up; it can be replayed." { code: FailureCode, error: String }
    DeliveryDone = "delivery.done", Info, "A delivery had its effect." { ms: u64 }
    IntakeDegraded = "intake.degraded", Error, "Deliveries are refused, or signatures keep failing." { reason: String }
    RoutingMatched = "routing.matched", Info, "A rule decided what a delivery does." { rule: String, then: String }
    RoutingPaused = "routing.paused", Warn, "An item takes no events until it is resumed." { reason: String }
    WorkspacePrepared = "workspace.prepared", Info, "A checkout is ready at its commit." {
        strategy: String, checkout: String,
        #[serde(skip_serializing_if = "Option::is_none")] branch: Option<String>,
        commit: String,
        #[serde(skip_serializing_if = "Option::is_none")] base: Option<String>,
        source: Source, ms: u64, fetched: bool, coalesced: bool, pooled: bool, reused: bool, fallback: bool,
        #[serde(skip_serializing_if = "Option::is_none")] detached_because: Option<String>,
    }
    WorkspacePrepareFailed = "workspace.prepare_failed", Error, "A checkout could not be prepared; nothing half-made is left." { code: FailureCode, retryable: bool, error: String }
    WorkspaceUpdated = "workspace.updated", Info, "The pull request has a new head; the checkout was moved, or left alone and told." { moved: bool, from: String, to: String }
    WorkspaceMissing = "workspace.missing", Warn, "A checkout's directory is gone; the next event prepares it again." { checkout: String }
    WorkspaceKept = "workspace.kept", Warn, "A checkout was not removed, and why." { checkout: String, reasons: Vec<Kept> }
    WorkspaceCleaned = "workspace.cleaned", Info, "A checkout was removed; nothing that existed only there is gone." {
        strategy: String, checkout: String,
        #[serde(skip_serializing_if = "Option::is_none")] archive: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")] bytes: Option<u64>,
    }
    ArchiveCreated = "archive.created", Info, "What existed only in a checkout was archived and read back." { archive: String, bytes: u64 }
    ArchiveRestored = "archive.restored", Info, "An archive was restored." { archive: String, checkout: String }
    ArchivePurged = "archive.purged", Info, "An archive was deleted, because it expired or somebody asked." { archive: String, bytes: u64 }
    SessionQueued = "session.queued", Info, "A session waits for a free place." { profile: String, session: String, reason: String }
    SessionStarted = "session.started", Info, "A session's command runs." { session: String, profile: String, directory: String }
    SessionResumed = "session.resumed", Info, "A session's command runs again with what has come since." { session: String, profile: String, directory: String }
    SessionDelivered = "session.delivered", Info, "A text was handed to a session." { session: String, how: String }
    SessionSpawnFailed = "session.spawn_failed", Error, "A session could not be started; it never runs anywhere else." { error: String, retryable: bool }
    SessionExited = "session.exited", Info, "A session's command ended." {
        session: String,
        #[serde(skip_serializing_if = "Option::is_none")] status: Option<ExitStatus>,
    }
    SessionClosed = "session.closed", Info, "A session is over, with everything it started." { session: String, reason: String }
    SessionLost = "session.lost", Error, "A session's process is gone and nothing says how it ended." { session: String }
    ReconcileFinished = "reconcile.finished", Info, "Store, disk and processes were compared." { adopted: u64, finished: u64, missing: u64, foreign: u64 }
    RemovalHalted = "removal.halted", Error, "Too many checkouts went at once without an event for each; nothing more is removed by itself until an operator says so." { reason: String, count: u64, checkouts: u64 }
    LockRemoved = "lock.removed", Warn, "A left-over lock of ours was removed." { path: String, proof: String }
    SharedCloneRebuilt = "shared_clone.rebuilt", Error, "A damaged repository of ours was made anew beside and put in its place; what could be read was carried over, the damaged one is set aside." { path: String, reason: String }
    SharedCloneDrift = "shared_clone.drift", Warn, "Somebody changed what could redirect or execute in a shared clone; it was put back." { keys: Vec<String> }
    DiskRefused = "disk.refused", Error, "The disk is too full to begin anything." { path: String, error: String }
}

/// An event with what it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Reference of the work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item: Option<String>,
    /// Id of the delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub event: LogEvent,
}

impl Entry {
    /// Returns an entry about neither an item nor a delivery.
    pub const fn new(event: LogEvent) -> Self {
        Self {
            work_item: None,
            delivery: None,
            event,
        }
    }

    /// Says which work item it is about.
    #[must_use]
    pub fn of_item(mut self, reference: impl Into<String>) -> Self {
        self.work_item = Some(reference.into());
        self
    }

    /// Says which delivery it is about.
    #[must_use]
    pub fn of_delivery(mut self, delivery: impl Into<String>) -> Self {
        self.delivery = Some(delivery.into());
        self
    }
}

/// A line of the event log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Rises by one in a node's log, across restarts and kills.
    pub seq: u64,
    /// RFC 3339 with milliseconds, UTC.
    pub ts: String,
    /// How much it matters.
    pub level: Level,
    /// Which node tells it.
    pub node: String,
    /// What it tells.
    #[serde(flatten)]
    pub entry: Entry,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_fields_beside_each_other_and_leaves_out_what_has_no_value() {
        let line = Line {
            seq: 7,
            ts: "2026-11-30T12:00:00.000Z".into(),
            level: Level::Info,
            node: "n".into(),
            entry: Entry::new(LogEvent::DeliveryDropped {
                reason: DropReason::Ping,
            })
            .of_delivery("d-1"),
        };
        let text = serde_json::to_string(&line).expect("serialises");
        assert_eq!(
            text,
            r#"{"seq":7,"ts":"2026-11-30T12:00:00.000Z","level":"info","node":"n","delivery":"d-1","event":"delivery.dropped","reason":"ping"}"#
        );
        assert_eq!(serde_json::from_str::<Line>(&text).expect("parses"), line);
    }

    #[test]
    fn no_two_events_have_one_name() {
        let mut names: Vec<_> = CATALOGUE.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CATALOGUE.len());
    }
}
