//! Checks a file against the schema while every value still knows its line.
//!
//! What passes is returned as JSON; what does not is told and left out (or has a
//! stand-in, where something must be there), so that one wrong value does not hide
//! what else is wrong.
//!
//! Of JSON Schema only what our own schema uses is understood; a test holds the
//! two together.

use serde_json::{Map, Value};

use super::fields::FALLBACK;
use super::key_path::KeyPath;
use super::problem::{Problem, Source};
use super::tree::{Entry, Kind, Node};

/// The checker of one file.
pub struct Shape<'a> {
    /// The file.
    pub source: &'a Source,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

impl Shape<'_> {
    /// Returns what `node` says, as JSON, without what is wrong with it; nothing
    /// if it is wrong as a whole.
    pub fn check(&mut self, node: &Node, schema: &Value, path: &KeyPath) -> Option<Value> {
        if let Some(options) = schema["anyOf"].as_array() {
            return self.any_of(node, options, path);
        }
        if let Some(words) = allowed_words(schema) {
            return self.word(node, &words, schema, path);
        }
        match (schema["type"].as_str()?, &node.kind) {
            ("object", Kind::Map(entries)) => Some(self.map(node, entries, schema, path)),
            ("array", Kind::List(items)) => Some(self.list(items, schema, path)),
            ("string", Kind::Text(text)) => Some(Value::from(text.as_str())),
            ("boolean", Kind::Bool(value)) => Some(Value::from(*value)),
            ("integer", Kind::Integer(value)) => self.integer(node, *value, schema, path),
            (wanted, _) => {
                self.wrong_type(node, type_name(wanted), path);
                None
            }
        }
    }

    fn map(&mut self, node: &Node, entries: &[Entry], schema: &Value, path: &KeyPath) -> Value {
        let known = schema["properties"].as_object();
        let of_others = Some(&schema["additionalProperties"]).filter(|rest| rest.is_object());
        let mut result = Map::new();
        for entry in entries {
            let path = path.key(&entry.key);
            let schema = known.and_then(|known| known.get(&entry.key)).or(of_others);
            let Some(schema) = schema else {
                let names: Vec<&str> = known
                    .map(|known| known.keys().map(String::as_str).collect())
                    .unwrap_or_default();
                self.problems.push(
                    Problem::error(path.clone(), format!("unknown key `{path}`"))
                        .help(suggestion(&entry.key, &names, "the keys here are"))
                        .at(self.source, entry.key_span.clone()),
                );
                continue;
            };
            let before = self.problems.len();
            let value = if matches!(entry.value.kind, Kind::Null) {
                self.no_value(entry.key_span.clone(), schema, &path);
                None
            } else {
                self.check(&entry.value, schema, &path)
            };
            // A map or a list as a whole is shown by its key.
            if matches!(entry.value.kind, Kind::Map(_) | Kind::List(_)) {
                for problem in &mut self.problems[before..] {
                    if problem.key() == path.to_string() {
                        *problem = problem.clone().at(self.source, entry.key_span.clone());
                    }
                }
            }
            if let Some(value) = value {
                result.insert(entry.key.clone(), value);
            }
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if node.entry(name).is_none() {
                self.problems.push(
                    Problem::error(path.key(name), format!("`{path}` lacks the key `{name}`"))
                        .at(self.source, node.span.clone()),
                );
            }
            if !result.contains_key(name) {
                result.insert(name.to_owned(), stand_in(&schema["properties"][name]));
            }
        }
        Value::Object(result)
    }

    fn list(&mut self, items: &[Node], schema: &Value, path: &KeyPath) -> Value {
        let schema = &schema["items"];
        let checked = items.iter().enumerate().map(|(at, item)| {
            self.check(item, schema, &path.index(at))
                .unwrap_or_else(|| stand_in(schema))
        });
        checked.collect()
    }

    fn integer(
        &mut self,
        node: &Node,
        value: i128,
        schema: &Value,
        path: &KeyPath,
    ) -> Option<Value> {
        let bound = |name: &str| schema[name].as_u64().unwrap_or_default();
        let (least, most) = (bound("minimum"), bound("maximum"));
        match u64::try_from(value) {
            Ok(value) if (least..=most).contains(&value) => Some(Value::from(value)),
            _ => {
                let message = format!("`{path}` must be between {least} and {most}, not {value}");
                self.problems
                    .push(Problem::error(path.clone(), message).at(self.source, node.span.clone()));
                None
            }
        }
    }

    /// Checks a value that must be one of a few words.
    fn word(
        &mut self,
        node: &Node,
        words: &[&str],
        schema: &Value,
        path: &KeyPath,
    ) -> Option<Value> {
        let text = match &node.kind {
            Kind::Text(text) if words.contains(&text.as_str()) => {
                return Some(Value::from(text.as_str()));
            }
            Kind::Text(text) => text.as_str(),
            Kind::Map(_) | Kind::List(_) => {
                self.wrong_type(node, &format!("one of {}", words.join(", ")), path);
                return None;
            }
            _ => self.source.text.get(node.span.clone()).unwrap_or_default(),
        };
        let fallback = schema.get(FALLBACK);
        let (problem, instead) = match fallback.and_then(Value::as_str) {
            Some(instead) => (
                Problem::warning(
                    path.clone(),
                    format!("`{path}` is `{text}`, which is not known: `{instead}` is used"),
                ),
                fallback.cloned(),
            ),
            None => (
                Problem::error(
                    path.clone(),
                    format!("`{path}` must be one of {}, not `{text}`", words.join(", ")),
                ),
                None,
            ),
        };
        let problem = match nearest(text, words) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem,
        };
        self.problems
            .push(problem.at(self.source, node.span.clone()));
        instead
    }

    /// Checks a value that may have several forms, by the one it has.
    fn any_of(&mut self, node: &Node, options: &[Value], path: &KeyPath) -> Option<Value> {
        let fitting: Vec<&Value> = options
            .iter()
            .filter(|option| match option["type"].as_str() {
                Some("array") => matches!(node.kind, Kind::List(_)),
                Some("object") => matches!(node.kind, Kind::Map(_)),
                _ => !matches!(node.kind, Kind::List(_) | Kind::Map(_)),
            })
            .collect();
        let Some((last, others)) = fitting.split_last() else {
            let mut forms: Vec<&str> = options
                .iter()
                .filter_map(|option| option["type"].as_str())
                .map(type_name)
                .collect();
            forms.dedup();
            self.wrong_type(node, &forms.join(" or "), path);
            return None;
        };
        let before = self.problems.len();
        for option in others {
            let value = self.check(node, option, path);
            if value.is_some() && self.problems.len() == before {
                return value;
            }
            self.problems.truncate(before);
        }
        self.check(node, last, path)
    }

    fn no_value(&mut self, span: std::ops::Range<usize>, schema: &Value, path: &KeyPath) {
        let empty = match schema["type"].as_str() {
            Some("object") => ", or write `{}`",
            Some("array") => ", or write `[]`",
            Some("string") => ", or write `\"\"`",
            _ => "",
        };
        self.problems.push(
            Problem::error(path.clone(), format!("`{path}` has no value"))
                .help(format!("leave the key out to get its default{empty}"))
                .at(self.source, span),
        );
    }

    fn wrong_type(&mut self, node: &Node, wanted: &str, path: &KeyPath) {
        let (found, help) = match &node.kind {
            Kind::Null => ("nothing", None),
            Kind::Bool(_) | Kind::Integer(_) | Kind::Float(_) if wanted.starts_with("a text") => {
                let written = self.source.text.get(node.span.clone()).unwrap_or_default();
                let help = format!("put it in quotes: \"{written}\"");
                let found = match node.kind {
                    Kind::Bool(_) => "true or false",
                    _ => "a number",
                };
                (
                    found,
                    Some(help).filter(|_| !path.to_string().contains(".env.")),
                )
            }
            Kind::Bool(_) => ("true or false", None),
            Kind::Integer(_) => ("a number", None),
            Kind::Float(_) => ("a number with a fraction", None),
            Kind::Text(text) if wanted == "true or false" => (
                "a text",
                match text.to_lowercase().as_str() {
                    "yes" | "on" => Some("write true".to_owned()),
                    "no" | "off" => Some("write false".to_owned()),
                    _ => None,
                },
            ),
            Kind::Text(_) => ("a text", None),
            Kind::List(_) => ("a list", None),
            Kind::Map(_) => (
                "a map",
                (wanted == "a text")
                    .then(|| "text with braces, such as \"{prompt}\", must be quoted".to_owned()),
            ),
        };
        let message = if path.is_root() {
            format!("the file must be {wanted}, not {found}")
        } else {
            format!("`{path}` must be {wanted}, not {found}")
        };
        let mut problem = Problem::error(path.clone(), message);
        if let Some(help) = help {
            problem = problem.help(help);
        }
        self.problems
            .push(problem.at(self.source, node.span.clone()));
    }
}

