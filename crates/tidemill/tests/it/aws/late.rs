//! A stage whose table gets nothing for a while: decisions find what they need in the log, and readers find
//! everything once it is stored.

use serde_json::json;

use super::home::{Home, SHORT};
use crate::sandbox::eventually;

const JOB: &str = "\
name: late
tasks:
- {taskId: a, run: 'echo \"{\\\"v\\\":42}\"'}
- {taskId: held, run: 'echo $$ > pid-$TIDEMILL_FENCE; while [ ! -e go ]; do sleep 0.05; done', dependsOn: [a]}
- {taskId: b, run: 'cat \"$INPUT_FILE\"', dependsOn: [a, held]}
";

/// EV-25: nothing is stored, the worker and the server die, and others go on with what their tasks gave.
#[test]
fn jobs_go_on_while_nothing_is_stored() {
    let Some(home) = Home::aws() else { return };
    let persister = home.persister.as_ref().unwrap();
    persister.stop();
    home.sandbox.write("job.yaml", JOB);
    let mut staff = home.staff(&SHORT);
    let job = home.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    eventually("that the second runs", || home.sandbox.read("pid-1").ends_with('\n'));
    staff.worker.kill();
    staff.servers.remove(0).process.kill();
    let staff = home.staff(&SHORT);
    eventually("a takeover", || home.sandbox.read("pid-2").ends_with('\n'));
    home.sandbox.write("go", "");
    let watched = home.run(&["jobs", "watch", &job, "--json"]).ok().json();
    assert_eq!(watched["status"], "completed", "{watched}");
    let given = json!({ "dependencyOutputs": { "a": { "v": 42 }, "held": {} } });
    assert_eq!(watched["tasks"]["b"]["output"], given, "{watched}");
    staff.stop();
    persister.go_on();
    for (event_type, count) in [("Job Created", 1), ("Task Completed", 3), ("Job Completed", 1)] {
        assert_eq!(home.count(event_type, count), count, "{event_type}");
    }
}

/// A script whose event is too large to be carried along, run by a server that comes while the table does not have the event.
#[test]
fn a_script_waits_for_its_event() {
    let Some(home) = Home::aws() else { return };
    let persister = home.persister.as_ref().unwrap();
    let server = home.serve(&["--no-worker"], &[]);
    home.sandbox.write("note.js", "ctx.publish('order.noted', { n: ctx.event.data.n }); return 1");
    home.run(&["scripts", "put", "note", "note.js", "--grant", "publish"]).ok();
    home.run(&["subscriptions", "add", "--script", "note", "--type", "order.placed", "--id", "note"]).ok();
    let publish = |n: u32, size: usize| {
        let event =
            json!({ "eventType": "order.placed", "properties": { "n": n, "text": "x".repeat(size) } });
        home.sandbox.write("events.json", &json!({ "events": [event] }).to_string());
        home.run(&["events", "publish", "--file", "events.json"]).ok();
    };
    publish(1, 1);
    assert_eq!(home.count("order.noted", 1), 1);
    server.stop().ok();
    persister.stop();
    publish(2, 20_000);
    let server = home.serve(&["--no-worker"], &[]);
    let executions = || home.items(&["executions", "list", "--json"]);
    eventually("that it is to be run", || executions().len() == 2);
    let waits = executions();
    assert!(waits.iter().all(|one| one["status"] != "failed"), "{waits:?}");
    persister.go_on();
    assert_eq!(home.count("order.noted", 2), 2);
    server.stop().ok();
}
