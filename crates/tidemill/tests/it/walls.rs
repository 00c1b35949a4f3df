//! Crates are walls: which of them sees which is said here, and nowhere does one look up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What a crate may touch, in the order of the map in ARCHITECTURE.md. Names without `tidemill-`.
const MAP: [(&str, &[&str]); 17] = [
    (
        "tidemill",
        &[
            "server",
            "worker",
            "agent",
            "script",
            "outbound",
            "embedded",
            "aws",
            "engine",
            "api",
            "matcher",
            "source-file",
            "model",
        ],
    ),
    ("lambda", &["aws", "server", "outbound", "engine", "model"]),
    ("server", &["api", "aws-wire", "engine", "matcher", "model"]),
    ("worker", &["api", "engine", "model"]),
    ("agent", &["model"]),
    ("script", &["model"]),
    ("outbound", &["engine", "model"]),
    ("embedded", &["engine", "model"]),
    ("aws", &["engine", "model"]),
    ("engine", &["matcher", "model"]),
    ("api", &["matcher", "model"]),
    ("matcher", &["model"]),
    ("aws-wire", &[]),
    ("source-file", &["model"]),
    ("model", &[]),
    ("conformance", &["engine", "matcher", "model"]),
    ("sim", &["embedded", "engine", "model"]),
];

/// What exists for tests only, so that nothing else stands on it.
const TESTS_ONLY: [&str; 2] = ["conformance", "sim"];

/// What the tests of a crate may touch beside that, and beside the crate itself.
const TESTS: [(&str, &[&str]); 6] = [
    ("server", &["embedded"]),
    ("worker", &["embedded"]),
    ("lambda", &["worker"]),
    ("embedded", &["conformance"]),
    ("aws", &["conformance", "embedded"]),
    ("engine", &["conformance"]),
];

type Edges = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn short(name: &str) -> String {
    name.strip_prefix("tidemill-").unwrap_or(name).to_owned()
}

fn edges(table: &[(&str, &[&str])]) -> Edges {
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    table.iter().map(|(name, touched)| ((*name).to_owned(), set(touched))).collect()
}

/// What the manifests say: dependencies, and those of tests alone.
fn manifests() -> (Edges, Edges) {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let (mut all, mut tests) = (Edges::new(), Edges::new());
    for package in metadata["packages"].as_array().unwrap() {
        let name = short(package["name"].as_str().unwrap());
        let touched = all.entry(name.clone()).or_default();
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            let is_own = other == "tidemill" || other.starts_with("tidemill-");
            match dependency["kind"].as_str() {
                _ if !is_own || short(other) == name => {}
                Some("dev") => drop(tests.entry(name.clone()).or_default().insert(short(other))),
                _ => drop(touched.insert(short(other))),
            }
        }
    }
    for (name, touched) in &mut tests {
        touched.retain(|other| !all[name].contains(other));
    }
    tests.retain(|_, touched| !touched.is_empty());
    (all, tests)
}

#[test]
fn crates_touch_what_the_map_says_and_nothing_else() {
    let (all, tests) = manifests();
    assert_eq!(all, edges(&MAP), "the manifests, and the map in this test");
    assert_eq!(tests, edges(&TESTS), "the manifests, and what tests may touch");
}

#[test]
fn dependencies_point_down_the_map_only() {
    let place = |name: &str| MAP.iter().position(|(other, _)| *other == name).unwrap();
    for (name, touched) in MAP {
        for other in touched {
            assert!(!TESTS_ONLY.contains(other), "{name} stands on {other}");
            assert!(TESTS_ONLY.contains(&name) || place(name) < place(other), "{name} looks up at {other}");
        }
    }
}

#[test]
fn the_map_of_the_architecture_says_the_same() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let [name, _, touched] =
            line.strip_prefix("| `tidemill")?.strip_suffix(" |")?.split(" | ").collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let name = name.trim_end_matches('`').trim_start_matches('-');
        Some((if name.is_empty() { "tidemill" } else { name }, touched))
    });
    let rows: Vec<_> = rows.collect();
    assert_eq!(
        rows.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        MAP.map(|(name, _)| name),
        "the rows of the map in their order"
    );
    for ((name, told), (_, touched)) in rows.into_iter().zip(MAP) {
        match told {
            "everything below" => assert_eq!(name, "tidemill"),
            "nothing" => assert_eq!(touched, [""; 0], "{name}"),
            told => {
                let told: BTreeSet<_> = told.split(", ").collect();
                assert_eq!(told, touched.iter().copied().collect(), "{name}");
            }
        }
    }
}
