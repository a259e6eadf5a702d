//! Makes the paths of a configuration absolute.
//!
//! A relative path is relative to the file it stands in, `~` is the home
//! directory. Symbolic links are not followed here.

use std::path::{Component, Path, PathBuf};

use super::environment::Environment;
use super::key_path::KeyPath;
use super::problem::Problem;
use super::settings::{Config, Prompt, Template};

/// What relative paths and `~` mean.
pub struct Resolver<'a> {
    directory: &'a Path,
    env: &'a Environment,
    /// What could not be resolved.
    pub problems: Vec<Problem>,
}

impl<'a> Resolver<'a> {
    /// Returns a resolver for a file in `directory`.
    pub fn new(directory: &'a Path, env: &'a Environment) -> Self {
        Self {
            directory,
            env,
            problems: Vec::new(),
        }
    }

    /// Makes every path of `config` absolute and fills in those that follow from
    /// others.
    pub fn resolve(&mut self, config: &mut Config) {
        self.path(&mut config.state.root, &KeyPath::of("state.root"));
        let root = config.state.root.clone();
        for (path, name, key) in [
            (&mut config.control.socket, "control.sock", "control.socket"),
            (&mut config.event_log.path, "events.jsonl", "eventLog.path"),
        ] {
            if path.as_os_str().is_empty() {
                *path = root.join(name);
            } else {
                self.path(path, &KeyPath::of(key));
            }
        }
        let key = KeyPath::of("webhooks.github.secretFiles");
        for (at, file) in config.webhooks.github.secret_files.iter_mut().enumerate() {
            self.path(file, &key.index(at));
        }
        let routing = &mut config.routing;
        self.path(
            &mut routing.spawn_workdir,
            &KeyPath::of("routing.spawnWorkdir"),
        );
        if let Some(root) = &mut routing.workspace.root {
            self.path(root, &KeyPath::of("routing.workspace.root"));
        }
        self.command(
            &mut routing.workspace.git_binary,
            &KeyPath::of("routing.workspace.gitBinary"),
        );
        if let Some(command) = config.notify.command.first_mut() {
            self.command(command, &KeyPath::of("notify.command").index(0));
        }
        let profiles = KeyPath::of("sessions.profiles");
        for (name, profile) in &mut config.sessions.profiles {
            let key = profiles.key(name);
            if let Some(command) = profile.start.first_mut() {
                self.command(command, &key.key("start").index(0));
            }
            if let Some(command) = profile.resume.iter_mut().flatten().next() {
                self.command(command, &key.key("resume").index(0));
            }
            let key = key.key("prompt");
            match &mut profile.prompt {
                Prompt::BuiltIn => {}
                Prompt::Every(template) => self.template(template, &key),
                Prompt::ByEvent(by_event) => {
                    for (event, template) in by_event {
                        self.template(template, &key.key(event));
                    }
                }
            }
        }
    }

    /// Resolves the file of a template and reads it, so that a configuration is
    /// one value that does not change under a running daemon.
    fn template(&mut self, template: &mut Template, key: &KeyPath) {
        let Template::File(template) = template else {
            return;
        };
        let key = key.key("file");
        self.path(&mut template.file, &key);
        match std::fs::read_to_string(&template.file) {
            Ok(text) => template.text = text,
            Err(error) => self.problems.push(Problem::error(
                key.clone(),
                format!(
                    "`{key}`: cannot read `{}`: {error}",
                    template.file.display()
                ),
            )),
        }
    }

    /// Resolves a command: one without a `/` is a name to be looked up in `PATH`.
    fn command(&mut self, command: &mut String, key: &KeyPath) {
        if command.starts_with('{') || !command.contains('/') {
            return;
        }
        let mut path = PathBuf::from(&*command);
        self.path(&mut path, key);
        if let Some(text) = path.to_str() {
            text.clone_into(command);
        }
    }

    fn path(&mut self, path: &mut PathBuf, key: &KeyPath) {
        if path.as_os_str().is_empty() {
            self.problems.push(Problem::error(
                key.clone(),
                format!("`{key}` must not be empty"),
            ));
            return;
        }
        if path.to_str().is_some_and(|path| path.contains('\0')) {
            self.problems.push(Problem::error(
                key.clone(),
                format!("`{key}` holds a zero byte"),
            ));
            return;
        }
        let mut parts = path.components();
        let first = parts.next().map(|part| part.as_os_str().to_owned());
        let first = first.as_ref().and_then(|first| first.to_str());
        *path = match first {
            Some("~") => {
                let Some(home) = self.env.home() else {
                    self.problems.push(Problem::error(
                        key.clone(),
                        format!("`{key}` begins with `~`, but HOME names no directory"),
                    ));
                    return;
                };
                home.join(parts.as_path())
            }
            Some(first) if first.starts_with('~') => {
                self.problems.push(
                    Problem::error(
                        key.clone(),
                        format!("`{key}`: the home directory of another user is not looked up"),
                    )
                    .help("write the path in full, or ./ before a name that begins with ~"),
                );
                return;
            }
            _ => self.directory.join(&*path),
        };
        *path = path
            .components()
            .filter(|part| !matches!(part, Component::CurDir))
            .collect();
    }
}
