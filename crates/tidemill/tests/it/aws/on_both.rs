//! What holds on a data directory and on AWS alike: one body, two homes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::home::{Home, SHORT, on_both};
use crate::outbound::{Asked, Listener, ok_json};
use crate::sandbox::eventually;

/// The sample of the documents: two that start at once, one that waits for both, one behind it.
const SAMPLE: &str = "\
name: sample
tasks:
- {taskId: fetch, run: 'echo fetching >&2; echo \"{\\\"n\\\":1}\"', input: {url: 'x'}}
- {taskId: check, run: 'true'}
- {taskId: merge, run: 'cat \"$INPUT_FILE\"', dependsOn: [fetch, check]}
- {taskId: load, run: 'test $TIDEMILL_ATTEMPT = 2 || { echo ECONNRESET >&2; exit 1; }', dependsOn: [merge], retry: {firstDelay: 1ms}}
";

/// A task that tells its fence, and ends when it is let go.
const HELD: &str = "\
name: held
tasks:
- taskId: a
  run: 'echo $$ > pid-$TIDEMILL_FENCE; echo x >> ran; while [ ! -e go ]; do sleep 0.05; done'
- {taskId: b, run: 'true', dependsOn: [a]}
";

fn status(home: &Home, job: &str) -> Value {
    home.run(&["jobs", "get", job, "--json"]).ok().json()["status"].clone()
}

/// An event without what differs from run to run: ids, times, processes, and the directories and variables of their workers.
fn shape(value: &Value, job: &str) -> Value {
    const MEASURED: [&str; 5] = ["processId", "workerId", "durationMs", "directory", "variables"];
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let is_measured = MEASURED.contains(&name.as_str());
                (name.replace(job, "JOB"), if is_measured { json!("*") } else { shape(value, job) })
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(values) => values.iter().map(|value| shape(value, job)).collect(),
        Value::String(text) => {
            let text = text.replace(job, "JOB");
            let is_id = |part: &str| part.bytes().filter(u8::is_ascii_digit).count() > 8;
            json!(
                text.split('#')
                    .map(|part| if is_id(part) { "*" } else { part })
                    .collect::<Vec<_>>()
                    .join("#")
            )
        }
        Value::Number(number) if number.as_u64().is_some_and(|number| number > 1_000_000_000) => json!("*"),
        other => other.clone(),
    }
}

/// The events of a job and its tasks by entity, in their order.
fn history(home: &Home, job: &str) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let tasks = ["fetch", "check", "merge", "load"].map(|task| format!("TASK/{job}_{task}"));
    for entity in tasks.into_iter().chain([format!("JOB/{job}")]) {
        let events = home.items(&["events", "query", "--entity", &entity, "--json"]);
        all.insert(entity.replace(job, "JOB"), events.iter().map(|event| shape(event, job)).collect());
    }
    all
}

/// IN-02: a graph with a retry, by a server and a worker of their own; its events are the same in both homes.
#[test]
fn in_02_the_sample_job_leaves_the_same_events() {
    let mut histories = Vec::new();
    let histories_of = std::cell::RefCell::new(&mut histories);
    on_both(|home| {
        home.sandbox.write("job.yaml", SAMPLE);
        let staff = home.staff(&[]);
        let report = home.run(&["submit", "job.yaml", "--watch", "--json"]).ok().json();
        assert_eq!(report["status"], "completed", "{report}");
        let merged = json!({ "dependencyOutputs": { "fetch": { "n": 1 }, "check": {} } });
        assert_eq!(report["tasks"]["merge"]["output"], merged);
        assert_eq!(report["tasks"]["load"]["attempt"], 2);
        let job = report["jobId"].as_str().unwrap();
        let told = |history: &BTreeMap<String, Vec<Value>>| history.values().map(Vec::len).sum::<usize>();
        let expected = histories_of.borrow().first().map_or(1, told);
        // A table hears of events late.
        eventually("that all events are found", || told(&history(home, job)) >= expected);
        histories_of.borrow_mut().push(history(home, job));
        let logs = home.run(&["tasks", "logs", &format!("{job}_fetch")]).ok();
        assert!(logs.out.contains("fetching"), "{logs:#?}");
        staff.stop();
    });
    if let [embedded, aws] = &histories[..] {
        for (entity, events) in embedded {
            assert_eq!(events, &aws[entity], "{entity}");
        }
    }
}

