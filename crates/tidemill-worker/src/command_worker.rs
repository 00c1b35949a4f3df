//! A worker that runs tasks as child processes, one in each slot.
//!
//! A permit comes first, then the claim: nothing is ever held that cannot run at once. A slot whose task ends takes the
//! next one in the same commit.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::{Spent, Surroundings};
use tidemill_engine::engine::WorkReport;
use tidemill_engine::metrics::{AttemptMeter, SlotMeter};
use tidemill_engine::warn_seldom;
use tidemill_model::security::secrets::is_secret_name;
use tidemill_model::{Backoff, ErrorCategory, Json, Runner, TaskSecrets, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{Instrument as _, debug_span, warn};

use crate::attempt::{self, End, Heart};
use crate::child::agent_home::{AgentHome, AgentHomes};
use crate::child::directory::OutputTree;
use crate::child::environment;
use crate::child::memory_pressure::MemoryPressure;
use crate::log_sink::{AttemptEnding, LogLine, LogSink, LogSource, NoSink};
use crate::pace::{Pace, WorkerHandle};
use crate::script_task::{self, ScriptTasks};
use crate::source::{AttemptEnd, Followed, HeldTask, SourceError, TaskSource};
use crate::spawner::Spawner;
use crate::trouble::{Allowance, DESCRIPTORS_TO_START, Lack, Trouble, Troubles, look_at_descriptors};
use crate::vitals::{Stop, Vitals, beat_every};

/// A source that does not answer is asked again after this long, and after twice as long each time.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
/// What a task did may have cost hours and money: a source that is away for long is no reason to do it again. The
/// source says whether another worker has the task by then.
pub(crate) const PERSISTENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a worker that stops still offers an outcome.
pub(crate) const PERSISTENCE_AT_STOP: Duration = Duration::from_secs(30);
/// How long a worker offers the files of an attempt to a source that cannot take them, before it sends the outcome
/// without them.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(60);
/// How long a worker claims nothing while it has outcomes that it could not report. It tries each several times
/// meanwhile.
const REPORTS_FIRST: Duration = Duration::from_secs(10);
/// From the end of a child's grace to its last word, with its task given back.
const GIVE_BACK: Duration = Duration::from_secs(10);

/// How a worker runs commands.
#[derive(Debug, Clone)]
pub struct CommandConfig {
    /// Where tasks leave their files.
    pub output_dir: PathBuf,
    /// The tenant whose tasks have their directories right in there; `None`: all.
    pub tenant: Option<TenantId>,
    /// The environment of this process. Children see a short list of it only.
    pub environment: Vec<(OsString, OsString)>,
    /// Which variables of it tasks may be given that ask for them by name.
    pub task_secrets: TaskSecrets,
    /// Which of its variables are secrets by their names. A program that knows its own settings knows better than their names.
    pub names_secret: fn(&str) -> bool,
    /// Whether tasks get their input as an argument, unless their definition says otherwise. Every user of the machine can
    /// see arguments.
    pub input_arg: bool,
    /// What drives an agent, with its first arguments; empty: this worker runs none.
    pub agent_program: Vec<OsString>,
    /// What is wrong with an output by its JSON Schema. It checks outputs of agents once more that lost a secret.
    pub check_output: fn(schema: &Json, output: &Json) -> Result<(), String>,
    /// What runs scripts; `None`: this worker runs none.
    pub scripts: Option<Arc<dyn ScriptTasks>>,
    /// How many tasks run at a time.
    pub slots: usize,
    /// How many tasks are claimed at a time.
    pub claim_max: usize,
    /// How long a claim waits for work.
    pub wait: Duration,
    /// How often a lease is renewed. A lease that is short for it is renewed more often.
    pub heartbeat: Duration,
    /// How long a lease is expected to last without being renewed. Only what the source grants counts; one that grants less is
    /// told of.
    pub lease: Duration,
    /// Wall time for one attempt of a task that does not say its own.
    pub timeout: Duration,
    /// How long a task may print nothing, unless it says so itself; `None`: as long as it likes.
    pub idle_timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// How long an outcome is offered to a source that cannot take it, before it is given up and the task runs again. Half a
    /// minute at most once the worker stops.
    pub persistence: Duration,
    /// How long files of an attempt are offered to a source that cannot take them, before they stay where they are.
    pub upload_patience: Duration,
    /// Whether files stay in the output directory once the outcome is recorded.
    pub keep_files: bool,
    /// Whether children get the trace and span that they are in.
    pub is_traced: bool,
    /// Where the lines of running tasks are shown.
    pub sink: Arc<dyn LogSink>,
    /// Where it is counted how many slots there are and are in use.
    pub slot_meter: SlotMeter,
    /// Where ends of attempts are counted.
    pub attempt_meter: AttemptMeter,
}

impl CommandConfig {
    pub fn new(output_dir: impl Into<PathBuf>, environment: Vec<(OsString, OsString)>) -> Self {
        Self {
            output_dir: output_dir.into(),
            tenant: None,
            environment,
            task_secrets: TaskSecrets::default(),
            names_secret: is_secret_name,
            input_arg: true,
            agent_program: Vec::new(),
            check_output: |_, _| Err("this worker cannot check it again".to_owned()),
            scripts: None,
            slots: 3,
            claim_max: 10,
            wait: Duration::from_secs(20),
            heartbeat: Duration::from_secs(20),
            lease: Duration::from_secs(45),
            timeout: Duration::from_secs(200),
            idle_timeout: None,
            kill_grace: Duration::from_secs(5),
            persistence: PERSISTENCE,
            upload_patience: UPLOAD_PATIENCE,
            keep_files: true,
            is_traced: false,
            sink: Arc::new(NoSink),
            slot_meter: SlotMeter::default(),
            attempt_meter: AttemptMeter::default(),
        }
    }

    fn ended(&self, claim: &HeldTask, ending: AttemptEnding, took: Duration) {
        self.sink.ended(claim, ending, took);
        self.attempt_meter.ended(ending.outcome, ending.class.map_or("", ErrorCategory::as_str), took);
    }
}

/// Runs the commands of tasks.
#[derive(Debug)]
pub struct CommandWorker<S> {
    shared: Shared<S>,
}

/// What all slots of a worker share.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) source: S,
    pub(crate) spawner: Spawner,
    pub(crate) config: CommandConfig,
    pub(crate) tree: OutputTree,
    homes: AgentHomes,
    pub(crate) memory: MemoryPressure,
    pub(crate) clock: SystemClock,
    pub(crate) troubles: Troubles,
    /// Outcomes that could not be reported yet.
    unsent: watch::Sender<usize>,
    /// The lease, in milliseconds, that was found to be shorter than expected and told of.
    short_lease: AtomicU64,
}