/// Returns a value that stands for one that was refused and cannot be left out, so
/// that what is around it can still be checked. It never comes into force, since
/// what it stands for is an error.
fn stand_in(schema: &Value) -> Value {
    if let Some(words) = allowed_words(schema) {
        return words.first().copied().into();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten();
            let keys = required.filter_map(Value::as_str);
            keys.map(|key| (key.to_owned(), stand_in(&schema["properties"][key])))
                .collect()
        }
        Some("array") => Value::Array(Vec::new()),
        Some("integer") => schema["minimum"].clone(),
        Some("boolean") => false.into(),
        _ => "".into(),
    }
}

/// Returns the words that a schema allows, if it allows only some.
pub fn allowed_words(schema: &Value) -> Option<Vec<&str>> {
    if let Some(words) = schema["enum"].as_array() {
        return Some(words.iter().filter_map(Value::as_str).collect());
    }
    let options = schema["oneOf"].as_array()?;
    Some(
        options
            .iter()
            .filter_map(|one| one["const"].as_str())
            .collect(),
    )
}

/// Returns a JSON type as it is said in messages.
pub fn type_name(json: &str) -> &str {
    match json {
        "object" => "a map",
        "array" => "a list",
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        other => other,
    }
}

/// Returns a help for a name that is not known: the nearest known one, or all.
pub fn suggestion(name: &str, known: &[&str], all: &str) -> String {
    match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => format!("{all} {}", known.join(", ")),
    }
}

