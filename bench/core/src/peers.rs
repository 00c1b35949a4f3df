//! The shapes that peers are compared by, on the library as an embedding program uses it: a `Host` with no-op handlers.
//!
//! `bench/peers/run` drives it: one request per line on standard input, one answer per line on standard output, so that
//! its rounds can take turns with a peer's.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidemill::{Handlers, Host, HostOptions, JobStatus, Json, TaskSpec, task};

use crate::bare_log::{preallocated, write_padded};
use crate::latency::Latencies;
use crate::machine::Watch;

/// What to run, once.
#[derive(Debug, Deserialize)]
struct Request {
    shape: Shape,
    /// Tasks of W1, hops of W2, the breadth of W3, jobs of W4, commits of `commit`.
    count: usize,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    /// One job of root tasks.
    W1,
    /// A chain.
    W2,
    /// 1 → n → 1.
    W3,
    /// Diamond jobs of five tasks.
    W4,
    /// A bare write and fdatasync of the size of a hop.
    Commit,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    millis: f64,
    /// CPU of this process, all threads.
    cpu_micros: f64,
    /// From the start of one handler to the start of the next, or from one commit to the next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hops_millis: Vec<f64>,
}

/// When the handlers of a chain started.
type Moments = Arc<Mutex<Vec<Instant>>>;

/// How many submissions of W4 are under way at a time.
const SUBMITTERS: usize = 64;
/// About what a hop of a chain writes.
const COMMIT_BYTES: usize = 1_500;
const COMMIT_FILE_BYTES: u64 = 64 << 20;

/// Answers requests until standard input ends.
pub fn serve(dir: &Path, slots: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads start");
    let moments = Moments::default();
    let host = runtime.block_on(open(dir, slots, &moments));
    let mut commits = BareCommits::new(dir);
    let mut out = std::io::stdout();
    say(&mut out, &serde_json::json!({ "ready": true }));
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input can be read");
        let Request { shape, count } = serde_json::from_str(&line).expect("a request is JSON");
        let answer = match shape {
            Shape::Commit => commits.time(count),
            shape => runtime.block_on(run(&host, shape, count, &moments)),
        };
        say(&mut out, &answer);
    }
    runtime.block_on(async { Arc::into_inner(host).expect("nobody else holds the host").shut_down().await });
}

fn say(out: &mut impl Write, answer: &impl Serialize) {
    let line = serde_json::to_string(answer).expect("answers are JSON");
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody listens");
}

async fn open(dir: &Path, slots: usize, moments: &Moments) -> Arc<Host> {
    let moments = Arc::clone(moments);
    let hop = move |_| {
        moments.lock().unwrap().push(Instant::now());
        async { Ok(Json::empty_object()) }
    };
    let handlers = Handlers::new().on("noop", |_| async { Ok(Json::empty_object()) });
    let handlers = handlers.and_then(|handlers| handlers.on("hop", hop)).expect("the names are good");
    let options = HostOptions { slots, ..HostOptions::default() };
    Arc::new(Host::open(&dir.join("data"), handlers, options).await.expect("the store opens"))
}

async fn run(host: &Arc<Host>, shape: Shape, count: usize, moments: &Moments) -> Answer {
    let tasks = tasks(shape, count);
    moments.lock().unwrap().clear();
    let watch = Watch::start();
    if matches!(shape, Shape::W4) {
        submit_many(host, &tasks, count).await;
    } else {
        let job = host.submit("shape", tasks).await.expect("the job is taken");
        assert_eq!(host.wait(job).await.expect("the job is there"), JobStatus::Completed);
    }
    let spent = watch.stop();
    let moments = std::mem::take(&mut *moments.lock().unwrap());
    let hops = moments.windows(2).map(|pair| pair[1].duration_since(pair[0]));
    Answer {
        millis: millis(spent.wall),
        cpu_micros: spent.cpu.as_secs_f64() * 1e6,
        hops_millis: hops.map(millis).collect(),
    }
}

/// Submits many jobs, some at a time, and waits for all.
async fn submit_many(host: &Arc<Host>, tasks: &[TaskSpec], jobs: usize) {
    let submitters: Vec<_> = (0..SUBMITTERS.min(jobs))
        .map(|first| {
            let (host, tasks) = (Arc::clone(host), tasks.to_vec());
            tokio::spawn(async move {
                let mut submitted = Vec::new();
                for _ in (first..jobs).step_by(SUBMITTERS) {
                    submitted.push(host.submit("shape", tasks.clone()).await.expect("the job is taken"));
                }
                submitted
            })
        })
        .collect();
    for submitter in submitters {
        for job in submitter.await.expect("no submitter panics") {
            assert_eq!(host.wait(job).await.expect("the job is there"), JobStatus::Completed);
        }
    }
}

fn tasks(shape: Shape, count: usize) -> Vec<TaskSpec> {
    let make = |index: usize, name: &str, parents: &[usize]| {
        let parents: Vec<String> = parents.iter().map(|parent| format!("t{parent}")).collect();
        let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
        task(&format!("t{index}"), name, &parents).expect("the ids are good")
    };
    let fan = |breadth: usize| {
        let all: Vec<usize> = (1..=breadth).collect();
        let mut tasks = vec![make(0, "noop", &[])];
        tasks.extend(all.iter().map(|index| make(*index, "noop", &[0])));
        tasks.push(make(breadth + 1, "noop", &all));
        tasks
    };
    match shape {
        Shape::W1 | Shape::Commit => (0..count).map(|index| make(index, "noop", &[])).collect(),
        Shape::W2 => (0..count)
            .map(|index| make(index, "hop", &index.checked_sub(1).into_iter().collect::<Vec<_>>()))
            .collect(),
        Shape::W3 => fan(count),
        Shape::W4 => fan(3),
    }
}

/// What a disk takes for one commit, without anything around it.
struct BareCommits {
    file: std::fs::File,
    offset: u64,
}

impl BareCommits {
    fn new(dir: &Path) -> Self {
        Self { file: preallocated(&dir.join("bare.log"), COMMIT_FILE_BYTES), offset: 0 }
    }

    fn time(&mut self, count: usize) -> Answer {
        let watch = Watch::start();
        let mut hops_millis = Vec::with_capacity(count);
        for _ in 0..count {
            if self.offset + 2 * COMMIT_BYTES as u64 + 8_192 > COMMIT_FILE_BYTES {
                self.offset = 0;
            }
            let mut bytes = vec![b'x'; COMMIT_BYTES];
            let mut took = Latencies::default();
            took.time(|| {
                write_padded(&self.file, &mut bytes, &mut self.offset);
                self.file.sync_data().unwrap();
            });
            hops_millis.push(took.p50() / 1e3);
        }
        let spent = watch.stop();
        Answer { millis: millis(spent.wall), cpu_micros: spent.cpu.as_secs_f64() * 1e6, hops_millis }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
