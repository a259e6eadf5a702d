//! The layers: a lower one knows nothing of a higher one.
//!
//! Read from the sources, as text. That does not see what a macro makes, which
//! is enough for honest mistakes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Each module with its layer, and the modules of its own layer that it may know.
const LAYERS: &[(&str, u8, &[&str])] = &[
    ("domain", 0, &[]),
    ("clock", 1, &[]),
    ("process", 1, &["clock", "files"]),
    ("files", 1, &["clock"]),
    ("git", 2, &[]),
    ("store", 2, &[]),
    ("config", 2, &[]),
    ("inbox", 3, &[]),
    ("event_log", 3, &[]),
    ("workspace", 3, &[]),
    ("session", 3, &[]),
    ("dispatch", 4, &[]),
    ("control", 5, &[]),
    ("ingress", 6, &[]),
    ("api", 6, &[]),
    ("daemon", 7, &[]),
    ("cli", 8, &[]),
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("the sources can be read") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// Returns the first word of every `crate::…` path in `text`.
fn known_modules(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            let word: String = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            words.push(word);
        }
    }
    words
}

#[test]
fn a_lower_layer_knows_nothing_of_a_higher_one() {
    let layers: BTreeMap<&str, (u8, &[&str])> = LAYERS
        .iter()
        .map(|(name, layer, beside)| (*name, (*layer, *beside)))
        .collect();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 50, "only {} sources were found", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&src).expect("below src").to_owned();
        let first = relative.components().next().expect("a name");
        let module = first
            .as_os_str()
            .to_string_lossy()
            .trim_end_matches(".rs")
            .to_owned();
        if module == "lib" || module == "main" {
            continue;
        }
        let (layer, beside) = layers
            .get(module.as_str())
            .unwrap_or_else(|| panic!("{module} has no layer; give it one in tests/layers.rs"));
        let text = std::fs::read_to_string(&file).expect("a source");
        for known in known_modules(&text) {
            let Some((other, _)) = layers.get(known.as_str()) else {
                continue;
            };
            let allowed = known == module || other < layer || beside.contains(&known.as_str());
            if !allowed {
                wrong.push(format!(
                    "{} (layer {layer}) knows {known} (layer {other})",
                    relative.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_test_sees_a_path_to_a_higher_layer() {
    assert_eq!(
        known_modules("use crate::cli::main; // crate::api"),
        ["cli"]
    );
}
