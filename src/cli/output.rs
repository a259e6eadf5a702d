//! The answer on standard output: tables on a terminal, plain lines in a pipe,
//! JSON where it was asked for.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::Path;

use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use serde::Serialize;

use super::{Failure, Format};

/// Where the answer goes, and in which form.
pub struct Output {
    out: BufWriter<Stdout>,
    json: bool,
    terminal: bool,
    colour: bool,
}

impl Output {
    /// Returns the standard output in the form that was asked for.
    pub fn new(format: Format) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Self {
            json: format.json,
            terminal,
            colour: terminal && is_colour_wanted(),
            out: BufWriter::new(stdout),
        }
    }

    /// Returns whether JSON was asked for.
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether somebody looks at it.
    pub const fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Prints a line, with what could steer a terminal made visible.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(clean(text).as_bytes())?;
        self.out.write_all(b"\n")?;
        Ok(())
    }

    /// Prints a line in bold, on a terminal.
    pub fn heading(&mut self, text: &str) -> Result<(), Failure> {
        if self.colour {
            writeln!(self.out, "\u{1b}[1m{}\u{1b}[0m", clean(text))?;
            Ok(())
        } else {
            self.line(text)
        }
    }

    /// Prints bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes)?;
        Ok(())
    }

    /// Prints a path: as it is for a program, made visible on a terminal.
    pub fn path(&mut self, path: &Path) -> Result<(), Failure> {
        if self.terminal {
            return self.line(&path.display().to_string());
        }
        self.bytes(path.as_os_str().as_encoded_bytes())?;
        self.bytes(b"\n")
    }

    /// Prints a value as JSON: indented for people, a line for programs.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        if self.terminal {
            serde_json::to_writer_pretty(&mut self.out, value).map_err(io::Error::from)?;
        } else {
            serde_json::to_writer(&mut self.out, value).map_err(io::Error::from)?;
        }
        self.out.write_all(b"\n")?;
        Ok(())
    }

    /// Prints rows: with aligned columns and headings on a terminal, else one
    /// line each with tabs between the cells.
    pub fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        if !self.terminal {
            for row in rows {
                let cells: Vec<_> = row.iter().map(|cell| clean(cell)).collect();
                self.out.write_all(cells.join("\t").as_bytes())?;
                self.out.write_all(b"\n")?;
            }
            return Ok(());
        }
        let mut table = Table::new();
        // Nothing is wrapped within its column: an id or a path that is cut in two
        // cannot be copied. The terminal wraps what is too long.
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(headings.iter().map(|heading| {
            let cell = Cell::new(heading);
            if self.colour {
                cell.add_attribute(Attribute::Bold)
            } else {
                cell
            }
        }));
        for row in rows {
            table.add_row(row.iter().map(|cell| clean(cell)));
        }
        writeln!(self.out, "{}", table.trim_fmt())?;
        Ok(())
    }

    /// Prints names and values below each other; what has no value is left out.
    pub fn pairs(&mut self, pairs: &[(&str, Option<String>)]) -> Result<(), Failure> {
        let shown: Vec<_> = pairs
            .iter()
            .filter_map(|(name, value)| Some((*name, value.as_deref()?)))
            .collect();
        let width = shown.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in shown {
            self.line(&format!("{name:width$}  {value}"))?;
        }
        Ok(())
    }

    /// Puts out what was printed so far.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush()?;
        Ok(())
    }
}

/// Returns whether colours are wanted at all.
fn is_colour_wanted() -> bool {
    let env = crate::config::Environment::of_process();
    env.non_empty("NO_COLOR").is_none() && env.var("TERM").is_none_or(|term| term != "dumb")
}

/// Returns whether standard error is a terminal that wants colours.
pub(super) fn is_stderr_coloured() -> bool {
    io::stderr().is_terminal() && is_colour_wanted()
}

/// Returns the text with every control character but the line break made
/// visible, so that it cannot steer a terminal.
pub(super) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (c.is_control() && c != '\n') || reorders {
            let _cannot_fail = write!(cleaned, "{}", c.escape_unicode());
        } else {
            cleaned.push(c);
        }
    }
    cleaned
}

/// Returns a length of time in its two largest units.
pub(super) fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{}s", seconds.max(0)),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns a number of bytes in the largest unit that leaves something before
/// the point.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut whole = bytes;
    let mut rest = 0;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        rest = whole % 1024;
        whole /= 1024;
        unit += 1;
    }
    if unit == 0 {
        format!("{whole} B")
    } else {
        format!("{whole}.{} {}", rest * 10 / 1024, UNITS[unit])
    }
}

/// Returns the first digits of a commit id, enough for a person.
pub(super) fn short(commit: &str) -> String {
    commit.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_made_visible() {
        assert_eq!(clean("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(clean("a\tb\r"), "a\\u{9}b\\u{d}");
        assert_eq!(clean("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(clean("zwei\nZeilen ü"), "zwei\nZeilen ü");
    }

    #[test]
    fn ages_and_sizes_are_short() {
        assert_eq!(age(5), "5s");
        assert_eq!(age(3_725), "1h02m");
        assert_eq!(age(90_000), "1d01h");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16777215.9 TiB");
    }
}