/// A task that takes too long fails; what has failed is resumed, what is parked goes on, and an output that no event holds is
/// handed on whole.
#[test]
fn tasks_time_out_are_resumed_parked_and_handed_large_outputs() {
    on_both(|home| {
        home.sandbox.write(
            "job.yaml",
            "\
name: hard
tasks:
- {taskId: slow, run: 'test -e fast || sleep 60', timeout: 1s, retry: {maxAttempts: 1}}
- {taskId: after, run: 'true', dependsOn: [slow]}
- {taskId: waits, run: 'test -e fixed', retry: {maxAttempts: 1}, onFailure: park}
- taskId: large
  run: 'printf \"{\\\"text\\\":\\\"\"; head -c 300000 /dev/zero | tr \"\\\\0\" x; printf \"\\\"}\"'
- {taskId: counts, run: 'wc -c < \"$INPUT_FILE\" > counted', dependsOn: [large]}
",
        );
        let staff = home.staff(&[]);
        let job = home.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
        let watched = home.run(&["jobs", "watch", &job]);
        assert_eq!(watched.code, 3, "it waits for somebody: {watched:#?}");
        let slow = home.run(&["tasks", "get", &format!("{job}_slow"), "--json"]).ok().json();
        assert!(
            slow["error"].as_str().unwrap_or_default().contains("timed out")
                || slow.to_string().contains("imeout"),
            "{slow}"
        );
        let counted: u64 = home.sandbox.read("counted").trim().parse().unwrap();
        assert!(counted > 300_000, "the whole output: {counted}");
        let parked = home.items(&["parked", "list", "--json"]);
        assert_eq!(parked.len(), 1, "{parked:?}");
        home.sandbox.write("fixed", "");
        home.sandbox.write("fast", "");
        home.run(&["parked", "resume", &format!("{job}_waits"), "--rerun", "--yes"]).ok();
        eventually("that only the failed one is left", || status(home, &job) == "failed");
        home.run(&["jobs", "resume", &job]).ok();
        let watched = home.run(&["jobs", "watch", &job, "--json"]).ok().json();
        assert_eq!(watched["status"], "completed", "{watched}");
        let checked = home.run(&["health", "--json"]).ok().json();
        assert_eq!(checked["summary"]["totalProcessing"], 0);
        staff.stop();
    });
}

/// A worker is killed in the midst of a task, and the server too: another worker takes over, and the outcome is recorded once.
#[test]
fn a_killed_worker_and_a_killed_server_lose_nothing() {
    on_both(|home| {
        home.sandbox.write("job.yaml", HELD);
        let mut staff = home.staff(&SHORT);
        let job = home.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
        eventually("that it runs", || home.sandbox.read("pid-1").ends_with('\n'));
        staff.worker.kill();
        staff.servers.remove(0).process.kill();
        let staff = home.staff(&SHORT);
        eventually("a takeover", || home.sandbox.read("pid-2").ends_with('\n'));
        home.sandbox.write("go", "");
        let watched = home.run(&["jobs", "watch", &job, "--json"]).ok().json();
        assert_eq!(watched["status"], "completed", "{watched}");
        for (event_type, count) in [("Task Completed", 2), ("Job Completed", 1)] {
            assert_eq!(home.count(event_type, count), count, "{event_type}");
        }
        staff.stop();
    });
}

