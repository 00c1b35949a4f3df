//! A directory of its own, and the binary run in it.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Far more than anything here takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Sandbox {
    pub(crate) dir: PathBuf,
}

/// What a command left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) words: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The same, if it ended well.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidemill-e2e-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self { dir }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    /// The binary in this directory, with nothing of the caller's environment but the way to programs.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(arguments);
        self.in_its_place(command)
    }

    /// Another program in this directory, with as little.
    pub(crate) fn in_its_place(&self, mut command: Command) -> Command {
        command.current_dir(&self.dir).env_clear().stdin(Stdio::null());
        let path = std::env::vars_os().find(|(name, _)| name == "PATH");
        command.envs(path).env("HOME", &self.dir);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, &[])
    }

    pub(crate) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
        ran(self.command(arguments).envs(environment.iter().copied()).output().unwrap())
    }

    pub(crate) fn start(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Running {
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied());
        Running::start(command)
    }

    /// A server on a port of its own.
    pub(crate) fn serve(&self, more: &[&str], environment: &[(&str, &str)]) -> Server {
        let arguments: Vec<_> = ["serve", "--listen", "127.0.0.1:0"].iter().chain(more).copied().collect();
        Server::listening(self.start(&arguments, environment))
    }

    /// A server that another program starts: its arguments, and then the binary.
    pub(crate) fn serve_by(&self, program: &str, arguments: &[&str]) -> Server {
        let binary = self.command(&[]).get_program().to_owned();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(binary)
            .current_dir(&self.dir)
            .env("HOME", &self.dir)
            .stdin(Stdio::null());
        Server::listening(Running::start(command))
    }
}

impl Server {
    /// Waits until it takes requests.
    pub(crate) fn listening(mut process: Running) -> Self {
        let line = process.wait_for("listening on http://");
        let url = line.split_once("listening on ").unwrap().1.to_owned();
        Self { process, url }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), words: text(output.stderr) }
}

/// A process of the binary whose words are read as they come. It is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let words: ChildStderr = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(words).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The first line of its words that holds `text`, from here on.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("{text:?} did not come; there was {:#?}", self.seen);
            };
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ran {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let status = self.child.wait().unwrap();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        Ran { code: status.code().unwrap_or(-1), out, words: self.seen.join("\n") }
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Server {
    pub(crate) process: Running,
    pub(crate) url: String,
}

impl Server {
    /// Stops it in order.
    pub(crate) fn stop(self) -> Ran {
        self.process.signal(Signal::TERM);
        self.process.end()
    }
}

/// Waits until something holds. There is no signal for what other processes do.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks at what another process does")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Whether a process is there and not only waiting to be collected.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