impl<S> Shared<S> {
    /// Tells once of a lease that is shorter than this worker is set to expect.
    fn compare(&self, granted: Duration) {
        let (own, interval) = (self.config.lease, self.config.heartbeat);
        let every = beat_every(interval, granted);
        if own <= granted && interval <= every {
            return;
        }
        let granted_ms = attempt::millis(granted);
        if self.short_lease.swap(granted_ms, Ordering::Relaxed) == granted_ms {
            return;
        }
        let (own_ms, every_ms) = (attempt::millis(own), attempt::millis(every));
        warn!(
            granted_ms,
            own_ms,
            every_ms,
            "the server grants a shorter lease than this worker is set to (VISIBILITY_EXTENSION_AMOUNT, VISIBILITY_EXTENSION_INTERVAL); \
             heartbeats follow the server"
        );
    }

    /// Something of this machine keeps tasks from running: nothing is claimed until it is over.
    fn trouble(&self, trouble: &Trouble) {
        if self.troubles.began(trouble, &self.config.slot_meter) {
            self.config.sink.trouble(&format!("nothing is claimed: {trouble}"));
        }
    }

    /// Looks whether all is there that tasks need.
    async fn look(&self) -> Result<(), Trouble> {
        look_at_descriptors(DESCRIPTORS_TO_START)?;
        self.tree.look()?;
        self.spawner.answers().await.map_err(|error| Trouble::new(Lack::Spawner, error))
    }
}

