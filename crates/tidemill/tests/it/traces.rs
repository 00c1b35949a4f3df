//! Traces: what a collector gets to see, and what tasks are told.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, Server, eventually};

/// A collector on a port of its own.
struct Collector {
    url: String,
    got: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Collector {
    /// It refuses the first `refusals` requests.
    fn start(refusals: usize) -> Self {
        Self::saying(refusals, "503 Later")
    }

    fn saying(refusals: usize, refusal: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let got: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let own = Arc::clone(&got);
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            let mut refusals = refusals;
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let (mut head, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                        break;
                    }
                    let line = line.to_ascii_lowercase();
                    if let Some(value) = line.strip_prefix("content-length: ") {
                        length = value.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let status = if refusals > 0 { refusal } else { "200 OK" };
                if refusals == 0 {
                    own.lock().unwrap().push((head, serde_json::from_slice(&body).unwrap()));
                }
                refusals = refusals.saturating_sub(1);
                let answer =
                    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}");
                let _ = reader.get_mut().write_all(answer.as_bytes());
            }
        });
        Self { url, got }
    }

    fn spans(&self) -> Vec<Span> {
        let got = self.got.lock().unwrap();
        let all = got.iter().flat_map(|(_, body)| body["resourceSpans"].as_array().unwrap());
        let all = all.flat_map(|resource| resource["scopeSpans"].as_array().unwrap());
        let all = all.flat_map(|scope| scope["spans"].as_array().unwrap());
        all.map(Span::read).collect()
    }

    fn of(&self, name: &str) -> Vec<Span> {
        let mut found = self.spans();
        found.retain(|span| span.name == name);
        found.sort_by_key(|span| span.start);
        found
    }
}

/// A span as a collector reads it.
#[derive(Debug, Clone)]
struct Span {
    trace: String,
    id: String,
    parent: Option<String>,
    name: String,
    start: u64,
    end: u64,
    attributes: BTreeMap<String, String>,
    status: u64,
    message: Option<String>,
}

impl Span {
    fn read(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let nanos = |name: &str| text(name).unwrap().parse().unwrap();
        let attributes = value["attributes"].as_array().unwrap().iter().map(|attribute| {
            let value = attribute["value"].as_object().unwrap();
            assert_eq!(value.len(), 1, "{attribute}");
            let value = value.get("stringValue").or_else(|| value.get("intValue")).unwrap();
            (attribute["key"].as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned())
        });
        let span = Self {
            trace: text("traceId").unwrap(),
            id: text("spanId").unwrap(),
            parent: text("parentSpanId"),
            name: text("name").unwrap(),
            start: nanos("startTimeUnixNano"),
            end: nanos("endTimeUnixNano"),
            attributes: attributes.collect(),
            status: value["status"]["code"].as_u64().unwrap(),
            message: value["status"]["message"].as_str().map(str::to_owned),
        };
        let is_hex = |text: &str, length| {
            text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        assert!(is_hex(&span.trace, 32) && is_hex(&span.id, 16), "{span:?}");
        assert!(span.start <= span.end && span.start > 1_600_000_000_000_000_000, "{span:?}");
        span
    }

    fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }
}

/// A diamond whose left side fails once. Each task's output is the trace that it got.
const DIAMOND: &str = r#"
name: diamond
tasks:
- {taskId: top, run: 'echo "{\"told\":\"$TRACEPARENT\"}"'}
- taskId: left
  dependsOn: [top]
  run: 'if test -e ../../tried; then echo "{\"told\":\"$TRACEPARENT\"}"; else touch ../../tried; echo "connection refused" >&2; exit 1; fi'
  retry: {maxAttempts: 3, firstDelay: 20ms}
- {taskId: right, dependsOn: [top], run: 'sleep 0.3; echo "{\"told\":\"$TRACEPARENT\"}"'}
- {taskId: bottom, dependsOn: [left, right], run: 'echo "{\"told\":\"$TRACEPARENT\"}"'}
"#;

