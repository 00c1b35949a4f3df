//! The engine: what HTTP, the command line and workers call.
//!
//! It turns raw input into complete commands: names and limits are checked, ids minted, JSON rendered, and what is too
//! large for an event goes to the blob store before the command names it. On the way out it puts large values back.
//! What happens next is not decided here but in `decide`; nothing here holds state beside a source
//! of ids, what watchers wait for, and copies of what never changes.

pub(crate) mod check;
pub(crate) mod digest;
mod error;
pub mod limits;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tidemill_model::workflow::Families;
use tidemill_model::{ErrorSanitizer, EventId, JobId, RequestId};
use tracing::{Instrument as _, debug_span};

use crate::health::{HealthBoard, HealthRules};
use crate::kernel::any_backend::AnyBackend;
use crate::kernel::backend::{Answer, Backend, Fault};
use crate::kernel::clock::Clock;
use crate::kernel::command::{Command, Names};
use crate::kernel::id_source::IdSource;
use crate::kernel::policy::Policy;
use crate::kernel::reply::Reply;
use crate::kernel::site::Site;
use crate::metrics::{Asked, SlotMeter, SpanMeter, WorkMeter};
use crate::outbound::AllowedHosts;
use crate::scripts::ScriptBoard;
use crate::triage::TokenSealer;
use crate::work::running::live_log::LiveLogs;
use crate::work::running::revocation::{Revocations, Watchable};

pub use crate::definitions::definition::Define;
pub use crate::events::publish::{EventBatch, NewEvent};
pub use crate::events::query::PageRequest;
pub use crate::keys::is_guarded;
pub use crate::outbound::deliveries::{DeliveryFilter, DeliveryLetterPage, ManyDeliveries};
pub use crate::outside::take_in::TakenEvent;
pub use crate::parking::unpark::UnparkRequest;
pub use crate::queue::dead_letter::DeadLetterPage;
pub use crate::queue::receive::{DeliveredMessage, Received};
pub use crate::queue::send::NewMessage;
pub use crate::scripts::executions::{
    ExecutionFilter, ExecutionPage, LetterFilter, LetterPage, ManyLetters, ShownExecution, ShownStatus,
};
pub use crate::scripts::script::{ScriptChange, ScriptChanges, ScriptError, WriteScript};
pub use crate::scripts::subscription::SubscriptionFilter;
pub use crate::scripts::view::{
    ACTUAL_BYTES_MAX, CompileProblem, EVENTS_LOOKED_AT_MAX, EXPLAINED_MAX, Explained, ExplainedCondition,
    ExplainedEvent, Explanation, FoundEvent, ScriptCompiler, TryOut, Verdict,
};
pub use crate::triage::BulkAction;
pub use crate::triage::bulk_steps::{BulkPreview, NewBulk};
pub use crate::triage::changes::{IngestRequest, Ingested, Marked, TokenOutcome};
pub use crate::triage::view::{
    ErrorPage, GroupFilter, GroupPage, GroupSort, ParkedPage, ShownError, ShownGroup, ShownOccurrence,
    ShownTriageExecution, TriageExecutionPage, TriageFilter, TriageMetrics,
};
pub use crate::usage::view::{UsageBy, UsagePage, UsageQuery, UsageRow};
pub use crate::work::detail::TaskDetail;
pub use crate::work::job_filter::{JobFilter, ManyJobs};
pub use crate::work::ran::{
    RAN_CHARS_MAX, RAN_DEPENDENCIES_MAX, Ran, RanDependency, RanOrigin, RanPrompt, RanVariable,
};
pub use crate::work::running::claiming::{Beginning, Claimant, Claimed, ParentFiles, Work};
pub use crate::work::running::load::{LoadedTask, unloaded_report};
pub use crate::work::running::report::{AttemptReport, HeartbeatReport, RecordedEnding, Signal, WorkReport};
pub use crate::work::running::standstill::PULSE_EVERY;
pub use crate::work::submitting::add_tasks::AddedTasks;
pub use crate::work::submitting::changing::ChangedTasks;
pub use crate::work::submitting::job_file::Rights;
pub use crate::work::submitting::submit_job::{IdempotencyKey, JobRequest, SubmittedJob};
pub use crate::work::submitting::submit_task::{SubmittedTask, TaskRequest};
pub use crate::work::task_files::{KeptFile, TASK_FILES_MAX};
pub use error::{EngineError, not_open};

