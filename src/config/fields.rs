//! How single values are written in YAML where Rust's own form would read badly.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Whole seconds.
pub mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.as_secs())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_secs)
    }
}

/// Whole minutes; 0 is none.
pub mod minutes {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "the form that serde calls")]
    pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.map_or(0, |value| value.as_secs() / 60))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let minutes = u64::deserialize(from)?;
        Ok((minutes > 0).then(|| Duration::from_secs(minutes * 60)))
    }
}

/// A text or a path; the empty one is none.
pub mod empty_is_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the form that serde calls")]
    pub fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(to),
            None => to.serialize_str(""),
        }
    }

    pub fn deserialize<'de, T: From<String>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(from)?;
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

/// One text, or a list of texts.
pub mod one_or_many {
    use serde::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match OneOrMany::deserialize(from)? {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        })
    }
}

/// The schema of [`one_or_many`].
pub struct OneOrMany;

impl JsonSchema for OneOrMany {
    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
        })
    }
}

/// How GitHub says what somebody is to a repository.
pub const ASSOCIATIONS: [&str; 8] = [
    "OWNER",
    "MEMBER",
    "COLLABORATOR",
    "CONTRIBUTOR",
    "FIRST_TIME_CONTRIBUTOR",
    "FIRST_TIMER",
    "MANNEQUIN",
    "NONE",
];

/// The schema of an association.
pub struct Association;

impl JsonSchema for Association {
    fn schema_name() -> Cow<'static, str> {
        "Association".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ASSOCIATIONS })
    }
}

/// The schema of one association, or a list of them.
pub struct OneOrManyAssociations;

impl JsonSchema for OneOrManyAssociations {
    fn schema_name() -> Cow<'static, str> {
        "OneOrManyAssociations".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = Association::json_schema(generator);
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// The schema of a strategy.
pub struct StrategyWord;

impl JsonSchema for StrategyWord {
    fn schema_name() -> Cow<'static, str> {
        "Strategy".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ["worktree", "clone"] })
    }
}

/// The keyword under which a schema says what any other word means: then another
/// word is a warning and not an error.
pub const FALLBACK: &str = "x-fallback";

/// The schema of a strategy where another word means `worktree`.
pub struct StrategyOrWorktree;

impl JsonSchema for StrategyOrWorktree {
    fn schema_name() -> Cow<'static, str> {
        "StrategyOrWorktree".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = StrategyWord::json_schema(generator);
        schema.insert(FALLBACK.into(), "worktree".into());
        schema
    }
}
