//! Files between tasks: on one machine, over the network, and after a crash.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::parts;
use crate::sandbox::{Sandbox, eventually};

/// A lease of 1.5 s instead of 45.
const SHORT: [(&str, &str); 2] =
    [("VISIBILITY_EXTENSION_INTERVAL", "300"), ("VISIBILITY_EXTENSION_AMOUNT", "1")];

/// `a` leaves a file and says where, `b` reads it both ways.
const JOB: &str = r#"
name: files
tasks:
- taskId: a
  run: |
    mkdir "$TIDEMILL_OUTPUT_DIR/artifacts/deep"
    printf content > "$TIDEMILL_OUTPUT_DIR/artifacts/deep/x y.txt"
    echo "{\"path\":\"$TIDEMILL_OUTPUT_DIR/artifacts/deep/x y.txt\"}"
- taskId: b
  dependsOn: [a]
  run: |
    path=$(sed 's/.*"path":"\(\/[^"]*\)".*/\1/' "$INPUT_FILE")
    echo "{\"given\":\"$(cat "$TIDEMILL_INPUTS/a/deep/x y.txt")\",\"told\":\"$(cat "$path" 2>/dev/null)\",\"kind\":\"$(stat -c %F "$TIDEMILL_INPUTS/a/deep/x y.txt")\"}"
"#;

#[test]
fn on_one_machine_they_are_links_and_the_path_that_was_told_is_good() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let report = sandbox.run(&["run", "job.yaml", "--json"]).ok().json();
    let output = json!({ "given": "content", "told": "content", "kind": "regular file" });
    assert_eq!(report["tasks"]["b"]["output"], output);
    let told = report["tasks"]["a"]["output"]["path"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(&told).unwrap(), "content");
    // A later run of anything in the same directory leaves it in its place.
    sandbox.write("other.yaml", "tasks:\n- {taskId: a, run: 'true'}\n");
    sandbox.run(&["run", "other.yaml"]).ok();
    assert_eq!(std::fs::read_to_string(&told).unwrap(), "content");
}

/// The parent runs on one worker, which is then killed; the child on another, which has nothing but the server's URL. What a
/// killed attempt had left is not taken for what the next one left.
#[test]
fn on_another_machine_they_are_fetched_and_those_of_a_killed_attempt_are_not() {
    let (sandbox, first, second) = (Sandbox::new(), Sandbox::new(), Sandbox::new());
    let half = r#"printf half > "$TIDEMILL_OUTPUT_DIR/artifacts/half"; echo "$TIDEMILL_OUTPUT_DIR" > where
    while [ "$TIDEMILL_FENCE" = 1 ]; do sleep 0.05; done
    rm -f "$TIDEMILL_OUTPUT_DIR/artifacts/half""#;
    let list =
        r#"(cd "$TIDEMILL_INPUTS" && find -L . -type f) > found; while [ ! -e go ]; do sleep 0.05; done"#;
    let job = JOB
        .replace("    mkdir \"$TIDEMILL", &format!("    {half}\n    mkdir \"$TIDEMILL"))
        .replace("    path=$", &format!("    {list}\n    path=$"));
    sandbox.write("job.yaml", &job);
    let server = sandbox.serve(&["--no-worker"], &SHORT);
    let start = |place: &Sandbox| {
        let mut worker = place.start(&["worker", "--server", &server.url, "--concurrency", "1"], &SHORT);
        worker.wait_for("working for ");
        worker
    };
    let killed = start(&first);
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    eventually("the first attempt", || first.read("where").ends_with('\n'));
    killed.kill();
    let left = first.read("where").trim().to_owned();
    let parent = start(&first);
    assert!(!std::path::Path::new(&left).exists(), "what is left of it is cleared away");
    eventually("the second attempt", || first.read("found") == "./a/deep/x y.txt\n");
    // And the child's: the next worker is another machine.
    parent.kill();
    second.write("go", "");
    let child = start(&second);
    let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    let output = json!({ "given": "content", "told": "content", "kind": "regular file" });
    assert_eq!(report["tasks"]["b"]["output"], output, "the other's path is on this disk too");
    assert_eq!(second.read("found"), "./a/deep/x y.txt\n");
    let history = sandbox.run(&["tasks", "history", &format!("{id}_a"), "--json"]).ok().json();
    let done = history["items"].as_array().unwrap().last().unwrap();
    let named: Vec<_> =
        done["properties"]["artifacts"].as_array().unwrap().iter().map(|file| &file["path"]).collect();
    assert_eq!(named, ["r1-a1/artifacts/deep/x y.txt"], "{done}");
    child.signal(Signal::TERM);
    assert_eq!(child.end().code, 0);
    server.stop().ok();
}

/// The example in Python keeps and fetches them as well.
#[test]
fn the_python_worker_hands_files_on() {
    if !parts::has_python() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let server = sandbox.serve(&["--no-worker"], &[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/worker.py");
    let mut worker = Command::new("python3")
        .arg(script)
        .arg(&server.url)
        .current_dir(&sandbox.dir)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ran = sandbox.run(&["submit", "job.yaml", "--watch", "--json"]);
    worker.kill().unwrap();
    worker.wait().unwrap();
    let output = json!({ "given": "content", "told": "", "kind": "regular file" });
    assert_eq!(ran.ok().json()["tasks"]["b"]["output"], output);
    server.stop().ok();
}
