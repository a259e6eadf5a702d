//! YAML as a tree in which every key and value knows where it stands.
//!
//! Values that YAML's core schema types are typed (`true`, `8080`, `~`); anything
//! quoted is text. Aliases are followed, within [`NODES_MAX`]. Refused, because
//! they would mean less than they seem to: equal keys in one map (everywhere,
//! also in maps with free keys), tags, merge keys, several documents.
//!
//! A parser of its own, and not serde's, because serde's knows the line of the
//! first error only and takes the last of two equal keys without a word.

use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::key_path::{KeyPath, Step};
use super::problem::{Problem, Source};

/// How many values a file may hold, aliases counted as what they stand for.
const NODES_MAX: usize = 50_000;
/// How deep values may be nested.
const DEPTH_MAX: usize = 32;

/// A value and where it stands, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where: the text of a scalar, the first key of a map.
    pub span: Range<usize>,
    /// What.
    pub kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nothing, or `~`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// Anything else that is one word or text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file, without equal keys.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub key_span: Range<usize>,
    /// The value.
    pub value: Node,
}

impl Node {
    /// Returns the value of a key of this map.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// Returns whether the file itself has a value at `path`.
    pub fn has(&self, path: &KeyPath) -> bool {
        self.at(path).is_some()
    }

    /// Returns the keys of the map at `path`.
    pub fn keys(&self, path: &KeyPath) -> Vec<&str> {
        match self.at(path).map(|node| &node.kind) {
            Some(Kind::Map(entries)) => entries.iter().map(|entry| entry.key.as_str()).collect(),
            _ => Vec::new(),
        }
    }

    fn at(&self, path: &KeyPath) -> Option<&Self> {
        path.steps()
            .iter()
            .try_fold(self, |node, step| match (step, &node.kind) {
                (Step::Key(key), Kind::Map(_)) => node.entry(key).map(|entry| &entry.value),
                (Step::Index(index), Kind::List(items)) => items.get(*index),
                _ => None,
            })
    }

    /// Returns where the value at `path` stands: the value if it is one word, its
    /// key if it is more, the nearest value around it if it is not in the file.
    pub fn locate(&self, path: &KeyPath) -> Range<usize> {
        let mut node = self;
        let mut span = self.span.clone();
        for step in path.steps() {
            let (next, of_key) = match (step, &node.kind) {
                (Step::Key(key), Kind::Map(_)) => match node.entry(key) {
                    Some(entry) => (&entry.value, Some(entry.key_span.clone())),
                    None => return span,
                },
                (Step::Index(index), Kind::List(items)) => match items.get(*index) {
                    Some(item) => (item, None),
                    None => return span,
                },
                _ => return span,
            };
            span = match (&next.kind, of_key) {
                (Kind::Null | Kind::List(_) | Kind::Map(_), Some(of_key)) => of_key,
                _ => next.span.clone(),
            };
            node = next;
        }
        span
    }
}

/// Parses a file.
///
/// Equal keys are put into `problems`; the first of them stays.
///
/// # Errors
///
/// Returns the one problem that keeps the rest from being understood.
pub fn parse(source: &Source, problems: &mut Vec<Problem>) -> Result<Node, Box<Problem>> {
    let text: &str = &source.text;
    let mut builder = Builder {
        source,
        events: Parser::new_from_str(text),
        line_starts: std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect(),
        is_ascii: text.is_ascii(),
        anchors: HashMap::new(),
        nodes: 0,
        problems,
    };
    builder.file()
}