/// Returns the known name that a mistyped one most probably is.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let name = plain(name);
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(&name, &plain(known)), *known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema;

    /// Every word of the schema, with where it was found.
    fn keywords(schema: &Value, at: &str, found: &mut Vec<(String, String)>) {
        let Value::Object(map) = schema else { return };
        for (word, value) in map {
            found.push((word.clone(), at.to_owned()));
            match word.as_str() {
                "properties" => {
                    for (name, inner) in value.as_object().expect("a map") {
                        keywords(inner, &format!("{at}.{name}"), found);
                    }
                }
                "items" | "additionalProperties" => keywords(value, &format!("{at}.*"), found),
                "anyOf" | "oneOf" => {
                    for inner in value.as_array().expect("a list") {
                        keywords(inner, at, found);
                    }
                }
                _ => {}
            }
        }
        if map.get("type").and_then(Value::as_str) == Some("integer") {
            assert!(
                map.contains_key("minimum") && map.contains_key("maximum"),
                "{at} has no range"
            );
        }
        if let Some(kind) = map.get("type") {
            assert!(kind.is_string(), "{at} has several types: {kind}");
        }
        if map.get("type").and_then(Value::as_str) == Some("object") {
            assert!(map.contains_key("additionalProperties"), "{at} is open");
        }
    }

    #[test]
    fn the_schema_says_nothing_that_is_not_checked() {
        let understood = [
            "$schema",
            "title",
            "description",
            "default",
            "format",
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "anyOf",
            "oneOf",
            "const",
            "enum",
            "minimum",
            "maximum",
            FALLBACK,
        ];
        let mut found = Vec::new();
        keywords(&schema(), "", &mut found);
        for (word, at) in found {
            assert!(understood.contains(&word.as_str()), "{word} at {at}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_for_a_slip_and_for_another_spelling_only() {
        let known = ["maxConcurrent", "killGraceSeconds", "logBytes", "default"];
        assert_eq!(nearest("maxConcurent", &known), Some("maxConcurrent"));
        assert_eq!(nearest("max_concurrent", &known), Some("maxConcurrent"));
        assert_eq!(nearest("kill-grace", &known), Some("killGraceSeconds"));
        assert_eq!(nearest("zebra", &known), None);
    }
}
