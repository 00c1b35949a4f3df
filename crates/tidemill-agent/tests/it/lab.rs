//! A directory per test, a `claude` that plays a script, and the agent's process in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

const MARK: &str = "@@tidemill ";

/// A `claude` that notes how it was called, reads the prompt and plays `play-N` of the call, or `play`.
const FAKE: &str = r#"#!/bin/sh
here=$(dirname "$0")
call=$(cat "$here/calls" 2>/dev/null || echo 0)
call=$((call + 1))
echo "$call" > "$here/calls"
printf '%s\n' "$@" > "$here/arguments-$call"
env > "$here/environment-$call"
pwd > "$here/directory-$call"
IFS= read -r prompt
printf '%s\n' "$prompt" > "$here/prompt-$call"
play="$here/play-$call"
[ -e "$play" ] || play="$here/play"
. "$play"
"#;

/// Removed when it is dropped.
pub(crate) struct Lab {
    pub(crate) dir: PathBuf,
    environment: BTreeMap<String, String>,
    attempts: AtomicU32,
}

impl Lab {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("tidemill-agent-{}-{count}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("fake")).unwrap();
        let dir = dir.canonicalize().unwrap();
        let program = dir.join("fake/claude");
        fs::write(&program, FAKE).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut lab = Self { dir, environment: BTreeMap::new(), attempts: AtomicU32::new(0) };
        lab.set("PATH", "/usr/bin:/bin");
        lab.set("CLAUDE_BIN", program.to_str().unwrap());
        lab.set("AGENT_RETRY_DELAY", "50ms");
        lab
    }

    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<str>) {
        self.environment.insert(name.to_owned(), value.as_ref().to_owned());
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.environment.remove(name);
    }

    pub(crate) fn task(&self, spec: &Value) {
        fs::write(self.dir.join("agent.json"), spec.to_string()).unwrap();
    }

    /// A task of one step.
    pub(crate) fn step(&self, fields: &Value) {
        let mut step = json!({ "name": "only", "prompt": "do it" });
        step.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.task(&json!({ "steps": [step] }));
    }

    /// What the fake prints and does in every call that has no play of its own.
    pub(crate) fn play(&self, script: &str) {
        fs::write(self.dir.join("fake/play"), script).unwrap();
    }

    pub(crate) fn play_in_call(&self, call: u32, script: &str) {
        fs::write(self.dir.join(format!("fake/play-{call}")), script).unwrap();
    }

    /// How often the fake was called.
    pub(crate) fn calls(&self) -> usize {
        let calls = fs::read_to_string(self.dir.join("fake/calls")).unwrap_or_default();
        calls.trim().parse().unwrap_or(0)
    }

    /// What the fake noted of a call: `arguments`, `environment`, `directory` or `prompt`.
    pub(crate) fn noted(&self, what: &str, call: u32) -> String {
        fs::read_to_string(self.dir.join(format!("fake/{what}-{call}"))).unwrap()
    }

    /// The text of the prompt of a call.
    pub(crate) fn prompt(&self, call: u32) -> String {
        let line: Value = serde_json::from_str(&self.noted("prompt", call)).unwrap();
        line["message"]["content"].as_str().unwrap().to_owned()
    }

    /// The value of a flag of a call, in the same argument or the next.
    pub(crate) fn argument(&self, call: u32, flag: &str) -> Option<String> {
        let noted = self.noted("arguments", call);
        let mut lines = noted.lines();
        let found = lines.find_map(|line| {
            line.strip_prefix(flag).filter(|rest| rest.is_empty() || rest.starts_with('='))
        })?;
        found.strip_prefix('=').or_else(|| lines.next()).map(str::to_owned)
    }

    /// Starts an attempt in an output directory of its own.
    pub(crate) fn start(&self, input: Option<&str>) -> Attempt {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let output = self.dir.join(format!("output-{number}"));
        fs::create_dir_all(&output).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill-test-agent"));
        command
            .arg("request-1")
            .args(input)
            .current_dir(&self.dir)
            .env_clear()
            .env("TIDEMILL_AGENT_FILE", self.dir.join("agent.json"))
            .env("TIDEMILL_OUTPUT_DIR", &output)
            .env("TIDEMILL_RUN", "1")
            .env("TIDEMILL_ATTEMPT", number.to_string())
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Attempt { child: command.spawn().unwrap(), output }
    }

    pub(crate) fn run(&self, input: Option<&str>) -> Ended {
        self.start(input).wait()
    }

    /// Runs a task with an empty input.
    pub(crate) fn go(&self) -> Ended {
        self.run(Some("{}"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// An attempt that runs.
pub(crate) struct Attempt {
    pub(crate) child: Child,
    output: PathBuf,
}

impl Attempt {
    pub(crate) fn wait(self) -> Ended {
        let output = self.child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let records = text.lines().filter_map(|line| line.strip_prefix(MARK));
        let records = records.map(|record| serde_json::from_str(record).unwrap()).collect();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ended { status: output.status, stdout: text, stderr, records, output: self.output }
    }
}

/// An attempt that is over.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) records: Vec<Value>,
    pub(crate) output: PathBuf,
}

impl Ended {
    pub(crate) fn records_of(&self, kind: &str) -> Vec<&Value> {
        self.records.iter().filter(|record| record["kind"] == kind).collect()
    }

    /// The result of an attempt that must have completed.
    #[track_caller]
    pub(crate) fn result(&self) -> &Value {
        assert!(self.status.success(), "{}{}", self.stdout, self.stderr);
        let last = self.records.last().unwrap();
        assert_eq!(last["kind"], "result", "{}", self.stdout);
        last
    }

    /// The error of an attempt that must have failed.
    #[track_caller]
    pub(crate) fn error(&self) -> &Value {
        assert_eq!(self.status.code(), Some(1), "{}{}", self.stdout, self.stderr);
        let last = self.records.last().unwrap();
        assert_eq!(last["kind"], "error", "{}", self.stdout);
        last
    }

    /// The class that a worker comes to by the error's record.
    #[track_caller]
    pub(crate) fn category(&self) -> &'static str {
        let error = self.records.last().unwrap();
        let failure = tidemill_model::Failure {
            status: error["status"].as_u64().and_then(|status| status.try_into().ok()),
            code: error["code"].as_str(),
            name: error["name"].as_str(),
            message: error["message"].as_str(),
            ..tidemill_model::Failure::default()
        };
        failure.category().as_str()
    }

    /// A file of the output.
    #[track_caller]
    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.output.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The trace of a step.
    #[track_caller]
    pub(crate) fn trace(&self, step: usize) -> Value {
        let trace: Value = serde_json::from_str(&self.file("traces/session_trace.json")).unwrap();
        trace[step].clone()
    }
}

/// A line of the CLI that ends a session well.
pub(crate) fn success(fields: &Value) -> String {
    let mut line = json!({
        "type": "result", "subtype": "success", "is_error": false, "num_turns": 2, "result": "all done",
        "stop_reason": "end_turn", "duration_ms": 1200, "duration_api_ms": 900, "total_cost_usd": 0.0125,
        "usage": { "input_tokens": 100, "output_tokens": 40, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 0 },
        "permission_denials": []
    });
    line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    line.to_string()
}

/// A play that prints lines, and ends when its stdin does, as the CLI.
pub(crate) fn prints(lines: &[String], code: i32) -> String {
    let text = lines.join("\n");
    format!("cat <<'END_OF_LINES'\n{text}\nEND_OF_LINES\ncat >/dev/null\nexit {code}\n")
}

/// A play of a good end.
pub(crate) fn succeeds(fields: &Value) -> String {
    prints(&[success(fields)], 0)
}

/// A play of an API error.
pub(crate) fn api_error(status: u16) -> String {
    let line = success(
        &json!({ "is_error": true, "api_error_status": status, "result": format!("API Error: {status}"), "total_cost_usd": 0.0 }),
    );
    prints(&[line], 1)
}

/// All processes whose command line holds a text.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(text) {
            found.push(pid);
        }
    }
    found
}

/// The children of a process.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// All files below a directory whose bytes hold a text.
pub(crate) fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if let Ok(bytes) = fs::read(&path)
            && bytes.windows(text.len()).any(|window| window == text.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

/// Waits until something holds, looking again each time a little later; fails after half a minute.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed().as_secs() < 30, "{what} did not come about");
        #[expect(clippy::disallowed_methods, reason = "the signs are files of another process")]
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}
