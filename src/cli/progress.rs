//! A sign of life on a terminal while something takes its time.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(120);

/// A spinner on standard error; gone when it is dropped. Nothing unless that is
/// a terminal.
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(super) fn new(doing: String) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(doing);
        bar.enable_steady_tick(TICK);
        Self(Some(bar))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
