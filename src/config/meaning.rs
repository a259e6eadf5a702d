//! Checks what a schema cannot say: references between keys, placeholders,
//! globs, templates, addresses.
//!
//! Every check goes on after it found something, so that all is told at once.

mod routing;
mod sessions;
mod workspace;

use super::key_path::KeyPath;
use super::problem::Problem;
use super::settings::Config;
use super::shape::suggestion;
use super::tree::Node;
use crate::domain::log_event::CATALOGUE;

/// The checks of one configuration.
pub struct Meaning<'a> {
    config: &'a Config,
    tree: &'a Node,
    /// What is wrong, without places.
    pub problems: Vec<Problem>,
}

impl<'a> Meaning<'a> {
    /// Returns the checks of `config`, which was read from `tree`.
    pub fn new(config: &'a Config, tree: &'a Node) -> Self {
        Self {
            config,
            tree,
            problems: Vec::new(),
        }
    }

    /// Runs all checks.
    pub fn check(&mut self) {
        self.webhooks();
        self.routing();
        self.workspace();
        self.sessions();
        self.notify();
    }

    fn error(&mut self, key: &KeyPath, message: impl std::fmt::Display) -> &mut Self {
        self.problems
            .push(Problem::error(key.clone(), format!("`{key}` {message}")));
        self
    }

    fn warning(&mut self, key: &KeyPath, message: impl std::fmt::Display) -> &mut Self {
        self.problems
            .push(Problem::warning(key.clone(), format!("`{key}` {message}")));
        self
    }

    fn help(&mut self, help: impl Into<String>) {
        if let Some(last) = self.problems.pop() {
            self.problems.push(last.help(help));
        }
    }

    fn webhooks(&mut self) {
        let webhook = &self.config.webhooks.github;
        let key = KeyPath::of("webhooks.github");
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if webhook.host.parse::<std::net::IpAddr>().is_err()
            && (webhook.host.is_empty() || !webhook.host.chars().all(is_name))
        {
            self.error(&key.key("host"), "is neither an address nor a name")
                .help("write an address without a port, such as 127.0.0.1, 0.0.0.0 or ::1");
        }
        let path = &webhook.path;
        let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
        let dotted = path.split('/').any(|part| part == "." || part == "..");
        if !path.starts_with('/') || path.contains("//") || dotted || !path.chars().all(plain) {
            self.error(
                &key.key("path"),
                "must begin with `/` and hold only letters, digits and `/ - _ . ~`",
            );
        } else if path.trim_end_matches('/') == "/healthz" {
            self.error(&key.key("path"), "is taken by the health check");
        }
        for (at, name) in webhook.secret_env.iter().enumerate() {
            if !is_variable_name(name) {
                self.error(
                    &key.key("secretEnv").index(at),
                    "must be the name of a variable; the secret itself never stands in the file",
                );
            }
        }
        if webhook.allow_unsigned && !webhook.is_loopback() {
            self.error(
                &key.key("allowUnsigned"),
                format!(
                    "is only for a loopback address, and `webhooks.github.host` is `{}`",
                    webhook.host
                ),
            );
        }
        if webhook.body_budget_bytes < webhook.max_body_bytes {
            self.error(
                &key.key("bodyBudgetBytes"),
                format!(
                    "is {}, less than one body of `maxBodyBytes` ({}) needs",
                    webhook.body_budget_bytes, webhook.max_body_bytes
                ),
            );
        }
    }

    fn notify(&mut self) {
        let notify = &self.config.notify;
        let key = KeyPath::of("notify");
        let known: Vec<&str> = CATALOGUE.iter().map(|row| row.name).collect();
        for (at, name) in notify.on.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                self.error(
                    &key.key("on").index(at),
                    format!("names no event: `{name}`"),
                )
                .help(suggestion(name, &known, "the events are"));
            }
        }
        self.command(&notify.command, &key.key("command"));
        if !notify.command.is_empty() && notify.on.is_empty() {
            self.warning(&key.key("on"), "is empty: the command is never run");
        }
    }

    /// Checks what holds for every argument list: its first word is a program.
    fn command(&mut self, command: &[String], key: &KeyPath) {
        if command
            .first()
            .is_some_and(|program| program.trim().is_empty())
        {
            self.error(&key.index(0), "must name a program");
        }
        for (at, argument) in command.iter().enumerate() {
            if argument.contains('\0') {
                self.error(&key.index(at), "holds a zero byte");
            }
        }
    }

    /// Checks that a list of words holds no empty one.
    fn words(&mut self, words: &[String], key: &KeyPath) {
        for (at, word) in words.iter().enumerate() {
            if word.trim().is_empty() {
                self.error(&self.element(key, at), "is empty");
            }
        }
    }

    /// Returns the path of an element of a list that may be written as one word.
    fn element(&self, key: &KeyPath, at: usize) -> KeyPath {
        let element = key.index(at);
        if self.tree.has(&element) {
            element
        } else {
            key.clone()
        }
    }
}

/// Returns whether a text can be the name of an environment variable.
fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