#[test]
fn a_job_is_a_trace_with_a_span_for_each_attempt_and_tasks_know_theirs() {
    let sandbox = Sandbox::new();
    let collector = Collector::start(2);
    sandbox.write("job.yaml", &DIAMOND.replace("../../tried", sandbox.dir.join("tried").to_str().unwrap()));
    let settings = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "X-Api-Key=se%20cret"),
        ("OTEL_SERVICE_NAME", "mill"),
        ("NODE_ENV", "test"),
    ];
    let report = sandbox.run_with(&["run", "job.yaml", "--json"], &settings).ok().json();
    let spans = collector.spans();
    assert_eq!(spans.len(), 6, "{spans:#?}");
    let job = report["jobId"].as_str().unwrap();
    let roots = collector.of("diamond");
    let [root] = roots.as_slice() else { panic!("{spans:#?}") };
    assert_eq!(
        (root.parent.as_ref(), root.status, root.attribute("tidemill.status")),
        (None, 1, "completed")
    );
    assert_eq!(format!("job-{}", root.trace), job, "the trace has the job's id");
    for span in spans.iter().filter(|span| span.id != root.id) {
        assert_eq!(span.trace, root.trace);
        assert_eq!(span.parent.as_ref(), Some(&root.id), "{span:?}");
        assert!(root.start <= span.start && span.end <= root.end, "{span:?} is not within {root:?}");
        assert_eq!(span.attribute("tidemill.job_id"), job);
        assert_eq!(span.attribute("tidemill.tenant"), "default");
        let request = format!("{job}_{}", span.attribute("tidemill.task_id"));
        assert_eq!(span.attribute("tidemill.request_id"), request);
        assert!(span.attribute("tidemill.worker_id").starts_with("command-"), "{span:?}");
    }
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| &span.id).collect();
    assert_eq!(ids.len(), spans.len(), "no two spans are the same");

    let left = collector.of("left");
    let told = |at: usize, name: &str| left[at].attribute(name).to_owned();
    assert_eq!((left.len(), left[0].status, left[1].status), (2, 2, 1), "{left:#?}");
    assert_eq!((told(0, "tidemill.outcome"), told(0, "error.type")), ("failed".into(), "network".into()));
    assert_eq!((told(0, "tidemill.attempt"), told(1, "tidemill.attempt")), ("1".into(), "2".into()));
    assert!(left[0].message.as_ref().unwrap().contains("connection refused"), "{left:#?}");
    assert!(left[0].end + 15_000_000 <= left[1].start, "the second attempt waited: {left:#?}");
    let (top, right, bottom) = (collector.of("top"), collector.of("right"), collector.of("bottom"));
    assert!(top[0].end <= right[0].start && right[0].end <= bottom[0].start);
    // It sleeps for 300 ms, and its beginning is written down a moment after it was started.
    assert!(right[0].end - right[0].start >= 100_000_000, "{right:?}");
    for (task, span) in [("top", &top[0]), ("left", &left[1]), ("right", &right[0]), ("bottom", &bottom[0])] {
        assert_eq!((span.status, span.attribute("tidemill.outcome")), (1, "completed"));
        assert_eq!(report["tasks"][task]["output"], json!({"told": span.traceparent()}), "{task}");
    }
    let (head, body) = collector.got.lock().unwrap()[0].clone();
    assert!(
        head.starts_with("post /v1/traces http/1.1\r\n") && head.contains("\r\nx-api-key: se cret\r\n"),
        "{head}"
    );
    let resource = body["resourceSpans"][0]["resource"]["attributes"].to_string();
    assert!(resource.contains(r#"{"key":"service.name","value":{"stringValue":"mill"}}"#), "{resource}");
    assert!(
        resource.contains(r#"{"key":"deployment.environment","value":{"stringValue":"test"}}"#),
        "{resource}"
    );
}

#[test]
fn without_a_collector_nobody_is_told_anything() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", r#"tasks: [{taskId: a, run: 'echo "{\"told\":\"$TRACEPARENT\"}"'}]"#);
    // What the worker itself is told is not its tasks' business.
    let outer = [("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")];
    let report = sandbox.run_with(&["run", "job.yaml", "--json"], &outer).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({"told": ""}));
}

