//! A store moves from a data directory to a stage, and back.

use std::collections::BTreeMap;

use serde_json::Value;

use super::home::Home;
use crate::sandbox::{Ran, Sandbox, eventually};

const JOB: &str = "\
name: moved
tasks:
- taskId: large
  run: 'printf \"{\\\"text\\\":\\\"\"; head -c 300000 /dev/zero | tr \"\\\\0\" x; printf \"\\\"}\"'
- {taskId: counts, run: 'wc -c < \"$INPUT_FILE\" > counted', dependsOn: [large]}
- {taskId: fails, run: 'test -e fixed', retry: {maxAttempts: 1}}
- {taskId: after, run: 'true', dependsOn: [fails]}
";

/// The lines of an export by their kinds. The table has events by their times, and their places in a history are not in it.
fn by_kind(export: &str) -> BTreeMap<String, Vec<String>> {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in export.lines() {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let kind = value["kind"].as_str().unwrap().to_owned();
        if kind == "event" {
            for place in ["ordinal", "late"] {
                value.as_object_mut().unwrap().remove(place);
            }
        }
        kinds.entry(kind).or_default().push(value.to_string());
    }
    for lines in kinds.values_mut() {
        lines.sort_unstable();
    }
    kinds
}

fn export(sandbox: &Sandbox, name: &str) -> Ran {
    sandbox.run(&["export", "--out", name]).ok()
}

/// What a new data directory exports that was made of the export `name`.
fn moved(sandbox: &Sandbox, name: &str) -> BTreeMap<String, Vec<String>> {
    let other = Sandbox::new();
    other.write("export", &sandbox.read(name));
    other.run(&["import", "export"]).ok();
    export(&other, "again");
    by_kind(&other.read("again"))
}

/// An export of a data directory goes into a stage, whose own export says the same; the stage goes on where the directory stopped.
#[test]
fn a_store_moves_to_a_stage_and_back() {
    let Some(home) = Home::aws() else { return };
    let origin = Sandbox::new();
    origin.write("job.yaml", JOB);
    assert_eq!(origin.run(&["run", "job.yaml"]).code, 1, "a task of it fails");
    origin.write("note.js", "return 1");
    origin.run(&["scripts", "put", "note", "note.js"]).ok();
    origin.run(&["keys", "create", "--role", "reader"]).ok();
    let told = export(&origin, "first").words;
    home.sandbox.write("first", &origin.read("first"));

    home.sandbox.write("cut", &origin.read("first").lines().take(3).collect::<Vec<_>>().join("\n"));
    let cut = home.run(&["import", "cut"]);
    assert_eq!(cut.code, 1, "{cut:#?}");
    assert!(cut.words.contains("nothing was imported: "), "{cut:#?}");
    let imported = home.run(&["import", "first"]).ok();
    assert!(imported.words.contains("stays closed"), "its keys stay behind: {imported:#?}");
    let count = |words: &str, verb: &str| {
        let line = words.lines().find(|line| line.starts_with(verb)).expect("it counts").to_owned();
        line[verb.len()..].to_owned()
    };
    assert_eq!(count(&imported.words, "imported "), count(&told, "exported "), "{imported:#?}");
    let again = home.run(&["import", "first"]);
    assert_eq!(again.code, 2, "{again:#?}");
    assert!(again.words.contains("is not empty; import into a new one"), "{again:#?}");

    let out = home.run(&["export"]).ok();
    home.sandbox.write("second", &out.out);
    assert_eq!(count(&out.words, "exported "), count(&told, "exported "), "{:#?}", out.words);
    let (first, second) = (by_kind(&home.sandbox.read("first")), by_kind(&home.sandbox.read("second")));
    for kind in ["header", "blob", "event", "job", "jobTasks", "record"] {
        assert_eq!(first[kind], second[kind], "{kind}");
    }
    assert_eq!(moved(&home.sandbox, "first"), moved(&home.sandbox, "second"));
    let file = home.run(&["export", "--out", "third"]).ok();
    assert_eq!((file.out.as_str(), home.sandbox.read("third")), ("", out.out));

    home.sandbox.write("fixed", "");
    let staff = home.staff(&[]);
    let jobs = home.items(&["jobs", "list", "--json"]);
    let job = jobs[0]["jobId"].as_str().unwrap();
    home.run(&["jobs", "resume", job]).ok();
    eventually("that it is completed", || {
        home.run(&["jobs", "get", job, "--json"]).ok().json()["status"] == "completed"
    });
    staff.stop();
}
