//! Workers that have only the server's URL.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::parts;
use crate::sandbox::{Sandbox, eventually, is_alive};

/// A lease of 1.5 s instead of 45.
const SHORT: [(&str, &str); 2] =
    [("VISIBILITY_EXTENSION_INTERVAL", "300"), ("VISIBILITY_EXTENSION_AMOUNT", "1")];

/// A task that tells its process and fence, and ends when it is let go.
const HELD: &str = "\
name: held
tasks:
- taskId: a
  run: 'echo $$ > pid-$TIDEMILL_FENCE; while [ ! -e go ]; do sleep 0.05; done; echo \"{\\\"fence\\\":$TIDEMILL_FENCE}\"'
";

fn completed(sandbox: &Sandbox) -> Vec<Value> {
    let ran = sandbox.run(&["events", "query", "--type", "Task Completed", "--json"]).ok();
    ran.json()["items"].as_array().unwrap().clone()
}

fn child(sandbox: &Sandbox, fence: u32) -> u32 {
    let name = format!("pid-{fence}");
    eventually("the start of the task", || sandbox.read(&name).ends_with('\n'));
    sandbox.read(&name).trim().parse().unwrap()
}

#[test]
fn a_worker_tells_its_own_metrics() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    let server = sandbox.serve(&["--no-worker"], &[]);
    let mut worker = elsewhere
        .start(&["worker", "--server", &server.url, "--metrics", "127.0.0.1:0", "--concurrency", "2"], &[]);
    let said = worker.wait_for("metrics on http://");
    let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let ask = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let tells = |line: &str| ask("/metrics").lines().any(|own| own == line);
    assert!(ask("/healthz").starts_with("HTTP/1.1 200"));
    assert!(ask("/v1/jobs").starts_with("HTTP/1.1 404"));
    // The page is there before the slots are.
    eventually("idle slots", || tells("tidemill_slots 2") && tells("tidemill_slots_busy 0"));
    let held = "while [ ! -e go ]; do sleep 0.05; done";
    sandbox.write(
        "job.yaml",
        &format!(
            "tasks: [{{taskId: a, run: '{held}'}}, {{taskId: b, run: 'exit 7', retry: {{maxAttempts: 1}}}}]"
        ),
    );
    sandbox.run(&["submit", "job.yaml"]).ok();
    eventually("that both began and one ended", || {
        tells("tidemill_slots_busy 1") && tells("tidemill_worker_attempt_seconds_count 1")
    });
    elsewhere.write("go", "");
    eventually("the other end", || {
        tells(r#"tidemill_worker_attempts_total{outcome="completed",class=""} 1"#)
            && tells("tidemill_slots_busy 0")
    });
    let text = ask("/metrics");
    assert!(text.contains("tidemill_worker_attempts_total{outcome=\"failed\",class=\""), "{text}");
    assert!(text.contains("process_resident_memory_bytes "), "{text}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, 0);
    assert_eq!(server.stop().code, 0);
}

#[test]
fn a_worker_with_only_the_url_completes_a_job() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    sandbox.write("job.yaml", "\
tasks:
- {taskId: a, run: 'echo working; mkdir -p \"$TIDEMILL_OUTPUT_DIR/artifacts\"; echo x > \"$TIDEMILL_OUTPUT_DIR/artifacts/x.txt\"; echo \"{\\\"n\\\":1}\"'}
- {taskId: b, run: 'cat \"$INPUT_FILE\"', dependsOn: [a]}
- {taskId: flaky, run: 'test $TIDEMILL_ATTEMPT = 2 || { echo ECONNRESET >&2; exit 1; }', retry: {firstDelay: 1ms}}
");
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let server = sandbox.serve(&["--no-worker"], &[]);
    let mut worker = elsewhere.start(&["worker", "--server", &server.url], &[("TIDEMILL_API_KEY", &key)]);
    worker.wait_for("working for http://");
    let admin = [("TIDEMILL_API_KEY", token.as_str())];
    let report = sandbox.run_with(&["submit", "job.yaml", "--watch", "--json"], &admin).ok().json();
    assert_eq!(report["status"], "completed");
    assert_eq!(report["tasks"]["a"]["output"], json!({ "n": 1 }));
    let given = &report["tasks"]["b"]["output"];
    assert_eq!(given["dependencyOutputs"], json!({ "a": { "n": 1 } }));
    assert_eq!(given["dependencyArtifacts"]["a"][0]["path"], "x.txt", "{given}");
    assert_eq!(report["tasks"]["flaky"]["attempt"], 2);
    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    let logs = sandbox.run_with(&["tasks", "logs", &task], &admin).ok();
    assert!(logs.out.contains("working"), "the log is on the server: {logs:#?}");
    assert!(elsewhere.dir.join(".output").join(&task).join("artifacts/x.txt").exists());
    worker.signal(Signal::TERM);
    let ended = worker.end();
    assert_eq!(ended.code, 0, "{ended:#?}");
    server.stop().ok();
}

/// A worker that stood still while another took over writes nothing when it wakes.
#[test]
fn a_stopped_worker_that_wakes_after_a_takeover_writes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", HELD);
    let server = sandbox.serve(&["--no-worker"], &SHORT);
    let mut first = sandbox.start(&["worker", "--server", &server.url, "--concurrency", "1"], &SHORT);
    first.wait_for("working for ");
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let old = child(&sandbox, 1);
    first.signal(Signal::STOP);
    let mut second = sandbox.start(&["worker", "--server", &server.url, "--concurrency", "1"], &SHORT);
    second.wait_for("working for ");
    child(&sandbox, 2);
    sandbox.write("go", "");
    let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "fence": 2 }));
    // Its child has ended meanwhile and was let go too; what it would report is not taken.
    first.signal(Signal::CONT);
    eventually("the end of the first child", || !is_alive(old));
    first.signal(Signal::TERM);
    assert_eq!(first.end().code, 0);
    let events = completed(&sandbox);
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["properties"]["fence"], 2);
    second.signal(Signal::TERM);
    assert_eq!(second.end().code, 0);
    server.stop().ok();
}

