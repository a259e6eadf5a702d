//! Checks of `sessions`.

use minijinja::{Environment as Templates, UndefinedBehavior};

use super::{Meaning, is_variable_name};
use crate::config::key_path::KeyPath;
use crate::config::placeholders::{PLACEHOLDERS, placeholders};
use crate::config::settings::{Profile, Prompt, Template};
use crate::config::shape::suggestion;

/// Variables whose name begins so are the daemon's to give.
const RESERVED_PREFIX: &str = "INNKEEPER_";

impl Meaning<'_> {
    pub(super) fn sessions(&mut self) {
        let sessions = &self.config.sessions;
        let key = KeyPath::of("sessions");
        if let Some(default) = &sessions.default {
            self.profile_exists(default, &key.key("default"));
        }
        for (name, profile) in &sessions.profiles {
            let key = key.key("profiles").key(name);
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
                self.error(
                    &key,
                    "must have a name of at most 64 letters, digits and `- _ .`",
                );
            }
            self.profile(profile, &key);
        }
    }

    fn profile(&mut self, profile: &Profile, key: &KeyPath) {
        self.session_command(&profile.start, &key.key("start"));
        if let Some(resume) = &profile.resume {
            self.session_command(resume, &key.key("resume"));
        }
        self.prompt(&profile.prompt, &key.key("prompt"));
        for (name, value) in &profile.env {
            let key = key.key("env").key(name);
            self.variable(name, &key);
            if value.contains('\0') {
                self.error(&key, "holds a zero byte");
            }
        }
        for (at, name) in profile.pass_env.iter().enumerate() {
            let key = key.key("passEnv").index(at);
            if self.config.webhooks.github.secret_env.contains(name) {
                self.error(&key, "is a secret of the daemon, which no session gets");
            } else {
                self.variable(name, &key);
            }
        }
    }

    fn variable(&mut self, name: &str, key: &KeyPath) {
        if !is_variable_name(name) {
            self.error(key, "must be the name of a variable");
        } else if name.starts_with(RESERVED_PREFIX) {
            self.error(
                key,
                format!("begins with {RESERVED_PREFIX}: those are set by the daemon alone"),
            );
        }
    }

    fn session_command(&mut self, command: &[String], key: &KeyPath) {
        if command.is_empty() {
            self.error(key, "is empty: it must name a program");
        }
        self.command(command, key);
        for (at, argument) in command.iter().enumerate() {
            for found in placeholders(argument) {
                if !PLACEHOLDERS.contains(&found) {
                    self.error(
                        &key.index(at),
                        format!("holds an unknown placeholder {found}"),
                    )
                    .help(suggestion(
                        found,
                        &PLACEHOLDERS,
                        "the placeholders are",
                    ));
                } else if at == 0 && found != "{checkout}" {
                    self.error(
                        &key.index(at),
                        format!("lets {found} say which program is run"),
                    );
                }
            }
        }
    }

    fn prompt(&mut self, prompt: &Prompt, key: &KeyPath) {
        match prompt {
            Prompt::BuiltIn => {}
            Prompt::Every(template) => self.template(template, key),
            Prompt::ByEvent(by_event) => {
                for (event, template) in by_event {
                    let key = key.key(event);
                    if event == "file" {
                        self.error(&key, "stands alone: a map from events has no `file`");
                        continue;
                    }
                    self.event_is_known(event, &key);
                    self.template(template, &key);
                }
            }
        }
    }

    fn template(&mut self, template: &Template, key: &KeyPath) {
        let (key, name) = match template {
            Template::Text(_) => (key.clone(), "the prompt".to_owned()),
            Template::File(file) => (key.key("file"), format!("`{}`", file.file.display())),
        };
        let mut templates = Templates::new();
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        if let Err(error) = templates.template_from_str(template.text()) {
            let line = error
                .line()
                .map_or(String::new(), |line| format!(", line {line}"));
            let detail = error
                .detail()
                .map_or_else(|| error.kind().to_string(), str::to_owned);
            self.error(&key, format!("is not a template: {name}{line}: {detail}"));
        }
    }
}
