//! One attempt of a task: start its child, watch over it, take what it leaves, and say how it ended.

mod printed;
mod report;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::clock::Clock;
use tidemill_engine::command::Spent;
use tidemill_engine::engine::WorkReport;
use tidemill_model::events::properties::{Activity, ActivityKind};
use tidemill_model::work::error_table::ERROR_TEXT_MAX;
use tidemill_model::{ErrorCategory, Exit, SessionId};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::child::agent_home::AgentHome;
use crate::child::directory::AttemptDirectory;
use crate::child::environment::{self, AgentTells};
use crate::child::error_record::ErrorRecord;
use crate::child::inputs::{self, NoInputs};
use crate::child::output_log::OutputLog;
use crate::child::protocol::ResultRecord;
use crate::child::redaction::{Redaction, secret_missing};
use crate::child::tail::Tail;
use crate::child::verdict::not_started;
use crate::command_line::arguments_of;
use crate::command_worker::{CommandConfig, Shared};
use crate::log_sink::LogSource;
use crate::pace::Pace;
use crate::source::{AttemptEnd, HeldTask, TaskSource};
use crate::spawner::{Child, ChildEvent, ChildExit, CommandLine, SpawnError};
use crate::trouble::Trouble;
use crate::vitals::{Stop, Vitals, acknowledged_within};
use printed::Output;

/// What of stdout is kept for an error text.
const STDOUT_TAIL_BYTES: usize = 2 * 1024;
const SIGKILL: i32 = 9;
/// How long after the grace of a child its spawner may take to say that it is gone. It gives up by itself before.
const END_WAIT: Duration = Duration::from_secs(20);
/// How long pipes are read after everything is gone that could write to them, as far as is known.
const DRAIN: Duration = Duration::from_secs(1);

/// How an attempt ended.
pub(crate) enum End {
    /// With its directory, if all that it holds is stored elsewhere too.
    Report(AttemptEnd, Option<Arc<AttemptDirectory>>),
    /// The task belongs to somebody else, or to nobody: nothing may be written.
    Lost(Stop),
    /// The worker shuts down before it ended. What it had used counts.
    GivenBack(Spent),
    /// This worker cannot run it, or keep what it did, and the task is not to blame. What it had used counts.
    Unable(Trouble, Spent),
}

/// Why the worker ends a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Timeout,
    Idle,
    Stop(Stop),
    /// The lease was not extended in time.
    Lapsed,
    Shutdown,
}

/// How the processes of an attempt ended.
struct Ended {
    /// `None`: the spawner died and took them along.
    exit: Option<ChildExit>,
    forced: bool,
    /// The spawner killed them when the lease was over.
    expired: bool,
    survivors: Vec<u32>,
    cause: Option<Cause>,
}

impl Ended {
    /// Whether the child was killed because its lease was over. One that had ended by itself before has an outcome, which
    /// counts if nobody else has the task.
    fn is_lapsed(&self) -> bool {
        let is_killed = self.exit.is_none_or(|exit| exit.end == Exit::Signal(SIGKILL));
        self.expired || (self.cause == Some(Cause::Lapsed) && is_killed)
    }
}

/// Keeps the lease while it is polled.
pub(crate) type Heart<'a> = Pin<&'a mut (dyn Future<Output = Stop> + Send)>;

pub(crate) struct Attempt<'a, S> {
    shared: &'a Shared<S>,
    claim: &'a HeldTask,
    vitals: &'a Vitals,
    /// Nothing runs beside it.
    is_alone: bool,
    timeout: Duration,
    idle_timeout: Option<Duration>,
    directory: Arc<AttemptDirectory>,
    log: OutputLog,
    /// Lines that go to the log and the live view together.
    fresh: Vec<u8>,
    result: Option<ResultRecord>,
    /// A result line that was too long to be taken.
    result_was_cut: bool,
    error: Option<ErrorRecord>,
    /// What it used and the session it ran in, as far as it is known.
    spent: Spent,
    agent_home: Option<&'a AgentHome>,
    redaction: Redaction,
    /// The last line of stdout that says something, if it may be a JSON object. With secrets: they are taken out of the
    /// result once it is read.
    last_line: Option<Vec<u8>>,
    /// Whether there is anything in its directory that it was not given. Known once it ended.
    left_files: bool,
    stderr: Tail,
    stdout: Tail,
    /// Where output arrives, once there is much of it.
    buffer: Vec<u8>,
}

