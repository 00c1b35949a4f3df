//! The pulse of a tenant: how many tasks end per minute, and which jobs are open.
//!
//! Both would take long to read from the store at every look. So the first look at the overview starts a reader that
//! follows the log as long as somebody looks. It reads what it says of jobs from their heads, which all other answers
//! come from too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_engine::AnyBackend;
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::{Clock, SystemClock};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::JobFilter;
use tidemill_engine::warn_seldom;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::{
    Event, JobCounts, JobId, JobStatus, KnownType, PublicState, RequestId, TenantId, Timestamp,
};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;

use crate::app::App;
use crate::app::Engine;
use crate::stream::Herald;

/// The minutes that are shown.
pub(super) const MINUTES: u64 = 60;
const MINUTE_MILLIS: u64 = 60_000;
/// How many events of the past hour are read of each type when somebody begins to look, the newest first.
const BACK_EVENTS_MAX: usize = 100_000;
const EVENTS_AT_ONCE: usize = 1_000;
/// How many events of the past are read at a time. The store answers without a pause, so a reader of much of it must
/// yield to others by itself, and often: they may wait on the same thread.
const BACK_AT_ONCE: usize = 200;
const JOBS_AT_ONCE: usize = 200;
/// How long a reader goes on after the last look.
const UNWATCHED_MAX: Duration = Duration::from_secs(120);
/// How often it is checked how far the log was read, when nothing happens.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long changes of jobs are gathered.
const GATHER: Duration = Duration::from_millis(200);
/// How long a first look waits for what is counted; a page that has not all of it is made again soon.
const PATIENCE: Duration = Duration::from_millis(80);

/// What ended in one minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Minute {
    pub(super) completed: u64,
    pub(super) failed: u64,
}

/// A tenant's state at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Pulse {
    /// By minutes since the epoch.
    pub(super) minutes: BTreeMap<u64, Minute>,
    /// Jobs that are neither completed nor cancelled, with the states of their tasks.
    pub(super) open: BTreeMap<JobId, (JobStatus, JobCounts)>,
    /// Tasks without a job that are not done.
    pub(super) loose: Loose,
    /// Whether all jobs were counted.
    pub(super) is_counted: bool,
    /// Whether the past hour was read.
    pub(super) is_read: bool,
    /// Whether an event came that is not part of it yet.
    pub(super) is_behind: bool,
    /// The number of the last event that is part of it.
    after: u64,
}

/// Tasks without a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Loose {
    pub(super) pending: u64,
    pub(super) processing: u64,
}

impl Loose {
    fn of(states: &HashMap<RequestId, PublicState>) -> Self {
        let count = |state| states.values().filter(|own| **own == state).count() as u64;
        Self { pending: count(PublicState::Pending), processing: count(PublicState::Processing) }
    }
}

impl Pulse {
    fn add(&mut self, event: &Event) {
        let known = KnownType::from_name(event.event_type.as_str());
        let minute = || event.timestamp.millis() / MINUTE_MILLIS;
        match known {
            Some(KnownType::TaskCompleted) => self.minutes.entry(minute()).or_default().completed += 1,
            Some(KnownType::TaskFailed | KnownType::TaskTimeout) => {
                self.minutes.entry(minute()).or_default().failed += 1;
            }
            _ => {}
        }
    }

    fn forget_before(&mut self, minute: u64) {
        self.minutes = self.minutes.split_off(&minute);
    }

    pub(super) fn count(&self, status: JobStatus) -> u64 {
        self.open.values().filter(|(own, _)| *own == status).count() as u64
    }
}

#[derive(Debug)]
struct Beat {
    pulse: Mutex<Pulse>,
    looked_at: Mutex<Instant>,
    /// Whether all was read that happened before.
    ready: watch::Sender<bool>,
}

/// The pulses that are being read.
#[derive(Debug, Default)]
pub(super) struct Pulses(Mutex<HashMap<TenantId, Arc<Beat>>>);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pulses {
    /// The tenant's pulse, which is read from now on for a while.
    pub(super) async fn look(&self, app: &App, tenant: &TenantId) -> Pulse {
        let beat = {
            let mut beats = lock(&self.0);
            beats.retain(|_, beat| Arc::strong_count(beat) > 1);
            if let Some(beat) = beats.get(tenant) {
                Arc::clone(beat)
            } else {
                let beat = Arc::new(Beat {
                    pulse: Mutex::default(),
                    looked_at: Mutex::new(Instant::now()),
                    ready: watch::Sender::new(false),
                });
                tokio::spawn(read(app.clone(), tenant.clone(), Arc::clone(&beat)));
                beats.insert(tenant.clone(), Arc::clone(&beat));
                beat
            }
        };
        *lock(&beat.looked_at) = Instant::now();
        let last = app.herald().last_of(tenant);
        let mut ready = beat.ready.subscribe();
        let _ = tokio::time::timeout(PATIENCE, ready.wait_for(|is_ready| *is_ready)).await;
        let pulse = lock(&beat.pulse).clone();
        Pulse { is_behind: pulse.after < last, ..pulse }
    }
}

