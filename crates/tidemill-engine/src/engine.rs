//! The engine: what HTTP, the command line and workers call.
//!
//! It turns raw input into complete commands: names and limits are checked, ids minted, JSON rendered, and what is too
//! large for an event goes to the blob store before the command names it. On the way out it puts large values back.
//! What happens next is not decided here but in `decide`; nothing here holds state beside a source
//! of ids, what watchers wait for, and copies of what never changes.

mod alerts;
mod change_tasks;
mod check;
mod definitions;
mod deliveries;
mod detail;
pub(crate) mod digest;
mod error;
mod executions;
mod failed_jobs;
mod files;
mod health;
mod job_filter;
mod keys;
pub mod limits;
mod metrics;
mod overflow;
mod publish;
mod queue;
mod ran;
mod read;
mod repair;
mod report;
mod revocation;
mod script_effects;
mod script_view;
mod scripts;
mod standstill;
mod submit;
mod subscriptions;
mod task_files;
mod triage;
mod triage_view;
mod usage;
mod work;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tidemill_model::workflow::Families;
use tidemill_model::{ErrorSanitizer, EventId, JobId, RequestId};
use tracing::{Instrument as _, debug_span};

use crate::backend::{Answer, Backend, Fault};
use crate::clock::Clock;
use crate::command::{Command, Names};
use crate::health::{HealthBoard, HealthRules};
use crate::id_source::IdSource;
use crate::live_log::LiveLogs;
use crate::metrics::{Asked, SlotMeter, SpanMeter, WorkMeter};
use crate::outbound::AllowedHosts;
use crate::policy::Policy;
use crate::reply::Reply;
use crate::scripts::ScriptBoard;
use crate::site::Site;
use crate::triage::TokenSealer;
use revocation::{Revocations, Watchable};

pub use change_tasks::ChangedTasks;
pub use definitions::Define;
pub use deliveries::{DeliveryFilter, DeliveryLetterPage, ManyDeliveries};
pub use detail::TaskDetail;
pub use error::{EngineError, not_open};
pub use executions::{
    ExecutionFilter, ExecutionPage, LetterFilter, LetterPage, ManyLetters, ShownExecution, ShownStatus,
};
pub use files::Rights;
pub use job_filter::{JobFilter, ManyJobs};
pub use keys::is_guarded;
pub use publish::{NewEvent, PublishRequest};
pub use queue::{Delivery, Received, SendRequest};
pub use ran::{Origin, RAN_CHARS_MAX, RAN_DEPENDENCIES_MAX, Ran, RanDependency, RanPrompt, RanVariable};
pub use read::{DeadLetterPage, PageRequest};
pub use report::{FinishRequest, Finished, HeartbeatRequest, Signal, WorkReport};
pub use script_view::{
    ACTUAL_BYTES_MAX, CompileProblem, EVENTS_LOOKED_AT_MAX, EXPLAINED_MAX, Explained, ExplainedCondition,
    ExplainedEvent, Explanation, FoundEvent, ScriptCompiler, TryOut, Verdict,
};
pub use scripts::{ScriptChange, ScriptChanges, ScriptError, WriteScript};
pub use standstill::PULSE_EVERY;
pub use submit::{AddedTasks, IdempotencyKey, JobRequest, SubmittedJob, SubmittedTask, TaskRequest};
pub use subscriptions::SubscriptionFilter;
pub use task_files::{KeptFile, TASK_FILES_MAX};
pub use triage::{
    BulkPreview, BulkRequest, IngestRequest, Ingested, Marked, TokenOutcome, Unpark, UnparkRequest,
};
pub use triage_view::{
    ErrorPage, GroupFilter, GroupPage, GroupSort, ParkedPage, ShownError, ShownGroup, ShownOccurrence,
    ShownTriageExecution, TriageExecutionPage, TriageFilter, TriageMetrics,
};
pub use usage::{UsageBy, UsagePage, UsageQuery, UsageRow};
pub use work::{Beginning, ClaimRequest, Claimed, ParentFiles, Work};

/// The application service on top of a backend. Clones share everything.
#[derive(Debug)]
pub struct Engine<B> {
    inner: Arc<Inner<B>>,
}

impl<B> Clone for Engine<B> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// What the engine must know of its backend.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The stage, as the backend's events name it.
    pub environment: String,
    /// The bucket that references to large values name.
    pub bucket: String,
    /// The backend's own policy: its limits are checked here first, so that bad input leaves no blob behind.
    pub policy: Policy,
    /// What takes secrets out of error texts before they are stored.
    pub sanitizer: Arc<ErrorSanitizer>,
    /// The workflow events that are accepted.
    pub families: Arc<Families>,
    /// What seals the tokens of parked executions.
    pub tokens: Arc<TokenSealer>,
    /// How checks of health judge.
    pub health: HealthRules,
    /// The hosts that jobs may have called.
    pub callback_hosts: AllowedHosts,
    /// Where people find the dashboard, if that is known: alerts link to it.
    pub dashboard_url: Option<String>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            environment: "dev".to_owned(),
            bucket: "local".to_owned(),
            policy: Policy::default(),
            sanitizer: Arc::default(),
            families: Arc::default(),
            tokens: Arc::new(TokenSealer::passing()),
            health: HealthRules::default(),
            callback_hosts: AllowedHosts::default(),
            dashboard_url: None,
        }
    }
}

