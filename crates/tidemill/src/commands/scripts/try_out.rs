//! `tidemill scripts test`: one run of a script in the sandbox, with its limits and without any effect.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tidemill_engine::scripts::RESULT_BYTES_MAX;
use tidemill_model::events::known_type::is_reserved;
use tidemill_model::work::dag::check_entries;
use tidemill_model::{EventId, EventType, JobFile, Json, Timestamp};
use tidemill_script::{
    CallKind, CompletedExecution, ErrorClass, FailedExecution, Grants, HostCall, Limits, Pool, PoolConfig,
    Request, ScriptLogLine, ScriptSource, Stats, Subject,
};

use super::{GrantName, event_of, source_of, stem};
use crate::commands::input_file::InputFile;
use crate::commands::moment::now;
use crate::commands::{CommandError, Ended};
use crate::config::{Resolved, Values};
use crate::display::visible::visible;
use crate::output::Output;

#[derive(Args)]
pub(super) struct TryOut {
    /// The source; `-` for standard input
    file: PathBuf,
    /// The event as YAML or JSON: `eventType` and `properties`
    #[arg(long, value_name = "FILE")]
    event: PathBuf,
    /// Let it call this host function; may be given more than once
    #[arg(long = "grant", value_name = "GRANT")]
    grants: Vec<GrantName>,
    /// How long it may run, such as `500ms` or `30s` [default: `SCRIPT_TIMEOUT`]
    #[arg(long, value_name = "SPAN")]
    timeout: Option<String>,
    /// How much memory it may use, in MiB [default: `SCRIPT_MEMORY_MB`]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(4..=4_096))]
    memory: Option<u32>,
}

impl TryOut {
    pub(super) async fn execute(self, config: &Resolved, json: bool, out: &mut Output) -> Ended {
        let file = InputFile::read(&self.file)?;
        let source = source_of(&file)?;
        let request = self.request(&source, &config.values)?;
        let pool = PoolConfig::new().map(|config| PoolConfig {
            size: 1,
            memory_bytes: config.memory_bytes.max(request.limits.memory_bytes),
            ..config
        });
        let pool = pool.and_then(Pool::start);
        let pool = pool.map_err(|error| CommandError::Failed(format!("no script can be run: {error}")))?;
        let ran = pool.execute(&request).await;
        let note = pool.status().note;
        pool.end().await;
        if let Some(note) = note {
            out.note(format_args!("note: {note}"));
        }
        match ran {
            Ok(execution) => match execution.calls.iter().find_map(refusal) {
                None => {
                    succeeded(&execution, json, out)?;
                    Ok(ExitCode::SUCCESS)
                }
                // It ran to its end here, and yet a run of it would fail.
                Some(message) => {
                    failed(&file.name, &refused(execution, message), json, out)?;
                    Ok(ExitCode::FAILURE)
                }
            },
            Err(failure) => {
                failed(&file.name, &failure, json, out)?;
                Ok(ExitCode::FAILURE)
            }
        }
    }

    fn request(&self, source: &str, values: &Values) -> Result<Request, CommandError> {
        let written = |message: String| CommandError::Written(message);
        let event = event_of(&self.event)?;
        let name = self.event.display();
        let event_type = EventType::new(event["eventType"].as_str().unwrap_or_default());
        let event_type = event_type.map_err(|bad| written(format!("{name}: {bad}")))?;
        let data = if event["properties"].is_null() { json!({}) } else { event["properties"].clone() };
        let now = Timestamp::clamped(now());
        let timestamp = match event["timestamp"].as_u64() {
            Some(millis) => {
                Timestamp::new("timestamp", millis).map_err(|bad| written(format!("{name}: {bad}")))?
            }
            None => now,
        };
        // The id of a published event comes with the moment in its highest bits; one that is made up does as well.
        let made_up = EventId::from_u128(u128::from(now.millis()) << 80 | 0x7 << 76 | 0b10 << 62);
        let id = ["eventId", "id"].iter().find_map(|field| EventId::new(event[*field].as_str()?).ok());
        let script = ScriptSource::new(stem(&self.file), source);
        let script = script.map_err(|error| written(format!("{}: {error}", self.file.display())))?;
        let grants = self.grants.iter().fold(Grants::NONE, |grants, name| match name {
            GrantName::Log => grants,
            GrantName::Publish => grants.with(CallKind::Publish),
            GrantName::SubmitJob => grants.with(CallKind::SubmitJob),
            GrantName::ResolveError => grants.with(CallKind::ResolveError),
        });
        let mut limits = Limits {
            wall: values.script_timeout,
            memory_bytes: values.script_memory_bytes,
            result_bytes: RESULT_BYTES_MAX,
            ..Limits::default()
        };
        if let Some(text) = &self.timeout {
            let millis = tidemill_model::values::span::parse_text(text);
            let millis = millis.map_err(|problem| written(format!("--timeout {problem}")))?;
            limits.wall = Duration::from_millis(millis);
        }
        if let Some(mebibytes) = self.memory {
            limits.memory_bytes = mebibytes as usize * 1024 * 1024;
        }
        let subject =
            Subject::Event { id: id.unwrap_or(made_up), event_type, timestamp, data: Json::of(&data) };
        let (script, tenant) = (Arc::new(script), values.tenant.clone());
        Ok(Request { script, tenant, execution: made_up, now, subject, grants, limits: limits.clamped() })
    }
}

