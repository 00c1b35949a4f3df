//! What is wrong with the machine of a worker costs no task an attempt, and is told.

use std::io::{Read as _, Write as _};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::remote_worker::{Line, Loss};
use crate::sandbox::{Running, Sandbox};
use crate::tmpfs::Tmpfs;

/// A job of `count` tasks that each say in which attempt they are.
fn job(sandbox: &Sandbox, count: usize) {
    let run = r#"echo working; echo "{\"attempt\":$TIDEMILL_ATTEMPT}""#;
    let tasks = (0..count).map(|n| format!("- {{taskId: t{n}, run: '{run}'}}\n"));
    sandbox.write("job.yaml", &format!("tasks:\n{}", tasks.collect::<String>()));
}

fn assert_first_attempts(report: &Value) {
    assert_eq!(report["status"], "completed", "{report:#}");
    for (name, task) in report["tasks"].as_object().unwrap() {
        assert_eq!((&task["attempt"], &task["output"]["attempt"]), (&1.into(), &1.into()), "{name}");
    }
}

#[test]
fn few_descriptors_cost_no_attempt() {
    let sandbox = Sandbox::new();
    job(&sandbox, 60);
    let id = sandbox.run(&["submit", "job.yaml", "--data", ".tidemill"]).ok().out.trim().to_owned();
    let mut limited = Command::new("sh");
    let serve = "ulimit -n 40; exec \"$0\" serve --listen 127.0.0.1:0 --concurrency 8";
    limited.args(["-c", serve, env!("CARGO_BIN_EXE_tidemill")]);
    let mut server = Running::start(sandbox.in_its_place(limited));
    server.wait_for("listening on http://");
    // A client that comes while all descriptors are in use is told to come again.
    let mut watched = sandbox.run(&["jobs", "watch", &id, "--json"]);
    while watched.code != 0 {
        assert!(watched.words.contains("TOO_MANY_CONNECTIONS"), "{watched:?}");
        watched = sandbox.run(&["jobs", "watch", &id, "--json"]);
    }
    assert_first_attempts(&watched.json());
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, 0);
}

#[test]
fn a_worker_without_room_claims_nothing_and_says_so() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    let Some(disk) = Tmpfs::mount(elsewhere.dir.join(".output"), 1_024) else { return };
    let filler = disk.fill("filler", usize::MAX);
    job(&sandbox, 20);
    let server = sandbox.serve(&["--no-worker"], &[]);
    let mut worker = elsewhere.start(&["worker", "--server", &server.url, "--metrics", "127.0.0.1:0"], &[]);
    let said = worker.wait_for("metrics on http://");
    let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let ask = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(ask("/readyz").starts_with("HTTP/1.1 200"));
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let told = worker.wait_for("nothing is claimed: the output directory cannot be used");
    assert!(told.contains(".output") && told.contains("No space left on device"), "{told}");
    let ready = ask("/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("the output directory"), "{ready}");
    assert!(ask("/healthz").starts_with("HTTP/1.1 200"));
    assert!(ask("/metrics").contains("\ntidemill_workers_troubled 1\n"));
    worker.wait_for("nothing was claimed for 1 s");
    std::fs::remove_file(filler).unwrap();
    let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    assert_first_attempts(&report);
    assert!(ask("/readyz").starts_with("HTTP/1.1 200"));
    assert!(ask("/metrics").contains("\ntidemill_workers_troubled 0\n"));
    // Some tasks of one claim may find it out one by one, and a look that was wrong costs one more.
    let released =
        sandbox.run(&["events", "query", "--type", "Task Processing Failed", "--json"]).ok().json();
    let released = released["items"].as_array().unwrap().len();
    assert!((1..10).contains(&released), "{released}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, 0);
    server.stop().ok();
}

#[test]
fn uploads_that_are_refused_cost_no_attempt_and_no_log() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    job(&sandbox, 1);
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let admin = [("TIDEMILL_API_KEY", token.as_str())];
    let server = sandbox.serve(&["--no-worker"], &[]);
    let line = Line::to(server.url.trim_start_matches("http://"));
    line.lose("PUT /v1/worker/blobs", &[Loss::Question, Loss::Question, Loss::Question, Loss::Answer]);
    let mut worker = elsewhere.start(&["worker", "--server", &line.url], &[("TIDEMILL_API_KEY", &key)]);
    worker.wait_for("working for ");
    let report = sandbox.run_with(&["submit", "job.yaml", "--watch", "--json"], &admin).ok().json();
    assert_first_attempts(&report);
    let task = format!("{}_t0", report["jobId"].as_str().unwrap());
    let logs = sandbox.run_with(&["tasks", "logs", &task], &admin).ok();
    assert!(logs.out.contains("working"), "{logs:#?}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, 0);
    server.stop().ok();
}

/// A task that kills what starts tasks pays for it alone, however many run beside it.
#[test]
fn a_task_that_kills_the_spawner_costs_its_neighbours_nothing() {
    let sandbox = Sandbox::new();
    let kill = r#"sleep 0.3; server=$(cut -d" " -f4 /proc/$PPID/stat); kill -9 $(cat /proc/$server/task/*/children); sleep 60"#;
    sandbox.write(
        "killer.yaml",
        &format!("tasks:\n- {{taskId: t, run: '{kill}', retry: {{maxAttempts: 1}}}}\n"),
    );
    let run = r#"sleep 3; echo "{\"attempt\":$TIDEMILL_ATTEMPT}""#;
    let tasks = (0..3).map(|n| format!("- {{taskId: t{n}, run: '{run}'}}\n"));
    sandbox.write("job.yaml", &format!("tasks:\n{}", tasks.collect::<String>()));
    let server = sandbox.serve(&["--concurrency", "4"], &[]);
    let ids =
        ["job.yaml", "killer.yaml"].map(|name| sandbox.run(&["submit", name]).ok().out.trim().to_owned());
    let killer = sandbox.run(&["jobs", "watch", &ids[1], "--json"]).json();
    assert_eq!(killer["status"], "failed", "{killer:#}");
    assert!(killer.to_string().contains("was killed while the task ran alone"), "{killer:#}");
    assert_first_attempts(&sandbox.run(&["jobs", "watch", &ids[0], "--json"]).ok().json());
    server.stop().ok();
}
