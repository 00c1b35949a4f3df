//! Disks that are full, broken, or have lost something: told as they are, and got over where that is possible.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

use crate::sandbox::{Running, Sandbox, Server, eventually};
use crate::tmpfs::Tmpfs;

/// One request, as a program without a library would send it: the status and the body.
fn send(url: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let (status, _, body) = send_whole(url, method, path, body);
    (status, body)
}

/// The same with the head of the answer.
fn send_whole(url: &str, method: &str, path: &str, body: &str) -> (u16, String, Value) {
    let address = url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    (status, head.to_ascii_lowercase(), body)
}

pub(crate) fn get(url: &str, path: &str) -> (u16, Value) {
    send(url, "GET", path, "")
}

/// A job that takes some room.
fn large_job() -> String {
    let filler = "x".repeat(30_000);
    format!(r#"{{"tasks":[{{"taskId":"a","run":"true","input":{{"filler":"{filler}"}}}}]}}"#)
}

/// Hands a job in: its id, or the code that it was refused with.
fn submit(url: &str) -> Result<String, String> {
    let (status, answer) = send(url, "POST", "/v1/jobs", &large_job());
    let field = |name: &str| answer[name].as_str().unwrap_or_else(|| panic!("{status} {answer}")).to_owned();
    if status < 300 { Ok(field("jobId")) } else { Err(field("code")) }
}

/// Hands jobs in until there is no space; those that were taken.
fn submit_all(url: &str) -> BTreeSet<String> {
    let mut taken = BTreeSet::new();
    loop {
        match submit(url) {
            Ok(job) => taken.insert(job),
            Err(code) => {
                assert_eq!(code, "STORE_FULL");
                return taken;
            }
        };
    }
}

fn is_full(url: &str) {
    assert_eq!(submit(url), Err("STORE_FULL".to_owned()));
    let (status, readiness) = get(url, "/readyz");
    let reason = readiness["reasons"][0].as_str().unwrap_or_default();
    assert!(status == 503 && reason.starts_with("STORE_FULL"), "{status} {readiness}");
    assert_eq!(get(url, "/healthz").0, 200);
}

fn in_data(data: &Path) -> [&str; 2] {
    ["--data", data.to_str().unwrap()]
}

/// A full disk has room for nobody: other rights would not help.
#[test]
fn the_doctor_of_a_full_disk_advises_to_free_space() {
    let sandbox = Sandbox::new();
    let Some(disk) = Tmpfs::mount(sandbox.dir.join("disk"), 1 << 10) else { return };
    disk.fill("all", usize::MAX);
    let report = sandbox.run(&["doctor", "--json", "--data", disk.join("data").to_str().unwrap()]).json();
    let sync = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "fsync").unwrap();
    assert_eq!(sync["verdict"], "FAIL", "{report:#}");
    assert_eq!(sync["advice"], "free space on the disk of the data directory", "{report:#}");
}

/// Jobs come in while the disk fills, a killed server is started again on the full disk, and space comes back: what was taken
/// is completed, whatever happened in between, and nobody was told anything else than what was true.
#[test]
fn every_job_that_was_taken_while_the_disk_filled_is_completed() {
    let sandbox = Sandbox::new();
    let Some(disk) = Tmpfs::mount(sandbox.dir.join("disk"), 24 << 10) else { return };
    let data = disk.join("data");
    let server = sandbox.serve(&in_data(&data), &[]);
    let url = server.url.clone();
    let taken = std::thread::scope(|scope| {
        let submitting: Vec<_> = (0..3).map(|_| scope.spawn(|| submit_all(&url))).collect();
        disk.fill("half", 8 << 10);
        disk.fill("rest", usize::MAX);
        submitting.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<BTreeSet<_>>()
    });
    assert!(taken.len() > 10, "{}", taken.len());
    is_full(&server.url);

    // The next one is started while the kernel takes the killed one apart.
    server.process.signal(Signal::KILL);
    let mut second =
        sandbox.start(&["serve", "--listen", "127.0.0.1:0", in_data(&data)[0], in_data(&data)[1]], &[]);
    second.wait_for("cannot write server.json");
    let second = Server::listening(second);
    drop(server);
    is_full(&second.url);
    for job in &taken {
        assert_eq!(get(&second.url, &format!("/v1/jobs/{job}")).0, 200);
    }
    second.stop().ok();
    let exported = sandbox.run(&["export", "--data", data.to_str().unwrap()]).ok().out;
    for job in &taken {
        assert!(
            exported.contains(&format!(
                r#"{{"kind":"job","tenantId":"default","appName":"task-workflow","jobId":"{job}""#
            )),
            "{job}"
        );
    }

    let third = sandbox.serve(&in_data(&data), &[]);
    is_full(&third.url);
    for name in ["half", "rest"] {
        std::fs::remove_file(disk.join(name)).unwrap();
    }
    eventually("that it is ready by itself", || get(&third.url, "/readyz").0 == 200);
    eventually("that server.json is there", || {
        std::fs::read_to_string(data.join("server.json")).is_ok_and(|text| text.contains(&third.url))
    });
    let later = submit(&third.url).unwrap();
    eventually("that all jobs are completed", || {
        let (_, running) = get(&third.url, "/v1/jobs?status=running&limit=1");
        running["items"].as_array().unwrap().is_empty()
    });
    for job in taken.iter().chain([&later]) {
        let (status, view) = get(&third.url, &format!("/v1/jobs/{job}"));
        assert_eq!((status, view["status"].as_str()), (200, Some("completed")), "{view}");
    }
    third.stop().ok();
    sandbox.run(&["verify", "--data", data.to_str().unwrap()]).ok();
}