/// A worker that is cut off kills its task by itself, and another one completes it.
#[test]
fn a_worker_that_is_cut_off_loses_its_lease() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", HELD);
    // Through another port only a server with keys answers.
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let admin = [("TIDEMILL_API_KEY", token.as_str())];
    let settings: Vec<_> = SHORT.into_iter().chain([("TIDEMILL_API_KEY", key.as_str())]).collect();
    let server = sandbox.serve(&["--no-worker"], &SHORT);
    let line = Line::to(server.url.trim_start_matches("http://"));
    let mut far = sandbox.start(&["worker", "--server", &line.url, "--concurrency", "1"], &settings);
    far.wait_for("working for ");
    let id = sandbox.run_with(&["submit", "job.yaml"], &admin).ok().out.trim().to_owned();
    let old = child(&sandbox, 1);
    line.cut();
    eventually("the end of the task that was cut off", || !is_alive(old));
    let mut near = sandbox.start(&["worker", "--server", &server.url, "--concurrency", "1"], &settings);
    near.wait_for("working for ");
    child(&sandbox, 2);
    sandbox.write("go", "");
    let report = sandbox.run_with(&["jobs", "watch", &id, "--json"], &admin).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "fence": 2 }));
    for worker in [far, near] {
        worker.signal(Signal::TERM);
        assert_eq!(worker.end().code, 0);
    }
    server.stop().ok();
    assert_eq!(completed(&sandbox).len(), 1);
}

/// A server whose leases last 3 s. Workers with the default settings would send their first heartbeat after 20.
const SERVER_SHORT: [(&str, &str); 2] =
    [("VISIBILITY_EXTENSION_INTERVAL", "1000"), ("VISIBILITY_EXTENSION_AMOUNT", "2")];

