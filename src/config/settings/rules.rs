//! Own rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use crate::domain::checkout::Strategy;

/// A rule: what is done with the deliveries that it matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleConfig {
    /// What events call the rule; `rule 1`, `rule 2`, … if it has no name.
    #[serde(default)]
    pub name: String,
    /// What a delivery must be; everything, if absent. Every key that is given must match.
    #[serde(default)]
    pub when: When,
    /// What is done: `start` prepares the checkout and starts the session, or hands over to the one there is; `deliver` only hands over; `close` ends the item; `ignore` drops the delivery.
    pub then: Then,
    /// The profile that `start` starts; `sessions.default`, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub profile: Option<String>,
    /// How `start` makes the checkout; as `routing.workspace` says, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "fields::StrategyWord")]
    pub strategy: Option<Strategy>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Then {
    Start,
    Deliver,
    Close,
    Ignore,
}

/// What a delivery must be. Every key that is given must match; of a list, one
/// element.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct When {
    /// GitHub's name of the event, such as `pull_request`.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrMany")]
    pub event: Vec<String>,
    /// GitHub's name of the action, such as `opened`.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrMany")]
    pub action: Vec<String>,
    /// Globs over `owner/name`.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrMany")]
    pub repository: Vec<String>,
    /// Labels, any of which the item has.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrMany")]
    pub label: Vec<String>,
    /// Logins, one of which is the actor's.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrMany")]
    pub author: Vec<String>,
    /// What GitHub says that the actor is to the repository.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrManyAssociations")]
    pub association: Vec<String>,
    /// Whether the pull request comes from a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub fork: Option<bool>,
    /// Whether the pull request is a draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub draft: Option<bool>,
    /// Globs over the branch that the pull request is to be merged into.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrMany")]
    pub base: Vec<String>,
    /// Globs over the branch of the pull request.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrMany")]
    pub branch: Vec<String>,
    /// The words after `routing.command` at the start of a comment.
    #[serde(
        deserialize_with = "fields::one_or_many::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "fields::OneOrMany")]
    pub command: Vec<String>,
}
