//! What is different between two configurations.

use serde_json::Value;

use super::key_path::KeyPath;
use super::settings::{Config, Prompt, Template};

/// The keys that are different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// All of them.
    pub changed: Vec<String>,
    /// Those that have no effect before the daemon is started again.
    pub needs_restart: Vec<String>,
}

/// The keys, each with everything below it, that are read at start only.
const AT_START_ONLY: [&str; 6] = [
    "state",
    "webhooks.github.host",
    "webhooks.github.port",
    "webhooks.github.path",
    "control",
    "eventLog.path",
];

/// Returns which keys are different in `new`, by name.
pub fn changes(old: &Config, new: &Config) -> Changes {
    let mut changed = Vec::new();
    differences(&value(old), &value(new), &KeyPath::default(), &mut changed);
    let needs_restart = changed
        .iter()
        .filter(|key| {
            AT_START_ONLY.iter().any(|fixed| {
                key.strip_prefix(fixed)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        })
        .cloned()
        .collect();
    Changes {
        changed,
        needs_restart,
    }
}

/// Returns a configuration as a tree in which templates are what their files
/// say: a changed template is a change, though the key is the same.
fn value(config: &Config) -> Value {
    let mut config = config.clone();
    for profile in config.sessions.profiles.values_mut() {
        let templates: Vec<&mut Template> = match &mut profile.prompt {
            Prompt::BuiltIn => Vec::new(),
            Prompt::Every(template) => vec![template],
            Prompt::ByEvent(by_event) => by_event.values_mut().collect(),
        };
        for template in templates {
            *template = Template::Text(template.text().to_owned());
        }
    }
    serde_json::to_value(config).expect("maps with text keys can always be written as JSON")
}

fn differences(old: &Value, new: &Value, path: &KeyPath, changed: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                match new.get(key) {
                    Some(other) => differences(value, other, &path.key(key), changed),
                    None => changed.push(path.key(key).to_string()),
                }
            }
            for key in new.keys().filter(|key| !old.contains_key(*key)) {
                changed.push(path.key(key).to_string());
            }
        }
        (old, new) if old == new => {}
        _ => changed.push(path.to_string()),
    }
}
