//! The commands that are run in checkouts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::fields;

/// The commands that are run in checkouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Sessions {
    /// How a session's process is hosted.
    pub runner: Runner,
    /// The profile that is started where no rule names one; empty prepares the checkout and starts nothing.
    #[serde(with = "fields::empty_is_none")]
    #[schemars(with = "String")]
    pub default: Option<String>,
    /// How many sessions run at once; beyond it they wait, visibly.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_concurrent: usize,
    /// How long a session that is asked to end may take before it is killed.
    #[serde(with = "fields::seconds", rename = "killGraceSeconds")]
    #[schemars(with = "u64", range(min = 0, max = 3600))]
    pub kill_grace: Duration,
    /// How much of a session's output is kept.
    #[schemars(range(min = 4096, max = 1_099_511_627_776_u64))]
    pub log_bytes: u64,
    /// The profiles, by name: a command each, and how it is run.
    pub profiles: BTreeMap<String, Profile>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            runner: Runner::default(),
            default: None,
            max_concurrent: 8,
            kill_grace: Duration::from_secs(10),
            log_bytes: 52_428_800,
            profiles: BTreeMap::new(),
        }
    }
}

/// How a session's process is hosted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Runner {
    #[default]
    Process,
}

/// A command, and how it is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// The command as a list of arguments, no shell. Placeholders: `{prompt}` (cut at 96 KiB with a pointer to the file), `{prompt.file}`, `{session.id}`, `{workItem}`, `{checkout}`, `{branch}` (empty when detached), `{event}`, `{action}`, `{url}`. A command with a `/` in it is relative to this file.
    pub start: Vec<String>,
    /// The command that goes on with a session that has ended, in the same form; absent starts anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub resume: Option<Vec<String>>,
    /// What the session is told: a text, `{ file: F }`, or a map from GitHub's name of an event to one of these; a minijinja template. Absent is a built-in one for each event.
    #[serde(default, skip_serializing_if = "Prompt::is_built_in")]
    pub prompt: Prompt,
    /// Variables that the session gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of variables of the daemon that the session gets too.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// How many sessions of this profile run at once; absent is no bound but `sessions.maxConcurrent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize", range(min = 1, max = 10_000))]
    pub max_concurrent: Option<usize>,
    /// How long a run may take before it is ended; 0 is without a bound.
    #[serde(default, with = "fields::minutes", rename = "timeoutMinutes")]
    #[schemars(with = "u64", range(min = 0, max = 525_600))]
    pub timeout: Option<Duration>,
}

/// What a session is told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    /// The built-in template of each event.
    #[default]
    BuiltIn,
    /// One template for every event.
    Every(Template),
    /// A template for each event that has one; the built-in ones for the others.
    ByEvent(BTreeMap<String, Template>),
}

impl Prompt {
    /// Returns whether no template is configured at all.
    pub fn is_built_in(&self) -> bool {
        matches!(self, Self::BuiltIn)
    }

    /// Returns the template for an event, nothing if it is the built-in one.
    pub fn template(&self, event: &str) -> Option<&str> {
        match self {
            Self::BuiltIn => None,
            Self::Every(template) => Some(template.text()),
            Self::ByEvent(by_event) => by_event.get(event).map(Template::text),
        }
    }
}

/// A template, or the file it stands in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Template {
    /// The template itself.
    Text(String),
    /// A file.
    File(FileTemplate),
}

/// A template in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTemplate {
    /// The file.
    pub file: PathBuf,
    /// What it said when the configuration was loaded.
    #[serde(skip)]
    pub text: String,
}

impl Template {
    /// Returns the template.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::File(file) => &file.text,
        }
    }
}

impl JsonSchema for Prompt {
    fn schema_name() -> Cow<'static, str> {
        "Prompt".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = json_schema!({ "type": "string" });
        let file = json_schema!({
            "type": "object",
            "properties": {
                "file": { "type": "string", "description": "A file that holds the template." }
            },
            "required": ["file"],
            "additionalProperties": false
        });
        json_schema!({
            "anyOf": [
                text,
                file,
                { "type": "object", "additionalProperties": { "anyOf": [text, file] } }
            ]
        })
    }
}