/// A worker goes by the lease that its server grants, whatever it is set to itself.
#[test]
fn a_worker_keeps_the_lease_that_its_server_grants() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    // Each takes more than two leases.
    let long = "echo $TIDEMILL_TASK_ID >> starts; for i in 1 2 3 4 5 6 7; do sleep 1; done; echo {}";
    sandbox
        .write("job.yaml", &format!("tasks: [{{taskId: a, run: '{long}'}}, {{taskId: b, run: '{long}'}}]\n"));
    let server = sandbox.serve(&["--no-worker"], &SERVER_SHORT);
    let mut worker = elsewhere.start(&["worker", "--server", &server.url], &[]);
    worker.wait_for("working for ");
    let report = sandbox.run(&["submit", "job.yaml", "--watch", "--json"]).ok().json();
    assert_eq!(report["status"], "completed", "{report}");
    for task in ["a", "b"] {
        let id = format!("{}_{task}", report["jobId"].as_str().unwrap());
        let history = sandbox.run(&["tasks", "history", &id, "--json"]).ok().json();
        let events = history["items"].as_array().unwrap();
        let starts = events.iter().filter(|event| event["eventType"] == "Task Processing Started").count();
        let fences: Vec<_> =
            events.iter().filter_map(|event| event["properties"]["fence"].as_u64()).collect();
        assert!(starts == 1 && fences.iter().all(|fence| *fence == 1), "{history:#}");
    }
    let mut starts: Vec<_> = elsewhere.read("starts").lines().map(str::to_owned).collect();
    starts.sort();
    assert_eq!(starts, ["a", "b"], "one copy of each");
    worker.signal(Signal::TERM);
    let ended = worker.end();
    assert_eq!(ended.code, 0, "{ended:#?}");
    let told: Vec<_> = ended.words.lines().filter(|line| line.contains("a shorter lease")).collect();
    assert!(
        matches!(told[..], [line] if line.contains("Z warn  ") && line.contains("3000")),
        "{}",
        ended.words
    );
    server.stop().ok();
}

/// The child of a worker that is cut off is dead before the server's lease is over, whatever the worker is set to.
#[test]
fn a_worker_that_is_cut_off_ends_its_task_within_the_lease_of_its_server() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", HELD);
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let admin = [("TIDEMILL_API_KEY", token.as_str())];
    let settings = [("TIDEMILL_API_KEY", key.as_str())];
    let server = sandbox.serve(&["--no-worker"], &SERVER_SHORT);
    let line = Line::to(server.url.trim_start_matches("http://"));
    let mut far = sandbox.start(&["worker", "--server", &line.url, "--concurrency", "1"], &settings);
    far.wait_for("working for ");
    let id = sandbox.run_with(&["submit", "job.yaml"], &admin).ok().out.trim().to_owned();
    let old = child(&sandbox, 1);
    let mut near = sandbox.start(&["worker", "--server", &server.url, "--concurrency", "1"], &settings);
    near.wait_for("working for ");
    line.cut();
    child(&sandbox, 2);
    assert!(!is_alive(old), "two copies run");
    sandbox.write("go", "");
    let report = sandbox.run_with(&["jobs", "watch", &id, "--json"], &admin).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "fence": 2 }));
    for worker in [far, near] {
        worker.signal(Signal::TERM);
        assert_eq!(worker.end().code, 0);
    }
    server.stop().ok();
}

/// A worker whose server is not there yet says that it works once it is.
#[test]
fn a_worker_says_that_it_works_once_its_server_is_reached() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let url = format!("http://{address}");
    let mut early = elsewhere.start(&["worker", "--server", &url, "--metrics", "127.0.0.1:0"], &[]);
    early.wait_for("trying until it is there");
    early.wait_for("metrics on ");
    let mut stopped = elsewhere.start(&["worker", "--server", &url], &[]);
    stopped.wait_for("trying until it is there");
    stopped.signal(Signal::TERM);
    let ended = stopped.end();
    assert_eq!((ended.code, ended.words.contains("working for ")), (0, false), "{ended:#?}");
    let mut server = sandbox.start(&["serve", "--no-worker", "--listen", &address], &[]);
    server.wait_for("listening on ");
    early.wait_for("working for ");
    sandbox.write("job.yaml", "tasks: [{taskId: a, run: 'true'}]\n");
    sandbox.run(&["submit", "job.yaml", "--watch"]).ok();
    early.signal(Signal::TERM);
    let ended = early.end();
    let lines = ended.words.lines().filter(|line| line.contains("trying until it is there")).count();
    assert_eq!((ended.code, lines), (0, 1), "{ended:#?}");
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, 0);
}

/// A report that has to be repeated is recorded once, with the start that it brings along.
#[test]
fn a_report_that_is_lost_on_its_way_is_repeated_and_recorded_once() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: [/bin/true]}\n");
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let admin = [("TIDEMILL_API_KEY", token.as_str())];
    let server = sandbox.serve(&["--no-worker"], &[]);
    let line = Line::to(server.url.trim_start_matches("http://"));
    line.lose("POST /v1/worker/finish", &[Loss::Question, Loss::Answer]);
    let mut worker = sandbox.start(&["worker", "--server", &line.url], &[("TIDEMILL_API_KEY", &key)]);
    worker.wait_for("working for ");
    let report = sandbox.run_with(&["submit", "job.yaml", "--watch", "--json"], &admin).ok().json();
    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    // The answer to the report that counted was lost, so it is still asked for.
    eventually("the third report", || line.ends.lock().unwrap().losses.is_empty());
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, 0);
    let history = sandbox.run_with(&["tasks", "history", &task, "--json"], &admin).ok().json();
    let types: Vec<_> = history["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["eventType"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["Task Pending", "Task Processing Started", "Task Completed"]);
    server.stop().ok();
}