/// The application service on top of a backend. Clones share everything.
#[derive(Debug)]
pub struct Engine<B> {
    pub(crate) inner: Arc<Inner<B>>,
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

pub(crate) struct Inner<B> {
    pub(crate) backend: Arc<B>,
    shared: Arc<Shared>,
}

/// What does not depend on the backend.
pub(crate) struct Shared {
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) ids: Mutex<IdSource>,
    pub(crate) site: Site,
    pub(crate) bucket: String,
    pub(crate) policy: Policy,
    pub(crate) sanitizer: Arc<ErrorSanitizer>,
    pub(crate) families: Arc<Families>,
    pub(crate) tokens: Arc<TokenSealer>,
    pub(crate) callback_hosts: AllowedHosts,
    pub(crate) dashboard_url: OnceLock<String>,
    pub(crate) health_rules: HealthRules,
    pub(crate) health: HealthBoard,
    pub(crate) live_logs: LiveLogs,
    pub(crate) revocations: Revocations,
    pub(crate) versions: crate::definitions::definition::Versions,
    pub(crate) file_lists: crate::work::task_files::FileLists,
    pub(crate) keys: crate::keys::KnownKeys,
    pub(crate) scripts: crate::scripts::script::Scripts,
    pub(crate) board: ScriptBoard,
    pub(crate) meter: WorkMeter,
    pub(crate) slots: SlotMeter,
    pub(crate) spans: SpanMeter,
    pub(crate) standstill: crate::work::running::standstill::Standstill,
}

impl<B> std::ops::Deref for Inner<B> {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
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
        let shared = Shared {
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
            versions: crate::definitions::definition::Versions::default(),
            file_lists: crate::work::task_files::FileLists::default(),
            keys: crate::keys::KnownKeys::default(),
            scripts: crate::scripts::script::Scripts::default(),
            board: ScriptBoard::default(),
            meter: WorkMeter::default(),
            slots: SlotMeter::default(),
            spans: SpanMeter::default(),
            standstill: crate::work::running::standstill::Standstill::default(),
        };
        Self { inner: Arc::new(Inner { backend: backend.into(), shared: Arc::new(shared) }) }
    }

    /// The same engine for callers that do not care which backend it has.
    pub fn of_any(&self) -> Engine<AnyBackend> {
        let backend = Arc::new(AnyBackend::of(Arc::clone(&self.inner.backend)));
        Engine { inner: Arc::new(Inner { backend, shared: Arc::clone(&self.inner.shared) }) }
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

    /// What running tasks print, for watchers.
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

    pub(crate) fn mint_event_id(&self) -> EventId {
        let now = self.inner.clock.now();
        self.inner.ids.lock().unwrap_or_else(PoisonError::into_inner).event_id(now)
    }

    pub(crate) fn mint_job_id(&self) -> JobId {
        JobId::mint(self.mint_event_id())
    }

    pub(crate) fn mint_request_id(&self) -> RequestId {
        RequestId::trusted(&format!("req-{:032x}", self.mint_event_id().as_u128()))
    }

    /// Carries out one command.
    pub(crate) async fn execute(&self, command: Command) -> Result<Reply, EngineError> {
        let answers = self.execute_group(vec![command]).await?;
        let [answer] = <[Answer; 1]>::try_from(answers).map_err(|answers| miscounted(answers.len(), 1))?;
        Ok(answer?)
    }

    /// Carries out commands as one group.
    pub(crate) async fn execute_group(&self, commands: Vec<Command>) -> Result<Vec<Answer>, EngineError> {
        let asked = commands.len();
        let watchable: Vec<_> = commands.iter().map(Watchable::of).collect();
        let counted = commands.iter().map(Asked::of).collect();
        let began = std::time::Instant::now();
        // Without a subscriber at this level it costs one comparison, and the names are not formatted.
        let span = debug_span!("command", commands = %Names(&commands));
        let answers = self.inner.backend.execute(commands).instrument(span).await?;
        self.inner.meter.look_at(counted, &answers, began.elapsed());
        self.inner.revocations.look_at(&watchable, &answers);
        if answers.len() == asked { Ok(answers) } else { Err(miscounted(answers.len(), asked)) }
    }
}

pub(crate) fn miscounted(got: usize, asked: usize) -> EngineError {
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
pub(crate) use take_reply;

pub(crate) fn unexpected(reply: &Reply) -> EngineError {
    EngineError::Fault(Fault::Damaged(format!("a command got the reply of another: {reply:?}")))
}
