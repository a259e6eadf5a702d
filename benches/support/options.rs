//! Arguments of a benchmark.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// What every benchmark is told, and what only one of them knows.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where everything is made, in a directory of its own.
    pub dir: PathBuf,
    /// Where the answer is written.
    pub json: PathBuf,
    own: BTreeMap<String, String>,
}

impl Options {
    /// Reads the command line: `--dir`, `--json`, and what is in `known`.
    pub fn parse(benchmark: &str, known: &[&str]) -> anyhow::Result<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let mut options = Self {
            dir: std::env::var_os("INNKEEPER_BENCH_DIR")
                .map_or_else(std::env::temp_dir, PathBuf::from),
            json: target
                .parent()
                .unwrap_or(target)
                .join(format!("bench-{benchmark}.json")),
            own: BTreeMap::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            // Cargo says so to every benchmark.
            if argument == "--bench" {
                continue;
            }
            let value = arguments
                .next()
                .with_context(|| format!("{argument} needs a value"))?;
            match argument.as_str() {
                "--dir" => options.dir = PathBuf::from(value),
                "--json" => options.json = PathBuf::from(value),
                other if known.contains(&other) => {
                    options.own.insert(other.to_owned(), value);
                }
                other => anyhow::bail!(
                    "unknown argument {other}; known are --dir, --json, {}",
                    known.join(", ")
                ),
            }
        }
        // Git names its directories by their real paths.
        options.dir = options
            .dir
            .canonicalize()
            .with_context(|| format!("--dir {}", options.dir.display()))?;
        Ok(options)
    }

    /// Returns a number.
    pub fn number(&self, name: &str, otherwise: usize) -> anyhow::Result<usize> {
        match self.own.get(name) {
            Some(text) => text.parse().with_context(|| format!("{name} {text}")),
            None => Ok(otherwise),
        }
    }

    /// Returns what a list separated by commas holds.
    pub fn list(&self, name: &str, otherwise: &str) -> Vec<String> {
        let text = self.own.get(name).map_or(otherwise, String::as_str);
        text.split(',').map(|one| one.trim().to_owned()).collect()
    }
}
