//! Which file is the configuration.

use std::path::{Path, PathBuf};

use super::environment::Environment;

/// The name of the file, in every directory that is looked in.
const FILE_NAME: &str = "innkeeper.yaml";

/// Returns the configuration file to use, or nothing if there is none.
///
/// A file that was named (by `--config`, or by `INNKEEPER_CONFIG`) is used
/// whether it exists or not, so that a mistyped name is an error and not
/// another file.
pub fn discover(explicit: Option<&Path>, env: &Environment) -> Option<PathBuf> {
    if let Some(named) = explicit {
        return Some(env.current_dir().join(named));
    }
    if let Some(named) = env.non_empty("INNKEEPER_CONFIG") {
        return Some(env.current_dir().join(named));
    }
    candidates(env).into_iter().find(|path| {
        // One that exists but may not be looked at is not passed over: reading
        // it says why.
        path.try_exists().unwrap_or(true)
    })
}

/// Returns where a file is looked for when none was named, in order.
pub fn candidates(env: &Environment) -> Vec<PathBuf> {
    let mut found = vec![env.current_dir().join(FILE_NAME)];
    let xdg = env
        .non_empty("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env.home().map(|home| home.join(".config")));
    if let Some(xdg) = xdg {
        found.push(xdg.join("innkeeper").join(FILE_NAME));
    }
    found.push(Path::new("/etc/innkeeper").join(FILE_NAME));
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn the_first_of_the_known_places_wins_in_the_order_that_is_documented() {
        let dir = TempDir::new().expect("temporary directory");
        let [cwd, xdg, home] = ["cwd", "xdg", "home"].map(|name| dir.path().join(name));
        let in_xdg = xdg.join("innkeeper/innkeeper.yaml");
        for path in [&cwd, &home, in_xdg.parent().expect("has a parent")] {
            fs::create_dir_all(path).expect("create");
        }
        let env = |more: &[(&str, &Path)]| {
            let mut vars = vec![("HOME", home.clone()), ("XDG_CONFIG_HOME", xdg.clone())];
            vars.extend(more.iter().map(|(k, v)| (*k, v.to_path_buf())));
            Environment::new(vars, &cwd)
        };

        fs::write(&in_xdg, "").expect("write");
        assert_eq!(discover(None, &env(&[])), Some(in_xdg));
        fs::write(cwd.join("innkeeper.yaml"), "").expect("write");
        assert_eq!(discover(None, &env(&[])), Some(cwd.join("innkeeper.yaml")));
        let named = env(&[("INNKEEPER_CONFIG", Path::new("gone.yaml"))]);
        assert_eq!(discover(None, &named), Some(cwd.join("gone.yaml")));
        assert_eq!(
            discover(Some(Path::new("/also/gone.yaml")), &named),
            Some(PathBuf::from("/also/gone.yaml"))
        );
    }

    #[test]
    fn without_xdg_the_home_directory_and_then_etc_are_looked_in() {
        let env = Environment::new([("HOME", "/h"), ("INNKEEPER_CONFIG", "")], "/cwd");
        assert_eq!(
            candidates(&env),
            [
                "/cwd/innkeeper.yaml",
                "/h/.config/innkeeper/innkeeper.yaml",
                "/etc/innkeeper/innkeeper.yaml"
            ]
            .map(PathBuf::from)
        );
    }
}
