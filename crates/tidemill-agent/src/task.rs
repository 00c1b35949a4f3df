//! A task from its input to its outcome: the steps in their order, each with its tries.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Pid, getppid};
use serde_json::Value;
use tidemill_model::values::span::Millis;
use tidemill_model::{AgentSpec, AgentStep, MicroUsd, Usage};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Builder;

use crate::cli::command_line::{Session, arguments, environment, model_of};
use crate::cli::launch::outlive_parent;
use crate::cli::processes::{adopt_orphans, end_descendants};
use crate::cli::program;
use crate::cli::query::{self, Query};
use crate::cli::stream::add;
use crate::clock::{Clock, millis};
use crate::failure::{AgentFailure, FailureKind};
use crate::places::Places;
use crate::prompting::input;
use crate::prompting::prompt::{self, Sources};
use crate::prompting::schema::OutputSchema;
use crate::record::kept::Kept;
use crate::record::redact::Redactor;
use crate::record::report::{Report, count};
use crate::record::trace::{CacheMetrics, Outcome, Status, StepTrace, summary};
use crate::record::try_record::{TryEndTrace, TryRecord};
use crate::retry::{TRY_MILLIS_MIN, next_delay, policy};
use crate::settings::Settings;
use crate::task_check::{RESULT_FILE, bad_step, check, schema_of};
use crate::verdict::{Cause, ProcessEnd, TryEnd, judge};

/// The prompt of a session that goes on.
const RESUME_PROMPT: &str =
    "You were interrupted. Go on with the task where you left off, and finish it as you were first asked to.";
/// How often a wait is reported to the worker.
const WAIT_SIGN: Duration = Duration::from_secs(10);
/// The characters of a prompt that its trace shows.
const PROMPT_CHARS_TRACED: usize = 16 * 1024;
/// The exit status of a process that a signal stopped.
const STOPPED: u8 = 128 + 15;

/// What a task is started with.
#[derive(Debug, Clone)]
pub struct TaskArguments {
    pub request_id: String,
    /// The input as JSON, when it is small enough for an argument.
    pub input: Option<String>,
    /// The environment of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory of this process.
    pub directory: PathBuf,
}

/// Carries a task out, as the child process of a worker. One process carries out one task.
///
/// What it says goes to stdout, what it leaves to the output directory. The exit status is 0 for a task that
/// completed, 143 for one that a signal stopped, 1 otherwise.
pub async fn main_of_task(arguments: TaskArguments) -> ExitCode {
    adopt_orphans();
    let parent = getppid();
    outlive_parent();
    let redactor = Redactor::of_environment(&arguments.environment);
    let report = Report::new(Box::new(std::io::stdout()), redactor.clone());
    let stop = stop_signal(parent);
    match Task::run(arguments, redactor, report, stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(AgentFailure { kind: FailureKind::Stopped, .. }) => ExitCode::from(STOPPED),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Turns true with SIGTERM, SIGINT or SIGHUP. If the process that started us, `parent`, is gone with it, nobody waits
/// for an orderly end, and everything ends at once.
fn stop_signal(parent: Option<Pid>) -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let Ok(mut signals) = signal(kind) else { continue };
        let sender = sender.clone();
        tokio::spawn(async move {
            signals.recv().await;
            end_if_orphaned(parent).await;
            let _ = sender.send(true);
            // Kept, so that a second signal does not end us before all is written.
            while signals.recv().await.is_some() {
                end_if_orphaned(parent).await;
            }
        });
    }
    receiver
}

async fn end_if_orphaned(parent: Option<Pid>) {
    if getppid() != parent {
        end_descendants().await;
        std::process::exit(STOPPED.into());
    }
}

/// A task under way.
struct Task {
    arguments: TaskArguments,
    redactor: Redactor,
    report: Report,
    stop: watch::Receiver<bool>,
    clock: Clock,
    began: Instant,
    used: Usage,
    session: Option<String>,
    traces: Vec<StepTrace>,
}