async fn read(app: App, tenant: TenantId, beat: Arc<Beat>) {
    let engine = app.engine();
    let backend = engine.backend();
    let clock = SystemClock::start();
    // Before anything is counted: between the two nothing is missed.
    let mut news = Herald::follow(&app, &tenant);
    let mut after = backend.newest();
    // A store that cannot answer ends the reader; the next look begins again.
    if count_jobs(engine, &tenant, &beat).await.is_none() {
        return;
    }
    let Some(mut loose) = loose_tasks(engine, &tenant).await else { return };
    lock(&beat.pulse).loose = Loose::of(&loose);
    let since = clock.now().millis() / MINUTE_MILLIS - MINUTES + 1;
    if read_back(engine, &tenant, &beat, Timestamp::clamped(since * MINUTE_MILLIS), after).await.is_none() {
        return;
    }
    {
        let mut pulse = lock(&beat.pulse);
        (pulse.is_read, pulse.after) = (true, after);
    }
    beat.ready.send_replace(true);
    // Waiters for it go first.
    tokio::task::yield_now().await;
    let mut closing = app.closing();
    let (mut came, mut is_missed) = (None, false);
    loop {
        let mut touched = Touched::default();
        if std::mem::take(&mut is_missed) {
            let Some(last) = catch_up(backend, &tenant, after, &beat, &mut touched).await else { return };
            after = last;
        }
        let told = app.herald().announced();
        loop {
            match came.take().map_or_else(|| news.try_recv(), Ok) {
                Ok((number, event)) if number > after => {
                    after = number;
                    touched.add(&event);
                    lock(&beat.pulse).add(&event);
                }
                // It was part of what was read before.
                Ok(_) => {}
                Err(TryRecvError::Empty) => {
                    after = after.max(told);
                    break;
                }
                Err(TryRecvError::Lagged(_)) => {
                    let Some(last) = catch_up(backend, &tenant, after, &beat, &mut touched).await else {
                        return;
                    };
                    after = last;
                }
                Err(TryRecvError::Closed) => return,
            }
        }
        let Touched { jobs: changed, alone: changed_alone } = touched;
        for job in changed {
            let found = engine.job(tenant.clone(), job).await;
            let Ok(found) = found.inspect_err(|error| uncounted(error)) else { return };
            note(&mut lock(&beat.pulse), job, found.map(|job| (job.status, job.head.counts)));
        }
        for request in changed_alone {
            let key = TaskKey { tenant: tenant.clone(), request };
            let found = engine.task(key.clone()).await;
            let Ok(found) = found.inspect_err(|error| uncounted(error)) else { return };
            match found.and_then(|task| task.state) {
                Some(state @ (PublicState::Pending | PublicState::Processing)) => {
                    loose.insert(key.request, state);
                }
                _ => drop(loose.remove(&key.request)),
            }
        }
        {
            let mut pulse = lock(&beat.pulse);
            (pulse.loose, pulse.after) = (Loose::of(&loose), after);
            pulse.forget_before(clock.now().millis() / MINUTE_MILLIS - MINUTES + 1);
        }
        if lock(&beat.looked_at).elapsed() > UNWATCHED_MAX {
            return;
        }
        tokio::select! {
            heard = news.recv() => {
                match heard {
                    Ok(heard) => came = Some(heard),
                    Err(RecvError::Lagged(_)) => is_missed = true,
                    Err(RecvError::Closed) => return,
                }
                tokio::time::sleep(GATHER).await;
            }
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = closing.begun() => return,
        }
    }
}

/// What events were about.
#[derive(Debug, Default)]
struct Touched {
    jobs: BTreeSet<JobId>,
    /// Tasks without a job.
    alone: BTreeSet<RequestId>,
}

impl Touched {
    fn add(&mut self, event: &Event) {
        self.jobs.extend(job_of(event));
        self.alone.extend(loose_task_of(event));
    }
}

/// Figures that cannot be counted now are counted with the next look.
fn uncounted(error: &dyn std::fmt::Display) {
    warn_seldom!(error, "figures of the dashboard could not be counted");
}

