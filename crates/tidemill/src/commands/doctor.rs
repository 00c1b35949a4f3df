//! `tidemill doctor`: is this machine fit, and if not, what is to be done?

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tidemill_embedded::data_lock::{DataLock, LockError};
use tidemill_embedded::log::check_format;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_engine::backend::Fault;

use super::{Ended, Flags};
use crate::client::add;
use crate::client::server_file::ServerFile;
use crate::config::Resolved;
use crate::data_dir::trusted;
use crate::display::humanize::{bytes, moment};
use crate::display::{Last, Table};
use crate::output::Output;
use crate::token_key::{KeyState, TokenKey};

/// Below this the disk is called short, and below that nearly full.
const SPACE_WARN: u64 = 2 << 30;
const SPACE_FAIL: u64 = 256 << 20;
/// A sync that takes longer slows down everything.
const SYNC_WARN: Duration = Duration::from_millis(20);
const SYNCS: usize = 20;
/// Open files for a server with many tasks and connections.
const FILES_WARN: u64 = 4_096;
/// How long a program may take to say its version.
const VERSION_PATIENCE: Duration = Duration::from_secs(20);
/// 2024-01-01: no clock that is right shows less.
const CLOCK_MIN: u64 = 1_704_067_200_000;

/// Check this machine and the data directory, and say what to do
#[derive(Args)]
#[command(after_help = "\
Exit codes:
  0  nothing failed; warnings may be there
  1  a check failed
  2  the arguments or settings are wrong")]
pub(crate) struct Doctor {
    /// The data directory [default: .tidemill]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where everything is kept, embedded or aws [default: embedded]
    #[arg(long, value_name = "BACKEND", value_parser = ["embedded", "aws"])]
    backend: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    pub(super) fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, found: found.into(), advice: Some(advice.into()) }
    }
}

impl Doctor {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = Flags::new();
        add(&mut flags, "TIDEMILL_DATA", "--data", self.data.as_ref().map(|dir| dir.display()));
        add(&mut flags, "TIDEMILL_BACKEND", "--backend", self.backend.as_ref());
        flags
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let dir = &config.values.data;
        #[cfg(feature = "aws")]
        let is_stage = config.values.backend == crate::config::BackendName::Aws;
        #[cfg(not(feature = "aws"))]
        let is_stage = false;
        let mut findings = vec![settings(config)];
        if !is_stage {
            findings.extend([
                permissions(config),
                lock(config),
                token_key(config),
                space(dir),
                sync_time(dir),
            ]);
        }
        #[cfg(feature = "aws")]
        if is_stage {
            findings.push(shared_token_key(config));
        }
        findings.extend([
            output_dir(&config.values.output_dir),
            task_secrets(config),
            job_alerts(config),
            open_files(),
            clock(dir),
            kernel(),
            claude(config),
        ]);
        #[cfg(feature = "aws")]
        if is_stage {
            crate::aws::options(config, 0)?;
            findings.extend(super::runtime::block_on(async {
                let connection = Box::pin(tidemill_aws::Connection::open(crate::aws::access(config)?)).await;
                super::aws::findings(&connection, config, &config.values.aws).await
            })?);
        }
        Ok(report(&findings, self.json, out)?)
    }
}

