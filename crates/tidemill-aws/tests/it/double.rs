//! A double of AWS on loopback, one for all tests of the binary. The tests of other crates use this file too.
//!
//! `scripts/aws-doubles` installs the doubles and prints where; `TIDEMILL_TEST_AWS_DOUBLES` names that place. Without it the
//! tests say so and pass, but in CI they fail.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_aws::Connection;
use tokio::runtime::Runtime;

/// Runs a double until our end of its input is closed, which the end of this process does in any case.
const LAUNCHER: &str = r"
import os, sys, threading
def watch():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
";
/// Does the most, functions and state machines among it.
const MINISTACK: &str = r"
sys.argv = ['ministack']
from ministack.app import main
main()
";
/// Is stricter in some things.
const MOTO: &str = r"
from moto.server import main
main(['-H', '127.0.0.1', '-p', os.environ['GATEWAY_PORT']])
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

static DOUBLE: LazyLock<Double> = LazyLock::new(|| start(MINISTACK, "false"));
static STRICT: LazyLock<Double> = LazyLock::new(|| start(MINISTACK, "true"));
static OTHER: LazyLock<Double> = LazyLock::new(|| start(MOTO, "false"));

/// The double, or a note that there is none.
pub(crate) fn double() -> Option<&'static Double> {
    started(&DOUBLE)
}

/// The same double, where everybody may do no more than policies let them, or a note that there is none.
pub(crate) fn strict_double() -> Option<&'static Double> {
    started(&STRICT)
}

/// The other double, or a note that there is none.
pub(crate) fn other_double() -> Option<&'static Double> {
    started(&OTHER)
}

fn started(double: &'static LazyLock<Double>) -> Option<&'static Double> {
    crate::parts::aws_doubles().map(|_| &**double)
}

/// Makes tests of async functions that take a double.
macro_rules! on_ministack {
    ($($case:ident),* $(,)?) => {
        mod on_ministack {
            $(
                #[test]
                fn $case() {
                    if let Some(double) = crate::double::double() {
                        crate::double::RUNTIME.block_on(super::$case(double));
                    }
                }
            )*
        }
    };
}

/// Makes tests of the same functions on the other double.
macro_rules! on_moto {
    ($($case:ident),* $(,)?) => {
        mod on_moto {
            $(
                #[test]
                fn $case() {
                    if let Some(double) = crate::double::other_double() {
                        crate::double::RUNTIME.block_on(super::$case(double));
                    }
                }
            )*
        }
    };
}

pub(crate) use {on_ministack, on_moto};

fn start(which: &str, is_strict: &str) -> Double {
    let home = crate::parts::aws_doubles().expect("who wants a double asked for them before");
    // The double cannot be asked which port it got. Should another take this one first, it does not start.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("loopback has a free port")
        .port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let mut process = Command::new(format!("{home}/bin/python"))
        .args(["-u", "-c", &format!("{LAUNCHER}{which}")])
        .env("GATEWAY_PORT", port.to_string())
        .env("BIND_HOST", "127.0.0.1")
        // Where functions find it.
        .env("AWS_ENDPOINT_URL", &endpoint)
        .env("AUTH", is_strict)
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
    match started.recv_timeout(std::time::Duration::from_secs(60)) {
        Ok(Ok(())) => {}
        Ok(Err(words)) => panic!("the double ended: {words}"),
        Err(error) => panic!("the double did not start within a minute: {error}"),
    }
    Double { endpoint, process: process.id(), _input: input, _process: process }
}

impl Double {
    pub(crate) async fn connect(&self) -> Connection {
        Connection::to_double(&self.endpoint).await
    }
}

/// A name that no other test of this process uses.
pub(crate) fn fresh_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