impl<S: TaskSource> CommandWorker<S> {
    /// Opens the output directory.
    pub fn new(source: S, spawner: Spawner, config: CommandConfig) -> io::Result<Self> {
        let tree = OutputTree::open(&config.output_dir, config.tenant.clone(), spawner.run_as())?;
        let homes = AgentHomes::open(&tree, spawner.run_as());
        let (memory, clock) = (MemoryPressure::watch(), SystemClock::start());
        let (troubles, unsent) = (Troubles::default(), watch::Sender::new(0));
        let short_lease = AtomicU64::new(u64::MAX);
        let shared =
            Shared { source, spawner, config, tree, homes, memory, clock, troubles, unsent, short_lease };
        Ok(Self { shared })
    }

    /// Starts to work on the current runtime.
    pub fn start(self) -> WorkerHandle {
        let (stop, pace) = watch::channel(Pace::Work);
        let give_back = self.shared.config.kill_grace + GIVE_BACK;
        let worker = tokio::spawn(claim_and_run(Arc::new(self.shared), pace));
        WorkerHandle::new(stop, vec![worker], give_back)
    }
}

/// Claims whenever there is a free permit, and runs what was claimed, until told to stop.
async fn claim_and_run<S: TaskSource>(shared: Arc<Shared<S>>, mut pace: watch::Receiver<Pace>) {
    let permits = Arc::new(Semaphore::new(shared.config.slots));
    let _slots = shared.config.slot_meter.add(shared.config.slots);
    let mut running = JoinSet::new();
    let mut pauses = PAUSES;
    loop {
        let claimed = tokio::select! {
            biased;
            () = stop_requested(&mut pace) => break,
            claimed = claim(&shared, &permits) => claimed,
        };
        while running.try_join_next().is_some() {}
        match claimed {
            Ok(claims) => {
                pauses.reset();
                for (claim, permit) in claims {
                    shared.troubles.claimed();
                    running.spawn(work_off(Arc::clone(&shared), claim, permit, pace.clone()));
                }
            }
            Err(error) => {
                warn_seldom!(error, "no task could be claimed; it is tried again");
                tokio::select! {
                    () = stop_requested(&mut pace) => break,
                    () = tokio::time::sleep(pauses.pause()) => {}
                }
            }
        }
    }
    while running.join_next().await.is_some() {}
}

async fn stop_requested(pace: &mut watch::Receiver<Pace>) {
    // Without a handle it is over too.
    let _ = pace.wait_for(|pace| *pace != Pace::Work).await;
}

/// Waits until tasks can be run here, and tells how many may be claimed.
async fn able<S: TaskSource>(shared: &Shared<S>) -> usize {
    loop {
        shared.troubles.without_suspects().await;
        match shared.troubles.allowance() {
            Allowance::All => return shared.config.claim_max,
            Allowance::One => return 1,
            Allowance::Wait => shared.troubles.changed().await,
            Allowance::After(pause) => {
                tokio::time::sleep(pause).await;
                match shared.look().await {
                    Ok(()) => {
                        shared.troubles.seems_over();
                        shared.config.sink.trouble("what was wrong seems to be over: one task is tried");
                    }
                    Err(trouble) => {
                        shared.troubles.goes_on();
                        let seconds = pause.as_secs();
                        let text = format!("nothing was claimed for {seconds} s: {trouble}");
                        shared.config.sink.trouble(&text);
                    }
                }
            }
        }
    }
}

/// Waits for a while if there are outcomes that could not be reported: a source that was away may be back, and gets
/// the outcomes before the worker asks it for more.
async fn reports_first<S>(shared: &Shared<S>) {
    let mut unsent = shared.unsent.subscribe();
    // After that somebody new is served all the same.
    let _ = tokio::time::timeout(REPORTS_FIRST, unsent.wait_for(|unsent| *unsent == 0)).await;
}