struct Builder<'a> {
    source: &'a Source,
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    line_starts: Vec<usize>,
    is_ascii: bool,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Builder<'a> {
    fn file(&mut self) -> Result<Node, Box<Problem>> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if root.is_some() => {
                    return self
                        .refuse(&self.bytes(&span), "the file holds more than one document");
                }
                Event::DocumentStart(_) => {
                    let (event, span) = self.next()?;
                    root = Some(self.value(event, &span, &KeyPath::default(), 0)?);
                }
                _ => {}
            }
        }
        Ok(root.unwrap_or(Node {
            span: 0..0,
            kind: Kind::Null,
        }))
    }

    fn value(
        &mut self,
        event: Event<'a>,
        span: &Span,
        path: &KeyPath,
        depth: usize,
    ) -> Result<Node, Box<Problem>> {
        let mut span = self.bytes(span);
        self.nodes += 1;
        if self.nodes > NODES_MAX || depth > DEPTH_MAX {
            return self.refuse(&span, "the file is too large or too deeply nested");
        }
        let (kind, anchor) = match event {
            Event::Alias(anchor) => {
                let Some(found) = self.anchors.get(&anchor).cloned() else {
                    return self.refuse(&span, "this alias refers to a value that contains it");
                };
                self.nodes += count(&found);
                return Ok(found);
            }
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some() {
                    return self.refuse(&span, "tags have no meaning here");
                }
                let kind = match style {
                    ScalarStyle::Plain => plain(&text),
                    _ => Kind::Text(text.into_owned()),
                };
                (kind, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                if tag.is_some() {
                    return self.refuse(&span, "tags have no meaning here");
                }
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        break;
                    }
                    let path = path.index(items.len());
                    items.push(self.value(event, &span, &path, depth + 1)?);
                }
                (Kind::List(items), anchor)
            }
            Event::MappingStart(anchor, tag) => {
                if tag.is_some() {
                    return self.refuse(&span, "tags have no meaning here");
                }
                let entries = self.entries(path, depth)?;
                if let Some(first) = entries.first() {
                    span = first.key_span.clone();
                }
                (Kind::Map(entries), anchor)
            }
            _ => return self.refuse(&span, "a value is missing here"),
        };
        let node = Node { span, kind };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn entries(&mut self, path: &KeyPath, depth: usize) -> Result<Vec<Entry>, Box<Problem>> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let key_span = self.bytes(&span);
            let key = match event {
                Event::MappingEnd => return Ok(entries),
                Event::Scalar(text, _, _, None) => text.into_owned(),
                _ => {
                    return self
                        .refuse(&key_span, "a key must be one word")
                        .map_err(|problem| {
                            Box::new(
                                problem
                                    .help("text with braces, such as \"{prompt}\", must be quoted"),
                            )
                        });
                }
            };
            if key == "<<" {
                return self.refuse(&key_span, "merge keys (`<<`) are not supported");
            }
            let path = path.key(&key);
            let (event, span) = self.next()?;
            let value = self.value(event, &span, &path, depth + 1)?;
            if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                let line = self.line_of(first.key_span.start);
                self.problems.push(
                    Problem::error(path.clone(), format!("duplicate key `{path}`"))
                        .help(format!("it is given on line {line} already"))
                        .at(self.source, key_span),
                );
            } else {
                entries.push(Entry {
                    key,
                    key_span,
                    value,
                });
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Box<Problem>> {
        match self.events.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => {
                let at = self.byte(error.marker());
                self.refuse(&(at..at), &format!("not valid YAML: {}", error.info()))
            }
            None => {
                let end = self.source.text.len();
                self.refuse(&(end..end), "not valid YAML: it ends too early")
            }
        }
    }

    fn refuse<T>(&self, span: &Range<usize>, message: &str) -> Result<T, Box<Problem>> {
        let problem = Problem::error(KeyPath::default(), message);
        Err(Box::new(problem.at(self.source, span.clone())))
    }

    fn line_of(&self, byte: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= byte)
    }

    fn bytes(&self, span: &Span) -> Range<usize> {
        let start = self.byte(&span.start);
        let text: &str = &self.source.text;
        let end = self.byte(&span.end).max(start);
        // A block scalar ends after its last line break; the mark should not.
        let end = start + text[start..end].trim_end().len();
        start..end
    }

    /// Returns the byte of a marker, by line and column, which, unlike its index,
    /// are told alike for every kind of line break.
    fn byte(&self, marker: &Marker) -> usize {
        let text: &str = &self.source.text;
        let line = marker.line().saturating_sub(1);
        let Some(start) = self.line_starts.get(line).copied() else {
            return text.len();
        };
        if self.is_ascii {
            return text.len().min(start + marker.col());
        }
        text[start..]
            .char_indices()
            .nth(marker.col())
            .map_or(text.len(), |(at, _)| start + at)
    }
}

fn count(node: &Node) -> usize {
    1 + match &node.kind {
        Kind::List(items) => items.iter().map(count).sum(),
        Kind::Map(entries) => entries.iter().map(|entry| count(&entry.value)).sum(),
        _ => 0,
    }
}