/// What is known of a task once it is read and checked.
struct Ready {
    settings: Settings,
    spec: AgentSpec,
    input: Value,
    schemas: Vec<Option<OutputSchema>>,
    program: PathBuf,
    places: Places,
    kept: Kept,
    last_moment: Option<Instant>,
    /// How long before the worker's limit that is.
    margin_millis: u64,
}

impl Ready {
    /// The failure with the limit that it met, if it is about money or the time of the task.
    fn with_limit(&self, failure: AgentFailure, cause: Option<&Cause>, used: &Usage) -> AgentFailure {
        match (failure.kind, cause) {
            (FailureKind::MaxCost, _) => self.too_expensive(used).unwrap_or(failure),
            (_, Some(Cause::NoTimeLeft)) if failure.kind == FailureKind::StepTimeout => {
                let (limit, margin) = (self.limit(), self.margin_millis);
                let message = format!(
                    "the time of the task{limit} ended before the step did; \
                     work stops {margin} ms earlier, so that what came of it can be written"
                );
                AgentFailure { message, ..failure }
            }
            _ => failure,
        }
    }

    /// The attempt used up its money; `None` if it has no limit.
    fn too_expensive(&self, used: &Usage) -> Option<AgentFailure> {
        let max = self.spec.max_cost?;
        let of = match &self.settings.budget {
            Some(budget) => format!(", what is left of {budget}"),
            None => " (maxCostUsd)".to_owned(),
        };
        let spent = MicroUsd(used.cost_micros);
        let message = format!("the attempt has cost {spent} USD; its limit is {max} USD{of}");
        Some(AgentFailure::new(FailureKind::MaxCost, message))
    }

    /// The limit of the task's time in parentheses, if it is known.
    fn limit(&self) -> String {
        let limit = self.settings.timeout_millis.map(Millis);
        limit.map(|limit| format!(" (timeout: {limit})")).unwrap_or_default()
    }

    /// The outputs of the first steps, as far as an earlier attempt finished them and they can be relied on.
    ///
    /// A step with tools may have made files for later ones. They are there only if the directory was kept, so without it
    /// such a step is done again, unless there is no later one to do.
    fn reusable(&self) -> Vec<(Value, Option<String>)> {
        let steps = &self.spec.steps;
        let mut found: Vec<_> = steps.iter().map_while(|step| self.kept.step(&step.name)).collect();
        if found.len() < steps.len() && !self.spec.resume_session {
            let without_tools = steps.iter().take_while(|step| step.tools.is_empty()).count();
            found.truncate(without_tools);
        }
        found
    }

    /// How long there is for all that is left to do; `None` when nobody waits.
    fn time_left(&self) -> Option<Duration> {
        Some(self.last_moment?.saturating_duration_since(Instant::now()))
    }
}

impl Task {
    async fn run(
        arguments: TaskArguments,
        redactor: Redactor,
        report: Report,
        stop: watch::Receiver<bool>,
    ) -> Result<(), AgentFailure> {
        let mut task = Self {
            arguments,
            redactor,
            report,
            stop,
            clock: Clock::start(),
            began: Instant::now(),
            used: Usage::default(),
            session: None,
            traces: Vec::new(),
        };
        let ready = match task.prepare() {
            Ok(ready) => ready,
            Err(failure) => {
                task.report.log(&format!("the task cannot be begun: {failure}"));
                task.trace_nothing(&failure);
                task.report.error(&failure, &task.used, None);
                return Err(failure);
            }
        };
        let done = task.steps(&ready).await;
        let done = done.and_then(|output| {
            ready.places.write(&format!("artifacts/{RESULT_FILE}"), &pretty(&output))?;
            Ok(output)
        });
        let outcome = match &done {
            Ok(_) => Outcome::completed(),
            Err(failure) => Outcome::failed(failure, &task.redactor),
        };
        task.write_traces(&ready.places, &outcome);
        ready.places.clear();
        task.report.usage(&task.used);
        let session = task.session.as_deref();
        match done {
            Ok(output) => {
                let file = format!("artifacts/{RESULT_FILE}");
                let duration = millis(task.began.elapsed());
                task.report.result(&output, &file, &task.used, session, duration);
                Ok(())
            }
            Err(failure) => {
                task.report.log(&format!("failed with {}: {failure}", failure.kind.row().code));
                task.report.error(&failure, &task.used, session);
                Err(failure)
            }
        }
    }