/// A worker whose server does not answer says so, and does not fill its log with it.
#[test]
fn a_worker_that_cannot_claim_tells_why_in_few_lines() {
    let sandbox = Sandbox::new();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let server = sandbox.serve(&["--no-worker"], &[]);
    let line = Line::to(server.url.trim_start_matches("http://"));
    line.lose("POST /v1/worker/claim", &[Loss::Question; 7]);
    let mut worker = sandbox.start(&["worker", "--server", &line.url], &[("TIDEMILL_API_KEY", &key)]);
    let told = worker.wait_for("no task could be claimed");
    assert!(told.contains("Z warn  ") && told.contains("unavailable: "), "{told}");
    eventually("that it asked again and again", || line.ends.lock().unwrap().losses.is_empty());
    worker.signal(Signal::TERM);
    let ended = worker.end();
    assert_eq!(ended.code, 0, "{ended:#?}");
    let lines = ended.words.lines().filter(|line| line.contains("no task could be claimed")).count();
    assert!((1..=2).contains(&lines), "{lines}: {}", ended.words);
    assert!(!ended.words.contains(&key), "{}", ended.words);
    server.stop().ok();
}

/// The body of an answer of a server.
fn get(url: &str, path: &str) -> Value {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn a_worker_says_how_much_it_can_do_at_a_time() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    let server = sandbox.serve(&["--no-worker"], &[]);
    let worker = elsewhere.start(&["worker", "--server", &server.url, "--concurrency", "3"], &[]);
    let workers = || get(&server.url, "/v1/workers")["items"].clone();
    eventually("the worker is known", || workers()[0]["slots"] == 3);
    // One that runs says the same: it is about all it has, not about what is free.
    let held = "while [ ! -e go ]; do sleep 0.05; done";
    sandbox.write("job.yaml", &format!("tasks: [{{taskId: a, run: '{held}'}}]\n"));
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let status = || sandbox.run(&["jobs", "get", &id, "--json"]).ok().json()["tasks"][0]["status"].clone();
    eventually("the task runs", || status() == "processing");
    assert_eq!(workers()[0]["slots"], 3);
    elsewhere.write("go", "");
    assert_eq!(sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json()["status"], "completed");
    worker.kill();
    server.stop().ok();
}

/// Results and errors in all ways in which programs tell them.
const OF_PYTHON: &str = r#"tasks:
- {taskId: a, run: 'echo "{\"n\":1}"'}
- {taskId: b, run: [sh, -c, 'cat "$INPUT_FILE"'], dependsOn: [a]}
- {taskId: bad, run: exit 7, retry: {maxAttempts: 1}}
- {taskId: slow, run: sleep 100, timeout: 1s}
- taskId: said
  run: |
    echo '@@tidemill {"kind":"result","output":{"said":1}}'; echo and more
- taskId: filed
  run: |
    echo '[1,2]' > "$TIDEMILL_OUTPUT_DIR/x.json"; echo '@@tidemill {"kind":"result","outputFile":"x.json"}'
- taskId: never
  run: |
    echo '@@tidemill {"kind":"error","name":"ValidationError","code":"BAD_ROW","message":"row 7"}'; exit 1
- taskId: later
  retry: {maxAttempts: 2, firstDelay: 1ms}
  run: |
    test $TIDEMILL_ATTEMPT = 2 || { echo '@@tidemill {"kind":"error","status":503}'; exit 1; }
"#;

