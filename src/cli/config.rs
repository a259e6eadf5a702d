//! `innkeeper config`: check, show, schema.

use clap::Subcommand;
use serde_json::{Value, json};

use super::failure::say;
use super::output::is_stderr_coloured;
use super::{Failure, Format, Global, Output};
use crate::config::{self, ConfigErrors, Environment, Problem};

/// `config …`
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check the configuration and say everything that is wrong with it.
    ///
    /// Exit code 0 if it can be used, 2 if not. Secrets that are not set are a
    /// warning here, as the daemon may run in another environment.
    Check(Format),
    /// Print the configuration with every default filled in, without secrets.
    Show(Format),
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
}

pub(super) fn run(global: &Global, command: &Command) -> Result<(), Failure> {
    let env = Environment::of_process();
    match command {
        Command::Check(format) => check(global, &env, *format),
        Command::Show(format) => {
            let loaded = global.load(&env)?;
            let mut output = Output::new(*format);
            let yaml = loaded.config.to_yaml_without_secrets();
            if output.is_json() {
                let value: Value = serde_yaml::from_str(&yaml).map_err(Failure::failed)?;
                output.json(&value)?;
            } else {
                output.bytes(yaml.as_bytes())?;
            }
            output.flush()
        }
        Command::Schema => {
            let mut output = Output::new(Format { json: true });
            // For people and their editors, wherever it goes.
            let schema =
                serde_json::to_string_pretty(&config::schema()).map_err(Failure::failed)?;
            output.line(&schema)?;
            output.flush()
        }
    }
}

fn check(global: &Global, env: &Environment, format: Format) -> Result<(), Failure> {
    let path = global.config_file(env)?;
    let mut output = Output::new(format);
    let loaded = match config::load(&path, env) {
        Ok(loaded) => loaded,
        Err(errors) => {
            if output.is_json() {
                output.json(&json!({
                    "valid": false,
                    "file": path,
                    "problems": told(errors.problems()),
                }))?;
                output.flush()?;
            }
            return Err(Failure::configuration(errors));
        }
    };
    let mut warnings = loaded.warnings;
    match config::resolve_secrets(&loaded.config, env) {
        Ok((_, more)) => warnings.extend(more),
        Err(errors) => warnings.extend(as_warnings(&errors)),
    }
    if output.is_json() {
        output.json(&json!({
            "valid": true,
            "file": path,
            "problems": told(&warnings),
        }))?;
        return output.flush();
    }
    for warning in &warnings {
        say(&(warning.render(is_stderr_coloured()) + "\n\n"));
    }
    output.line(&match warnings.len() {
        0 => format!("{}: valid", path.display()),
        1 => format!("{}: valid, with 1 warning", path.display()),
        count => format!("{}: valid, with {count} warnings", path.display()),
    })?;
    output.flush()
}

/// What keeps the daemon from starting in this environment is only a warning
/// about the file.
fn as_warnings(errors: &ConfigErrors) -> Vec<Problem> {
    errors.problems().iter().map(Problem::as_warning).collect()
}

fn told(problems: &[Problem]) -> Vec<Value> {
    problems
        .iter()
        .map(|problem| {
            let at = problem.position();
            json!({
                "severity": if problem.is_error() { "error" } else { "warning" },
                "key": problem.key(),
                "message": problem.message(),
                "line": at.map(|at| at.line),
                "column": at.map(|at| at.column),
            })
        })
        .collect()
}