    /// Reads and checks everything before anything is paid for.
    fn prepare(&self) -> Result<Ready, AgentFailure> {
        let arguments = &self.arguments;
        let settings = Settings::read(&arguments.environment)?;
        let text = input::read(&settings.agent_file, "TIDEMILL_AGENT_FILE")?;
        let spec: AgentSpec = serde_json::from_str(&text).map_err(|error| {
            let message = format!("{} is no description of an agent: {error}", settings.agent_file.display());
            AgentFailure::new(FailureKind::BrokenInput, message)
        })?;
        check(&spec)?;
        let input =
            input::load(arguments.input.as_deref(), settings.input_file.as_deref(), &arguments.directory)?;
        let mut schemas = Vec::with_capacity(spec.steps.len());
        let mut earlier: Vec<&str> = Vec::new();
        for step in &spec.steps {
            prompt::check(&step.prompt, &input, &earlier)
                .map_err(|bad| bad_step(step, &format!("the prompt: {bad}")))?;
            earlier.push(&step.name);
            schemas.push(schema_of(step)?);
        }
        let program = program::find(&settings, &arguments.environment)?;
        let places =
            Places::make(&settings, &arguments.directory, &arguments.request_id, spec.resume_session)?;
        let kept = Kept::new(settings.home.clone(), &spec, &input);
        let last_moment = settings.last_moment_millis(self.clock.now_millis());
        let margin_millis =
            settings.deadline_millis.zip(last_moment).map_or(0, |(deadline, last)| deadline - last);
        let last_moment = last_moment.map(|millis| self.clock.instant_of(millis));
        Ok(Ready { settings, spec, input, schemas, program, places, kept, last_moment, margin_millis })
    }

    /// The steps in their order. The output of the last one is the task's.
    async fn steps(&mut self, ready: &Ready) -> Result<Value, AgentFailure> {
        if ready.settings.skips_permissions {
            self.report
                .log("CLAUDE_SKIP_PERMISSIONS is set: the agent may do everything without being asked");
        }
        let reused = ready.reusable();
        let mut outputs: Vec<(String, Value)> = Vec::new();
        for (index, step) in ready.spec.steps.iter().enumerate() {
            let began = Instant::now();
            self.traces.push(self.step_trace(ready, step));
            let output = if index < reused.len() {
                let (output, session) = reused[index].clone();
                self.session = session.or(self.session.take());
                self.traces[index].status = Status::Reused;
                self.report.log(&format!("step {}: reusing the output of an earlier attempt", step.name));
                Ok(output)
            } else {
                self.step(ready, index, &outputs).await
            };
            let trace = &mut self.traces[index];
            trace.duration_ms = millis(began.elapsed());
            trace.usage = trace.attempts.iter().map(|tried| tried.usage).fold(Usage::default(), add);
            trace.cache = CacheMetrics::of(&trace.usage);
            if trace.status != Status::Reused {
                trace.status = if output.is_ok() { Status::Completed } else { Status::Failed };
            }
            let output = output?;
            ready.places.write(&format!("artifacts/{}", step.output_file_name()), &pretty(&output))?;
            outputs.push((step.name.clone(), output));
        }
        let last = outputs.pop().map(|(_, output)| output);
        last.ok_or_else(|| AgentFailure::new(FailureKind::BadTask, "the task has no steps"))
    }