/// Waits for a free permit, then claims for all that are free.
async fn claim<S: TaskSource>(
    shared: &Shared<S>,
    permits: &Arc<Semaphore>,
) -> Result<Vec<(HeldTask, OwnedSemaphorePermit)>, SourceError> {
    let closed = |_| SourceError::Unavailable("the worker ends".to_owned());
    let mut free = vec![Arc::clone(permits).acquire_owned().await.map_err(closed)?];
    reports_first(shared).await;
    let claim_max = able(shared).await;
    while free.len() < claim_max
        && let Ok(permit) = Arc::clone(permits).try_acquire_owned()
    {
        free.push(permit);
    }
    let claims = shared.source.claim(free.len(), shared.config.wait).await?;
    Ok(claims.into_iter().zip(free).collect())
}

/// Runs a task and those that follow it without a pause.
async fn work_off<S: TaskSource>(
    shared: Arc<Shared<S>>,
    first: HeldTask,
    permit: OwnedSemaphorePermit,
    pace: watch::Receiver<Pace>,
) {
    let _slot = shared.config.slot_meter.busy();
    let mut next = Some(first);
    while let Some(mut claim) = next.take() {
        claim.surroundings = surroundings(&shared, &claim);
        let (vitals, config) = (Vitals::of(&claim), &shared.config);
        shared.compare(claim.lease);
        let began = Instant::now();
        let span = span_of(&claim);
        let mut heart = pin!(vitals.keep_lease(&shared.source, &claim, config.heartbeat));
        let (home, end) = match agent_home(&shared, &claim) {
            Ok(_) if claim.execution.runner == Runner::Script => {
                let ran = script_task::run(&shared, &claim, &pace, &vitals, heart.as_mut());
                (None, ran.instrument(span.clone()).await)
            }
            Ok(home) => {
                let ran = attempt::run(&shared, &claim, &pace, &vitals, heart.as_mut(), home.as_ref());
                let end = ran.instrument(span.clone()).await;
                (home, end)
            }
            Err(trouble) => (None, End::Unable(trouble, Spent::default())),
        };
        if !matches!(end, End::Unable(..)) {
            shared.troubles.is_over();
        }
        match end {
            End::Report(end, directory) => {
                config.ended(&claim, AttemptEnding::of(&end.report), began.elapsed());
                let reporting = report(&shared, &claim, end, &pace, &vitals).instrument(span);
                let reported = beside(heart.as_mut(), reporting).await;
                let Some(Followed { is_over, next: following }) = reported else { break };
                if is_over {
                    shared.troubles.forget(&claim);
                }
                if let Some(home) = home.filter(|_| is_over) {
                    home.remove().await;
                }
                if let Some(directory) = directory.filter(|_| !shared.config.keep_files) {
                    directory.remove_settled().await;
                }
                next = following;
            }
            End::Lost(stop) => {
                config.ended(&claim, AttemptEnding::lost(stop == Stop::Cancelled), began.elapsed());
                if stop == Stop::Cancelled {
                    shared.troubles.forget(&claim);
                }
                // The worker that took the task over may share it.
                if let Some(home) = home.filter(|_| stop == Stop::Cancelled) {
                    home.remove().await;
                }
                break;
            }
            End::GivenBack(spent) => {
                config.ended(&claim, AttemptEnding::GIVEN_BACK, began.elapsed());
                let released = shared.source.release(&claim, "worker shutdown".to_owned(), spent).await;
                // If it cannot be noted, the lease runs out.
                if let Err(error) = released {
                    warn_seldom!(error, request = %claim.task.request, "a task could not be given back");
                }
            }
            End::Unable(trouble, spent) => {
                config.ended(&claim, AttemptEnding::GIVEN_BACK, began.elapsed());
                // Before the task is free again: this worker is not to claim it at once.
                shared.trouble(&trouble);
                beside(heart.as_mut(), give_back(&shared, &claim, &trouble, spent)).await;
            }
        }
    }
    drop(permit);
}

fn span_of(claim: &HeldTask) -> tracing::Span {
    debug_span!(
        "attempt",
        tenant = %claim.task.tenant,
        job = claim.job.map(tracing::field::display),
        task = %claim.task_id,
        request = %claim.task.request,
        run = claim.run,
        attempt = claim.attempt,
        fence = claim.fence.0,
    )
}

