//! Writes the reference of the configuration from the schema.

use std::fmt::Write as _;

use serde_json::Value;

use super::schema::schema;
use super::shape::{allowed_words, type_name};

const HEADER: &str = "\
# Configuration

<!-- Written from the comments in src/config/settings; a test compares the two.
     To write it again: INNKEEPER_BLESS=1 cargo test --test config -->

One YAML file: the one that `--config` names, else the one that
`$INNKEEPER_CONFIG` names, else the first there is of `./innkeeper.yaml`,
`$XDG_CONFIG_HOME/innkeeper/innkeeper.yaml` (`~/.config` if that is not set) and
`/etc/innkeeper/innkeeper.yaml`. [`config/innkeeper.yaml`](../config/innkeeper.yaml)
is an example with every key and its default.

An unknown key, a wrong type, a key that is given twice or a value out of range is
an error that names file, line, column and key; nothing is ignored. `innkeeper
config check` tells all errors of a file, `innkeeper config show` prints what the
file means with every default filled in, and `innkeeper config schema` prints the
JSON Schema for editors.

A relative path is relative to the file it stands in; `~` is the home directory.

The daemon reads the file again on SIGHUP and when it changes. A file with errors
changes nothing and is reported. `state`, `control`, `webhooks.github.host`,
`webhooks.github.port`, `webhooks.github.path` and `eventLog.path` take effect only
when the daemon is started again, and the report says so.
";

/// Returns the reference of the configuration, as Markdown.
pub fn documentation() -> String {
    let mut text = HEADER.to_owned();
    section(&schema(), "", &mut text);
    text
}

/// Writes a table of the keys of one map, then the maps below it.
fn section(schema: &Value, path: &str, text: &mut String) {
    let Some(keys) = schema["properties"].as_object() else {
        return;
    };
    let (maps, leaves): (Vec<_>, Vec<_>) = keys.iter().partition(|(_, key)| inner(key).is_some());
    if !leaves.is_empty() {
        text.push_str("\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
    }
    for (name, key) in leaves {
        let required = schema["required"]
            .as_array()
            .is_some_and(|required| required.iter().any(|one| one == name));
        let default = match key.get("default") {
            _ if required => "must be given".to_owned(),
            None => String::new(),
            Some(default) => format!("`{default}`"),
        };
        let form = form(key);
        let meaning = prose(key);
        writeln!(text, "| `{name}` | {form} | {default} | {meaning} |")
            .expect("a String takes all");
    }
    for (name, key) in maps {
        let Some((map, suffix)) = inner(key) else {
            continue;
        };
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{name}");
        let heading = format!("{path}{suffix}");
        write!(text, "\n## `{heading}`\n\n{}\n", prose(key)).expect("a String takes all");
        section(map, &heading, text);
    }
}

/// Returns the map whose keys are told in a section of their own, and how an
/// element of what holds it is written.
fn inner(key: &Value) -> Option<(&Value, &'static str)> {
    if key["properties"].is_object() {
        return Some((key, ""));
    }
    if key["items"]["properties"].is_object() {
        return Some((&key["items"], "[]"));
    }
    let of_others = &key["additionalProperties"];
    of_others["properties"]
        .is_object()
        .then_some((of_others, ".<name>"))
}

/// Returns what a value may be, in words.
fn form(key: &Value) -> String {
    if let Some(words) = allowed_words(key) {
        let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
        return words.join(", ");
    }
    if let Some(options) = key["anyOf"].as_array() {
        if let [one, many] = &options[..]
            && many["items"] == *one
        {
            return format!("{}, or a list of them", form(one));
        }
        let mut forms: Vec<&str> = options
            .iter()
            .filter_map(|option| option["type"].as_str())
            .map(type_name)
            .collect();
        forms.dedup();
        return forms.join(" or ");
    }
    match key["type"].as_str() {
        Some("array") => match form(&key["items"]).strip_prefix("a ") {
            Some(one) => format!("a list of {one}s"),
            None => format!("a list of {}", form(&key["items"])),
        },
        Some("object") if key["additionalProperties"].is_object() => {
            "a map from names to texts".to_owned()
        }
        Some("integer") => format!("{} to {}", key["minimum"], key["maximum"]),
        Some(other) => type_name(other).to_owned(),
        None => String::new(),
    }
}

fn prose(key: &Value) -> String {
    let text = key["description"].as_str().unwrap_or_default();
    text.replace('\n', " ").replace('|', "\\|")
}
