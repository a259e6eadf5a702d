//! How a command ends when it does not end well: a message, what to do, a code.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use crate::api::ErrorDetail;
use crate::config::ConfigErrors;
use crate::domain::reason::Kept;

use super::output::clean;

/// A command that did not do what was asked.
#[derive(Debug)]
pub struct Failure(Box<Kind>);

#[derive(Debug)]
enum Kind {
    /// Something is to be said.
    Told {
        code: u8,
        error: anyhow::Error,
        help: Option<String>,
    },
    /// The configuration has errors, which show themselves.
    Configuration(ConfigErrors),
    /// Everything was said already, by the answer itself.
    Silent(u8),
    /// Nobody reads the answer any more.
    NobodyReads,
}

/// The answer is no, or it failed.
const FAILED: u8 = 1;
/// Wrong usage or configuration.
const USAGE: u8 = 2;
/// The daemon is not reachable.
const UNREACHABLE: u8 = 3;

impl Failure {
    fn told(code: u8, error: anyhow::Error) -> Self {
        Self(Box::new(Kind::Told {
            code,
            error,
            help: None,
        }))
    }

    /// The answer is no, or it failed: exit code 1.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::told(FAILED, error.into())
    }

    /// Wrong usage: exit code 2.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::told(USAGE, error.into())
    }

    /// The daemon is not reachable: exit code 3.
    pub fn unreachable(error: impl Into<anyhow::Error>) -> Self {
        Self::told(UNREACHABLE, error.into())
    }

    /// The configuration cannot be used: exit code 2.
    pub fn configuration(errors: ConfigErrors) -> Self {
        Self(Box::new(Kind::Configuration(errors)))
    }

    /// The answer is no, and was printed: exit code 1.
    pub fn answered_no() -> Self {
        Self(Box::new(Kind::Silent(FAILED)))
    }

    /// The daemon refused: exit code 1, with what it says and what helps.
    pub(super) fn from_daemon(error: ErrorDetail) -> Self {
        let help = match error.code.as_str() {
            "in_use" => Some("end the session first, or give --stop"),
            "disk_low" | "disk_full" => Some("make room; `innkeeper status` shows what is free"),
            "quota" => Some("end items that are done, or raise routing.workspace.maxCheckouts"),
            "auth" => Some(
                "give git credentials for the repository; `innkeeper doctor` shows what it uses",
            ),
            "git_missing" | "git_too_old" => Some("`innkeeper doctor` shows which git is used"),
            "work_at_risk" if token(&error).is_some() => None,
            "work_at_risk" => Some("settle these and ask again; nothing was touched"),
            "internal" => Some("the daemon's own log says more"),
            _ => None,
        };
        let consent = token(&error).map(|token| {
            format!("settle these and ask again, or have them archived and the checkout removed: `exit … --remove --discard-changes {token}`; nothing was touched")
        });
        let message = at_risk(&error).unwrap_or(error.message);
        let failure = Self::failed(anyhow::anyhow!(message));
        match consent.or(help.map(str::to_owned)) {
            Some(help) => failure.help(help),
            None => failure,
        }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        if let Kind::Told { help, .. } = self.0.as_mut() {
            *help = Some(text.into());
        }
        self
    }

    /// Returns it as one line, for a list.
    pub(super) fn one_line(&self) -> String {
        match self.0.as_ref() {
            Kind::Told { error, .. } => format!("{error:#}"),
            Kind::Configuration(errors) => errors.one_line(),
            Kind::Silent(_) | Kind::NobodyReads => String::new(),
        }
    }

    /// Says it on standard error, and returns the exit code.
    pub(super) fn report(self) -> ExitCode {
        match *self.0 {
            Kind::Told { code, error, help } => {
                let mut text = format!("error: {}\n", clean(&error.to_string()));
                for cause in error.chain().skip(1) {
                    text.push_str("  because: ");
                    text.push_str(&clean(&cause.to_string()));
                    text.push('\n');
                }
                if let Some(help) = help {
                    text.push_str("  help: ");
                    text.push_str(&help);
                    text.push('\n');
                }
                say(&text);
                ExitCode::from(code)
            }
            Kind::Configuration(errors) => {
                say(&(errors.render(super::output::is_stderr_coloured()) + "\n"));
                ExitCode::from(USAGE)
            }
            Kind::Silent(code) => ExitCode::from(code),
            Kind::NobodyReads => ExitCode::SUCCESS,
        }
    }
}

/// Returns what a refused removal would lose, with the paths; none if the error
/// is another one.
fn at_risk(error: &ErrorDetail) -> Option<String> {
    let details = error.details.as_ref()?;
    let reasons: Vec<Kept> = serde_json::from_value(details.get("reasons")?.clone()).ok()?;
    let checkout = details.get("checkout")?.as_str()?;
    let lines = super::explain::reason_lines(&reasons).join("\n");
    Some(format!(
        "`{checkout}` stays, as something in it may exist nowhere else:\n{lines}"
    ))
}

/// Returns what a consent to a refused removal has to name, if consent would
/// help.
fn token(error: &ErrorDetail) -> Option<&str> {
    error.details.as_ref()?.get("token")?.as_str()
}

/// Writes to standard error; there is nowhere to say that it failed.
pub(super) fn say(text: &str) {
    let _nowhere_to_say = io::stderr().write_all(text.as_bytes());
}

/// What writing the answer can meet.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == ErrorKind::BrokenPipe {
            Self(Box::new(Kind::NobodyReads))
        } else {
            Self::failed(anyhow::Error::from(error).context("the answer could not be written"))
        }
    }
}
