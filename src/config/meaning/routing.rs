//! Checks of `routing`, except `routing.workspace`.

use globset::GlobBuilder;

use super::Meaning;
use crate::config::github_events::GITHUB_EVENTS;
use crate::config::key_path::KeyPath;
use crate::config::settings::{RuleConfig, Then};
use crate::config::shape::suggestion;

impl Meaning<'_> {
    pub(super) fn routing(&mut self) {
        let routing = &self.config.routing;
        let key = KeyPath::of("routing");
        if routing.repositories.is_empty() {
            self.error(
                &key.key("repositories"),
                "is empty: every delivery would be dropped",
            )
            .help("write [\"*\"] for all repositories");
        }
        self.repository_globs(&routing.repositories, &key.key("repositories"));
        if routing.label.trim().is_empty() {
            self.error(&key.key("label"), "must not be empty");
        }
        if routing.command.is_empty() || routing.command.contains(char::is_whitespace) {
            self.error(&key.key("command"), "must be one word");
        }
        let trust = &routing.trust;
        let trust_key = key.key("trust");
        for (name, logins) in [("users", &trust.users), ("bots", &trust.bots)] {
            self.logins(logins, &trust_key.key(name));
        }
        for (at, association) in trust.associations.iter().enumerate() {
            if matches!(
                association.as_str(),
                "NONE" | "FIRST_TIMER" | "FIRST_TIME_CONTRIBUTOR"
            ) {
                self.warning(
                    &trust_key.key("associations").index(at),
                    format!("holds {association}: anybody at all could start a session"),
                );
            }
        }
        let rules = &routing.rules;
        for (at, rule) in rules.iter().enumerate() {
            self.rule(rule, &key.key("rules").index(at));
            let when = key.key("rules").index(at).key("when");
            if self.tree.keys(&when).is_empty() && at + 1 < rules.len() {
                self.warning(
                    &key.key("rules").index(at),
                    "matches everything: the rules after it never decide",
                );
            }
        }
    }

    fn rule(&mut self, rule: &RuleConfig, key: &KeyPath) {
        if let Some(profile) = &rule.profile {
            self.profile_exists(profile, &key.key("profile"));
        }
        if rule.then != Then::Start {
            for (name, is_given) in [
                ("profile", rule.profile.is_some()),
                ("strategy", rule.strategy.is_some()),
            ] {
                if is_given {
                    self.error(&key.key(name), "has a meaning only with `then: start`");
                }
            }
        }
        let when = &rule.when;
        let key = key.key("when");
        for (name, words) in [
            ("event", &when.event),
            ("action", &when.action),
            ("repository", &when.repository),
            ("label", &when.label),
            ("author", &when.author),
            ("association", &when.association),
            ("base", &when.base),
            ("branch", &when.branch),
            ("command", &when.command),
        ] {
            let key = key.key(name);
            if words.is_empty() && self.tree.has(&key) {
                self.error(&key, "is empty: the rule would never match")
                    .help("leave the key out to match everything");
            }
            self.words(words, &key);
        }
        for (at, event) in when.event.iter().enumerate() {
            self.event_is_known(event, &self.element(&key.key("event"), at));
        }
        self.repository_globs(&when.repository, &key.key("repository"));
        self.logins(&when.author, &key.key("author"));
        for (name, globs) in [("base", &when.base), ("branch", &when.branch)] {
            for (at, glob) in globs.iter().enumerate() {
                self.glob(glob, &self.element(&key.key(name), at));
            }
        }
    }

    /// Warns of a name that is not one of GitHub's events.
    pub(super) fn event_is_known(&mut self, event: &str, key: &KeyPath) {
        if !event.trim().is_empty() && !GITHUB_EVENTS.contains(&event) {
            self.warning(key, format!("names no event of GitHub's: `{event}`"));
            let help = suggestion(event, GITHUB_EVENTS, "");
            if help.starts_with("did you mean") {
                self.help(help);
            }
        }
    }

    fn repository_globs(&mut self, globs: &[String], key: &KeyPath) {
        for (at, glob) in globs.iter().enumerate() {
            let key = self.element(key, at);
            if glob == "*" {
                continue;
            }
            let halves = glob.split('/').count();
            if halves != 2 && !glob.contains("**") && !glob.contains(['{', '[']) {
                self.error(&key, format!("`{glob}` is not of the form owner/name"))
                    .help("write `owner/*` for all repositories of an owner");
                continue;
            }
            self.glob(glob, &key);
        }
    }

    fn glob(&mut self, glob: &str, key: &KeyPath) {
        if let Err(error) = GlobBuilder::new(glob).literal_separator(true).build() {
            self.error(key, format!("is not a glob: {}", error.kind()));
        }
    }

    fn logins(&mut self, logins: &[String], key: &KeyPath) {
        for (at, login) in logins.iter().enumerate() {
            let key = self.element(key, at);
            if let Some(bare) = login.strip_prefix('@') {
                self.error(&key, "must be a login")
                    .help(format!("write it without the @: {bare}"));
            } else if login.is_empty() || login.contains(|c: char| c.is_whitespace() || c == '/') {
                self.error(&key, "must be a login");
            }
        }
    }

    /// Tells a profile that does not exist. One that exists but has errors of its
    /// own is not told again.
    pub(super) fn profile_exists(&mut self, profile: &str, key: &KeyPath) {
        let profiles = KeyPath::of("sessions.profiles");
        if self.tree.has(&profiles.key(profile)) {
            return;
        }
        let known: Vec<&str> = self.tree.keys(&profiles);
        let help = suggestion(profile, &known, "the profiles are");
        self.error(
            key,
            format!("names no profile of `sessions.profiles`: `{profile}`"),
        )
        .help(help);
    }
}
