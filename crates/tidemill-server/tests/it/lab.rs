//! A server on a port of its own, and a client that says exactly what it is told to say.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::Engine;
use tidemill_engine::clock::{Clock, SystemClock};
use tidemill_engine::engine::{CompileProblem, EngineConfig, ScriptCompiler};
use tidemill_engine::policy::Policy;
use tidemill_model::{ErrorSanitizer, Role, TenantId, Timestamp};
use tidemill_server::{App, ServerConfig, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::breakable_disk::BreakableDisk;

/// "Must end": far above what anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A value that the lab's sanitizer knows to be a secret.
pub(crate) const SECRET: &str = "hunter2-hunter2";

/// Takes every script for right that holds no `@`.
struct Compiler;

impl ScriptCompiler for Compiler {
    fn compile<'a>(
        &'a self,
        _: &'a TenantId,
        _: &'a str,
        source: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), CompileProblem>> + Send + 'a>> {
        let number = |count: usize| u32::try_from(count).unwrap();
        let wrong = source.lines().enumerate().find_map(|(at, line)| {
            let column = number(line.find('@')? + 1);
            Some(CompileProblem::Wrong {
                message: "unexpected token".to_owned(),
                line: number(at + 1),
                column,
            })
        });
        Box::pin(async move { wrong.map_or(Ok(()), Err) })
    }
}

/// The machine's clock, which a test may put forward.
struct LabClock {
    running: SystemClock,
    passed_millis: AtomicU64,
}

impl Clock for LabClock {
    fn now(&self) -> Timestamp {
        self.running.now().plus(self.passed_millis.load(Ordering::SeqCst))
    }
}

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn fresh() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("tidemill-server-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Lab {
    pub(crate) engine: Engine<Embedded>,
    pub(crate) address: SocketAddr,
    clock: Arc<LabClock>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    _directory: Directory,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        Self::with(ServerConfig::default(), Policy::default()).await
    }

    /// A server with these settings, without keys.
    pub(crate) async fn with(config: ServerConfig, policy: Policy) -> Self {
        Self::on(Directory::fresh(), config, policy, |path, options, clock| {
            Embedded::open(path, options, clock).unwrap()
        })
        .await
    }

    /// A server on a disk that can be broken.
    pub(crate) async fn on_breakable_disk() -> (Self, BreakableDisk) {
        let directory = Directory::fresh();
        std::fs::create_dir_all(&directory.0).unwrap();
        let disk = BreakableDisk::new(&directory.0);
        let (config, policy) = (ServerConfig::default(), Policy::default());
        let lab = Self::on(directory, config, policy, |_, options, clock| {
            Embedded::open_on(Arc::new(disk.clone()), options, clock).unwrap()
        });
        (lab.await, disk)
    }

    async fn on(
        directory: Directory,
        config: ServerConfig,
        policy: Policy,
        open: impl FnOnce(&Path, StoreOptions, Arc<dyn Clock>) -> Embedded,
    ) -> Self {
        let clock = Arc::new(LabClock { running: SystemClock::start(), passed_millis: AtomicU64::new(0) });
        let seed = u64::from(std::process::id());
        let options = StoreOptions { policy: policy.clone(), seed, ..StoreOptions::default() };
        let backend = open(&directory.0, options, Arc::clone(&clock) as _);
        let sanitizer =
            Arc::new(ErrorSanitizer::new(vec![SECRET.to_owned()], Some("/home/somebody".to_owned())));
        let settings = EngineConfig { policy, sanitizer, ..EngineConfig::default() };
        let engine = Engine::new(backend, Arc::clone(&clock), seed + 1, settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let app = App::with_compiler(&engine, config, Some(Arc::new(Compiler)));
        let serving = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            serve(listener, app, stopped).await.unwrap();
        });
        Self { engine, address, clock, stop: Some(stop), serving, _directory: directory }
    }

    /// Lets this much time pass. A task that already sleeps does not notice.
    pub(crate) fn pass(&self, millis: u64) {
        self.clock.passed_millis.fetch_add(millis, Ordering::SeqCst);
    }

    /// The local user of a server without keys.
    pub(crate) fn local(&self) -> Client {
        Client { address: self.address, token: None }
    }

    /// A client with a new key.
    pub(crate) async fn key(&self, tenant: &str, role: Role) -> Client {
        self.worker_key(&[tenant], role).await
    }

    pub(crate) async fn worker_key(&self, tenants: &[&str], role: Role) -> Client {
        let tenants = tenants.iter().map(|tenant| TenantId::new(tenant).unwrap()).collect();
        let (_, token) = self.engine.create_key(tenants, role, None).await.unwrap();
        Client { address: self.address, token: Some(token.reveal()) }
    }

    /// Asks the server to stop and waits until it has.
    pub(crate) async fn shut_down(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(LONG, &mut self.serving).await.expect("it ends in time").unwrap();
    }

    /// Asks the server to stop.
    pub(crate) fn ask_to_stop(&mut self) {
        drop(self.stop.take());
    }
}