    /// One step with its tries.
    async fn step(
        &mut self,
        ready: &Ready,
        index: usize,
        outputs: &[(String, Value)],
    ) -> Result<Value, AgentFailure> {
        let step = &ready.spec.steps[index];
        let prompt = prompt::fill(&step.prompt, Sources { input: &ready.input, outputs })
            .map_err(|bad| bad_step(step, &format!("the prompt: {bad}")))?;
        for path in &prompt.cut {
            self.report.log(&format!(
                "step {}: {{{{{path}}}}} holds a text that is too long and was cut",
                step.name
            ));
        }
        self.traces[index].prompt_bytes = prompt.text.len();
        self.traces[index].prompt =
            Some(self.redactor.text(&prompt.text).chars().take(PROMPT_CHARS_TRACED).collect());
        let policy = policy(
            ready.spec.max_attempts.unwrap_or(ready.settings.max_tries),
            ready.settings.retry_delay_millis,
        );
        let mut session = self.first_session(ready, step)?;
        let mut tries = 0;
        loop {
            let number = tries + 1;
            let judged = self.try_once(ready, index, number, &prompt.text, &session).await?;
            self.write_traces(&ready.places, &Outcome::running());
            let failure = match judged {
                Ok(output) => {
                    if let Err(error) = ready.kept.keep_step(&step.name, &output, session.id()) {
                        self.report.log(&format!("the output of step {} cannot be kept: {error}", step.name));
                    }
                    return Ok(output);
                }
                Err(failure) => failure,
            };
            if failure.kind == FailureKind::SessionLost && session.is_resumed() {
                self.report.log(&format!("session {} is not there; a new one is begun", session.id()));
                session = new_session()?;
                continue;
            }
            tries += 1;
            let failure = in_step(step, failure);
            let jitter = random()?;
            let left = ready.time_left().map(millis);
            let Some(delay) = next_delay(&failure, &policy, tries, jitter, left) else {
                if let Some(delay) = next_delay(&failure, &policy, tries, jitter, None) {
                    self.report.log(&format!(
                        "step {}: try {} of {} is left out: it would begin in {delay} ms, and {} ms are left for the task",
                        step.name,
                        tries + 1,
                        policy.max_attempts,
                        left.unwrap_or_default()
                    ));
                }
                return Err(failure);
            };
            if let Some(last) = self.traces[index].attempts.last_mut() {
                last.next_try_after_ms = Some(delay);
            }
            self.report.log(&format!(
                "{failure} ({}); try {} of {} is in {delay} ms",
                failure.category().as_str(),
                tries + 1,
                policy.max_attempts
            ));
            self.wait(&step.name, delay).await?;
            session = if ready.spec.resume_session {
                Session::Resumed(session.id().to_owned())
            } else {
                new_session()?
            };
        }
    }

    /// The session of the first try.
    fn first_session(&self, ready: &Ready, step: &AgentStep) -> Result<Session, AgentFailure> {
        if ready.spec.resume_session {
            if let Some(session) = ready.kept.session(&step.name).and_then(|id| Session::resumed(&id)) {
                return Ok(session);
            }
            // It is that of the step which an earlier attempt did not finish: the first that is not reused.
            let is_first = self.traces.iter().filter(|trace| trace.status != Status::Reused).count() == 1;
            let noted = ready.settings.session.as_deref().filter(|_| is_first);
            if let Some(session) = noted.and_then(Session::resumed) {
                return Ok(session);
            }
        }
        new_session()
    }