/// Reads what was missed from the log, up to what there is now; the number of the last event.
async fn catch_up(
    backend: &AnyBackend,
    tenant: &TenantId,
    mut after: u64,
    beat: &Beat,
    touched: &mut Touched,
) -> Option<u64> {
    let newest = backend.newest();
    loop {
        let events =
            backend.follow(after, EVENTS_AT_ONCE).await.inspect_err(|error| uncounted(error)).ok()?;
        // Numbers of events that expired are passed over.
        let Some((last, _)) = events.last() else { return Some(after.max(newest)) };
        after = *last;
        for (_, event) in events.iter().filter(|(_, event)| event.tenant == *tenant) {
            touched.add(event);
            lock(&beat.pulse).add(event);
        }
        if after >= newest {
            return Some(after);
        }
        tokio::task::yield_now().await;
    }
}

fn note(pulse: &mut Pulse, job: JobId, found: Option<(JobStatus, JobCounts)>) {
    match found {
        Some((status, counts)) if !matches!(status, JobStatus::Completed | JobStatus::Cancelled) => {
            pulse.open.insert(job, (status, counts));
        }
        _ => drop(pulse.open.remove(&job)),
    }
}

fn job_of(event: &Event) -> Option<JobId> {
    match event.entity.kind.as_str() {
        "JOB" => JobId::new(event.entity.id.as_str()).ok(),
        "TASK" => RequestId::trusted(event.entity.id.as_str()).job_part(),
        _ => None,
    }
}

fn loose_task_of(event: &Event) -> Option<RequestId> {
    let is_task = event.entity.kind.as_str() == "TASK";
    let request = is_task.then(|| RequestId::trusted(event.entity.id.as_str()));
    request.filter(|request| request.job_part().is_none())
}

/// The tasks without a job that are not done.
async fn loose_tasks(engine: &Engine, tenant: &TenantId) -> Option<HashMap<RequestId, PublicState>> {
    let mut states = HashMap::new();
    let mut after = None;
    loop {
        let tasks = engine
            .backend()
            .look(|state| state.live_tasks(tenant, after.as_ref(), EVENTS_AT_ONCE))
            .await
            .inspect_err(|error| uncounted(error))
            .ok()?;
        for task in tasks.iter().filter(|task| task.request.job_part().is_none()) {
            let state = if task.begun { PublicState::Processing } else { PublicState::Pending };
            states.insert(task.request.clone(), state);
        }
        if tasks.len() < EVENTS_AT_ONCE {
            return Some(states);
        }
        after = tasks.last().map(|task| task.request.clone());
        tokio::task::yield_now().await;
    }
}

async fn count_jobs(engine: &Engine, tenant: &TenantId, beat: &Beat) -> Option<()> {
    let mut before = None;
    loop {
        let jobs = engine
            .find_jobs(tenant.clone(), &JobFilter::default(), before, JOBS_AT_ONCE)
            .await
            .inspect_err(|error| uncounted(error))
            .ok()?;
        before = jobs.last().map(|job| job.head.job);
        {
            let mut pulse = lock(&beat.pulse);
            for job in &jobs {
                note(&mut pulse, job.head.job, Some((job.status, job.head.counts)));
            }
            pulse.is_counted = jobs.len() < JOBS_AT_ONCE;
        }
        if jobs.len() < JOBS_AT_ONCE {
            return Some(());
        }
        tokio::task::yield_now().await;
    }
}

/// What happened before the reader began, up to the number `newest` of the log, by when it came.
async fn read_back(
    engine: &Engine,
    tenant: &TenantId,
    beat: &Beat,
    from: Timestamp,
    newest: u64,
) -> Option<()> {
    // The event with that number: later ones are counted by following.
    let last = engine
        .backend()
        .follow(newest.saturating_sub(1), 1)
        .await
        .inspect_err(|error| uncounted(error))
        .ok()?;
    let Some((_, last)) = last.first() else { return Some(()) };
    for known in [KnownType::TaskCompleted, KnownType::TaskFailed, KnownType::TaskTimeout] {
        let path = AccessPath::Type(known.event_type());
        let all = EventQuery::all(tenant.clone(), path);
        let mut query = EventQuery { from: Some(from), order: Order::Descending, limit: BACK_AT_ONCE, ..all };
        let mut count = 0;
        loop {
            let page =
                engine.events(query.clone(), false).await.inspect_err(|error| uncounted(error)).ok()?;
            {
                let mut pulse = lock(&beat.pulse);
                for event in page.events.iter().filter(|event| event.position() <= last.position()) {
                    pulse.add(event);
                }
            }
            tokio::task::yield_now().await;
            count += page.events.len();
            if page.next.is_none() || count >= BACK_EVENTS_MAX {
                break;
            }
            query.after = page.next;
        }
    }
    Some(())
}