/// A write that fails stops the store: the process says that it must be started again, and its log says why.
#[test]
fn a_store_that_stopped_is_not_healthy_and_tells_why() {
    let sandbox = Sandbox::new();
    // Without the signal, a write beyond the limit is an error like any other of a disk.
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#, env!("CARGO_BIN_EXE_tidemill")]);
    command.args(["serve", "--listen", "127.0.0.1:0", "--no-worker"]).current_dir(&sandbox.dir);
    let mut server = Server::listening(Running::start(command));
    let url = server.url.clone();
    submit(&url).unwrap();
    assert_eq!(get(&url, "/healthz"), (200, serde_json::json!({ "status": "ok" })));
    let pid = Pid::from_raw(i32::try_from(server.process.pid()).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: Some(0), maximum: None }).unwrap();
    assert_eq!(submit(&url), Err("STORE_UNAVAILABLE".to_owned()));
    let line = server.process.wait_for("started again");
    assert!(line.contains("File too large") && line.contains("the store stopped"), "{line}");
    assert_eq!(get(&url, "/healthz"), (503, serde_json::json!({ "status": "stopped" })));
    let (status, readiness) = get(&url, "/readyz");
    let reason = readiness["reasons"][0].as_str().unwrap_or_default();
    // The part and what the system said of it, but no file.
    assert_eq!((status, reason), (503, "the store stopped: its log: File too large (os error 27)"));
    server.process.kill();
    let again = sandbox.serve(&["--no-worker"], &[]);
    assert_eq!(get(&again.url, "/healthz").0, 200);
    again.stop().ok();
    sandbox.run(&["verify"]).ok();
}

/// A client that gets a 5xx has an id under which the log says what happened, to which file, and what the system said
/// of it.
#[test]
fn the_log_tells_the_cause_of_a_failed_request_under_the_id_of_its_answer() {
    let sandbox = Sandbox::new();
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#, env!("CARGO_BIN_EXE_tidemill")]);
    command.args(["serve", "--listen", "127.0.0.1:0", "--no-worker"]).current_dir(&sandbox.dir);
    command.env_remove("RUST_LOG");
    let mut server = Server::listening(Running::start(command));
    let url = server.url.clone();
    submit(&url).unwrap();
    let pid = Pid::from_raw(i32::try_from(server.process.pid()).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: Some(0), maximum: None }).unwrap();
    let job = r#"{"tasks":[{"taskId":"a","run":"true"}]}"#;
    let (status, head, problem) = send_whole(&url, "POST", "/v1/jobs", job);
    assert_eq!((status, problem["code"].as_str()), (503, Some("STORE_UNAVAILABLE")), "{problem}");
    let id = problem["instance"].as_str().unwrap().strip_prefix("urn:uuid:").unwrap().to_owned();
    assert!(head.contains(&format!("x-request-id: {id}")), "{head}");
    let line = server.process.wait_for(&id);
    for part in
        [" warn  ", "log/", "File too large (os error 27)", "POST", "route=/v1/jobs", "STORE_UNAVAILABLE"]
    {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!problem.to_string().contains("log/"), "{problem}");
    server.process.kill();
}

#[test]
fn a_full_disk_is_told_with_the_file_and_a_bounded_number_of_lines() {
    let sandbox = Sandbox::new();
    let Some(disk) = Tmpfs::mount(sandbox.dir.join("disk"), 24 << 10) else { return };
    let data = disk.join("data");
    let mut server = sandbox.serve(&in_data(&data), &[]);
    submit(&server.url).unwrap();
    disk.fill("rest", usize::MAX);
    submit_all(&server.url);
    let (status, problem) = send(&server.url, "POST", "/v1/jobs", &large_job());
    assert_eq!((status, problem["code"].as_str()), (503, Some("STORE_FULL")), "{problem}");
    let line = server.process.wait_for(problem["instance"].as_str().unwrap().trim_start_matches("urn:uuid:"));
    assert!(line.contains("No space left on device (os error 28)"), "{line}");
    for _ in 0..200 {
        assert_eq!(submit(&server.url), Err("STORE_FULL".to_owned()));
    }
    let ended = server.stop();
    let lines = ended.words.lines().filter(|line| line.contains("STORE_FULL")).count();
    assert!((1..=130).contains(&lines), "{lines} lines");
}

#[test]
fn a_large_value_that_is_missing_is_named() {
    let sandbox = Sandbox::new();
    let large = r#"printf '{"text":"'; head -c 300000 /dev/zero | tr "\\0" x; printf '"}'"#;
    sandbox.write("large.sh", large);
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: 'sh large.sh'}\n");
    sandbox.run(&["run", "job.yaml"]).ok();
    let jobs = sandbox.run(&["jobs", "list", "--json"]).ok().json();
    let task = format!("{}_a", jobs["items"][0]["jobId"].as_str().unwrap());
    let get = || sandbox.run(&["tasks", "get", &task, "--json"]);
    get().ok();
    let events = sandbox.dir.join(".tidemill/blobs/default/events");
    std::fs::rename(&events, sandbox.dir.join("elsewhere")).unwrap();
    let missing = get();
    assert_eq!(missing.code, 1, "{missing:#?}");
    let problem: Value = serde_json::from_str(&missing.words).expect("one document and nothing beside it");
    assert_eq!(problem["code"], "BLOB_MISSING");
    for words in ["BLOB_MISSING", "the large value events/job-", "-payload.json is missing"] {
        assert!(missing.words.contains(words), "{missing:#?}");
    }
    std::fs::rename(sandbox.dir.join("elsewhere"), events).unwrap();
    get().ok();
}