struct Inner<B> {
    backend: Arc<B>,
    clock: Box<dyn Clock>,
    ids: Mutex<IdSource>,
    site: Site,
    bucket: String,
    policy: Policy,
    sanitizer: Arc<ErrorSanitizer>,
    families: Arc<Families>,
    tokens: Arc<TokenSealer>,
    callback_hosts: AllowedHosts,
    dashboard_url: OnceLock<String>,
    health_rules: HealthRules,
    health: HealthBoard,
    live_logs: LiveLogs,
    revocations: Revocations,
    versions: definitions::Versions,
    file_lists: task_files::FileLists,
    keys: keys::KnownKeys,
    scripts: scripts::Scripts,
    board: ScriptBoard,
    meter: WorkMeter,
    slots: SlotMeter,
    spans: SpanMeter,
    standstill: standstill::Standstill,
}

impl<B> std::fmt::Debug for Inner<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("bucket", &self.bucket)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Engine<B> {
    /// `seed` must differ between processes and from the backend's own; 64 random bits will do.
    pub fn new(backend: impl Into<Arc<B>>, clock: impl Clock, seed: u64, config: EngineConfig) -> Self {
        let inner = Inner {
            backend: backend.into(),
            clock: Box::new(clock),
            ids: Mutex::new(IdSource::new(seed)),
            site: Site::new(&config.environment),
            bucket: config.bucket,
            policy: config.policy,
            sanitizer: config.sanitizer,
            families: config.families,
            tokens: config.tokens,
            callback_hosts: config.callback_hosts,
            dashboard_url: config.dashboard_url.map(OnceLock::from).unwrap_or_default(),
            health_rules: config.health,
            health: HealthBoard::default(),
            live_logs: LiveLogs::default(),
            revocations: Revocations::default(),
            versions: definitions::Versions::default(),
            file_lists: task_files::FileLists::default(),
            keys: keys::KnownKeys::default(),
            scripts: scripts::Scripts::default(),
            board: ScriptBoard::default(),
            meter: WorkMeter::default(),
            slots: SlotMeter::default(),
            spans: SpanMeter::default(),
            standstill: standstill::Standstill::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn backend(&self) -> &B {
        &self.inner.backend
    }

    pub fn policy(&self) -> &Policy {
        &self.inner.policy
    }

    /// Says where people find the dashboard, unless that was set.
    pub fn set_dashboard_url(&self, url: String) {
        let _ = self.inner.dashboard_url.set(url);
    }

    /// What running tasks print, for those who watch.
    pub fn live_logs(&self) -> &LiveLogs {
        &self.inner.live_logs
    }

    /// A text without what must not be seen, fit for an event.
    pub fn clean(&self, text: &str) -> String {
        self.inner.sanitizer.clean(text)
    }

    /// The same for a text that may be longer.
    pub(crate) fn clean_within(&self, text: &str, chars_max: usize) -> String {
        self.inner.sanitizer.clean_within(text, chars_max)
    }

    fn mint_event_id(&self) -> EventId {
        let now = self.inner.clock.now();
        self.inner.ids.lock().unwrap_or_else(PoisonError::into_inner).event_id(now)
    }

    fn mint_job_id(&self) -> JobId {
        JobId::mint(self.mint_event_id())
    }

    fn mint_request_id(&self) -> RequestId {
        RequestId::trusted(&format!("req-{:032x}", self.mint_event_id().as_u128()))
    }

    /// Carries out one command.
    async fn execute(&self, command: Command) -> Result<Reply, EngineError> {
        let answers = self.execute_group(vec![command]).await?;
        let [answer] = <[Answer; 1]>::try_from(answers).map_err(|answers| miscounted(answers.len(), 1))?;
        Ok(answer?)
    }

    /// Carries out commands as one group.
    async fn execute_group(&self, commands: Vec<Command>) -> Result<Vec<Answer>, EngineError> {
        let asked = commands.len();
        let watchable: Vec<_> = commands.iter().map(Watchable::of).collect();
        let counted = commands.iter().map(Asked::of).collect();
        let began = std::time::Instant::now();
        // Without somebody who looks at this level it is one comparison, and nothing is made of the names.
        let span = debug_span!("command", commands = %Names(&commands));
        let answers = self.inner.backend.execute(commands).instrument(span).await?;
        self.inner.meter.look_at(counted, &answers, began.elapsed());
        self.inner.revocations.look_at(&watchable, &answers);
        if answers.len() == asked { Ok(answers) } else { Err(miscounted(answers.len(), asked)) }
    }
}

fn miscounted(got: usize, asked: usize) -> EngineError {
    EngineError::Fault(Fault::Damaged(format!("{got} answers came to {asked} commands")))
}

/// The reply a command must have got, or the fault that it got another one.
macro_rules! take_reply {
    ($reply:expr, $shape:pat => $value:expr) => {
        match $reply {
            $shape => Ok($value),
            other => Err($crate::engine::unexpected(&other)),
        }
    };
}
use take_reply;

fn unexpected(reply: &Reply) -> EngineError {
    EngineError::Fault(Fault::Damaged(format!("a command got the reply of another: {reply:?}")))
}
