//! Telling of refused requests without letting a flood of them fill the disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Problem;
use crate::clock;
use crate::domain::log_event::LogEvent;
use crate::inbox::Inbox;

/// A window's first refusals are told one by one, the others as a number.
const WINDOW: Duration = Duration::from_mins(1);
const TOLD_PER_WINDOW: u32 = 5;

/// So many requests without a good signature within this time are more than
/// noise: the secret is wrong on one side.
const DEGRADED_WINDOW: Duration = Duration::from_mins(5);
const DEGRADED_AT: u32 = 20;

/// How the intake is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct IntakeHealth {
    /// Why it is not well; none if it is.
    pub degraded: Option<String>,
    /// When the last authentic request came, milliseconds since 1970.
    pub last_verified_ms: Option<i64>,
    /// Requests refused since the start.
    pub refused: u64,
    /// Those of them without a good signature.
    pub bad_signatures: u64,
}

#[derive(Clone)]
pub(super) struct Rejections {
    inbox: Inbox,
    state: Arc<Mutex<State>>,
}

struct State {
    health: IntakeHealth,
    told: Window,
    /// Refusals of this window that were not told one by one.
    untold: u64,
    unsigned: Window,
    /// The intake itself failed, and that was told in this window.
    failed: Window,
}

/// Counts within stretches of time.
struct Window {
    began: Instant,
    length: Duration,
    count: u32,
}

impl Window {
    fn new(length: Duration) -> Self {
        Self {
            began: Instant::now(),
            length,
            count: 0,
        }
    }

    /// Counts one more; returns how many are in the present stretch with it.
    fn count(&mut self) -> u32 {
        if self.is_over() {
            self.began = Instant::now();
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= self.length
    }
}

impl Rejections {
    pub(super) fn new(inbox: Inbox) -> Self {
        Self {
            inbox,
            state: Arc::new(Mutex::new(State {
                health: IntakeHealth::default(),
                told: Window::new(WINDOW),
                untold: 0,
                unsigned: Window::new(DEGRADED_WINDOW),
                failed: Window::new(WINDOW),
            })),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn health(&self) -> IntakeHealth {
        let mut state = self.state();
        if state.unsigned.is_over() {
            state.health.degraded = None;
        }
        state.health.clone()
    }

    /// An authentic request came.
    pub(super) fn verified(&self) {
        self.state().health.last_verified_ms = Some(clock::now_ms());
    }

    /// A request was refused.
    pub(super) fn refused(&self, problem: &Problem) {
        metrics::counter!("innkeeper_webhook_refused_total", "reason" => problem.code())
            .increment(1);
        if problem.status().is_server_error() {
            self.failed(problem);
            return;
        }
        let mut state = self.state();
        state.health.refused += 1;
        if matches!(problem, Problem::MissingSignature | Problem::BadSignature) {
            state.health.bad_signatures += 1;
            if state.unsigned.count() == DEGRADED_AT {
                let reason = format!(
                    "{DEGRADED_AT} requests within {} minutes had no good signature",
                    DEGRADED_WINDOW.as_secs() / 60
                );
                state.health.degraded = Some(reason.clone());
                self.tell(LogEvent::IntakeDegraded { reason });
            }
        }
        if state.told.count() <= TOLD_PER_WINDOW {
            self.tell(LogEvent::WebhookRejected {
                reason: problem.code().to_owned(),
            });
            return;
        }
        state.untold += 1;
        if state.untold == 1 {
            let end = state.told.began + WINDOW;
            let this = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep_until(end).await;
                let untold = std::mem::take(&mut this.state().untold);
                let reason = format!("{untold} more within a minute");
                this.inbox
                    .report(LogEvent::WebhookRejected { reason })
                    .await;
            });
        }
    }

    /// The intake could not take an authentic request.
    fn failed(&self, problem: &Problem) {
        if matches!(problem.code(), "shutting_down") {
            return;
        }
        let is_first = self.state().failed.count() == 1;
        if is_first {
            let error = chain(problem);
            tracing::error!(
                error,
                "A delivery was refused; its sender was told to try again."
            );
            self.tell(LogEvent::IntakeDegraded { reason: error });
        }
    }

    fn tell(&self, event: LogEvent) {
        let inbox = self.inbox.clone();
        tokio::spawn(async move { inbox.report(event).await });
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
