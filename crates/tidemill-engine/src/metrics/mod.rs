//! What this process did, counted as it happens.
//!
//! Nothing here is durable and nothing is read back from the log: counters begin at 0 with the process, and a look at
//! them costs a few loads. Durations are measured by the steady clock of the process and decide nothing.

mod attempts;
mod commits;
pub(crate) mod figures;
mod histogram;
mod names;
mod slots;
mod spans;
mod work;

pub use attempts::{AttemptMeter, AttemptsMetrics};
pub use commits::{CommitMeter, CommitMetrics, JobEvents};
pub use histogram::{Bounds, Histogram, HistogramMetrics};
pub use names::{
    METRIC_NAME_CHARS_MAX, METRIC_NAMES_MAX, METRIC_TENANTS_MAX, NamedCounts, NamedMetrics, OTHER,
};
pub use slots::{SlotMeter, SlotsMetrics, TakenSlot, TroubleMark};
pub use spans::{SpanMeter, SpansMetrics};
pub use work::{WORKER_SEEN, WorkMetrics};

pub(crate) use work::{Asked, WorkMeter};

use crate::engine::TriageMetrics;
use crate::health::LastCheck;
use crate::kernel::backend::QueueDepth;
use crate::scripts::ScriptMetrics;

/// All figures at one moment.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub queue: QueueDepth,
    /// How long the message that is next has been deliverable, in milliseconds; `None` when there is none.
    pub queue_oldest_millis: Option<u64>,
    pub commits: CommitMetrics,
    pub work: WorkMetrics,
    pub slots: SlotsMetrics,
    pub spans: SpansMetrics,
    /// Deliveries that have not arrived and were not given up.
    pub deliveries_waiting: usize,
    pub scripts: ScriptMetrics,
    pub triage: TriageMetrics,
    /// What the last check of each tenant counted.
    pub health: Vec<LastCheck>,
}