fn metric(server: &Server, line: &str) -> Option<u64> {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

#[test]
fn a_collector_that_is_away_holds_up_nothing_and_what_it_missed_is_counted() {
    let sandbox = Sandbox::new();
    // Every caller is cut off. A port that was given up could belong to another test by now.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/traces", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let server = sandbox.serve(&[], &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &url)]);
    sandbox.write("job.yaml", "tasks: [{taskId: a, run: 'true'}, {taskId: b, run: 'true', dependsOn: [a]}]");
    sandbox.run(&["submit", "job.yaml", "--watch"]).ok();
    let name = |result| format!("tidemill_trace_spans_total{{result=\"{result}\"}}");
    assert_eq!(metric(&server, "tidemill_slots "), Some(3));
    eventually("that spans are given up", || metric(&server, &name("dropped")) == Some(3));
    assert_eq!(metric(&server, &name("sent")), Some(0));
    assert_eq!(server.stop().code, 0);
}

#[test]
fn what_a_collector_does_not_like_is_not_sent_again_unless_it_was_too_much() {
    for (refusal, sent, dropped) in [("400 No", 0, 2), ("429 Slowly", 2, 0)] {
        let sandbox = Sandbox::new();
        let collector = Collector::saying(1, refusal);
        let server = sandbox.serve(&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]);
        sandbox.write("job.yaml", "tasks: [{taskId: a, run: 'true'}]");
        sandbox.run(&["submit", "job.yaml", "--watch"]).ok();
        let count = |result| metric(&server, &format!("tidemill_trace_spans_total{{result=\"{result}\"}}"));
        eventually("what became of both spans", || {
            count("sent") == Some(sent) && count("dropped") == Some(dropped)
        });
        assert_eq!(collector.spans().len() as u64, sent, "{refusal}");
        assert_eq!(server.stop().code, 0);
    }
}

#[test]
fn a_job_of_which_two_tasks_fail_has_one_end() {
    let sandbox = Sandbox::new();
    let collector = Collector::start(0);
    let server = sandbox.serve(&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]);
    let task =
        |name: &str, run: &str| format!("- {{taskId: {name}, run: '{run}', retry: {{maxAttempts: 1}}}}\n");
    let (first, second) = (task("a", "false"), task("b", "while [ ! -e go ]; do sleep 0.05; done; false"));
    sandbox.write("two.yaml", &format!("name: two\ntasks:\n{first}{second}"));
    let job = sandbox.run(&["submit", "two.yaml"]).ok().out.trim().to_owned();
    eventually("the first failure", || collector.of("a").len() == 1);
    sandbox.write("go", "");
    eventually("the end", || sandbox.run(&["jobs", "get", &job, "--json"]).ok().json()["status"] == "failed");
    assert_eq!(server.stop().code, 0);
    assert_eq!(collector.of("b").len(), 1);
    assert_eq!(collector.of("two").len(), 1, "{:#?}", collector.of("two"));
}

#[test]
fn the_first_span_of_a_trace_is_told_once_over_a_restart() {
    let sandbox = Sandbox::new();
    let collector = Collector::start(0);
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let server = sandbox.serve(&[], &settings);
    let fixed = sandbox.dir.join("fixed");
    let job = "name: again\ntasks: [{taskId: step, run: 'test -e FILE', retry: {maxAttempts: 1}}]";
    sandbox.write("again.yaml", &job.replace("FILE", fixed.to_str().unwrap()));
    let job = sandbox.run(&["submit", "again.yaml"]).ok().out.trim().to_owned();
    eventually("the failed spans", || collector.of("again").len() == 1);
    assert_eq!(server.stop().code, 0);
    std::fs::write(&fixed, "").unwrap();
    let server = sandbox.serve(&[], &settings);
    sandbox.run(&["jobs", "resume", &job]).ok();
    eventually("the second end", || collector.of("again").len() == 2);
    let jobs = collector.of("again");
    let (first, second) = if jobs[0].parent.is_none() { (&jobs[0], &jobs[1]) } else { (&jobs[1], &jobs[0]) };
    assert_ne!(first.id, second.id);
    assert_eq!((first.status, second.status, second.parent.as_ref()), (2, 1, Some(&first.id)));
    assert_eq!(server.stop().code, 0);
}