/// Says what was found. A failure decides the exit code.
pub(super) fn report(findings: &[Finding], json: bool, out: &mut Output) -> std::io::Result<ExitCode> {
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    if json {
        out.json(&serde_json::json!({ "ok": !failed, "checks": findings }))?;
    } else {
        let mut table = Table::new(&["CHECK", "RESULT", "FOUND"]).whole_but(Last::Folded);
        for Finding { check, verdict, found, .. } in findings {
            let verdict = match verdict {
                Verdict::Ok => "OK",
                Verdict::Warn => "WARN",
                Verdict::Fail => "FAIL",
            };
            table.row(vec![(*check).to_owned(), verdict.to_owned(), found.clone()]);
        }
        out.table(&table)?;
        for finding in findings {
            if let Some(advice) = &finding.advice {
                out.advice(format_args!("{}: {advice}", finding.check));
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(feature = "aws")]
impl From<tidemill_aws::deploy::Check> for Finding {
    fn from(check: tidemill_aws::deploy::Check) -> Self {
        use tidemill_aws::deploy::CheckupGrade;
        let verdict = match check.health {
            CheckupGrade::Good => Verdict::Ok,
            CheckupGrade::Poor => Verdict::Warn,
            CheckupGrade::Bad => Verdict::Fail,
        };
        Self { check: check.name, verdict, found: check.found, advice: check.advice }
    }
}

/// The key that all processes of a stage have.
#[cfg(feature = "aws")]
fn shared_token_key(config: &Resolved) -> Finding {
    let values = &config.values;
    match crate::token_key::shared_key(values.token_key.as_deref(), values.token_key_file.as_deref()) {
        Ok(_) => Finding::ok("token key", "given"),
        Err(problem) => {
            Finding::warn("token key", problem, "without it events that bring a task token are refused")
        }
    }
}

/// Wrong settings have stopped this command before it began.
fn settings(config: &Resolved) -> Finding {
    if config.warnings.is_empty() {
        return Finding::ok("settings", "all values fit together");
    }
    Finding::warn("settings", config.warnings.join("; "), "remove what has no effect")
}

fn permissions(config: &Resolved) -> Finding {
    let check = "data directory";
    let dir = &config.values.data;
    if let Err(problem) = trusted(config) {
        return Finding::fail(check, problem, "nothing opens it as it is");
    }
    let shown = dir.display();
    match std::fs::metadata(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Finding::ok(check, format!("{shown} is not there yet and will be made"))
        }
        Err(error) => Finding::fail(check, format!("{shown}: {error}"), "make it readable for this user"),
        Ok(found) if !found.is_dir() => {
            Finding::fail(check, format!("{shown} is no directory"), "name another one with --data")
        }
        Ok(found) => {
            let mode = found.permissions().mode() & 0o777;
            let own = found.uid() == rustix::process::geteuid().as_raw();
            if !own {
                let owner = found.uid();
                Finding::warn(
                    check,
                    format!("{shown} belongs to user {owner}"),
                    "run Tidemill as the user who owns it",
                )
            } else if mode & 0o077 != 0 {
                let advice = format!("chmod 700 {shown}: it holds inputs, outputs and logs of all tasks");
                Finding::warn(check, format!("{shown} is open to others (mode {mode:o})"), advice)
            } else {
                format(check, dir, mode)
            }
        }
    }
}

/// Whether this release reads the store. The log itself may take minutes to read.
fn format(check: &'static str, dir: &Path, mode: u32) -> Finding {
    let shown = format!("{}, mode {mode:o}", dir.display());
    if !dir.join("log/FORMAT").exists() {
        return Finding::ok(check, shown);
    }
    let checked = RealDisk::new(dir).map_err(|error| Fault::Stopped(error.to_string()));
    match checked.and_then(|disk| Ok(check_format(&disk)?)) {
        Ok(()) => Finding::ok(check, format!("{shown}; the log was not read, `tidemill verify` reads it")),
        Err(fault @ Fault::Newer(_)) => {
            Finding::fail(check, fault.to_string(), "run the release that wrote it, or a later one")
        }
        Err(fault @ Fault::Damaged(_)) => {
            Finding::fail(check, fault.to_string(), "`tidemill salvage` copies what is whole")
        }
        Err(fault) => Finding::fail(check, fault.to_string(), "make it readable for this user"),
    }
}

fn lock(config: &Resolved) -> Finding {
    let check = "lock";
    let Ok(dir) = trusted(config) else {
        return Finding::ok(check, "not looked at: the data directory may be somebody else's");
    };
    if !dir.join("LOCK").exists() {
        return Finding::ok(check, "free");
    }
    match DataLock::take(dir) {
        Ok(_) => Finding::ok(check, "free"),
        Err(LockError::Held { holder, .. }) => {
            let server = ServerFile::read(dir).filter(|server| server.pid.to_string() == holder);
            let who =
                server.map_or_else(|| "no server".to_owned(), |server| format!("the server {}", server.url));
            Finding::ok(check, format!("held by process {holder}, {who}"))
        }
        Err(error @ LockError::Unusable { .. }) => {
            Finding::fail(check, error.to_string(), "make the data directory writable for this user")
        }
    }
}

/// Tokens of parked executions are sealed with it.
fn token_key(config: &Resolved) -> Finding {
    let check = "token key";
    let values = &config.values;
    let key = TokenKey::of(&values.data, values.token_key_file.as_deref(), values.token_key.as_deref());
    let shown = key.name();
    match key.check() {
        Ok(KeyState::Good) => Finding::ok(check, shown),
        Ok(KeyState::NotMade) => match key.obstacle() {
            Some(problem) => Finding::warn(
                check,
                problem,
                "events that bring a task token are refused; name another file with TOKEN_KEY_FILE",
            ),
            None => Finding::ok(check, format!("{shown} is made when it is first needed")),
        },
        Err(problem) => {
            Finding::fail(check, problem, "nothing starts without it; keep a copy apart from the data")
        }
    }
}

/// The directory itself, or the nearest one above it that is there.
fn existing(dir: &Path) -> PathBuf {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    absolute.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn space(dir: &Path) -> Finding {
    let check = "disk space";
    match rustix::fs::statvfs(existing(dir)) {
        Err(error) => Finding::warn(check, error.to_string(), "look at the disk by hand"),
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let shown = format!("{} free", bytes(free));
            match free {
                0..SPACE_FAIL => {
                    Finding::fail(check, shown, "make room: commands are refused when a segment does not fit")
                }
                SPACE_FAIL..SPACE_WARN => Finding::warn(
                    check,
                    shown,
                    "make room, or move the data directory to a larger disk while nothing runs on it",
                ),
                _ => Finding::ok(check, shown),
            }
        }
    }
}

/// How long an answer waits for the disk.
fn sync_time(dir: &Path) -> Finding {
    let check = "fsync";
    let path = existing(dir).join(format!(".tidemill-doctor-{}", std::process::id()));
    let measured = (|| {
        let mut file = std::fs::File::create_new(&path)?;
        let mut times = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            let begin = Instant::now();
            file.write_all(&[7; 4_096])?;
            file.sync_data()?;
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        Ok::<_, std::io::Error>((times[SYNCS / 2], times[SYNCS - 1]))
    })();
    // What is wrong with the directory is found above.
    let _ = std::fs::remove_file(&path);
    match measured {
        Err(error) => {
            let advice = match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    "free space on the disk of the data directory"
                }
                _ => "make the data directory writable for this user",
            };
            Finding::fail(check, error.to_string(), advice)
        }
        Ok((median, worst)) => {
            let shown = format!("median {median:.1?}, worst {worst:.1?} of {SYNCS}");
            if median > SYNC_WARN {
                Finding::warn(
                    check,
                    shown,
                    "put the data directory on a local disk; every answer waits for it",
                )
            } else {
                Finding::ok(check, shown)
            }
        }
    }
}