    /// One call of the CLI with its verdict. The outer error is one that a further try does not help.
    async fn try_once(
        &mut self,
        ready: &Ready,
        index: usize,
        number: u32,
        prompt: &str,
        session: &Session,
    ) -> Result<Result<Value, AgentFailure>, AgentFailure> {
        let step = &ready.spec.steps[index];
        let step_limit =
            Duration::from_millis(step.timeout_millis(Some(ready.settings.default_timeout_millis)));
        let left = ready.time_left();
        if left.is_some_and(|left| millis(left) < TRY_MILLIS_MIN) {
            let message = format!(
                "step {} is not begun: less than {TRY_MILLIS_MIN} ms are left for the task{}",
                step.name,
                ready.limit()
            );
            return Err(AgentFailure::new(FailureKind::NoTimeLeft, message));
        }
        let budget = self.budget(ready)?;
        let (limit, cause_at_limit) = match left {
            Some(left) if left < step_limit => (left, Cause::NoTimeLeft),
            _ => (step_limit, Cause::StepTimeout(step_limit)),
        };
        if ready.spec.resume_session
            && let Err(error) = ready.kept.keep_session(&step.name, session.id())
        {
            self.report.log(&format!("the session cannot be kept: {error}"));
        }
        self.session = Some(session.id().to_owned());
        self.report.session(session.id());
        let how = if session.is_resumed() { "resumed" } else { "new" };
        self.report.log(&format!("step {}: try {number}, {how} session {}", step.name, session.id()));
        let query = Query {
            program: &ready.program,
            arguments: arguments(&ready.settings, &ready.spec, step, session, budget),
            environment: environment(&self.arguments.environment, &ready.places.config, &ready.places.temp),
            directory: &ready.places.work,
            prompt: if session.is_resumed() { RESUME_PROMPT } else { prompt },
            step: &step.name,
            limit,
            cause_at_limit,
            idle_timeout: ready.settings.idle_timeout,
            own_retries: ready.settings.own_retries,
            used_before: self.used,
        };
        let mut record = TryRecord::new(self.redactor.clone(), self.clock.now_millis());
        let ran = query::run(query, &mut record, &mut self.report, &self.clock, &mut self.stop).await;
        let end = ran.as_ref().ok();
        let result = end.and_then(|end| end.result.as_ref());
        let used = record.usage(result);
        self.used = add(self.used, used).bounded();
        self.report.usage(&self.used);
        let judged = match &ran {
            Ok(end) => {
                let judged = self.judged(end, ready.schemas[index].as_ref());
                judged.map_err(|failure| ready.with_limit(failure, end.cause.as_ref(), &self.used))
            }
            Err(failure) => Err(failure.clone()),
        };
        let outcome = match &judged {
            Ok(_) => Outcome::completed(),
            Err(failure) => Outcome::failed(failure, &self.redactor),
        };
        let trace = record.into_trace(TryEndTrace {
            number,
            session_id: session.id().to_owned(),
            resumed: session.is_resumed(),
            result,
            outcome,
            exit: end.map_or(ProcessEnd::Unknown, |end| end.process).text(),
            now: self.clock.now_millis(),
        });
        self.report.log(&format!(
            "step {}: {}, {}, {}${} in {} ms",
            step.name,
            count(used.turns.into(), "turn"),
            count(used.tokens(), "token"),
            if trace.cost_is_estimated { "about " } else { "" },
            MicroUsd(used.cost_micros),
            trace.duration_ms
        ));
        self.traces[index].attempts.push(trace);
        Ok(judged)
    }

    fn judged(&mut self, end: &TryEnd, schema: Option<&OutputSchema>) -> Result<Value, AgentFailure> {
        if end.lingered {
            self.report.log("claude had told its result and did not end; it was ended");
        }
        let judged = judge(end, schema).and_then(|output| self.without_secrets(&output, schema));
        if judged.is_err() && !end.stderr.trim().is_empty() {
            self.report.log(&format!("claude printed: {}", end.stderr.trim()));
        }
        judged
    }

    /// An output as it is kept, which must satisfy its schema too.
    fn without_secrets(&self, output: &Value, schema: Option<&OutputSchema>) -> Result<Value, AgentFailure> {
        let clean = self.redactor.output(output);
        if let Some(schema) = schema.filter(|_| clean != *output) {
            schema.check(&clean).map_err(|problems| {
                let message = format!(
                    "a secret was cut out of the output, which does not satisfy its schema without it: {problems}"
                );
                AgentFailure::new(FailureKind::BadOutput, message)
            })?;
        }
        Ok(clean)
    }