/// Returns what an unquoted word means in YAML's core schema.
fn plain(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Bool(true),
        "false" | "False" | "FALSE" => return Kind::Bool(false),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number = if let Some(digits) = text.strip_prefix("0x") {
        i128::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = text.strip_prefix("0o") {
        i128::from_str_radix(digits, 8).ok()
    } else if unsigned.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    };
    if let Some(number) = number {
        return Kind::Integer(number);
    }
    let looks_like_float = unsigned
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'))
        && unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit());
    match text.parse() {
        Ok(number) if looks_like_float => Kind::Float(number),
        _ => Kind::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    fn tree(text: &str) -> Result<(Node, Vec<Problem>), Box<Problem>> {
        let mut problems = Vec::new();
        let source = Source {
            path: Path::new("f.yaml").into(),
            text: text.into(),
        };
        parse(&source, &mut problems).map(|node| (node, problems))
    }

    #[test]
    fn unquoted_words_are_typed_and_quoted_ones_are_not() {
        for (text, kind) in [
            ("8080", Kind::Integer(8080)),
            ("-1", Kind::Integer(-1)),
            ("0x10", Kind::Integer(16)),
            ("1.5", Kind::Float(1.5)),
            ("true", Kind::Bool(true)),
            ("~", Kind::Null),
            ("", Kind::Null),
            ("'8080'", Kind::Text("8080".into())),
            ("\"true\"", Kind::Text("true".into())),
            ("yes", Kind::Text("yes".into())),
            ("on", Kind::Text("on".into())),
            ("1.2.3", Kind::Text("1.2.3".into())),
            (".", Kind::Text(".".into())),
            ("..", Kind::Text("..".into())),
            (
                "-",
                Kind::List(vec![Node {
                    span: 1..1,
                    kind: Kind::Null,
                }]),
            ),
        ] {
            let found = tree(text).expect("parses").0.kind;
            if let (Kind::List(found), Kind::List(kind)) = (&found, &kind) {
                assert_eq!(found.len(), kind.len(), "{text}");
                continue;
            }
            assert_eq!(found, kind, "{text}");
        }
    }

    #[test]
    fn every_value_knows_where_it_stands_also_behind_wide_characters_and_with_crlf() {
        let text = "a: ü\r\nb:\r\n  c: [x, yß]\r\n  d: \"q\"\r\n";
        let (node, _) = tree(text).expect("parses");
        let at = |path: &KeyPath| &text[node.locate(path)];
        assert_eq!(at(&KeyPath::of("a")), "ü");
        assert_eq!(at(&KeyPath::of("b")), "b");
        assert_eq!(at(&KeyPath::of("b.c")), "c");
        assert_eq!(at(&KeyPath::of("b.c").index(1)), "yß");
        assert_eq!(at(&KeyPath::of("b.d")), "\"q\"");
        assert_eq!(at(&KeyPath::of("b.absent")), "b");
    }

    #[test]
    fn equal_keys_are_told_in_every_map_and_the_first_stays() {
        let (node, problems) = tree("m:\n  x: 1\n  'x': 2\nm: 3\n").expect("parses");
        let told: Vec<_> = problems.iter().map(Problem::one_line).collect();
        assert_eq!(
            told,
            [
                "f.yaml:3:3: duplicate key `m.x` (it is given on line 2 already)",
                "f.yaml:4:1: duplicate key `m` (it is given on line 1 already)"
            ]
        );
        assert!(node.entry("m").expect("there").value.entry("x").is_some());
    }

    #[test]
    fn aliases_are_followed_but_cannot_blow_up() {
        let (node, _) = tree("a: &a [1, 2]\nb: *a\n").expect("parses");
        assert_eq!(
            node.entry("a").expect("there").value,
            node.entry("b").expect("there").value
        );
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..9 {
            let alias = format!("*a{}", n - 1);
            let ten = vec![alias; 10].join(", ");
            writeln!(bomb, "a{n}: &a{n} [{ten}]").expect("a String takes all");
        }
        tree(&bomb).expect_err("too large");
        tree(&"[".repeat(2_000)).expect_err("too deep");
    }

    #[test]
    fn what_would_mean_less_than_it_seems_is_refused() {
        for text in [
            "a: !!str 1",
            "a: !include x",
            "a: 1\n---\nb: 2\n",
            "<<: {a: 1}",
            "{[a]: 1}",
            "a: [",
            "a: 'x",
            "\tb: 1\n\tc: 2",
            "a: &x [*x]",
        ] {
            tree(text).expect_err(text);
        }
    }
}
