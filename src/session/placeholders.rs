//! Fills the placeholders in a profile's argument lists.
//!
//! `{name}` is a placeholder wherever it stands in an argument; a name is
//! a letter and then letters, digits, `.`, `_` and `-`. `${name}` is not: it belongs to whatever shell the command
//! itself runs, and so does any other brace. Values are put in once and as they
//! are; no shell reads them and no placeholder in them is filled.

/// Every placeholder.
pub const NAMES: &[&str] = &[
    "prompt",
    "prompt.file",
    "session.id",
    "workItem",
    "checkout",
    "branch",
    "event",
    "action",
    "url",
];

/// How much of a prompt goes into an argument; the kernel takes 128 KiB for one.
pub const PROMPT_BYTES_MAX: usize = 96 << 10;

/// What the placeholders stand for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values<'a> {
    /// The prompt, whole.
    pub prompt: &'a str,
    /// The file that it is written to.
    pub prompt_file: &'a str,
    /// The session's id.
    pub session_id: &'a str,
    /// Reference of the work item.
    pub work_item: &'a str,
    /// The directory that the session runs in.
    pub checkout: &'a str,
    /// The local branch; empty when detached.
    pub branch: &'a str,
    /// Name of the event.
    pub event: &'a str,
    /// Its action; empty if it has none.
    pub action: &'a str,
    /// Address of the item for people; empty if unknown.
    pub url: &'a str,
}

impl Values<'_> {
    fn value(&self, name: &str) -> Option<String> {
        let value = match name {
            "prompt" => return Some(without_nul(&cut_prompt(self.prompt, self.prompt_file))),
            "prompt.file" => self.prompt_file,
            "session.id" => self.session_id,
            "workItem" => self.work_item,
            "checkout" => self.checkout,
            "branch" => self.branch,
            "event" => self.event,
            "action" => self.action,
            "url" => self.url,
            _ => return None,
        };
        Some(without_nul(value))
    }
}

/// A placeholder that stands for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{{{name}}}` in `{argument}` is no placeholder; there are {}", list())]
pub struct UnknownPlaceholder {
    /// Its name, without the braces.
    pub name: String,
    /// The argument that it stands in.
    pub argument: String,
}

fn list() -> String {
    NAMES
        .iter()
        .map(|name| format!("{{{name}}}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns every unknown placeholder in an argument list.
pub fn check(arguments: &[String]) -> Vec<UnknownPlaceholder> {
    arguments
        .iter()
        .flat_map(|argument| {
            pieces(argument)
                .filter_map(move |piece| match piece {
                    Piece::Placeholder(name) if !NAMES.contains(&name) => {
                        Some(UnknownPlaceholder {
                            name: name.to_owned(),
                            argument: argument.clone(),
                        })
                    }
                    _ => None,
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the arguments with every placeholder filled.
///
/// # Errors
///
/// Returns the first [`UnknownPlaceholder`].
pub fn expand(
    arguments: &[String],
    values: &Values<'_>,
) -> Result<Vec<String>, UnknownPlaceholder> {
    arguments
        .iter()
        .map(|argument| {
            let mut expanded = String::new();
            for piece in pieces(argument) {
                match piece {
                    Piece::Text(text) => expanded.push_str(text),
                    Piece::Placeholder(name) => {
                        let value = values.value(name).ok_or_else(|| UnknownPlaceholder {
                            name: name.to_owned(),
                            argument: argument.clone(),
                        })?;
                        expanded.push_str(&value);
                    }
                }
            }
            Ok(without_nul(&expanded))
        })
        .collect()
}

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

fn pieces(argument: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = argument;
    let mut follows_dollar = false;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(name) = rest
            .strip_prefix('{')
            .filter(|_| !follows_dollar)
            .and_then(|inner| Some(&inner[..inner.find('}')?]))
            .filter(|name| is_name(name))
        {
            rest = &rest[name.len() + 2..];
            follows_dollar = false;
            return Some(Piece::Placeholder(name));
        }
        // Up to the next brace, at least one character.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let length = rest[first..].find('{').map_or(rest.len(), |at| first + at);
        let text;
        (text, rest) = rest.split_at(length);
        follows_dollar = text.ends_with('$');
        Some(Piece::Text(text))
    })
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Returns the prompt as it fits into an argument.
fn cut_prompt(prompt: &str, file: &str) -> String {
    if prompt.len() <= PROMPT_BYTES_MAX {
        return prompt.to_owned();
    }
    let pointer = format!(
        "\n\n[The prompt is cut here. All of it, {} bytes, is in the file {file}; read that file \
         before you begin.]\n",
        prompt.len()
    );
    let end = prompt.floor_char_boundary(PROMPT_BYTES_MAX.saturating_sub(pointer.len()));
    format!("{}{pointer}", &prompt[..end])
}

fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: Values<'_> = Values {
        prompt: "say {branch}\0!",
        prompt_file: "/p/s.md",
        session_id: "s1",
        work_item: "github:o/r#1",
        checkout: "/c",
        branch: "feature",
        event: "issues",
        action: "opened",
        url: "https://x/1",
    };

    fn expand_one(argument: &str) -> Result<String, UnknownPlaceholder> {
        expand(&[argument.to_owned()], &VALUES).map(|mut all| all.remove(0))
    }

    #[test]
    fn placeholders_are_filled_once_and_everything_else_is_left() {
        let table = [
            ("{prompt}", "say {branch}!"),
            ("-m={branch}:{action}", "-m=feature:opened"),
            ("{prompt.file}{session.id}", "/p/s.mds1"),
            (
                "{workItem} {checkout} {event} {url}",
                "github:o/r#1 /c issues https://x/1",
            ),
            ("${HOME} $ {branch}", "${HOME} $ feature"),
            ("{\"json\": {}}", "{\"json\": {}}"),
            ("{{branch}}", "{feature}"),
            ("{", "{"),
            ("ü{branch}ü", "üfeatureü"),
            ("{branch", "{branch"),
            ("", ""),
        ];
        for (argument, expected) in table {
            assert_eq!(expand_one(argument).as_deref(), Ok(expected), "{argument}");
        }
    }

    #[test]
    fn every_name_that_is_listed_is_known() {
        for name in NAMES {
            assert!(expand_one(&format!("{{{name}}}")).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_unknown_placeholder_is_named_with_its_argument() {
        let error = expand_one("--x={promt}").expect_err("it is misspelt");
        assert_eq!(error.name, "promt");
        assert!(error.to_string().contains("`{promt}` in `--x={promt}`"));
        let unknown = check(&["{a}{branch}".into(), "{b}".into()]);
        let names: Vec<_> = unknown.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_long_prompt_is_cut_between_characters_and_points_to_its_file() {
        let prompt = "ü".repeat(PROMPT_BYTES_MAX);
        let values = Values {
            prompt: &prompt,
            ..VALUES
        };
        let argument = &expand(&["{prompt}".into()], &values).expect("known")[0];
        assert!(argument.len() <= PROMPT_BYTES_MAX, "{}", argument.len());
        assert!(argument.len() > PROMPT_BYTES_MAX - 300);
        assert!(argument.contains("is in the file /p/s.md"));
        let whole = "x".repeat(PROMPT_BYTES_MAX);
        let values = Values {
            prompt: &whole,
            ..VALUES
        };
        assert_eq!(
            expand(&["{prompt}".into()], &values).expect("known")[0],
            whole
        );
    }
}
