//! The path of a key: `sessions.profiles.claude.start[0]`.

use std::fmt;

/// One step from a value into it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The value of a key.
    Key(String),
    /// An element of a list, counted from 0.
    Index(usize),
}

/// Where a value stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<Step>);

impl KeyPath {
    /// Returns the path of a key that is written with dots.
    pub fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(|key| Step::Key(key.into())).collect())
    }

    /// Returns the path of a key below this one.
    pub fn key(&self, key: &str) -> Self {
        self.then(Step::Key(key.to_owned()))
    }

    /// Returns the path of an element of this list.
    pub fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    /// Returns the steps, outermost first.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Returns whether this is the whole file.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    if at > 0 {
                        f.write_str(".")?;
                    }
                    let plain = key
                        .chars()
                        .all(|c| c.is_alphanumeric() || c == '-' || c == '_');
                    if plain && !key.is_empty() {
                        f.write_str(key)?;
                    } else {
                        write!(f, "{key:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_a_dot_in_it_is_quoted() {
        let path = KeyPath::of("routing.rules").index(0).key("when").key("a.b");
        assert_eq!(path.to_string(), "routing.rules[0].when.\"a.b\"");
    }
}