/// Runs an attempt to its end. `heart` is that of `vitals`; unless the end is `Lost` it beats on.
pub(crate) async fn run<S: TaskSource>(
    shared: &Shared<S>,
    claim: &HeldTask,
    pace: &watch::Receiver<Pace>,
    vitals: &Vitals,
    heart: Heart<'_>,
    agent_home: Option<&AgentHome>,
) -> End {
    let (step_name, timestamp) = (claim.name.to_string(), shared.clock.now());
    vitals.active(Activity { kind: ActivityKind::Waiting, step_name, timestamp });
    let end = run_with(shared, claim, pace, vitals, heart, agent_home).await;
    // The worker that took the task over shows its own log under the same name.
    if !matches!(end, End::Lost(Stop::Lost)) {
        shared.source.log_end(claim);
    }
    end
}

async fn run_with<S: TaskSource>(
    shared: &Shared<S>,
    claim: &HeldTask,
    pace: &watch::Receiver<Pace>,
    vitals: &Vitals,
    mut heart: Heart<'_>,
    agent_home: Option<&AgentHome>,
) -> End {
    let failed = |report| End::Report(AttemptEnd { began: None, report }, None);
    let Some(argv) = arguments_of(claim, &shared.config.agent_program, shared.config.input_arg) else {
        let message = format!("task {} has no command and no handler here", claim.name);
        return failed(WorkReport::failed(message, ErrorCategory::NotFound));
    };
    if let Some(message) = secret_missing(claim, &shared.config.task_secrets, &shared.config.environment) {
        return failed(WorkReport::failed(message, ErrorCategory::Auth));
    }
    let unable = |trouble| End::Unable(trouble, Spent::default());
    let mut stopping = pace.clone();
    let turn = tokio::select! {
        biased;
        turn = shared.troubles.turn(claim) => turn,
        stop = &mut heart => return End::Lost(stop),
        () = vitals.lapsed() => return End::Lost(Stop::Lost),
        () = shared.source.revoked(claim) => return End::Lost(Stop::Cancelled),
        () = must_give_back(&mut stopping) => return End::GivenBack(Spent::default()),
    };
    let directory = match shared.tree.begin(claim) {
        Ok(directory) => Arc::new(directory),
        Err(trouble) => return unable(trouble),
    };
    if let Err(end) = given(shared, claim, &directory, vitals, heart.as_mut(), &mut stopping).await {
        return end;
    }
    let program = argv.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
    let timeout = claim.timeout_ms.map_or(shared.config.timeout, Duration::from_millis);
    let session = agent_home.and_then(|home| session_of(claim, home));
    let tells = match agent_home.map(|home| directory.write_agent(claim).map(|file| (home, file))).transpose()
    {
        Ok(written) => written.map(|(home, file)| AgentTells {
            file,
            home: &home.path,
            session: session.as_ref(),
            deadline_millis: shared.clock.now().plus(millis(timeout)).millis(),
            timeout_millis: millis(timeout),
        }),
        Err(error) => {
            directory.discard().await;
            return unable(Trouble::at(&directory.path, &error));
        }
    };
    let CommandConfig { environment: worker, is_traced, names_secret, .. } = &shared.config;
    let env = environment::of_child(worker, claim, &directory, tells.as_ref(), *is_traced, *names_secret);
    let redaction = Redaction::of(claim, worker, *names_secret);
    let kills_before = shared.memory.before();
    let spawned = match start(shared, CommandLine { argv, env }, vitals, heart.as_mut()).await {
        Ok(spawned) => spawned,
        Err(stop) => return lost(&directory, stop).await,
    };
    let child = match spawned {
        Ok(child) => child,
        Err(SpawnError::TooLate) => return lost(&directory, Stop::Lost).await,
        Err(error) => {
            directory.discard().await;
            let may_be_why = matches!(error, SpawnError::Died(_));
            if may_be_why && !turn.is_alone() {
                shared.troubles.lost_spawner(claim);
            }
            return match Trouble::of_spawn(&error) {
                Some(trouble) if !may_be_why || !turn.is_alone() => unable(trouble),
                _ => failed(not_started(&program, &error)),
            };
        }
    };
    shared.troubles.is_over();
    vitals.started(child.pid, child.watch.handle(), child.watch.has_news());
    let config = &shared.config;
    let mut attempt = Attempt {
        shared,
        claim,
        vitals,
        is_alone: turn.is_alone(),
        timeout,
        idle_timeout: claim.execution.idle_timeout_ms.map(Duration::from_millis).or(config.idle_timeout),
        directory,
        log: OutputLog::new(),
        fresh: Vec::new(),
        result: None,
        result_was_cut: false,
        error: None,
        spent: Spent::default(),
        agent_home,
        redaction,
        last_line: None,
        left_files: true,
        stderr: Tail::new(ERROR_TEXT_MAX),
        stdout: Tail::new(STDOUT_TAIL_BYTES),
        buffer: Vec::new(),
    };
    let started = Instant::now();
    let ended = attempt.watch(child, pace.clone(), heart.as_mut()).await;
    let memory_ran_out = ended.exit.is_some_and(may_lack_memory) && shared.memory.has_grown(&kills_before);
    attempt.end(&ended, started.elapsed(), memory_ran_out, pace.clone(), heart).await
}

