//! What is wrong with a configuration, and how it is shown.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::key_path::KeyPath;

/// Whether the configuration can be used all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but probably does not do what was meant.
    Warning,
}

/// A line and a column, both counted from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// One thing that is wrong.
///
/// `Display` shows it with the line it is about; [`Problem::one_line`] is for
/// logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Problem {
    severity: Severity,
    message: String,
    help: Option<String>,
    key: KeyPath,
    place: Option<Place>,
}

/// A problem that does not keep the configuration from being used.
pub type Warning = Problem;

#[derive(Clone, PartialEq, Eq)]
struct Place {
    source: Source,
    span: Range<usize>,
}

/// A file and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file.
    pub path: Arc<Path>,
    /// Its text.
    pub text: Arc<str>,
}

impl Problem {
    /// Returns an error about a key.
    pub fn error(key: KeyPath, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            help: None,
            key,
            place: None,
        }
    }

    /// Returns a warning about a key.
    pub fn warning(key: KeyPath, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(key, message)
        }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says where it stands, as a range of bytes.
    #[must_use]
    pub fn at(mut self, source: &Source, span: Range<usize>) -> Self {
        self.place = Some(Place {
            source: source.clone(),
            span,
        });
        self
    }

    /// Returns whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns the same problem as a warning, for where it keeps nothing from
    /// going on.
    #[must_use]
    pub fn as_warning(&self) -> Self {
        Self {
            severity: Severity::Warning,
            ..self.clone()
        }
    }

    /// Returns what is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns how to put it right, if that is known.
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    pub(super) fn key_path(&self) -> &KeyPath {
        &self.key
    }

    /// Returns the path of the key.
    pub fn key(&self) -> String {
        self.key.to_string()
    }

    /// Returns the file, if the problem stands in one.
    pub fn path(&self) -> Option<&Path> {
        self.place.as_ref().map(|place| place.source.path.as_ref())
    }

    /// Returns line and column, if the problem stands in a file.
    pub fn position(&self) -> Option<Position> {
        let place = self.place.as_ref()?;
        let before = place.source.text.get(..place.span.start)?;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Some(Position {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        })
    }

    /// Returns the problem as one line without the quoted source, as it stands
    /// in logs and events.
    pub fn one_line(&self) -> String {
        let mut line = String::new();
        if let (Some(path), Some(at)) = (self.path(), self.position()) {
            line = format!("{}:{}:{}: ", path.display(), at.line, at.column);
        }
        line += &self.message;
        if let Some(help) = &self.help {
            line += " (";
            line += help;
            line += ")";
        }
        line
    }

    /// Returns the problem with the line it is about.
    pub fn render(&self, colour: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let path = self.path().map(|path| path.display().to_string());
        let title = level.primary_title(self.message.as_str());
        let mut group = match (&self.place, &path) {
            (Some(place), Some(path)) => {
                if self.may_be_quoted() {
                    title.element(snippet(place, path))
                } else {
                    let at = self.position().map_or((1, 1), |at| (at.line, at.column));
                    title.element(Origin::path(path.as_str()).line(at.0).char_column(at.1))
                }
            }
            _ => Group::with_title(title),
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        renderer.render(&[group])
    }

    /// Returns whether the line may be shown: the values of a profile's `env`
    /// and the address of a host can hold what nobody else should read.
    fn may_be_quoted(&self) -> bool {
        let key = self.key();
        !(key.contains(".env.") || key.contains("cloneUrl"))
    }

    fn order(&self) -> (Option<PathBuf>, Option<usize>) {
        match &self.place {
            None => (None, None),
            Some(place) => (
                Some(place.source.path.to_path_buf()),
                Some(place.span.start),
            ),
        }
    }
}

fn snippet<'a>(place: &'a Place, path: &'a str) -> Snippet<'a, Annotation<'a>> {
    Snippet::source(place.source.text.as_ref())
        .line_start(1)
        .path(path)
        .fold(true)
        .annotation(AnnotationKind::Primary.span(place.span.clone()))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({})", self.severity, self.one_line())
    }
}

/// Everything that is wrong with a configuration; at least one error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    problems: Vec<Problem>,
}

impl ConfigErrors {
    /// Returns the errors, those of one file in the order of its lines.
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        debug_assert!(problems.iter().any(Problem::is_error));
        problems.sort_by_key(Problem::order);
        Self { problems }
    }

    /// Returns every error, and the warnings that came with them.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the errors in full, in colour if `colour`.
    pub fn render(&self, colour: bool) -> String {
        let shown: Vec<_> = self.problems.iter().map(|one| one.render(colour)).collect();
        shown.join("\n\n")
    }

    /// Returns the errors as one line, as it stands in logs and events.
    pub fn one_line(&self) -> String {
        let errors = self.problems.iter().filter(|one| one.is_error());
        let shown: Vec<_> = errors.map(Problem::one_line).collect();
        shown.join("; ")
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfigErrors {}