    /// What the next call may cost. The CLI counts each call for itself, also in a session that goes on.
    fn budget(&self, ready: &Ready) -> Result<Option<MicroUsd>, AgentFailure> {
        let Some(max) = ready.spec.max_cost else { return Ok(None) };
        let left = max.0.saturating_sub(self.used.cost_micros);
        match ready.too_expensive(&self.used).filter(|_| left == 0) {
            Some(failure) => Err(failure),
            None => Ok(Some(MicroUsd(left))),
        }
    }

    /// Waits, unless a signal asks us to stop.
    async fn wait(&mut self, step: &str, delay_millis: u64) -> Result<(), AgentFailure> {
        let until = Instant::now() + Duration::from_millis(delay_millis);
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            self.report.waiting(step);
            tokio::select! {
                told = self.stop.wait_for(|is_told| *is_told) => {
                    if told.is_ok() {
                        return Err(AgentFailure::new(FailureKind::Stopped, "the agent was told to stop between two tries"));
                    }
                    tokio::time::sleep_until(until).await;
                }
                () = tokio::time::sleep_until(until.min(now + WAIT_SIGN)) => {}
            }
        }
    }

    fn step_trace(&self, ready: &Ready, step: &AgentStep) -> StepTrace {
        StepTrace {
            request_id: self.arguments.request_id.clone(),
            run: ready.settings.run,
            attempt: ready.settings.attempt,
            name: step.name.clone(),
            status: Status::NotStarted,
            model: model_of(&ready.settings, &ready.spec, step).unwrap_or("the CLI's own").to_owned(),
            max_turns: step.max_turns(),
            tools: step.tools.clone(),
            timeout_ms: step.timeout_millis(Some(ready.settings.default_timeout_millis)),
            prompt_bytes: 0,
            prompt: None,
            started_at: self.clock.now_millis(),
            duration_ms: 0,
            usage: Usage::default(),
            cache: CacheMetrics::default(),
            attempts: Vec::new(),
        }
    }

    /// The trace of a task that could not be begun, if there is a place for it.
    fn trace_nothing(&mut self, failure: &AgentFailure) {
        let arguments = &self.arguments;
        let Ok(settings) = Settings::read(&arguments.environment) else { return };
        let Ok(places) = Places::make(&settings, &arguments.directory, &arguments.request_id, false) else {
            return;
        };
        let outcome = Outcome::failed(failure, &self.redactor);
        self.write_traces(&places, &outcome);
        places.clear();
    }

    /// Writes trace and summary. What happened is not undone by a full disk, so that is only noted.
    fn write_traces(&mut self, places: &Places, outcome: &Outcome) {
        let text = summary(&self.traces, outcome, millis(self.began.elapsed()), &self.used);
        let trace = serde_json::to_value(&self.traces).unwrap_or_default();
        let written = places.write("traces/session_trace.json", &pretty(&trace));
        let written = written.and_then(|()| places.write("logs/summary.log", text.as_bytes()));
        if let Err(failure) = written {
            self.report.log(&failure.message);
        }
    }
}

/// A failure with the step it happened in.
fn in_step(step: &AgentStep, mut failure: AgentFailure) -> AgentFailure {
    failure.message = format!("step {}: {}", step.name, failure.message);
    failure
}

fn new_session() -> Result<Session, AgentFailure> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    Ok(Session::New(Builder::from_random_bytes(bytes).into_uuid().to_string()))
}

fn random() -> Result<u64, AgentFailure> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn fill_random(bytes: &mut [u8]) -> Result<(), AgentFailure> {
    getrandom::fill(bytes)
        .map_err(|error| AgentFailure::new(FailureKind::Files, format!("there is no randomness: {error}")))
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = format!("{value:#}").into_bytes();
    // The last line ends too.
    let _ = text.write_all(b"\n");
    text
}
