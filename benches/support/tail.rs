//! Reading the event log as it grows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take that a benchmark waits for.
const PATIENCE: Duration = Duration::from_secs(600);

/// The end of a log: every line is read once.
pub struct Tail {
    file: File,
    half: Vec<u8>,
    /// How often each event was told.
    pub seen: BTreeMap<String, usize>,
}

impl Tail {
    /// Begins at the beginning of a log.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
            half: Vec::new(),
            seen: BTreeMap::new(),
        })
    }

    /// Returns what came since the last time.
    pub fn read(&mut self) -> anyhow::Result<Vec<Value>> {
        self.file.read_to_end(&mut self.half)?;
        let Some(end) = self.half.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.half.split_off(end + 1);
        let whole = std::mem::replace(&mut self.half, rest);
        let mut events = Vec::new();
        for line in whole.split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            let event: Value = serde_json::from_slice(line)?;
            let name = event["event"].as_str().unwrap_or_default().to_owned();
            *self.seen.entry(name).or_default() += 1;
            events.push(event);
        }
        Ok(events)
    }

    /// Returns how often these events were told.
    pub fn count(&self, names: &[&str]) -> usize {
        names.iter().filter_map(|name| self.seen.get(*name)).sum()
    }

    /// Reads until `count` events of this name have come from here on, and
    /// returns them with when they were seen.
    pub fn wait(&mut self, name: &str, count: usize) -> anyhow::Result<Vec<(Value, Instant)>> {
        let deadline = Instant::now() + PATIENCE;
        let mut found = Vec::new();
        while found.len() < count {
            for event in self.read()? {
                if event["event"] == name {
                    found.push((event, Instant::now()));
                } else {
                    let told = event["event"].as_str().unwrap_or_default();
                    anyhow::ensure!(
                        !matches!(told, "workspace.prepare_failed" | "delivery.parked"),
                        "instead of {name}: {event}"
                    );
                }
            }
            anyhow::ensure!(Instant::now() < deadline, "{name} did not come");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(found)
    }
}