fn output_dir(dir: &Path) -> Finding {
    let check = "output directory";
    let place = existing(dir);
    let mode = dir.metadata().map_or(0, |found| found.permissions().mode() & 0o777);
    match rustix::fs::access(&place, rustix::fs::Access::WRITE_OK) {
        // Others may pass through, as with TIDEMILL_RUN_AS, but not look around.
        Ok(()) if mode & 0o066 != 0 => {
            let shown = dir.display();
            let advice = format!("chmod 700 {shown}: the names of requests can be read there");
            Finding::warn(check, format!("{shown} is open to others (mode {mode:o})"), advice)
        }
        Ok(()) => Finding::ok(check, dir.display().to_string()),
        Err(error) => Finding::fail(
            check,
            format!("{}: {error}", place.display()),
            "make it writable, or set OUTPUT_DIR",
        ),
    }
}

/// What tasks may be given is of no use if it is not there.
fn task_secrets(config: &Resolved) -> Finding {
    let check = "task secrets";
    let Some(list) = &config.values.task_secrets else {
        return Finding::ok(check, "TASK_SECRETS is not set: tasks are given no variables by name");
    };
    let names = list.names();
    let is_set = |name: &&&str| config.environment.contains_key(**name);
    let absent: Vec<_> = names.iter().filter(|name| !is_set(name)).copied().collect();
    if absent.is_empty() {
        return Finding::ok(check, format!("{} listed, all set", names.len()));
    }
    let found = format!("listed and not set here: {}", absent.join(", "));
    Finding::warn(check, found, "set them where the worker runs, or take them off TASK_SECRETS")
}

/// Whether failed jobs raise alerts for people.
fn job_alerts(config: &Resolved) -> Finding {
    let check = "alerts of failed jobs";
    let values = &config.values;
    let outbound = &values.outbound;
    let slack = outbound.slack_webhook.is_some()
        || (outbound.slack_token.is_some() && outbound.alert_channel.is_some());
    let has_target = slack || outbound.alert_webhook.is_some();
    match (&values.job_failed, has_target) {
        (Some(_), true) => Finding::ok(check, "on"),
        (Some(_), false) => Finding::warn(
            check,
            "ALERT_JOB_FAILED is on, and nobody is told: there is neither Slack nor a webhook",
            "set SLACK_WEBHOOK_URL, or SLACK_BOT_TOKEN with ALERT_CHANNEL, or ALERT_WEBHOOK_URL",
        ),
        (None, _) if config.given("ALERT_JOB_FAILED_NAMES").is_some() => Finding::warn(
            check,
            "ALERT_JOB_FAILED_NAMES names jobs, and ALERT_JOB_FAILED is off: nobody is told of them",
            "set ALERT_JOB_FAILED to true, or leave the names out",
        ),
        (None, true) => {
            Finding::ok(check, "off; ALERT_JOB_FAILED=true has failed jobs told where other alerts go")
        }
        (None, false) => Finding::ok(check, "off"),
    }
}

