//! One word for one thing: a search for the name of a public type finds one definition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The name of the public type that a line begins to define.
fn public_type(line: &str) -> Option<&str> {
    let (keyword, rest) = line.trim_start().strip_prefix("pub ")?.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
    let name = &rest[..end];
    (is_type && name.starts_with(|first: char| first.is_ascii_uppercase())).then_some(name)
}

#[test]
fn no_public_type_name_is_used_for_two_things() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let root = root();
    for crate_folder in std::fs::read_dir(root.join("crates")).unwrap() {
        let mut files = Vec::new();
        sources(&crate_folder.unwrap().path().join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let shown = file.strip_prefix(&root).unwrap().display();
            for (line, number) in text.lines().zip(1..) {
                if let Some(name) = public_type(line) {
                    places.entry(name.to_owned()).or_default().push(format!("{shown}:{number}"));
                }
            }
        }
    }
    assert!(places.len() > 500, "only {} public types were found", places.len());
    places.retain(|_, found| found.len() > 1);
    for found in places.values_mut() {
        found.sort();
    }
    assert!(places.is_empty(), "names of several public types: {places:#?}");
}
