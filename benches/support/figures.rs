//! Figures, each beside its floor, as a table and as JSON.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::disk::{Disk, settle};

/// Measurements in pairs, made in turn: whatever else the machine does falls on
/// both sides of a pair alike.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Milliseconds of the floor.
    pub floor: Vec<f64>,
    /// Milliseconds of what is measured against it.
    pub measured: Vec<f64>,
}

impl Pairs {
    /// Adds a pair.
    pub fn push(&mut self, floor: f64, measured: f64) {
        self.floor.push(floor);
        self.measured.push(measured);
    }

    /// Returns the median of the ratios within the pairs.
    pub fn ratio(&self) -> f64 {
        let ratios: Vec<f64> = self
            .floor
            .iter()
            .zip(&self.measured)
            .map(|(floor, measured)| measured / floor)
            .collect();
        median(&ratios)
    }
}

/// Returns the value in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Returns a length of time in milliseconds.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// What a figure has to be.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// The ratio to the floor is at most this.
    Ratio(f64),
    /// The value itself is at most this.
    Value(f64),
    /// Nothing; it is told because it explains another.
    Told,
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name, such as `P1`.
    pub name: &'static str,
    /// What was measured.
    pub what: String,
    /// What the floor is.
    pub floor: &'static str,
    /// Unit of all values.
    pub unit: &'static str,
    /// The measurements.
    pub pairs: Pairs,
    /// What it has to be.
    pub bound: Bound,
}

impl Figure {
    fn is_met(&self) -> Option<bool> {
        match self.bound {
            Bound::Ratio(most) => Some(self.pairs.ratio() <= most),
            Bound::Value(most) => Some(median(&self.pairs.measured) <= most),
            Bound::Told => None,
        }
    }
}

/// All figures of one run.
pub struct Figures {
    disk: Disk,
    all: Vec<Figure>,
}

impl Figures {
    /// Begins a run on a file system.
    pub fn on(disk: Disk) -> Self {
        Self {
            disk,
            all: Vec::new(),
        }
    }

    /// Adds a figure.
    pub fn push(&mut self, figure: Figure) {
        self.all.push(figure);
    }

    /// Prints the table and writes the JSON.
    #[expect(clippy::print_stdout, reason = "the figures are the answer")]
    pub fn report(&self, json: &Path) -> anyhow::Result<()> {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "",
            "median of",
            "floor",
            "",
            "measured",
            "ratio",
            "target",
            "",
        ]);
        for figure in &self.all {
            let value = |values: &[f64]| format!("{:.1} {}", median(values), figure.unit);
            table.add_row([
                format!("{} {}", figure.name, figure.what),
                figure.pairs.measured.len().to_string(),
                figure.floor.to_owned(),
                value(&figure.pairs.floor),
                value(&figure.pairs.measured),
                format!("{:.2}", figure.pairs.ratio()),
                match figure.bound {
                    Bound::Ratio(most) => format!("<= {most:.2}"),
                    Bound::Value(most) => format!("<= {most:.0} {}", figure.unit),
                    Bound::Told => String::new(),
                },
                match figure.is_met() {
                    Some(true) => "met",
                    Some(false) => "NOT MET",
                    None => "",
                }
                .to_owned(),
            ]);
        }
        println!("{table}");
        let figures: Vec<Value> = self
            .all
            .iter()
            .map(|figure| {
                let (most, of) = match figure.bound {
                    Bound::Ratio(most) => (Some(most), "ratio"),
                    Bound::Value(most) => (Some(most), "value"),
                    Bound::Told => (None, "none"),
                };
                json!({
                    "figure": figure.name, "what": figure.what, "floor": figure.floor,
                    "unit": figure.unit, "ratio": figure.pairs.ratio(),
                    "target": most, "target_of": of, "met": figure.is_met(),
                    "floors": figure.pairs.floor, "measured": figure.pairs.measured,
                })
            })
            .collect();
        let all = json!({
            "file_system": self.disk.kind, "lacks_journal": self.disk.lacks_journal,
            "figures": figures,
        });
        std::fs::write(json, format!("{all:#}\n"))
            .with_context(|| format!("could not write {}", json.display()))?;
        println!("also in {}", json.display());
        Ok(())
    }
}

/// Writes everything out first, so that it is not paid for here.
pub fn settled(dir: &Path) -> anyhow::Result<()> {
    settle(dir)
}