fn open_files() -> Finding {
    let check = "open files";
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let shown =
        |number: Option<u64>| number.map_or_else(|| "unlimited".to_owned(), |number| number.to_string());
    let found = format!("limit {}, may be raised to {}", shown(limit.current), shown(limit.maximum));
    if limit.maximum.is_some_and(|most| most < FILES_WARN) {
        return Finding::warn(
            check,
            found,
            format!("raise the hard limit to {FILES_WARN} or more (ulimit -Hn, LimitNOFILE=)"),
        );
    }
    Finding::ok(check, found)
}

/// The clock must be past the newest that was written here.
fn clock(dir: &Path) -> Finding {
    let check = "clock";
    let now = super::moment::now();
    let shown = moment(now);
    if now < CLOCK_MIN {
        return Finding::fail(check, shown, "set the clock of this machine, and keep it set (NTP)");
    }
    let written = std::fs::read_dir(dir.join("log")).ok().and_then(|entries| {
        let times = entries.flatten().filter_map(|entry| entry.metadata().ok()?.modified().ok());
        let millis = times
            .filter_map(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map(|time| time.as_millis());
        millis.max().and_then(|millis| u64::try_from(millis).ok())
    });
    match written {
        Some(written) if written > now + 60_000 => Finding::warn(
            check,
            format!("{shown}, but the log was written at {}", moment(written)),
            "the clock went back: set it (NTP)",
        ),
        _ => Finding::ok(check, shown),
    }
}

fn kernel() -> Finding {
    let check = "kernel";
    let name = rustix::system::uname();
    let found = format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy());
    if !cfg!(target_os = "linux") {
        return Finding::warn(check, found, "tasks are watched and killed reliably on Linux only");
    }
    if !Path::new("/proc/self/stat").exists() {
        return Finding::fail(check, found, "mount /proc: the processes of tasks are found there");
    }
    // Made for waiting on processes; since 5.3.
    let pidfd = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    match pidfd {
        Ok(_) => Finding::ok(check, found),
        Err(error) => {
            Finding::warn(check, format!("{found}: no pidfd ({error})"), "Linux 5.3 or newer is better")
        }
    }
}

/// Only agents need it, so nothing fails for want of it.
fn claude(config: &Resolved) -> Finding {
    let check = "claude";
    let wanted = &config.values.claude;
    let from = config.found_program("CLAUDE_BIN").map(ToString::to_string);
    if let Some(from) = from.or_else(|| config.path_is_found().then(|| "PATH of .env".to_owned())) {
        return Finding::warn(
            check,
            format!("{wanted} ({from}) is not tried: a file of the working directory names it"),
            "set CLAUDE_BIN and PATH in the environment to have it tried",
        );
    }
    let path = config.environment.get("PATH").map(String::as_str).unwrap_or_default();
    let Some(program) = find_program(wanted, path) else {
        return Finding::warn(
            check,
            format!("{wanted} is not there"),
            "only agents need it: npm install -g @anthropic-ai/claude-code, or set CLAUDE_BIN to its path",
        );
    };
    let shown = program.display();
    match version_of(&program, path) {
        Err(problem) => Finding::warn(
            check,
            format!("{shown} --version: {problem}"),
            "agents cannot run with it: install Claude Code again, or set CLAUDE_BIN to another one",
        ),
        Ok(version) if !can_log_in(config) => Finding::warn(
            check,
            format!("{shown}, {version}; nothing to log in with"),
            "set ANTHROPIC_API_KEY, or CLAUDE_CODE_OAUTH_TOKEN (claude setup-token makes one)",
        ),
        Ok(version) => Finding::ok(check, format!("{shown}, {version}")),
    }
}

/// A program by its path, or by its name as a shell finds it.
fn find_program(wanted: &str, path: &str) -> Option<PathBuf> {
    let is_program = |file: &Path| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if wanted.contains('/') {
        return Some(PathBuf::from(wanted)).filter(|file| is_program(file));
    }
    std::env::split_paths(path).map(|dir| dir.join(wanted)).find(|file| is_program(file))
}