/// Why a run would fail that asks for this, as far as it is known without a store: the server says whether
/// definitions are there and what they open.
fn refusal(call: &HostCall) -> Option<String> {
    match call {
        HostCall::Publish { event_type, .. } => is_reserved(event_type.as_str())
            .then(|| format!("eventType {event_type} is reserved to the engine")),
        HostCall::SubmitJob { spec, .. } => {
            let file = match spec.read().map_err(|error| error.to_string()) {
                Ok(value) => JobFile::read(value).map_err(|problems| problems.to_string()),
                Err(problem) => Err(format!("job {problem}")),
            };
            let file = match file {
                Ok(file) => file,
                Err(problem) => return Some(problem),
            };
            let inline = file.tasks.iter().enumerate().find_map(|(at, task)| {
                Some(format!(
                    "tasks[{at}].{} needs the right to bring commands and agents along",
                    task.work.inline_field()?
                ))
            });
            inline.or_else(|| check_entries(&file.tasks).err().map(|violations| violations.to_string()))
        }
        // The sandbox has looked at all that it says.
        HostCall::ResolveError { .. } => None,
    }
}

fn refused(execution: CompletedExecution, message: String) -> FailedExecution {
    FailedExecution {
        class: ErrorClass::Validation,
        message,
        stack: String::new(),
        place: None,
        logs: execution.logs,
        logs_truncated: execution.logs_truncated,
        stats: execution.stats,
    }
}

fn succeeded(execution: &CompletedExecution, json: bool, out: &mut Output) -> std::io::Result<()> {
    if json {
        let calls: Vec<Value> = execution.calls.iter().map(call).collect();
        return out.json(&json!({
            "result": execution.result,
            "logs": logs(&execution.logs),
            "logsTruncated": execution.logs_truncated,
            "calls": calls,
            "stats": stats(execution.stats),
        }));
    }
    print_logs(&execution.logs, execution.logs_truncated, out);
    for made in &execution.calls {
        match made {
            HostCall::Publish { event_type, data, .. } => {
                out.note(visible(&format!("would publish {:?}: {}", event_type.as_str(), data.as_str())));
            }
            HostCall::SubmitJob { spec, .. } => {
                out.note(visible(&format!("would submit a job: {}", spec.as_str())));
            }
            HostCall::ResolveError { error, .. } => {
                out.note(visible(&format!("would resolve an error: {}", error.as_str())));
            }
        }
    }
    out.note(took(execution.stats));
    let result: Value = execution.result.read().unwrap_or(Value::Null);
    out.json_pretty(&result)
}

fn failed(file: &str, failure: &FailedExecution, json: bool, out: &mut Output) -> std::io::Result<()> {
    if json {
        let place = failure.place.map(|(line, column)| json!({ "line": line, "column": column }));
        return out.json(&json!({
            "error": {
                "class": failure.class.as_str(),
                "message": failure.message,
                "stack": failure.stack,
                "place": place,
                "retried": failure.class.is_transient(),
            },
            "logs": logs(&failure.logs),
            "logsTruncated": failure.logs_truncated,
            "stats": stats(failure.stats),
        }));
    }
    print_logs(&failure.logs, failure.logs_truncated, out);
    let place = failure.place.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default();
    out.note(visible(&format!("{file}{place}: {} ({})", failure.message, failure.class)));
    for frame in failure.stack.lines() {
        out.note(visible(&format!("  {}", frame.trim())));
    }
    let fate =
        if failure.class.is_transient() { "it would be tried again" } else { "it would be a dead letter" };
    out.note(format_args!("{}; {fate}", took(failure.stats)));
    Ok(())
}

fn print_logs(lines: &[ScriptLogLine], truncated: bool, out: &mut Output) {
    for line in lines {
        out.note(visible(&format!("{}: {}", line.level.as_str(), line.text)));
    }
    if truncated {
        out.note("the log was cut");
    }
}

fn logs(lines: &[ScriptLogLine]) -> Vec<Value> {
    lines.iter().map(|line| json!({ "level": line.level.as_str(), "text": line.text })).collect()
}

fn call(call: &HostCall) -> Value {
    match call {
        HostCall::Publish { id, event_type, data } => {
            json!({ "call": "publish", "id": id, "type": event_type, "data": data })
        }
        HostCall::SubmitJob { id, spec } => json!({ "call": "submitJob", "id": id, "spec": spec }),
        HostCall::ResolveError { id, error } => json!({ "call": "resolveError", "id": id, "error": error }),
    }
}

fn stats(stats: Stats) -> Value {
    json!({
        "wallMicros": stats.wall_micros,
        "cpuMicros": stats.cpu_micros,
        "peakMemoryBytes": stats.peak_memory_bytes,
    })
}

fn took(stats: Stats) -> String {
    let millis = |micros: u64| format!("{}.{:03} ms", micros / 1_000, micros % 1_000);
    let kibibytes = stats.peak_memory_bytes.div_ceil(1_024);
    format!(
        "took {} ({} of CPU), {kibibytes} KiB of memory at most",
        millis(stats.wall_micros),
        millis(stats.cpu_micros)
    )
}
