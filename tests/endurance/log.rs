//! The event log, read as it grows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde_json::Value;

/// What was read so far.
pub struct Log {
    path: PathBuf,
    offset: u64,
    last: u64,
    /// Events of each item, in order.
    pub of_item: BTreeMap<String, Vec<Value>>,
    /// How often each delivery arrived and ended, and how.
    pub arrivals: BTreeMap<String, u32>,
    pub ends: BTreeMap<String, Vec<Value>>,
    /// How many events of each name.
    pub counts: BTreeMap<String, u64>,
    /// Gaps in the numbers.
    pub gaps: Vec<String>,
}

impl Log {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            last: 0,
            of_item: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            ends: BTreeMap::new(),
            counts: BTreeMap::new(),
            gaps: Vec::new(),
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Reads what has come since. A line that a killed daemon cut short is
    /// written again, whole, by the next one.
    pub fn read(&mut self) {
        let Ok(mut file) = File::open(&self.path) else {
            return;
        };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.offset)).expect("a file");
        file.read_to_end(&mut bytes).expect("it can be read");
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        self.offset += u64::try_from(end).expect("short") + 1;
        for line in bytes[..end].split(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(line).expect("a line is JSON");
            self.take(event);
        }
    }

    fn take(&mut self, event: Value) {
        let seq = event["seq"].as_u64().expect("a number");
        if seq != self.last + 1 {
            self.gaps.push(format!("{} then {seq}", self.last));
        }
        self.last = seq;
        let name = event["event"].as_str().expect("a name").to_owned();
        *self.counts.entry(name.clone()).or_default() += 1;
        if let Some(delivery) = event["delivery"].as_str() {
            match name.as_str() {
                "webhook.received" => *self.arrivals.entry(delivery.to_owned()).or_default() += 1,
                "delivery.done" | "delivery.dropped" | "delivery.parked" => {
                    self.ends
                        .entry(delivery.to_owned())
                        .or_default()
                        .push(event.clone());
                }
                _ => {}
            }
        }
        if let Some(item) = event["work_item"].as_str() {
            self.of_item.entry(item.to_owned()).or_default().push(event);
        }
    }
}
