//! Health, counts, lag of intake, disk: what an operator looks at first.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Control, ControlError, HaltView, Limits, Listeners};
use crate::clock;
use crate::dispatch::Load;
use crate::domain::checkout::CheckoutState;
use crate::files;
use crate::store::ItemFilter;

/// The most running sessions that are counted.
const SESSIONS_MAX: u32 = 100_000;

/// The daemon at this moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusView {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Name of the node.
    pub node: String,
    /// When it started.
    pub started_at: String,
    /// For how long it has been running.
    pub uptime_seconds: i64,
    /// Whether it is ready.
    pub ready: bool,
    /// Why it is not.
    pub problems: Vec<String>,
    /// What it listens on.
    pub listeners: Listeners,
    /// Deliveries by state.
    pub deliveries: DeliveryCounts,
    /// For how long the oldest unfinished delivery has been waiting.
    pub oldest_pending_seconds: Option<i64>,
    /// Items with a checkout or a running session.
    pub items: u64,
    /// Checkouts by state.
    pub checkouts: CheckoutCounts,
    /// What removed checkouts left.
    pub archives: ArchiveCounts,
    /// What halts removals, if they are halted.
    pub removals_halted: Option<HaltView>,
    /// Sessions whose command runs or is being started.
    pub sessions: u64,
    /// What the dispatcher is doing.
    pub dispatcher: Load,
    /// Room on the disks.
    pub disks: Vec<Disk>,
    /// What is refused beyond which bound.
    pub limits: Limits,
}

/// Deliveries by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DeliveryCounts {
    pub received: u64,
    pub running: u64,
    pub done: u64,
    pub dropped: u64,
    pub parked: u64,
}

/// Checkouts by state, those that may be on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutCounts {
    /// Being made.
    pub preparing: u64,
    /// There.
    pub ready: u64,
    /// Of those: were to go and were kept.
    pub kept: u64,
    /// Directory gone.
    pub missing: u64,
    /// On their way out.
    pub removing: u64,
}

/// Archives, below every root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveCounts {
    /// How many there are.
    pub count: u64,
    /// What they take of the disk.
    pub bytes: u64,
}

/// Room on one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// `state` or `workspace`.
    pub holds: String,
    /// Where.
    pub path: PathBuf,
    /// Free bytes; none if the disk did not answer.
    pub free_bytes: Option<u64>,
    /// Free inodes; none where they are not counted.
    pub free_inodes: Option<u64>,
}

impl Disk {
    fn at(holds: &str, path: &Path) -> Self {
        let space = files::free_space(path).ok();
        Self {
            holds: holds.to_owned(),
            path: path.to_owned(),
            free_bytes: space.map(|space| space.bytes),
            free_inodes: space.and_then(|space| space.inodes),
        }
    }
}

impl Control {
    /// Returns the daemon at this moment.
    ///
    /// # Errors
    ///
    /// Returns [`ControlError::Store`] if the store does not answer.
    pub async fn status(&self) -> Result<StatusView, ControlError> {
        let health = self.health().await;
        let facts = self.facts();
        let now = clock::now_ms();
        let (counts, oldest, items, checkouts, sessions, breaker) = self
            .store()
            .read(|reader| {
                Ok((
                    reader.delivery_counts()?,
                    reader.oldest_pending()?,
                    reader.items(ItemFilter { live: true })?.len(),
                    reader.live_checkouts()?,
                    reader.sessions(true, SESSIONS_MAX)?.len(),
                    reader.breaker()?,
                ))
            })
            .await?;
        let mut archives = ArchiveCounts::default();
        for archived in self.dispatcher().archives().await? {
            archives.count += 1;
            archives.bytes += archived.summary.bytes;
        }
        let mut deliveries = DeliveryCounts::default();
        for (state, count) in counts {
            match state.as_str() {
                "received" => deliveries.received = count,
                "running" => deliveries.running = count,
                "done" => deliveries.done = count,
                "dropped" => deliveries.dropped = count,
                "parked" => deliveries.parked = count,
                _ => {}
            }
        }
        let mut by_state = CheckoutCounts::default();
        for row in &checkouts {
            match row.state {
                CheckoutState::Preparing => by_state.preparing += 1,
                CheckoutState::Ready => by_state.ready += 1,
                CheckoutState::Missing => by_state.missing += 1,
                CheckoutState::Removing => by_state.removing += 1,
                CheckoutState::Removed | CheckoutState::Failed => {}
            }
            by_state.kept += u64::from(row.kept.is_some());
        }
        let asked = facts.clone();
        let disks = tokio::task::spawn_blocking(move || {
            let mut disks = vec![Disk::at("state", &asked.state_root)];
            if let Some(root) = &asked.workspace_root {
                disks.push(Disk::at("workspace", root));
            }
            disks
        });
        Ok(StatusView {
            version: facts.version.clone(),
            pid: std::process::id(),
            node: facts.node.clone(),
            started_at: clock::rfc3339(facts.started_at),
            uptime_seconds: (now - facts.started_at) / 1000,
            ready: health.ready,
            problems: health.problems,
            listeners: facts.listeners.clone(),
            deliveries,
            oldest_pending_seconds: oldest.map(|since| (now - since).max(0) / 1000),
            items: items as u64,
            checkouts: by_state,
            archives,
            removals_halted: breaker.halted.as_ref().map(HaltView::of),
            sessions: sessions as u64,
            dispatcher: self.dispatcher().load(),
            disks: disks.await.unwrap_or_default(),
            limits: facts.limits,
        })
    }
}
