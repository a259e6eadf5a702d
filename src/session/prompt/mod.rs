//! What a session is told: templates over an event and its checkout.
//!
//! Templates are minijinja, strict: a name that does not exist is an error, not
//! an empty text. They are the operator's; what they print of a payload is
//! somebody else's, and comes to them cleaned, bounded and, where it is long,
//! fenced ([`context`], [`untrusted`]).
//!
//! Events that came while a session could not be told become one prompt, in
//! their order.

mod built_in;
mod context;
mod untrusted;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, UndefinedBehavior};

use self::context::Place;

use crate::domain::code::FailureCode;
use crate::domain::envelope::Envelope;
use crate::files;

/// How much of one text of a payload is told.
pub const TEXT_BYTES_MAX: usize = 32 << 10;

/// How much of all texts together is told; with many events at once each gets
/// its share, and at least [`SHARE_BYTES_MIN`].
pub const ALL_TEXT_BYTES_MAX: usize = 1 << 20;

/// The least that is told of each text, however many there are.
pub const SHARE_BYTES_MIN: usize = 1 << 10;

/// The largest template file.
pub const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

/// One template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptText {
    /// The template itself.
    Text(String),
    /// The file that holds it, read at each use.
    File(PathBuf),
}

/// A profile's templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptSource {
    /// One for all events.
    Every(PromptText),
    /// One for each event named; the built-in ones for the rest.
    ByEvent(BTreeMap<String, PromptText>),
}

/// What became of a checkout when its pull request got new commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckoutUpdate {
    /// Whether the checkout was moved to the new commit.
    pub is_moved: bool,
    /// The commit that Innkeeper had put there.
    pub from: String,
    /// The new commit.
    pub to: String,
}

/// What a session has to know of its checkout.
#[derive(Clone, Debug)]
pub struct CheckoutFacts<'a> {
    /// The directory.
    pub path: &'a Path,
    /// The local branch; none when detached.
    pub branch: Option<&'a str>,
    /// The commit that it holds.
    pub commit: &'a str,
    /// The commit that it was first made at.
    pub base: Option<&'a str>,
    /// What became of it, if the event brought new commits.
    pub update: Option<CheckoutUpdate>,
    /// What it holds instead of what was asked for, as a sentence.
    pub fallback: Option<&'a str>,
    /// Whether pushing is switched off.
    pub push_off: bool,
}

/// What is the same for all events of one prompt.
#[derive(Clone, Copy, Debug)]
pub struct PromptFacts<'a> {
    /// Reference of the work item.
    pub work_item: &'a str,
    /// The session.
    pub session_id: &'a str,
    /// Whether it goes on with an earlier run.
    pub is_resumed: bool,
    /// The checkout; none while sessions run without one.
    pub checkout: Option<&'a CheckoutFacts<'a>>,
}

/// A prompt that could not be made. Only a person can change that.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// A template file could not be read.
    #[error("the template `{}` cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A template is wrong, or names what does not exist.
    #[error("{0}")]
    Template(String),
}

impl PromptError {
    /// Returns the code that decides what happens to the delivery.
    pub const fn code(&self) -> FailureCode {
        match self {
            Self::Unreadable { .. } | Self::Template(_) => FailureCode::TemplateFailed,
        }
    }
}

/// Returns everything that is wrong with a profile's templates as far as it can
/// be seen without an event: files that cannot be read, and syntax.
///
/// Reads files.
pub fn check(source: &PromptSource) -> Vec<PromptError> {
    let texts: Vec<&PromptText> = match source {
        PromptSource::Every(text) => vec![text],
        PromptSource::ByEvent(by_event) => by_event.values().collect(),
    };
    texts
        .into_iter()
        .filter_map(|text| {
            let template = load(text).map_err(Some);
            let parsed = template.and_then(|template| {
                let mut environment = environment();
                environment
                    .add_template_owned("prompt", template)
                    .map_err(|error| Some(failed(name_of(text), &error)))
            });
            parsed.err().flatten()
        })
        .collect()
}

