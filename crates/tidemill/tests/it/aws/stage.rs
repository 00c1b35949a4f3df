//! What only a stage has: stacks, tickets that come twice, roles in processes of their own, duties that pass on.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::double::{double, fresh_name};
use super::home::{Home, SHORT, access};
use crate::sandbox::{Sandbox, eventually};

/// A ticket that comes three times, to two workers: its task runs once.
#[test]
fn tickets_that_come_again_start_nothing_twice() {
    let Some(home) = Home::aws() else { return };
    home.sandbox.write("job.yaml", "name: once\ntasks:\n- {taskId: a, run: 'echo x >> ran; sleep 1'}\n");
    let job = home.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let queue = home.setting("SQS_QUEUE_URL");
    let taken = home.call("AmazonSQS.ReceiveMessage", &json!({ "QueueUrl": queue, "VisibilityTimeout": 0 }));
    let ticket = taken["Messages"][0]["Body"].as_str().expect("the command sent a ticket before it ended");
    for _ in 0..2 {
        home.call("AmazonSQS.SendMessage", &json!({ "QueueUrl": queue, "MessageBody": ticket }));
    }
    let workers = [home.worker("", &[]), home.worker("", &[])];
    assert_eq!(home.run(&["jobs", "watch", &job, "--json"]).ok().json()["status"], "completed");
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.end().ok();
    }
    assert_eq!(home.sandbox.read("ran"), "x\n");
    assert_eq!(home.count("Task Completed", 1), 1);
}

/// IN-16: API, timers and worker in processes of their own; of two that offer the same duties one has them, and the other goes
/// on when it stops.
#[test]
fn in_16_roles_run_apart_and_duties_pass_on() {
    let Some(home) = Home::aws() else { return };
    let duties = "timers,scripts,courier,health";
    let api = home.serve(&["--roles", "api"], &SHORT);
    let first = home.serve_apart(duties, &SHORT);
    home.sandbox.write("note.js", "ctx.publish('order.noted', { n: ctx.event.data.n }); return 1");
    home.run(&["scripts", "put", "note", "note.js", "--grant", "publish"]).ok();
    home.run(&["subscriptions", "add", "--script", "note", "--type", "order.placed", "--id", "note"]).ok();
    let publish = |n: u32| {
        home.sandbox.write("event.yaml", &format!("eventType: order.placed\nproperties: {{ n: {n} }}\n"));
        home.run(&["events", "publish", "--file", "event.yaml"]).ok();
    };
    let noted = || home.items(&["events", "query", "--type", "order.noted", "--json"]).len();
    publish(1);
    eventually("that the first notes it", || noted() == 1);
    let second = home.serve_apart(duties, &SHORT);
    first.signal(Signal::TERM);
    first.end().ok();
    publish(2);
    eventually("that the second notes it", || noted() == 2);
    // The API has no worker, the stage has one.
    home.sandbox.write("job.yaml", "name: small\ntasks:\n- {taskId: a, run: 'true'}\n");
    let worker = home.worker("", &SHORT);
    let server = [("TIDEMILL_SERVER", api.url.as_str())];
    let report = home.sandbox.run_with(&["submit", "job.yaml", "--watch", "--json"], &server).ok().json();
    assert_eq!(report["status"], "completed", "{report}");
    for process in [second, worker] {
        process.signal(Signal::TERM);
        process.end().ok();
    }
    api.stop().ok();
}

