//! Every key of the configuration, with its default and what it means.
//!
//! The comments here are what `docs/configuration.md` and the JSON Schema say.
//! [`Config::default`] is what the file means when it is empty, before paths are
//! resolved; [`super::load()`] is the way to one that can be used.

mod routing;
mod rules;
mod sessions;
mod webhooks;
mod workspace;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use routing::{Routing, Trust};
pub use rules::{RuleConfig, Then, When};
pub use sessions::{FileTemplate, Profile, Prompt, Runner, Sessions, Template};
pub use webhooks::{GithubWebhook, Webhooks};
pub use workspace::{CloneProtocol, Host, MissingBranch, OnDirty, Removal, WorkspaceSettings};

use super::fields;

/// Configuration of Innkeeper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Where the daemon keeps what it must remember.
    pub state: State,
    /// The daemon's own log, on standard error.
    pub log: Log,
    /// Listeners for webhooks.
    pub webhooks: Webhooks,
    /// The listener for the operator: commands and the HTTP API.
    pub control: Control,
    /// Deliveries that were accepted and wait.
    pub inbox: Inbox,
    /// Which deliveries do what, and where sessions run.
    pub routing: Routing,
    /// The commands that are run in checkouts.
    pub sessions: Sessions,
    /// A command that is told of events that want a person's attention.
    pub notify: Notify,
    /// The file that tells what happened and why, one JSON object a line.
    pub event_log: EventLogSettings,
    /// Prometheus metrics, at `/metrics` of the control listener.
    pub metrics: Metrics,
}

/// Where the daemon keeps what it must remember.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct State {
    /// The directory of the database, the event log, the logs of sessions and their prompts.
    #[schemars(with = "String")]
    pub root: PathBuf,
}

impl Default for State {
    fn default() -> Self {
        Self {
            root: "~/.local/state/innkeeper".into(),
        }
    }
}

/// How much the daemon's log says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// Returns the level as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How the daemon's log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum LogFormat {
    #[default]
    Auto,
    Text,
    Json,
}

/// The daemon's own log, on standard error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Log {
    /// How much it says.
    pub level: LogLevel,
    /// How it is written; `auto` is text on a terminal and JSON otherwise.
    pub format: LogFormat,
}

/// The listener for the operator: commands and the HTTP API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Control {
    /// The Unix socket; empty is `<state.root>/control.sock`. Whoever can open it is the operator.
    #[schemars(with = "String")]
    pub socket: PathBuf,
}

/// Deliveries that were accepted and wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Inbox {
    /// How many deliveries may wait; beyond it the answer is 503.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub max_pending: u64,
    /// How many days a delivery's id is remembered, so that it has its effect once.
    #[schemars(range(min = 1, max = 3650))]
    pub ledger_days: u32,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            max_pending: 100_000,
            ledger_days: 30,
        }
    }
}

/// A command that is told of events that want a person's attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Notify {
    /// The command as a list of arguments, no shell; it gets the event as JSON on standard input. Empty is none.
    pub command: Vec<String>,
    /// Which events it is told; `innkeeper events --types` lists them.
    pub on: Vec<String>,
}

impl Default for Notify {
    fn default() -> Self {
        let on = [
            "delivery.parked",
            "workspace.kept",
            "session.lost",
            "session.spawn_failed",
        ];
        Self {
            command: Vec::new(),
            on: on.map(str::to_owned).into(),
        }
    }
}

/// The file that tells what happened and why, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EventLogSettings {
    /// The file; empty is `<state.root>/events.jsonl`.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Size at which a new file is begun.
    #[schemars(range(min = 1024, max = 1_099_511_627_776_u64))]
    pub rotate_bytes: u64,
    /// How many older files are kept.
    #[schemars(range(min = 1, max = 10_000))]
    pub keep_files: u32,
}

impl Default for EventLogSettings {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            rotate_bytes: 104_857_600,
            keep_files: 10,
        }
    }
}

/// Prometheus metrics, at `/metrics` of the control listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Metrics {
    /// Whether they are served.
    pub enabled: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Words in the name of a variable that say that its value is nobody's business.
const SECRET_WORDS: [&str; 6] = ["TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL", "AUTH"];

impl Config {
    /// Returns the configuration as YAML, with every default filled in. Values
    /// of a profile's `env` whose names sound like secrets are left out; secrets
    /// of webhooks are never part of the configuration.
    pub fn to_yaml_without_secrets(&self) -> String {
        let mut shown = self.clone();
        for profile in shown.sessions.profiles.values_mut() {
            for (name, value) in &mut profile.env {
                let name = name.to_uppercase();
                if SECRET_WORDS.iter().any(|word| name.contains(word)) {
                    "(not shown)".clone_into(value);
                }
            }
        }
        serde_yaml::to_string(&shown).expect("maps with text keys can always be written as YAML")
    }
}
