//! Which deliveries do what.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RuleConfig, WorkspaceSettings, fields};

/// Which deliveries do what, and where sessions run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Routing {
    /// Globs over `owner/name`; `*` stands for no `/`, except alone, where it is everything.
    pub repositories: Vec<String>,
    /// The label that arms an issue or a pull request (built-in rules).
    pub label: String,
    /// The first word of a comment that is a command.
    pub command: String,
    /// Whose text may start or reach a session.
    pub trust: Trust,
    /// Where sessions run while `workspace.root` is empty.
    #[schemars(with = "String")]
    pub spawn_workdir: PathBuf,
    /// How many deliveries are worked on at once.
    #[schemars(range(min = 1, max = 1024))]
    pub max_concurrent_dispatches: usize,
    /// How often a delivery is tried before it is parked; the waits between are 5 s, doubling, at most 5 min, ±20 %.
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: u32,
    /// Where checkouts are, and how they are made and removed.
    pub workspace: WorkspaceSettings,
    /// Own rules, in order; the built-in ones come after them, and the first match decides.
    pub rules: Vec<RuleConfig>,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            repositories: vec!["*".into()],
            label: "innkeeper".into(),
            command: "/innkeeper".into(),
            trust: Trust::default(),
            spawn_workdir: ".".into(),
            max_concurrent_dispatches: 4,
            max_attempts: 6,
            workspace: WorkspaceSettings::default(),
            rules: Vec::new(),
        }
    }
}

/// Whose text may start or reach a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Trust {
    /// What GitHub must say that the actor is to the repository.
    #[schemars(with = "Vec<fields::Association>")]
    pub associations: Vec<String>,
    /// Logins that are trusted besides.
    pub users: Vec<String>,
    /// Logins of bots that are trusted; any other bot's text is ignored.
    pub bots: Vec<String>,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            associations: ["OWNER", "MEMBER", "COLLABORATOR"]
                .map(str::to_owned)
                .into(),
            users: Vec::new(),
            bots: Vec::new(),
        }
    }
}