#[test]
fn cancelled_attempts_resumed_jobs_and_tasks_alone_have_their_spans() {
    let sandbox = Sandbox::new();
    let collector = Collector::start(0);
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let server = sandbox.serve(&[], &settings);
    sandbox.write("nap.yaml", "name: nap\ntasks: [{taskId: sleeper, run: 'sleep 600'}]");
    let job = sandbox.run(&["submit", "nap.yaml"]).ok().out.trim().to_owned();
    eventually("that it runs", || {
        sandbox.run(&["tasks", "list", "--json", "--state", "processing"]).ok().out.contains("sleeper")
    });
    sandbox.run(&["jobs", "cancel", &job]).ok();
    eventually("the cancelled spans", || {
        collector.of("nap").len() == 1 && collector.of("sleeper").len() == 1
    });
    let (nap, sleeper) = (collector.of("nap").remove(0), collector.of("sleeper").remove(0));
    assert_eq!((nap.status, nap.attribute("tidemill.status")), (2, "cancelled"));
    assert_eq!((sleeper.status, sleeper.attribute("tidemill.outcome")), (2, "cancelled"));
    assert_eq!((sleeper.parent.as_ref(), sleeper.attribute("error.type")), (Some(&nap.id), "cancelled"));

    // It fails, is mended and goes on: the first span of its trace is told once, the second end lies below it.
    let fixed = sandbox.dir.join("fixed");
    sandbox.write(
        "again.yaml",
        &format!(
            "name: again\ntasks: [{{taskId: step, run: 'test -e {}', retry: {{maxAttempts: 1}}}}]",
            fixed.display()
        ),
    );
    let job = sandbox.run(&["submit", "again.yaml"]).ok().out.trim().to_owned();
    eventually("the failed spans", || collector.of("again").len() == 1 && collector.of("step").len() == 1);
    assert_eq!(collector.of("step")[0].attribute("tidemill.outcome"), "failed");
    std::fs::write(&fixed, "").unwrap();
    sandbox.run(&["jobs", "resume", &job]).ok();
    eventually("the second end", || collector.of("again").len() == 2 && collector.of("step").len() == 2);
    let jobs = collector.of("again");
    let (first, second) = if jobs[0].parent.is_none() { (&jobs[0], &jobs[1]) } else { (&jobs[1], &jobs[0]) };
    assert_eq!((first.status, second.status, second.parent.as_ref()), (2, 1, Some(&first.id)));
    let steps = collector.of("step");
    assert_eq!((steps[1].attribute("tidemill.run"), steps[1].status), ("2", 1));
    assert!(steps.iter().all(|step| step.parent.as_ref() == Some(&first.id)));

    // A task without a job is a trace of its own.
    let address = server.url.strip_prefix("http://").unwrap();
    let body = r#"{"requestId":"alone","run":["true"]}"#;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = "POST /v1/tasks HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close";
    write!(stream, "{head}\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let of_it = || {
        let mut spans = collector.spans();
        spans.retain(|span| span.attribute("tidemill.request_id") == "alone");
        spans
    };
    eventually("both spans", || of_it().len() == 2);
    let spans = of_it();
    let (task, attempt) =
        if spans[0].parent.is_none() { (&spans[0], &spans[1]) } else { (&spans[1], &spans[0]) };
    assert_eq!((attempt.parent.as_ref(), &attempt.trace), (Some(&task.id), &task.trace));
    assert_eq!((task.attribute("tidemill.status"), task.status, attempt.status), ("completed", 1, 1));
    assert!(task.start <= attempt.start && attempt.end <= task.end, "{spans:#?}");
    assert_eq!(attempt.attribute("tidemill.attempt"), "1");
    assert_eq!(server.stop().code, 0);
}
