//! From a file to a value that holds.

use std::io::Read as _;
use std::path::Path;

use super::environment::Environment;
use super::key_path::KeyPath;
use super::meaning::Meaning;
use super::paths::Resolver;
use super::problem::{ConfigErrors, Problem, Source, Warning};
use super::schema::schema;
use super::settings::Config;
use super::shape::Shape;
use super::tree::{self, Kind};

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A configuration that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration, with every default filled in and every path absolute.
    pub config: Config,
    /// What probably is not meant.
    pub warnings: Vec<Warning>,
}

/// Loads the configuration from a file.
///
/// Blocks while it reads the file and the templates that it names.
///
/// # Errors
///
/// Returns everything that is wrong with it; then nothing of it is to be used.
pub fn load(path: &Path, env: &Environment) -> Result<Loaded, ConfigErrors> {
    let path = env.current_dir().join(path);
    let text = read(&path).map_err(|message| {
        ConfigErrors::new(vec![Problem::error(
            KeyPath::default(),
            format!(
                "cannot read the configuration `{}`: {message}",
                path.display()
            ),
        )])
    })?;
    parse(&text, &path, env)
}

fn read(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        format!("line {line} is not UTF-8")
    })
}

/// Loads the configuration from a text that stands in the file `path`.
///
/// # Errors
///
/// As [`load()`].
pub fn parse(text: &str, path: &Path, env: &Environment) -> Result<Loaded, ConfigErrors> {
    let path = env.current_dir().join(path);
    let source = Source {
        path: path.as_path().into(),
        text: text.strip_prefix('\u{feff}').unwrap_or(text).into(),
    };
    let mut problems = Vec::new();
    let tree = match tree::parse(&source, &mut problems) {
        Ok(tree) => tree,
        Err(problem) => {
            problems.push(*problem);
            return Err(ConfigErrors::new(problems));
        }
    };

    let mut shape = Shape {
        source: &source,
        problems,
    };
    let found = if matches!(tree.kind, Kind::Null) {
        // An empty file: every default.
        Some(serde_json::Value::Object(serde_json::Map::new()))
    } else {
        shape.check(&tree, &schema(), &KeyPath::default())
    };
    let mut problems = shape.problems;
    let mut config = match found.map(serde_json::from_value::<Config>) {
        Some(Ok(config)) => config,
        Some(Err(error)) => {
            // The shape was checked against the schema of these very structs.
            problems.push(Problem::error(KeyPath::default(), error.to_string()));
            return Err(ConfigErrors::new(problems));
        }
        None => return Err(ConfigErrors::new(problems)),
    };

    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut resolver = Resolver::new(directory, env);
    resolver.resolve(&mut config);
    for (at, rule) in config.routing.rules.iter_mut().enumerate() {
        if rule.name.is_empty() {
            rule.name = format!("rule {}", at + 1);
        }
    }
    let mut meaning = Meaning::new(&config, &tree);
    meaning.check();
    let refused: Vec<String> = problems.iter().map(Problem::key).collect();
    for problem in resolver.problems.into_iter().chain(meaning.problems) {
        // A key whose value was refused already stands at its default.
        if refused.contains(&problem.key()) {
            continue;
        }
        let span = tree.locate(problem.key_path());
        problems.push(problem.at(&source, span));
    }
    if problems.iter().any(Problem::is_error) {
        return Err(ConfigErrors::new(problems));
    }
    Ok(Loaded {
        config,
        warnings: problems,
    })
}