/// Starts the child and keeps the lease meanwhile. An error says that the attempt must stop; nothing of the child is left then,
/// as far as this process can see to that.
async fn start<S: TaskSource>(
    shared: &Shared<S>,
    line: CommandLine,
    vitals: &Vitals,
    heart: Heart<'_>,
) -> Result<Result<Child, SpawnError>, Stop> {
    // Where others may be given the task while this process stands still, the child ends without it.
    let deadline = vitals.deadline().filter(|_| !shared.source.is_in_this_process());
    let mut starting = match shared.spawner.begin(line, deadline) {
        Ok(starting) => starting,
        Err(error) => return Ok(Err(error)),
    };
    let stop = tokio::select! {
        biased;
        stop = heart => stop,
        () = vitals.lapsed() => Stop::Lost,
        answered = starting.answered() => return Ok(answered.map(|pid| starting.into_child(pid))),
    };
    if stop == Stop::Lost {
        // Another worker may have the task soon.
        starting.abandon(acknowledged_within(vitals.lease())).await;
    }
    Err(stop)
}

/// Gives the child the files of its parents, and keeps the lease meanwhile.
async fn given<S: TaskSource>(
    shared: &Shared<S>,
    claim: &HeldTask,
    directory: &Arc<AttemptDirectory>,
    vitals: &Vitals,
    mut heart: Heart<'_>,
    stopping: &mut watch::Receiver<Pace>,
) -> Result<(), End> {
    if claim.parents.is_empty() {
        return Ok(());
    }
    let placed = tokio::select! {
        biased;
        stop = &mut heart => return Err(lost(directory, stop).await),
        () = vitals.lapsed() => return Err(lost(directory, Stop::Lost).await),
        () = shared.source.revoked(claim) => return Err(lost(directory, Stop::Cancelled).await),
        () = must_give_back(stopping) => {
            directory.discard().await;
            return Err(End::GivenBack(Spent::default()));
        }
        placed = inputs::place(shared, claim, directory) => placed,
    };
    let Err(problem) = placed else { return Ok(()) };
    directory.discard().await;
    Err(match problem {
        NoInputs::Lost => End::Lost(Stop::Lost),
        NoInputs::Failed(message, category) => {
            End::Report(AttemptEnd { began: None, report: WorkReport::failed(message, category) }, None)
        }
        NoInputs::Unable(trouble) => End::Unable(trouble, Spent::default()),
    })
}

/// The session that an agent goes on with, if it does: the one that was noted here, because an attempt that was killed could not
/// report it, else the one that was reported.
fn session_of(claim: &HeldTask, home: &AgentHome) -> Option<SessionId> {
    let resumes = claim.execution.agent.as_ref().is_some_and(|agent| agent.resume_session);
    if !resumes {
        return None;
    }
    home.noted_session().or_else(|| claim.session_id.clone())
}

/// Only SIGKILL can be the kernel's answer to a lack of memory.
fn may_lack_memory(exit: ChildExit) -> bool {
    matches!(exit.end, Exit::Signal(9) | Exit::Code(137))
}

async fn lost(directory: &Arc<AttemptDirectory>, stop: Stop) -> End {
    directory.discard().await;
    End::Lost(stop)
}

