//! A double of AWS on loopback, one for all tests of the binary. It runs functions, and lets them do what their roles say.
//!
//! `scripts/aws-doubles` installs the doubles and prints where; `TIDEMILL_TEST_AWS_DOUBLES` names that place. Without it the
//! tests say so and pass.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::Runtime;

/// Runs the double until our end of its input is closed, which the end of this process does in any case.
const LAUNCHER: &str = r"
import os, sys, threading
def watch():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
sys.argv = ['ministack']
from ministack.app import main
main()
";

pub(crate) struct Double {
    pub(crate) endpoint: String,
    pub(crate) process: u32,
    /// Held open: the double ends with it.
    _input: ChildStdin,
    _process: Child,
}

/// What drives the calls of all tests.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made")
});

static DOUBLE: LazyLock<Option<Double>> = LazyLock::new(start);

/// The double, or a note that there is none.
pub(crate) fn double() -> Option<&'static Double> {
    let found = DOUBLE.as_ref();
    if found.is_none() {
        eprintln!("TIDEMILL_TEST_AWS_DOUBLES is not set; skipped what needs a double of AWS");
    }
    found
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment where the doubles are")]
fn home() -> Option<String> {
    std::env::var("TIDEMILL_TEST_AWS_DOUBLES").ok()
}

fn start() -> Option<Double> {
    let home = home()?;
    // The double cannot be asked which port it got. Should another take this one first, it does not start.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("loopback has a free port")
        .port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let mut process = Command::new(format!("{home}/bin/python"))
        .args(["-u", "-c", LAUNCHER])
        .env("GATEWAY_PORT", port.to_string())
        .env("BIND_HOST", "127.0.0.1")
        // Where functions find it, and that they may do no more than their roles let them.
        .env("AWS_ENDPOINT_URL", &endpoint)
        .env("AUTH", "true")
        // The pause before a function that failed is called again is a minute otherwise.
        .env("LAMBDA_ASYNC_RETRY_BASE_SECONDS", "0.1")
        .env("TMPDIR", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("AWS_CA_BUNDLE")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the double starts");
    let input = process.stdin.take().expect("it was asked for");
    let errors = process.stderr.take().expect("it was asked for");
    let (first, started) = std::sync::mpsc::channel();
    // Its words are read to the end, or it would stand still once nobody takes them.
    std::thread::spawn(move || {
        let mut lines = String::new();
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            if line.contains("Running on http") {
                let _ = first.send(Ok(()));
            }
            lines.push_str(&line);
            lines.push('\n');
        }
        let _ = first.send(Err(lines));
    });
    match started.recv_timeout(Duration::from_secs(60)) {
        Ok(Ok(())) => {}
        Ok(Err(words)) => panic!("the double ended: {words}"),
        Err(error) => panic!("the double did not start within a minute: {error}"),
    }
    Some(Double { endpoint, process: process.id(), _input: input, _process: process })
}
