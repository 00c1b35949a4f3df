//! Tasks of the runner `script`: JavaScript in the sandbox, with the task's input as `ctx.input`.

use std::fmt;
use std::pin::{Pin, pin};
use std::time::Duration;

use tidemill_engine::command::Spent;
use tidemill_engine::engine::{Signal, WorkReport};
use tidemill_engine::warn_seldom;
use tidemill_model::{ErrorCategory, EventId, Json, TenantId};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::attempt::{End, Heart, millis, must_give_back};
use crate::attempt_files::keep_log;
use crate::command_worker::Shared;
use crate::log_sink::{LogLine, LogSource};
use crate::pace::Pace;
use crate::source::{AttemptEnd, HeldTask, SourceError, TaskSource};
use crate::trouble::{Lack, Trouble};
use crate::vitals::{Stop, Vitals};

/// A script that ends sooner has its beginning recorded with its end.
const BEGIN_DELAY: Duration = Duration::from_millis(20);

/// Runs the scripts of tasks.
pub trait ScriptTasks: fmt::Debug + Send + Sync + 'static {
    /// Runs a script to its end. Dropping the future ends the script.
    fn run(&self, task: ScriptTask) -> Pin<Box<dyn Future<Output = ScriptEnd> + Send + '_>>;
}

/// The script of a task.
#[derive(Debug, Clone)]
pub struct ScriptTask {
    pub tenant: TenantId,
    /// What stacks call it.
    pub name: String,
    pub source: String,
    pub input: Json,
    /// `None`: as long as scripts may run here.
    pub timeout: Option<Duration>,
    /// The same for every attempt of a run.
    pub seed: EventId,
}

#[derive(Debug, Clone)]
pub enum ScriptEnd {
    Done { result: Json, lines: Vec<(&'static str, String)> },
    Failed { class: ScriptFailure, message: String, stack: String, lines: Vec<(&'static str, String)> },
}

/// Why a script failed, as far as it matters to its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptFailure {
    /// It ran for this long, which was too long.
    Timeout(Duration),
    /// It is wrong, or was given or asked for something wrong.
    Validation,
    /// It did what it may not do.
    Permission,
    /// It threw something.
    Thrown,
    /// It used too much, or its process broke.
    Broken,
    /// It was never begun: there is no process for it.
    NoHost,
}

/// Runs the script of a task. `heart` beats on unless the end is `Lost`.
pub(crate) async fn run<S: TaskSource>(
    shared: &Shared<S>,
    claim: &HeldTask,
    pace: &watch::Receiver<Pace>,
    vitals: &Vitals,
    mut heart: Heart<'_>,
) -> End {
    let failed = |message: String, category| {
        End::Report(AttemptEnd { began: None, report: WorkReport::failed(message, category) }, None)
    };
    let (Some(scripts), Some(source)) = (&shared.config.scripts, &claim.execution.script) else {
        return failed(
            format!("task {} has a script, and no scripts run here", claim.name),
            ErrorCategory::NotFound,
        );
    };
    let task = ScriptTask {
        tenant: claim.task.tenant.clone(),
        name: claim.name.to_string(),
        source: source.clone(),
        input: claim.input.clone(),
        timeout: claim.timeout_ms.map(Duration::from_millis),
        seed: seed_of(claim),
    };
    let process = std::process::id();
    let (started, mut pace, mut began) = (Instant::now(), pace.clone(), Some(process));
    let mut is_unsaid = true;
    let mut running = pin!(scripts.run(task));
    let mut revoked = pin!(shared.source.revoked(claim));
    let ended = loop {
        tokio::select! {
            biased;
            stop = &mut heart => return lost(shared, claim, stop),
            ended = &mut running => break ended,
            () = vitals.lapsed() => return lost(shared, claim, Stop::Lost),
            () = &mut revoked => return lost(shared, claim, Stop::Cancelled),
            () = must_give_back(&mut pace) => {
                shared.source.log_end(claim);
                return End::GivenBack(Spent::default());
            }
            () = tokio::time::sleep_until(started + BEGIN_DELAY), if is_unsaid => {
                is_unsaid = false;
                shared.troubles.is_over();
                match shared.source.begin(claim, process).await {
                    Ok(()) => began = None,
                    Err(SourceError::Lost) => return lost(shared, claim, Stop::Lost),
                    // Its end says it.
                    Err(error) => {
                        warn_seldom!(error, request = %claim.task.request, "it could not be told that a task began");
                    }
                }
            }
        }
    };
    let elapsed = started.elapsed();
    if let ScriptEnd::Failed { class: ScriptFailure::NoHost, message, .. } = &ended {
        shared.source.log_end(claim);
        return End::Unable(Trouble::new(Lack::Scripts, message), Spent::default());
    }
    let (lines, report) = match ended {
        ScriptEnd::Done { result, lines } => {
            let output = if result.as_str() == "null" { Json::empty_object() } else { result };
            (lines, WorkReport::completed(output, millis(elapsed)))
        }
        ScriptEnd::Failed { class, message, stack, lines } => {
            (lines, report(class, message, &stack, elapsed))
        }
    };
    let log = show(shared, claim, &lines);
    if !log.is_empty() {
        let kept = tokio::select! {
            biased;
            kept = keep_log(&shared.source, claim, log, shared.config.upload_patience) => kept,
            stop = &mut heart => return lost(shared, claim, stop),
        };
        match kept {
            Ok(None) => {}
            Ok(Some(note)) => {
                show(shared, claim, &[("warn", format!("[tidemill] {note}"))]);
            }
            Err(error) => {
                warn_seldom!(error, request = %claim.task.request, "the log of a task could not be kept");
                return lost(shared, claim, Stop::Lost);
            }
        }
    }
    shared.source.log_end(claim);
    End::Report(AttemptEnd { began, report }, None)
}

/// Random numbers of a script come from here, so that a retry goes the same way.
fn seed_of(claim: &HeldTask) -> EventId {
    // FNV-1a: any number will do that depends on the task alone.
    let text = format!("{}/{}/{}", claim.task.tenant, claim.task.request, claim.run);
    let hash = text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    EventId::from_u128(hash)
}

fn lost<S: TaskSource>(shared: &Shared<S>, claim: &HeldTask, stop: Stop) -> End {
    // The worker that took the task over shows its own log under the same name.
    if stop != Stop::Lost {
        shared.source.log_end(claim);
    }
    End::Lost(stop)
}

fn report(class: ScriptFailure, message: String, stack: &str, elapsed: Duration) -> WorkReport {
    let text = if stack.is_empty() { message } else { format!("{message}\n{stack}") };
    let category = match class {
        ScriptFailure::Timeout(limit) => {
            return WorkReport::timed_out(millis(limit), millis(elapsed), Signal::Kill);
        }
        ScriptFailure::Validation => ErrorCategory::Validation,
        ScriptFailure::Permission => ErrorCategory::Auth,
        ScriptFailure::Thrown => ErrorCategory::Unknown,
        ScriptFailure::Broken | ScriptFailure::NoHost => ErrorCategory::ServerError,
    };
    WorkReport::failed(text, category)
}

/// Shows what the script wrote, and gives it as its log.
fn show<S: TaskSource>(shared: &Shared<S>, claim: &HeldTask, lines: &[(&'static str, String)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (level, text) in lines {
        let stream = if matches!(*level, "warn" | "error") { LogSource::Stderr } else { LogSource::Stdout };
        for text in text.lines() {
            shared.config.sink.line(&LogLine { claim, stream, text });
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(b'\n');
        }
    }
    if !bytes.is_empty() {
        shared.source.log(claim, &bytes);
    }
    bytes
}