/// Returns the prompt for `events`, at least one, in their order.
///
/// Reads template files.
///
/// # Errors
///
/// Returns [`PromptError`] if a template cannot be read or rendered.
pub fn render(
    source: Option<&PromptSource>,
    events: &[Envelope],
    facts: &PromptFacts<'_>,
) -> Result<String, PromptError> {
    let mut environment = environment();
    for (name, template) in built_in::TEMPLATES {
        environment
            .add_template(name, template)
            .map_err(|error| failed(name, &error))?;
    }
    let share = ALL_TEXT_BYTES_MAX / (2 * events.len().max(1));
    let mut prompt = String::new();
    for (at, event) in events.iter().enumerate() {
        let place = Place {
            index: at + 1,
            count: events.len(),
            text_bytes_max: share.clamp(SHARE_BYTES_MIN, TEXT_BYTES_MAX),
        };
        let context = Value::from(Serde(context::build(event, facts, place)));
        let rendered = if let Some(text) = own_template(source, &event.event) {
            environment
                .render_named_str(name_of(text), &load(text)?, context)
                .map_err(|error| failed(name_of(text), &error))?
        } else {
            let name = built_in_for(&event.event);
            environment
                .get_template(name)
                .and_then(|template| template.render(context))
                .map_err(|error| failed(name, &error))?
        };
        if !prompt.is_empty() {
            prompt.push('\n');
        }
        prompt.push_str(rendered.trim_end());
        prompt.push('\n');
    }
    Ok(prompt.replace('\0', ""))
}

/// Writes a prompt to `<directory>/<name>.md`, readable by the owner alone, and
/// returns the path. It is on disk when this returns.
///
/// # Errors
///
/// Returns the error of the write; nothing is half-written.
pub fn write(directory: &Path, name: &str, prompt: &str) -> io::Result<PathBuf> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let path = directory.join(format!("{name}.md"));
    files::atomic_write_private(&path, prompt.as_bytes())?;
    Ok(path)
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.add_filter("code", |text: &str| untrusted::code(text));
    environment.add_filter("untrusted", |text: &str, what: Option<&str>| {
        let what = untrusted::line(what.unwrap_or("text from the forge"));
        untrusted::block(&what, text, TEXT_BYTES_MAX)
    });
    environment
}

fn own_template<'a>(source: Option<&'a PromptSource>, event: &str) -> Option<&'a PromptText> {
    match source? {
        PromptSource::Every(text) => Some(text),
        PromptSource::ByEvent(by_event) => by_event.get(event),
    }
}

fn built_in_for(event: &str) -> &'static str {
    built_in::TEMPLATES
        .iter()
        .map(|(name, _)| *name)
        .find(|name| *name == event && *name != built_in::HEADER)
        .unwrap_or(built_in::OTHER)
}

fn name_of(text: &PromptText) -> &str {
    match text {
        PromptText::Text(_) => "prompt",
        PromptText::File(path) => path.to_str().unwrap_or("prompt"),
    }
}

fn load(text: &PromptText) -> Result<String, PromptError> {
    let path = match text {
        PromptText::Text(text) => return Ok(text.clone()),
        PromptText::File(path) => path,
    };
    let mut template = String::new();
    File::open(path)
        .and_then(|file| {
            file.take(TEMPLATE_BYTES_MAX + 1)
                .read_to_string(&mut template)
        })
        .and_then(|length| match length as u64 {
            0..=TEMPLATE_BYTES_MAX => Ok(template),
            _ => Err(io::Error::other("it is larger than a template may be")),
        })
        .map_err(|source| PromptError::Unreadable {
            path: path.clone(),
            source,
        })
}

/// Makes the one sentence that says what is wrong and where. The detail names
/// templates and variables; should it hold a value, it holds little of it.
fn failed(name: &str, error: &minijinja::Error) -> PromptError {
    let line = error
        .line()
        .map_or(String::new(), |line| format!(":{line}"));
    let detail = error.detail().map_or(String::new(), |detail| {
        format!(": {}", untrusted::line(detail))
    });
    PromptError::Template(format!("template {name}{line}: {}{detail}", error.kind()))
}

#[cfg(test)]
mod tests;
