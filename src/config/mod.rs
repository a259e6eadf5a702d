//! The configuration: one YAML file, read to a value that holds.
//!
//! # What this module promises
//!
//! [`load()`] returns a [`Config`] in which every default is filled in, every path
//! is absolute, every name that refers to another key exists, and every number
//! is in its range; or [`ConfigErrors`] that name all that is wrong at once, each
//! with file, line, column, key path and the line itself.
//!
//! # One source
//!
//! The structs in [`settings`] are the only list of keys. Their schema says what
//! a key may hold ([`schema()`]), the file is checked against that schema while
//! positions are still known (`shape`), and the reference in
//! `docs/configuration.md` is written from it ([`documentation()`]). A key that is
//! not in the structs is unknown and refused, never ignored.
//!
//! # Invariants
//!
//! 1. Neither the file nor a [`Config`] holds a webhook secret: only names of
//!    variables and files. [`resolve_secrets`] reads those, and a [`Secret`] does
//!    not print.
//! 2. The environment comes in as an [`Environment`] value.
//! 3. Nothing here changes anything: a file with errors has no effect.
//!
//! # What is not here
//!
//! Watching the file and putting a changed one in force (`daemon`); turning rules
//! into decisions (`domain::routing`).

mod changes;
mod discover;
mod documentation;
mod environment;
mod fields;
mod github_events;
mod key_path;
mod load;
mod meaning;
mod paths;
mod placeholders;
mod problem;
mod schema;
mod secrets;
pub mod settings;
mod shape;
mod tree;

pub use changes::{Changes, changes};
pub use discover::{candidates, discover};
pub use documentation::documentation;
pub use environment::Environment;
pub use load::{Loaded, load, parse};
pub use placeholders::PLACEHOLDERS;
pub use problem::{ConfigErrors, Position, Problem, Severity, Warning};
pub use schema::schema;
pub use secrets::{Secret, resolve_secrets};
pub use settings::{
    CloneProtocol, Config, Control, EventLogSettings, GithubWebhook, Host, Inbox, Log, LogFormat,
    LogLevel, Metrics, MissingBranch, Notify, OnDirty, Profile, Prompt, Removal, Routing,
    RuleConfig, Runner, Sessions, State, Template, Then, Trust, Webhooks, When, WorkspaceSettings,
};