/// The process that has the timers is killed, and another goes on: what waits for them is done within the time that a silent holder
/// has, 30 seconds.
#[test]
fn timers_of_a_killed_process_pass_on() {
    let Some(home) = Home::aws() else { return };
    let first = home.serve_apart("timers", &SHORT);
    let key = json!({ "PK": { "S": "DUTY#0" }, "SK": { "S": "timers" } });
    let get = json!({ "TableName": home.setting("DYNAMODB_EVENTS_TABLE_NAME"), "Key": key, "ConsistentRead": true });
    let holder = || home.call("DynamoDB_20120810.GetItem", &get)["Item"]["holder"]["S"].clone();
    eventually("that the first has them", || holder().is_string());
    let before = holder();
    let second = home.serve_apart("timers", &SHORT);
    first.kill();
    let failed = json!([{
        "source": "elephant.workflow", "detail-type": "WorkflowEvent",
        "detail": {
            "executionId": "one", "county": "Cook", "status": "FAILED", "phase": "Transform", "step": "Transform",
            "taskToken": "token-of-one", "errors": [{ "code": "20Cook", "details": {} }],
        },
    }]);
    home.sandbox.write("events.json", &failed.to_string());
    home.run_with(&["events", "publish", "--file", "events.json"], &[("PARK_TIMEOUT", "1s")]).ok();
    assert_eq!(holder(), before, "nobody has them yet, and nobody gives up what is parked for too long");
    let given_up = || home.items(&["events", "query", "--type", "Execution Expired", "--json"]).len();
    eventually("that it is given up", || given_up() == 1);
    assert_ne!(holder(), before, "another has them");
    second.signal(Signal::TERM);
    second.end().ok();
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

/// A stage is planned, made, and left as it is the second time; its settings are printed, and what is not right is told.
#[test]
fn a_stage_is_planned_deployed_and_checked() {
    let Some(double) = double() else { return };
    let (sandbox, stage) = (Sandbox::new(), fresh_name());
    let access = access(&double.endpoint);
    let access: Vec<_> = access.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let run = |arguments: &[&str]| {
        let arguments = [&["aws", "--stage", &stage], arguments].concat();
        sandbox.run_with(&arguments, &access)
    };
    let stacks = ["infrastructure", "consumer"];
    let changes = || {
        stacks.map(|only| {
            let plan = run(&["plan", "--only", only, "--json"]).ok().json();
            plan["stacks"][0]["change"].as_str().unwrap().to_owned()
        })
    };
    let nothing = run(&["env"]);
    assert_eq!(nothing.code, 1);
    assert!(nothing.words.contains(&format!("events-table-name-{stage}")), "{nothing:#?}");
    assert_eq!(changes(), ["create", "create"]);
    assert_eq!(changes(), ["create", "create"], "a plan makes nothing");
    for only in stacks {
        let made = run(&["deploy", "--only", only]).ok();
        assert!(made.words.contains(": made"), "{made:#?}");
    }
    assert_eq!(changes(), ["none", "none"]);
    let again = run(&["deploy", "--only", "infrastructure", "--json"]).ok().json();
    assert_eq!(again["stacks"][0]["result"], "as it was");

    let missing = run(&["plan", "--only", "event"]);
    assert_eq!(missing.code, 2);
    for name in ["CodeBucket", "CodeKey", "TenantId", "--parameter"] {
        assert!(missing.words.contains(name), "{missing:#?}");
    }
    let unknown = run(&["plan", "--parameter", "Tenant=a"]);
    assert!(unknown.code == 2 && unknown.words.contains("no stack has Tenant"), "{unknown:#?}");
    sandbox.write("code.zip", "no zip");
    let wrong = run(&["deploy", "--code", "code.zip"]);
    assert!(wrong.code == 2 && wrong.words.contains("is no zip file"), "{wrong:#?}");

    let env = run(&["env"]).ok();
    assert!(env.words.contains("set TENANT_ID as well"), "{env:#?}");
    sandbox.write(".env", &format!("{}TENANT_ID=acme\n", env.out));
    let report = run(&["doctor", "--json"]);
    assert_eq!(report.code, 1, "nothing stores events yet: {report:#?}");
    let report = report.json();
    for name in ["table", "indexes", "bucket", "queue", "dead letters", "bus"] {
        assert_eq!(check(&report, name)["verdict"], "OK", "{report}");
    }
    assert_eq!(check(&report, "rule")["verdict"], "FAIL");
    assert!(check(&report, "rule")["advice"].as_str().unwrap().contains("deploy the stack event"));
    let whole = sandbox.run_with(&["doctor", "--json"], &access);
    assert_eq!(check(&whole.json(), "token key")["verdict"], "WARN");
    assert_eq!(check(&whole.json(), "table")["verdict"], "OK");
    let other = [&access[..], &[("S3_BUCKET", "absent-bucket"), ("EVENTBRIDGE_BUS_NAME", "absent")]].concat();
    let report = sandbox.run_with(&["aws", "doctor", "--json"], &other).json();
    for (name, setting) in [("bucket", "S3_BUCKET"), ("bus", "EVENTBRIDGE_BUS_NAME")] {
        assert_eq!(check(&report, name)["verdict"], "FAIL", "{report}");
        assert!(check(&report, name)["advice"].as_str().unwrap().contains(setting), "{report}");
    }
}
