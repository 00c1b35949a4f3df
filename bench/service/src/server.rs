//! A `tidemill serve` of our own, on a free port and a directory of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::http::Connection;
use crate::process::{self, Identity};

const ANNOUNCEMENT: &str = "listening on http://";
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// Whether the binary knows a command.
pub fn has_command(binary: &Path, command: &str) -> bool {
    let asked =
        Command::new(binary).args([command, "--help"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

pub fn version(binary: &Path) -> String {
    let asked = Command::new(binary).arg("--version").output();
    asked.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// When it was started, before the exec.
    pub started: Instant,
}

impl Server {
    /// Starts it and returns as soon as it says that it takes requests.
    pub fn start(binary: &Path, data: &Path, slots: usize) -> Self {
        std::fs::create_dir_all(data).expect("the directory can be made");
        let started = Instant::now();
        let mut child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .current_dir(data)
            .env("OUTPUT_DIR", data.join("output"))
            .env("MAX_CONCURRENT", slots.to_string())
            .env("SHUTDOWN_GRACE_MS", "1000")
            .env("API_RATE_LIMIT", "1000000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("the pipe was asked for"));
        let mut said = String::new();
        let address = loop {
            let before = said.len();
            let count = lines.read_line(&mut said).expect("the pipe can be read");
            assert!(count > 0, "the server ended before it listened: {said}");
            let line = said[before..].trim();
            if let Some((_, address)) = line.split_once(ANNOUNCEMENT) {
                let address =
                    address.split(|c: char| c == '/' || c.is_whitespace()).next().unwrap_or_default();
                break address.parse().expect("an address was announced");
            }
        };
        // Nobody may block on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child, address, started }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn usage(&self) -> process::Usage {
        process::usage(self.pid())
    }

    /// What its log's thread used: it writes and syncs, which is what a commit is.
    pub fn commit_cpu(&self) -> Duration {
        process::thread_cpu(self.pid(), "tidemill-writer")
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the server listens")
    }
}

impl Drop for Server {
    /// Asks it to end and insists after a while. What it started must not outlive it; if it does, that is said.
    fn drop(&mut self) {
        let family: Vec<Identity> = process::tree(self.pid()).into_iter().filter_map(Identity::of).collect();
        process::signal(self.pid(), libc::SIGTERM);
        let give_up = Instant::now() + STOP_PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > give_up {
                eprintln!("  the server did not end in time and was killed");
                process::signal(self.pid(), libc::SIGKILL);
                let _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for left in family.into_iter().filter(|member| member.is_alive()) {
            eprintln!("  process {} outlived its server and was killed", left.pid);
            process::signal(left.pid, libc::SIGKILL);
        }
    }
}
