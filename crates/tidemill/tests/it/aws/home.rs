//! Where a test keeps everything: a data directory, or a stage on a double of AWS.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::double::{double, fresh_name};
use super::persister::Persister;
use crate::sandbox::{Ran, Running, Sandbox, Server, eventually};

/// A lease of 1.5 s instead of 45, and a sweep every second.
pub(super) const SHORT: [(&str, &str); 3] = [
    ("VISIBILITY_EXTENSION_INTERVAL", "300"),
    ("VISIBILITY_EXTENSION_AMOUNT", "1"),
    ("SWEEP_INTERVAL_MS", "1000"),
];
/// What the processes of a stage share.
pub(super) const TOKEN_KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

pub(super) struct Home {
    pub(super) sandbox: Sandbox,
    /// What every process of it is told.
    pub(super) settings: Vec<(String, String)>,
    pub(super) is_aws: bool,
    /// What stores the events of a stage.
    pub(super) persister: Option<Persister>,
}

/// One call of a service of the double, as its SDKs make it.
pub(super) fn call(endpoint: &str, target: &str, body: &Value) -> Value {
    let host = endpoint.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: {target}\r\nAuthorization: AWS4-HMAC-SHA256 Credential=test/20261116/us-east-1/any/\
         aws4_request, SignedHeaders=host, Signature=0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|_| json!({}))
}

/// The servers of a home, and the worker that runs its tasks. They are killed when this is dropped.
pub(super) struct Staff {
    pub(super) servers: Vec<Server>,
    pub(super) worker: Running,
}

/// How a program reaches the double.
pub(super) fn access(endpoint: &str) -> Vec<(String, String)> {
    let access = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
    ];
    access.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// Runs the body on a data directory, and on AWS if there is a double.
pub(super) fn on_both(body: impl Fn(&Home)) {
    body(&Home::embedded());
    if let Some(home) = Home::aws() {
        body(&home);
    }
}

impl Home {
    pub(super) fn embedded() -> Self {
        Self { sandbox: Sandbox::new(), settings: Vec::new(), is_aws: false, persister: None }
    }

    /// A stage of its own, made as users make one.
    pub(super) fn aws() -> Option<Self> {
        let endpoint = &double()?.endpoint;
        let stage = fresh_name();
        let mut home =
            Self { sandbox: Sandbox::new(), settings: access(endpoint), is_aws: true, persister: None };
        home.run(&["aws", "deploy", "--stage", &stage, "--only", "infrastructure"]).ok();
        let found = home.run(&["aws", "env", "--stage", &stage, "--json"]).ok().json();
        for (name, value) in found.as_object().unwrap() {
            home.settings.retain(|(known, _)| known != name);
            home.settings.push((name.clone(), value.as_str().unwrap().to_owned()));
        }
        home.set("TOKEN_KEY", TOKEN_KEY);
        home.set("TENANT_ID", "default");
        // Events name it, and are compared with those of another home.
        home.set("NODE_ENV", "dev");
        let (table, bus) = (home.setting("DYNAMODB_EVENTS_TABLE_NAME"), home.setting("EVENTBRIDGE_BUS_NAME"));
        home.persister = Some(Persister::start(endpoint, &stage, table, bus));
        Some(home)
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn setting(&self, name: &str) -> &str {
        &self.settings.iter().find(|(known, _)| known == name).unwrap().1
    }

    fn with<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.chain(more.iter().copied()).collect()
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Ran {
        self.sandbox.run_with(arguments, &self.with(&[]))
    }

    pub(super) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
        self.sandbox.run_with(arguments, &self.with(environment))
    }

    pub(super) fn items(&self, arguments: &[&str]) -> Vec<Value> {
        self.run(arguments).ok().json()["items"].as_array().unwrap().clone()
    }

    pub(super) fn serve(&self, more: &[&str], environment: &[(&str, &str)]) -> Server {
        self.sandbox.serve(more, &self.with(environment))
    }

    /// A process that serves without the API.
    pub(super) fn serve_apart(&self, roles: &str, environment: &[(&str, &str)]) -> Running {
        let mut process = self.sandbox.start(&["serve", "--roles", roles], &self.with(environment));
        process.wait_for("serving the table ");
        process
    }

    /// A worker of a server, or on AWS of the stage, which needs no server.
    pub(super) fn worker(&self, server: &str, environment: &[(&str, &str)]) -> Running {
        let arguments: &[&str] = if self.is_aws { &["worker"] } else { &["worker", "--server", server] };
        let mut worker = self.sandbox.start(arguments, &self.with(environment));
        worker.wait_for("working for ");
        worker
    }

    /// A server that runs no tasks, and a worker beside it.
    pub(super) fn staff(&self, environment: &[(&str, &str)]) -> Staff {
        let server = self.serve(&["--no-worker"], environment);
        let worker = self.worker(&server.url, environment);
        Staff { servers: vec![server], worker }
    }

    /// One call of a service of the double.
    pub(super) fn call(&self, target: &str, body: &Value) -> Value {
        call(self.setting("AWS_ENDPOINT_URL"), target, body)
    }

    /// How many events of a type there are, once there are as many as expected. A table hears of them late: one that a server
    /// tells from its memory may be missing at the next look, so the one that counts is told.
    pub(super) fn count(&self, event_type: &str, expected: usize) -> usize {
        let mut count = 0;
        eventually(&format!("{expected} times {event_type}"), || {
            count = self.items(&["events", "query", "--type", event_type, "--json"]).len();
            count >= expected
        });
        count
    }
}

impl Staff {
    /// All of it stops in order.
    pub(super) fn stop(self) {
        self.worker.signal(rustix::process::Signal::TERM);
        self.worker.end().ok();
        for server in self.servers {
            server.stop().ok();
        }
    }
}