/// A client that opens a connection for every request.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Some(Self { status, headers, body: bytes[end + 4..].to_vec() })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The code of a problem, which must be a complete document.
    pub(crate) fn code(&self) -> String {
        let problem = self.json();
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{problem}");
        assert_eq!(problem["status"], self.status, "{problem}");
        for field in ["type", "title", "code", "detail"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {problem}");
        }
        assert!(problem["details"].is_array(), "{problem}");
        problem["code"].as_str().unwrap().to_owned()
    }

    /// The answer, if it has this status.
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The status and code of a problem, and the field it names first.
    pub(crate) fn problem(&self) -> (u16, String, String) {
        let code = self.code();
        let field = self.json()["details"][0]["field"].as_str().unwrap_or_default().to_owned();
        (self.status, code, field)
    }
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"").await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &[("Content-Type", "application/json")], body.to_string().as_bytes()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut request = self.head(method, path, headers, "HTTP/1.1");
        let _ = write!(request, "Connection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        // A server that refuses may close before it has read all.
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await;
        read.expect("an answer comes in time").unwrap();
        Answer::parse(&answer).unwrap_or_else(|| panic!("no answer to {method} {path}: {answer:?}"))
    }

    /// The head of a request without its last lines.
    pub(crate) fn head(&self, method: &str, path: &str, headers: &[(&str, &str)], version: &str) -> String {
        let mut request = format!("{method} {path} {version}\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            let _ = write!(request, "Host: {}\r\n", self.address);
        }
        if let Some(token) = &self.token {
            let _ = write!(request, "Authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            let _ = write!(request, "{name}: {value}\r\n");
        }
        request
    }

    /// Defines a task that runs `true`, so that jobs can name it.
    pub(crate) async fn define(&self, name: &str) -> Value {
        let draft = json!({"name": name, "runner": "command", "command": ["true"]});
        self.post("/v1/task-definitions", &draft).await.expect(201)
    }

    /// Submits a job of tasks, each with the tasks it depends on.
    pub(crate) async fn submit(&self, tasks: &[(&str, &[&str])]) -> String {
        let accepted = self.post("/v1/jobs", &job_file(tasks)).await.expect(201);
        accepted["jobId"].as_str().unwrap().to_owned()
    }

    /// Claims up to `slots` tasks at once.
    pub(crate) async fn claim(&self, slots: u32) -> Vec<Value> {
        let request = json!({"workerId": "w1", "slots": slots});
        let answer = self.post("/v1/worker/claim", &request).await.expect(200);
        answer["tasks"].as_array().unwrap().clone()
    }

    /// Reports how a claimed task ended.
    pub(crate) async fn finish(&self, task: &Value, outcome: &Value) -> Answer {
        let request = json!({
            "tenantId": task["tenantId"],
            "requestId": task["requestId"],
            "fence": task["fence"],
            "outcome": outcome,
        });
        self.post("/v1/worker/finish", &request).await
    }

    pub(crate) async fn complete(&self, task: &Value, output: &Value) {
        self.finish(task, &json!({"status": "completed", "output": output})).await.expect(200);
    }

    pub(crate) async fn fail(&self, task: &Value) {
        let outcome = json!({"status": "failed", "error": "no", "errorCategory": "validation"});
        self.finish(task, &outcome).await.expect(200);
    }
}

/// A job of tasks that run `true`, each with the tasks it depends on.
pub(crate) fn job_file(tasks: &[(&str, &[&str])]) -> Value {
    let tasks = tasks.iter().map(|(id, parents)| json!({"taskId": id, "name": "work", "dependsOn": parents}));
    json!({"tasks": tasks.collect::<Vec<_>>()})
}

/// The documented sample: A and B, then C of A and D of both, then E of C and D.
pub(crate) const SAMPLE: [(&str, &[&str]); 5] = [
    ("task-A", &[]),
    ("task-B", &[]),
    ("task-C", &["task-A"]),
    ("task-D", &["task-A", "task-B"]),
    ("task-E", &["task-C", "task-D"]),
];

/// The part of a claimed task's id after its job.
pub(crate) fn task_id(task: &Value) -> &str {
    task["taskId"].as_str().unwrap()
}