/// What the worker says of where an attempt runs.
fn surroundings<S>(shared: &Shared<S>, claim: &HeldTask) -> Surroundings {
    if !matches!(claim.execution.runner, Runner::Command | Runner::Agent) {
        return Surroundings::default();
    }
    let key = (claim.run, claim.attempt, claim.fence);
    let directory = shared.tree.attempt_of(&claim.task.tenant, &claim.task.request, key);
    Surroundings {
        directory: directory.into_os_string().into_string().ok(),
        variables: environment::passed(&shared.config.environment, claim)
            .map(|(name, _)| name.to_owned())
            .collect(),
    }
}

/// Gives a task back that this worker cannot run. No attempt is counted.
async fn give_back<S: TaskSource>(shared: &Shared<S>, claim: &HeldTask, trouble: &Trouble, spent: Spent) {
    let reason = format!("the worker cannot run tasks: {trouble}");
    let mut pauses = PAUSES;
    // While the lease lasts; then it is free by itself.
    let until = Instant::now() + claim.lease;
    while let Err(error @ SourceError::Unavailable(_)) =
        shared.source.release(claim, reason.clone(), spent.clone()).await
        && Instant::now() < until
    {
        warn_seldom!(error, request = %claim.task.request, "a task could not be given back; it is tried again");
        tokio::time::sleep(pauses.pause()).await;
    }
}

/// The home of an agent; `None` for other tasks.
fn agent_home<S>(shared: &Shared<S>, claim: &HeldTask) -> Result<Option<AgentHome>, Trouble> {
    let is_agent = claim.execution.runner == Runner::Agent;
    let home = is_agent.then(|| shared.homes.begin(claim)).transpose();
    home.map_err(|error| Trouble::at(shared.tree.root(), &error))
}

/// Keeps a lease until something is done.
///
/// A lost lease does not end the work: the awaited answer may bring the next task.
async fn beside<T>(heart: Heart<'_>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        _ = heart => {}
    }
    work.await
}

/// Records an outcome and takes the next task, unless the worker stops. `None` when the outcome was not recorded.
async fn report<S: TaskSource>(
    shared: &Shared<S>,
    claim: &HeldTask,
    mut end: AttemptEnd,
    pace: &watch::Receiver<Pace>,
    vitals: &Vitals,
) -> Option<Followed> {
    let began = Instant::now();
    let mut pauses = PAUSES;
    let mut was_refused = false;
    let mut unsent = None;
    loop {
        end.began = end.began.filter(|pid| !vitals.has_reported(*pid));
        // Others that have something to report come before anything new.
        let may_claim =
            shared.troubles.is_sound() && !shared.troubles.has_suspects() && *shared.unsent.borrow() == 0;
        let reported = if may_claim && *pace.borrow() == Pace::Work {
            shared.source.finish_and_claim(claim, end.clone()).await
        } else {
            shared.source.finish(claim, end.clone()).await
        };
        match reported {
            Ok(followed) => return Some(followed),
            Err(SourceError::Refused(problem)) if !was_refused => {
                // The outcome as it is will never be taken, so the task fails with the reason.
                was_refused = true;
                let message = format!("the outcome was refused: {problem}");
                end.report =
                    WorkReport::failed(message, ErrorCategory::Validation).with_spent(end.report.spent());
            }
            Err(SourceError::Unavailable(problem)) => {
                let is_stopping = *pace.borrow() != Pace::Work;
                let at_most = if is_stopping { PERSISTENCE_AT_STOP } else { Duration::MAX };
                if began.elapsed() >= shared.config.persistence.min(at_most) {
                    let text = format!("the outcome could not be recorded and is given up: {problem}");
                    shared.config.sink.line(&LogLine { claim, stream: LogSource::Worker, text: &text });
                    return None;
                }
                warn_seldom!(problem, request = %claim.task.request, "an outcome could not be recorded; it is tried again");
                unsent.get_or_insert_with(|| Unsent::new(&shared.unsent));
                tokio::time::sleep(pauses.pause()).await;
            }
            Err(SourceError::Lost | SourceError::Refused(_)) => return None,
        }
    }
}

/// An outcome that could not be reported yet, until it is dropped.
struct Unsent<'a>(&'a watch::Sender<usize>);

impl<'a> Unsent<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