/// What a program says of its version, if it says it in time.
fn version_of(program: &Path, path: &str) -> Result<String, String> {
    let mut command = std::process::Command::new(program);
    command.arg("--version").env_clear().env("PATH", path).env("HOME", "/nonexistent");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| error.to_string())?;
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match answer.recv_timeout(VERSION_PATIENCE) {
        Ok(Ok(said)) if said.status.success() => {
            let text = String::from_utf8_lossy(&said.stdout);
            Ok(text.lines().next().unwrap_or_default().trim().to_owned())
        }
        Ok(Ok(said)) => {
            let text = String::from_utf8_lossy(&said.stderr);
            Err(format!("{}: {}", said.status, text.lines().next().unwrap_or_default().trim()))
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            Err(format!("no answer in {} s", VERSION_PATIENCE.as_secs()))
        }
    }
}

/// Whether anything is set by which the CLI can log in. What is behind it is for the CLI to find out.
fn can_log_in(config: &Resolved) -> bool {
    let is_set = |name: &str| config.environment.get(name).is_some_and(|value| !value.is_empty());
    let of_agents = config.values.of_agents.iter();
    of_agents.map(|(name, _)| *name).any(|name| name.ends_with("_TOKEN") || name.ends_with("_KEY"))
        || ["ANTHROPIC_AUTH_TOKEN", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"]
            .into_iter()
            .any(is_set)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::Arguments;
    use crate::config::is_setting_name;

    /// Names that are no settings of ours: they are set elsewhere, and are there.
    const SET_ELSEWHERE: [&str; 4] =
        ["BillingMode", "PAY_PER_REQUEST", "VisibilityTimeout", "maxReceiveCount"];
    /// What follows `set` where no name does.
    const PLAIN_WORDS: [&str; 7] = ["the", "it", "its", "so", "here", "them", "NTP"];

    /// All texts of the code before its tests.
    fn texts(source: &str) -> Vec<String> {
        let code = source.split("#[cfg(test)]").next().unwrap();
        let mut texts = Vec::new();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            // One word alone is no advice.
            let sentences = line.split('"').skip(1).step_by(2).filter(|text| text.contains(' '));
            texts.extend(sentences.map(str::to_owned));
        }
        texts
    }

    fn is_setting(name: &str) -> bool {
        is_setting_name(name) || SET_ELSEWHERE.contains(&name)
    }

    #[test]
    fn advice_names_only_what_exists() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Arguments::command();
        command.build();
        let mut names = 0;
        let sources =
            [include_str!("doctor.rs"), include_str!("../../../tidemill-aws/src/deploy/checkup.rs")];
        for text in sources.into_iter().flat_map(texts) {
            let word = |word: &str| {
                word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').to_owned()
            };
            // What is filled in is no word of the text.
            let text = text.replace("{FILES_WARN}", "so many").replace("{DETAIL_TYPE}", "event");
            let words: Vec<_> = text.split_whitespace().map(word).collect();
            for (at, word) in words.iter().enumerate() {
                let next = words.get(at + 1).map_or("", String::as_str);
                let is_name = word.contains('_')
                    && word.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
                if is_name {
                    names += 1;
                    assert!(is_setting(word), "{word} in {text:?} is no setting");
                }
                if text.split_whitespace().nth(at) == Some("set") && !next.is_empty() {
                    let is_known = is_setting(next) || PLAIN_WORDS.contains(&next);
                    assert!(is_known, "{next:?} in {text:?} cannot be set");
                }
                if word == "tidemill" && !next.is_empty() && next.chars().all(|c| c.is_ascii_lowercase()) {
                    assert!(command.find_subcommand(next).is_some(), "{text:?} names no command");
                }
                if let Some(flag) =
                    word.strip_prefix("--").filter(|flag| !flag.is_empty() && *flag != "version")
                {
                    let doctor = command.find_subcommand("doctor").unwrap();
                    let is_flag = doctor.get_arguments().any(|argument| argument.get_long() == Some(flag));
                    assert!(is_flag, "--{flag} in {text:?} is no argument");
                }
                if word == "stack" && words[..at].ends_with(&["deploy".to_owned(), "the".to_owned()]) {
                    let stack = root.join("deploy/aws").join(format!("{next}.json"));
                    assert!(stack.exists(), "{text:?} names no stack");
                }
            }
            if let Some(page) = text.split_whitespace().find(|word| word.starts_with("docs/")) {
                assert!(root.join(page).exists(), "{text:?} names no page");
            }
        }
        assert!(names > 5, "the texts were not found");
    }
}
