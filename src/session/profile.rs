//! A profile: which command a session is, how it is resumed and what it is told.

use std::collections::BTreeMap;

use super::prompt::PromptSource;

/// A profile, validated; plain values, whatever configuration they came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileSpec {
    /// The command and its arguments, with placeholders.
    pub start: Vec<String>,
    /// The command that goes on with an earlier run, if the profile can.
    pub resume: Option<Vec<String>>,
    /// What the session is told; none means the built-in templates.
    pub prompt: Option<PromptSource>,
    /// Variables with their values.
    pub env: BTreeMap<String, String>,
    /// Names of variables that are passed on from the daemon's environment.
    pub pass_env: Vec<String>,
}
