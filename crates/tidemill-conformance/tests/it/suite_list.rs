//! A case that is not in the suite's list would never run.

use std::collections::BTreeSet;
use std::path::Path;

use tidemill_conformance::NAMES;

#[test]
fn every_case_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut written = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let section = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if let Some((name, _)) =
                line.strip_prefix("pub async fn ").and_then(|rest| rest.split_once("<W: TestWorld>"))
            {
                written.insert(format!("{section}::{name}"));
            }
        }
    }
    assert_eq!(written, NAMES.iter().map(ToString::to_string).collect());
}
