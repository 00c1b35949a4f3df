//! Words of one customer's world are nowhere in what everybody reads, but where a contract fixes them.
//!
//! The pages of the server and its OpenAPI document are looked at in `tidemill-server`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::sandbox::Sandbox;

const WORDS: [&str; 9] = [
    "county",
    "counties",
    "elephant",
    "mvl",
    "svl",
    "20cook",
    "parcel",
    "claude_timeout",
    "concurrent_claude",
];

/// Lines of a text that have such a word, except where `is_allowed`.
fn strange(text: &str, is_allowed: impl Fn(&str) -> bool) -> Vec<&str> {
    let has_word = |line: &&str| {
        let line = line.to_ascii_lowercase();
        WORDS.iter().any(|word| line.contains(word))
    };
    text.lines().filter(has_word).filter(|line| !is_allowed(line)).collect()
}

#[test]
fn the_help_of_every_command_is_for_everybody() {
    let sandbox = Sandbox::new();
    let mut left = VecDeque::from([Vec::new()]);
    let mut count = 0;
    while let Some(path) = left.pop_front() {
        let arguments: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let help = sandbox.run(&arguments).ok().out;
        // A condition that users of the contract need, and an argument of the code that it defines.
        assert_eq!(strange(&help, |line| line.contains("--county")), Vec::<&str>::new(), "{arguments:?}");
        let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        // Top-level commands stand in groups.
        let commands: Vec<_> = if path.is_empty() {
            help.lines().filter(|line| line.starts_with("  ")).collect()
        } else {
            commands.take_while(|line| line.starts_with("  ")).collect()
        };
        for name in commands.iter().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()) {
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            if is_name && !name.starts_with('-') && !["help", "tidemill"].contains(&name) {
                left.push_back(path.iter().cloned().chain([name.to_owned()]).collect());
            }
        }
        count += 1;
    }
    assert!(count > 80, "all were looked at: {count}");
}

#[test]
fn settings_are_for_everybody() {
    let config = Sandbox::new().run(&["config"]).ok().out;
    let is_allowed = |line: &str| {
        // The source of the contract, and names of the documents that mean the same.
        line.starts_with("WORKFLOW_SOURCES ")
            || line.ends_with("; also MAX_CONCURRENT_CLAUDE")
            || line.ends_with("; also CLAUDE_TIMEOUT")
    };
    assert_eq!(strange(&config, is_allowed), Vec::<&str>::new());
}

/// The contract is told in its section, the table of settings, the map of requirements, and by one example.
#[test]
fn docs_and_examples_are_for_everybody() {
    fn files(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md")];
    for folder in ["docs", "examples"] {
        files(&root.join(folder), &mut found);
    }
    for path in found {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        // The document of the API is looked at where it is made; one example speaks the contract.
        let is_apart =
            ["docs/internals/requirements.md", "docs/reference/openapi.json"].contains(&name.as_str());
        if is_apart || name.starts_with("examples/auto-repair/") {
            continue;
        }
        let Ok(mut text) = std::fs::read_to_string(&path) else { continue };
        if name == "docs/reference/triage.md" {
            let (before, contract) = text.split_once("\n## The workflow contract\n").expect("its section");
            let after = contract.find("\n## ").map_or("", |at| &contract[at..]);
            text = format!("{before}{after}");
        }
        let is_allowed = |line: &str| match name.as_str() {
            "docs/reference/configuration.md" => {
                line.starts_with("| `WORKFLOW_SOURCES`")
                    || line.ends_with("; also MAX_CONCURRENT_CLAUDE |")
                    || line.ends_with("; also CLAUDE_TIMEOUT |")
            }
            "docs/reference/http-api.md" => line.starts_with("| `GET /v1/workflow/errors` |"),
            "docs/reference/triage.md" => line.contains("`--county`"),
            _ => false,
        };
        assert_eq!(strange(&text, is_allowed), Vec::<&str>::new(), "{name}");
    }
}
