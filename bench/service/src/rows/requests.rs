//! Latency of single requests at a fixed rate that does not wait for answers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Setting;
use crate::figure::{Figure, Report};
use crate::http::Connection;
use crate::latency::Latencies;
use crate::server::Server;

const PER_SECOND: u64 = 500;
/// Enough that a request never waits for a connection unless the server is far behind.
const CONNECTIONS: usize = 64;

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let seconds = if setting.quick { 3 } else { 20 };
    let data = setting.dir.join("requests");
    let _ = std::fs::remove_dir_all(&data);
    let server = Server::start(setting.binary, &data, 1);
    // It holds the only slot, so that the jobs below wait and only the API is measured.
    let holder = json!({ "tasks": [{ "taskId": "hold", "run": ["/bin/sleep", "3600"], "timeout": "2h" }] });
    server.connect().post("/v1/jobs", &holder).expect("the server answers").good();

    let jobs = Mutex::new(Vec::new());
    let body = serde_json::to_vec(&diamond()).expect("a value is JSON");
    // Compilers of nothing here, but caches, connections and the first segment.
    open_loop(&server, 1, |connection, _| {
        connection.send("POST", "/v1/jobs", &body).map(|answer| answer.status)
    });
    let before = server.usage();
    let posts = open_loop(&server, seconds, |connection, _| {
        let answer = connection.send("POST", "/v1/jobs", &body)?;
        let status = answer.status;
        if let Some(id) = answer.json()["jobId"].as_str() {
            jobs.lock().expect("no thread panics").push(id.to_owned());
        }
        Ok(status)
    });
    let between = server.usage();
    push(report, "POST /v1/jobs, diamond of 5", posts, seconds, (between.cpu - before.cpu).as_secs_f64());
    let jobs = jobs.into_inner().expect("no thread panics");
    assert!(!jobs.is_empty(), "jobs were accepted");
    let gets = open_loop(&server, seconds, |connection, number| {
        let job = &jobs[(number as usize * 7_919) % jobs.len()];
        connection.get(&format!("/v1/jobs/{job}")).map(|answer| answer.status)
    });
    push(report, "GET /v1/jobs/{id}", gets, seconds, (server.usage().cpu - between.cpu).as_secs_f64());
    drop(server);
    let _ = std::fs::remove_dir_all(&data);
}

fn diamond() -> Value {
    let task =
        |id: &str, parents: &[&str]| json!({ "taskId": id, "run": ["/bin/true"], "dependsOn": parents });
    json!({ "name": "diamond", "tasks": [
        task("a", &[]), task("b", &["a"]), task("c", &["a"]), task("d", &["a"]), task("e", &["b", "c", "d"]),
    ] })
}

struct Found {
    latencies: Latencies,
    refused: u64,
}

/// Sends requests at fixed moments. Latency counts from the moment a request was due, so a stall is not hidden.
fn open_loop(
    server: &Server,
    seconds: u64,
    ask: impl Fn(&mut Connection, u64) -> std::io::Result<u16> + Sync,
) -> Found {
    let next = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    let start = Instant::now() + Duration::from_millis(50);
    let all = Mutex::new(Latencies::default());
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut connection = server.connect();
                let mut own = Latencies::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seconds * PER_SECOND {
                        break;
                    }
                    let due = start + Duration::from_micros(number * 1_000_000 / PER_SECOND);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    match ask(&mut connection, number) {
                        Ok(status) if status < 300 => own.push(due.elapsed()),
                        Ok(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        Err(_) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            connection = server.connect();
                        }
                    }
                }
                all.lock().expect("no thread panics").append(own);
            });
        }
    });
    Found { latencies: all.into_inner().expect("no thread panics"), refused: refused.into_inner() }
}

fn push(report: &mut Report, what: &str, mut found: Found, seconds: u64, server_cpu_secs: f64) {
    let count = (seconds * PER_SECOND) as f64;
    report.push(
        Figure::new(
            "requests",
            format!("{what}, {PER_SECOND}/s for {seconds} s, p50"),
            found.latencies.p50() / 1e3,
            "ms",
        )
        .note(format!(
            "p99 {:.2} ms, p99.9 {:.2} ms; {} not answered well; {:.0} µs of the server's CPU each",
            found.latencies.p99() / 1e3,
            found.latencies.quantile(0.999) / 1e3,
            found.refused,
            server_cpu_secs * 1e6 / count,
        )),
    );
}