impl<S: TaskSource> Attempt<'_, S> {
    /// What the end of the processes means for the attempt.
    async fn end(
        &mut self,
        ended: &Ended,
        elapsed: Duration,
        memory_ran_out: bool,
        pace: watch::Receiver<Pace>,
        mut heart: Heart<'_>,
    ) -> End {
        if let Some(Cause::Stop(stop)) = ended.cause {
            return lost(&self.directory, stop).await;
        }
        if ended.is_lapsed() {
            return lost(&self.directory, Stop::Lost).await;
        }
        if !ended.survivors.is_empty() {
            self.note(&format!("processes {:?} could not be killed", ended.survivors));
        }
        if ended.cause == Some(Cause::Shutdown) {
            self.directory.discard().await;
            return End::GivenBack(self.spent.clone());
        }
        self.directory.remove_inputs().await;
        // Its log is one of them.
        self.flush();
        self.left_files = self.directory.was_used();
        if let Some(trouble) = self.own_trouble(ended)
            && self.may_give_back(&trouble)
        {
            self.directory.discard().await;
            return End::Unable(trouble, self.spent.clone());
        }
        let report = match self.report_patiently(ended, elapsed, memory_ran_out, heart.as_mut()).await {
            Ok(report) => report,
            Err(end) => return end,
        };
        self.conclude(report.with_spent(self.spent.clone()), pace, heart).await
    }

    /// Reads what the child prints and waits until nothing is left of it, ending it when it must.
    async fn watch(
        &mut self,
        mut child: Child,
        mut pace: watch::Receiver<Pace>,
        mut heart: Heart<'_>,
    ) -> Ended {
        let handle = child.watch.handle();
        let grace = self.shared.config.kill_grace;
        let timeout_at = Instant::now() + self.timeout;
        let mut heard_at = Instant::now();
        let mut stdout = Output::new(child.stdout, LogSource::Stdout);
        let mut stderr = Output::new(child.stderr, LogSource::Stderr);
        let mut ended =
            Ended { exit: None, forced: false, expired: false, survivors: Vec::new(), cause: None };
        let mut gone_at: Option<Instant> = None;
        let mut stuck_at: Option<Instant> = None;
        // A spawner is asked whether it hangs when it is late, and once.
        let (mut is_late, mut has_asked) = (false, false);
        // By the lease as it is then.
        let mut hung = pin!(async { handle.clone().hangs(acknowledged_within(self.vitals.lease())).await });
        let mut revoked = pin!(self.shared.source.revoked(self.claim));
        while gone_at.is_none() || stdout.is_open || stderr.is_open {
            let is_running = ended.cause.is_none() && gone_at.is_none();
            // What is killed for its time still has an outcome, so its lease is kept.
            let is_held = !matches!(ended.cause, Some(Cause::Stop(_)));
            let idle_at = self.idle_timeout.map(|idle| heard_at + idle);
            // A child that prints without end must not keep the others from their turn, so its output comes last.
            let cause = tokio::select! {
                biased;
                hangs = &mut hung, if is_late && !has_asked && gone_at.is_none() => {
                    has_asked = true;
                    if hangs {
                        // What it started dies with it, while nobody else has the task.
                        handle.kill_spawner();
                    }
                    continue;
                }
                () = sleep_until(stuck_at) => {
                    stuck_at = None;
                    handle.kill_spawner();
                    continue;
                }
                stop = &mut heart, if is_held => Cause::Stop(stop),
                () = self.vitals.lapsed(), if is_running => Cause::Lapsed,
                () = &mut revoked, if is_running => Cause::Stop(Stop::Cancelled),
                () = must_give_back(&mut pace), if is_running => Cause::Shutdown,
                () = tokio::time::sleep_until(timeout_at), if is_running && ended.exit.is_none() => Cause::Timeout,
                () = sleep_until(idle_at), if is_running && ended.exit.is_none() => Cause::Idle,
                () = sleep_until(gone_at.map(|at| at + DRAIN)) => break,
                event = child.watch.event(), if gone_at.is_none() => {
                    match event {
                        ChildEvent::Exited(exit) => {
                            ended.exit = Some(exit);
                            continue;
                        }
                        ChildEvent::Gone { forced, expired, survivors } => {
                            (ended.forced, ended.expired, ended.survivors) = (forced, expired, survivors);
                        }
                        ChildEvent::Lost => ended.exit = None,
                    }
                    gone_at = Some(Instant::now());
                    stuck_at = None;
                    // Most often all is there by now, and nothing has to be waited for.
                    self.read(&mut stdout);
                    self.read(&mut stderr);
                    continue;
                }
                () = stdout.readable() => {
                    if self.read(&mut stdout) | self.read(&mut stderr) {
                        heard_at = Instant::now();
                    }
                    continue;
                }
                () = stderr.readable() => {
                    if self.read(&mut stderr) {
                        heard_at = Instant::now();
                    }
                    continue;
                }
            };
            ended.cause = Some(cause);
            if gone_at.is_some() {
                continue;
            }
            // The worker that runs the task now must not meet our processes.
            is_late = matches!(cause, Cause::Stop(Stop::Lost) | Cause::Lapsed);
            let grace = if is_late { Duration::ZERO } else { grace };
            handle.end(grace);
            stuck_at = Some(Instant::now() + grace + END_WAIT);
        }
        for output in [&mut stdout, &mut stderr] {
            self.take_rest(output);
        }
        self.flush();
        ended
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn must_give_back(pace: &mut watch::Receiver<Pace>) {
    // Without a handle nobody asks for it any more.
    if pace.wait_for(|pace| *pace == Pace::GiveBack).await.is_err() {
        std::future::pending::<()>().await;
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