/// The example in Python speaks the same calls.
#[test]
fn the_python_worker_completes_a_job() {
    if !parts::has_python() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", OF_PYTHON);
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
    assert_eq!(ran.code, 1, "{ran:#?}");
    let tasks = &ran.json()["tasks"];
    assert_eq!(tasks["b"]["output"], json!({ "dependencyOutputs": { "a": { "n": 1 } } }));
    assert_eq!((&tasks["bad"]["status"], &tasks["slow"]["status"]), (&json!("failed"), &json!("failed")));
    // What programs say by lines of the protocol.
    assert_eq!(
        (&tasks["said"]["output"], &tasks["filed"]["output"]),
        (&json!({ "said": 1 }), &json!([1, 2]))
    );
    assert_eq!((&tasks["never"]["status"], &tasks["never"]["attempt"]), (&json!("failed"), &json!(1)));
    assert_eq!((&tasks["later"]["status"], &tasks["later"]["attempt"]), (&json!("completed"), &json!(2)));
    let never = format!("{}_never", ran.json()["jobId"].as_str().unwrap());
    let never = sandbox.run(&["tasks", "get", &never, "--json"]).ok().out;
    assert!(never.contains("ValidationError: row 7 (BAD_ROW") && never.contains("\"validation\""), "{never}");
    server.stop().ok();
}

/// A line between a worker and its server that can be cut.
pub(crate) struct Line {
    pub(crate) url: String,
    ends: Arc<Mutex<Ends>>,
    hold: Arc<Hold>,
}

/// Whether answers are held back.
#[derive(Default)]
struct Hold {
    is_held: Mutex<bool>,
    changed: Condvar,
}

impl Hold {
    fn wait(&self) {
        drop(self.changed.wait_while(self.is_held.lock().unwrap(), |is_held| *is_held).unwrap());
    }
}

#[derive(Default)]
struct Ends {
    is_cut: bool,
    open: Vec<TcpStream>,
    /// What gets lost, each time a question begins with the text.
    losses: VecDeque<Loss>,
    of: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It never arrives.
    Question,
    /// It arrives, and what is answered does not.
    Answer,
}

impl Line {
    pub(crate) fn to(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let ends = Arc::new(Mutex::new(Ends::default()));
        let hold = Arc::<Hold>::default();
        let (shared, address) = (Arc::clone(&ends), address.to_owned());
        let gate = Arc::clone(&hold);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(&address).unwrap();
                let mut ends = shared.lock().unwrap();
                if ends.is_cut {
                    continue;
                }
                ends.open.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (near_again, far_again) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let is_deaf = Arc::new(AtomicBool::new(false));
                let (deaf, line) = (Arc::clone(&is_deaf), Arc::clone(&shared));
                let asked = move |question: &[u8]| match line.lock().unwrap().loss_of(question) {
                    Some(Loss::Question) => false,
                    Some(Loss::Answer) => {
                        deaf.store(true, Ordering::SeqCst);
                        true
                    }
                    None => true,
                };
                std::thread::spawn(move || carry(near, far, asked));
                let gate = Arc::clone(&gate);
                let answered = move |_: &[u8]| {
                    gate.wait();
                    !is_deaf.load(Ordering::SeqCst)
                };
                std::thread::spawn(move || carry(far_again, near_again, answered));
            }
        });
        Self { url, ends, hold }
    }

    /// Holds answers back from now on, or lets them go. Questions get through.
    pub(crate) fn hold(&self, is_held: bool) {
        *self.hold.is_held.lock().unwrap() = is_held;
        self.hold.changed.notify_all();
    }

    pub(crate) fn lose(&self, of: &'static str, losses: &[Loss]) {
        let mut ends = self.ends.lock().unwrap();
        (ends.of, ends.losses) = (of, losses.iter().copied().collect());
    }

    fn cut(&self) {
        let mut ends = self.ends.lock().unwrap();
        ends.is_cut = true;
        for stream in ends.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Ends {
    fn loss_of(&mut self, question: &[u8]) -> Option<Loss> {
        if !self.losses.is_empty() && question.starts_with(self.of.as_bytes()) {
            self.losses.pop_front()
        } else {
            None
        }
    }
}

/// Carries bytes until there are no more, or until some may not pass: then both ends are closed.
fn carry(mut from: TcpStream, mut to: TcpStream, may_pass: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 16 * 1024];
    let _: io::Result<()> = (|| {
        loop {
            match from.read(&mut buffer)? {
                0 => return to.shutdown(Shutdown::Write),
                count if may_pass(&buffer[..count]) => to.write_all(&buffer[..count])?,
                _ => {
                    from.shutdown(Shutdown::Both)?;
                    return to.shutdown(Shutdown::Both);
                }
            }
        }
    })();
}
