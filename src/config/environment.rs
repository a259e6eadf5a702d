//! The process environment, as a value: the one place that reads it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables and the current directory, as they were at one moment.
///
/// It may hold secrets, so it does not print its values.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    current_dir: PathBuf,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            current_dir: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        }
    }

    /// Returns an environment made of these variables and this directory.
    pub fn new<K: Into<OsString>, V: Into<OsString>>(
        variables: impl IntoIterator<Item = (K, V)>,
        current_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            variables: variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            current_dir: current_dir.into(),
        }
    }

    /// Returns the value of a variable, an empty one too.
    pub fn var(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.variables.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// Returns every variable with its value.
    pub fn vars(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Returns the value of a variable unless it is unset or empty.
    pub fn non_empty(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.var(name).filter(|value| !value.is_empty())
    }

    /// Returns the home directory, if `HOME` names one.
    pub fn home(&self) -> Option<&Path> {
        self.non_empty("HOME")
            .map(Path::new)
            .filter(|home| home.is_absolute())
    }

    /// Returns the directory that relative arguments are relative to.
    pub fn current_dir(&self) -> &Path {
        &self.current_dir
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.len())
            .field("current_dir", &self.current_dir)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_does_not_print_its_values() {
        let env = Environment::new([("INNKEEPER_WEBHOOK_SECRET", "CANARY")], "/");
        assert!(!format!("{env:?}").contains("CANARY"));
    }

    #[test]
    fn a_relative_home_is_no_home() {
        assert_eq!(Environment::new([("HOME", "x")], "/").home(), None);
        assert_eq!(Environment::new([("HOME", "")], "/").home(), None);
    }
}