/// Scripts run once for each event, errors group by their codes, and a parked execution is resumed once.
#[test]
fn scripts_and_triage() {
    on_both(|home| {
        let server = home.serve(&["--no-worker"], &[]);
        home.sandbox.write("note.js", "ctx.publish('order.noted', { n: ctx.event.data.n }); return 1");
        home.run(&["scripts", "put", "note", "note.js", "--grant", "publish"]).ok();
        home.run(&["subscriptions", "add", "--script", "note", "--type", "order.placed", "--id", "note"])
            .ok();
        let order = |n: u32| json!({ "eventType": "order.placed", "properties": { "n": n } });
        let failed = |execution: &str| {
            json!({
                "source": "elephant.workflow", "detail-type": "WorkflowEvent",
                "detail": {
                    "executionId": execution, "county": "Cook", "status": "FAILED", "phase": "Transform",
                    "step": "Transform", "taskToken": format!("token-of-{execution}"),
                    "errors": [{ "code": "20Cook", "details": {} }],
                },
            })
        };
        let orders: Vec<_> = (0..5).map(order).collect();
        for events in [json!({ "events": orders }), json!(["one", "two"].map(failed))] {
            home.sandbox.write("events.json", &events.to_string());
            home.run(&["events", "publish", "--file", "events.json"]).ok();
        }
        let noted = || home.items(&["events", "query", "--type", "order.noted", "--json"]);
        eventually("that all are noted", || noted().len() == 5);
        let top = home.items(&["errors", "top", "--json"]);
        assert_eq!((&top[0]["code"], &top[0]["open"]), (&json!("20Cook"), &json!(2)), "{top:?}");
        home.run(&["parked", "resume", "--code", "20Cook", "--yes"]).ok();
        let resumed = || home.items(&["events", "query", "--type", "Execution Resumed", "--json"]);
        eventually("that both go on", || resumed().len() == 2);
        assert_eq!(noted().len(), 5, "each was noted once");
        server.stop().ok();
    });
}

/// A task that nobody starts is found by the timer of a server, people are told once, and all is well when somebody starts it.
#[test]
fn hc_a_task_that_nobody_starts_is_told() {
    on_both(|home| {
        let listener = Listener::start(|_, _| ok_json("{}"));
        let hook = format!("{}/hook", listener.url);
        let settings = [
            ("HEALTH_CHECK_ENABLED", "true"),
            ("HEALTH_CHECK_INTERVAL_MS", "1000"),
            ("HEALTH_PENDING_MS", "1000"),
            ("SLACK_WEBHOOK_URL", hook.as_str()),
        ];
        home.sandbox.write("job.yaml", "name: lonely\ntasks:\n- {taskId: a, run: 'true'}\n");
        let server = home.serve(&["--no-worker"], &settings);
        let job = home.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
        let kinds = |found: &Value| -> Vec<Value> {
            found["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].clone()).collect()
        };
        let last = || home.run(&["health", "--last", "--json"]);
        eventually("that the timer finds it", || last().code == 1);
        let found = last().json();
        assert_eq!((&found["isHealthy"], kinds(&found)), (&json!(false), vec![json!("pending")]), "{found}");
        let own = home.run_with(&["health"], &settings);
        assert!(own.code == 1 && own.out.contains("pending: "), "{own:#?}");
        let texts = || listener.of("/hook").iter().map(Asked::json).collect::<Vec<_>>();
        eventually("that people are told", || !texts().is_empty());

        let worker = home.worker(&server.url, &settings);
        assert_eq!(home.run(&["jobs", "watch", &job, "--json"]).ok().json()["status"], "completed");
        eventually("that all is well", || last().code == 0);
        let about = |text: &Value| text["text"].as_str().unwrap().contains("rotating_light");
        assert_eq!(texts().iter().filter(|text| about(text)).count(), 1, "{:?}", texts());
        worker.signal(rustix::process::Signal::TERM);
        worker.end().ok();
        server.stop().ok();
    });
}
