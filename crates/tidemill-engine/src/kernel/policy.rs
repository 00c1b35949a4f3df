//! The numbers that decisions go by. Every limit has its name here.

use std::sync::Arc;

use tidemill_model::RetryPolicy;

use crate::outbound::JobFailedAlerts;

/// The targets of alerts. Without any, alerts are events and nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlertTargets {
    pub people: bool,
    pub webhook: bool,
}

/// How leases, retries and limits are set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How long a claim or a heartbeat protects a task, in milliseconds: the extension and half of it again.
    pub lease_millis: u64,
    /// How often a task may be taken from workers that fell silent before it counts as failed.
    pub takeovers_max: u32,
    /// In how many crashes of the process in a row a task may have been running. Then it is run alone, and given up if the
    /// process dies once more.
    pub crashes_max: u32,
    /// What holds for tasks without a policy of their own.
    pub retry: RetryPolicy,
    /// How often the raw queue delivers a message before it becomes a dead letter.
    pub receives_max: u32,
    /// How long a raw receive hides a message when the caller does not say, in milliseconds.
    pub visibility_millis: u64,
    /// How long an idempotency key is kept, in milliseconds.
    pub idempotency_millis: u64,
    /// How far ahead of the clock a client's own timestamp may lie, in milliseconds.
    pub ahead_millis_max: u64,
    /// How many tasks one claim may take.
    pub claim_max: usize,
    /// How many findings one sweep repairs.
    pub sweep_max: usize,
    /// How many events one publish may hold.
    pub publish_max: usize,
    /// The bytes of all tasks of one job, those that were added later included.
    pub job_bytes_max: usize,
    /// How many unfinished tasks a tenant may have.
    pub tenant_tasks_max: usize,
    /// The bytes of all unfinished tasks of a tenant.
    pub tenant_bytes_max: usize,
    /// The largest message an error may have in an event, in characters.
    pub error_chars_max: usize,
    /// The bytes of task states that one job event lists at most.
    pub statuses_bytes_max: usize,
    /// How many scripts may stand between an event or job and what came from outside.
    pub hops_max: u32,
    /// How long an execution is kept after its end, in milliseconds.
    pub execution_millis: u64,
    /// How long a parked execution waits if nothing else is said, in milliseconds.
    pub park_millis: u64,
    /// Whether parked executions go on once none of their errors is open.
    pub auto_resume: bool,
    /// How long errors and executions are kept after their last event, in milliseconds.
    pub triage_millis: u64,
    /// How long to wait before a delivery is tried again, in milliseconds; twice as long after each further try.
    pub delivery_millis: u64,
    /// How many webhooks and callbacks of a tenant may wait. What comes above is a dead letter at once.
    pub deliveries_max: usize,
    /// How many alerts of a tenant may wait for one place. The next says so, and no further ones are made.
    pub alerts_max: usize,
    /// Whether a webhook gets the ends of parked executions.
    pub workflow_webhook: bool,
    /// Whether tokens that came with workflow events are of AWS Step Functions, which gets the ends of waits.
    pub task_tokens: bool,
    /// The targets of alerts.
    pub alerts: AlertTargets,
    /// Which failed jobs raise an alert for them; none: no job.
    pub job_failed: Option<Arc<JobFailedAlerts>>,
    #[cfg(feature = "faults")]
    pub faults: crate::kernel::faults::Faults,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease_millis: 45_000,
            takeovers_max: 10,
            crashes_max: 3,
            retry: RetryPolicy::default(),
            receives_max: 3,
            visibility_millis: 30_000,
            idempotency_millis: 24 * 3_600_000,
            ahead_millis_max: 5 * 60_000,
            claim_max: 256,
            sweep_max: 1_000,
            publish_max: 1_000,
            job_bytes_max: 64 << 20,
            tenant_tasks_max: 1_000_000,
            tenant_bytes_max: 4 << 30,
            error_chars_max: 2_000,
            statuses_bytes_max: 150_000,
            hops_max: 8,
            execution_millis: 30 * 24 * 3_600_000,
            park_millis: 7 * 24 * 3_600_000,
            auto_resume: false,
            triage_millis: 90 * 24 * 3_600_000,
            delivery_millis: 1_000,
            deliveries_max: 10_000,
            alerts_max: 1_000,
            workflow_webhook: false,
            task_tokens: false,
            alerts: AlertTargets::default(),
            job_failed: None,
            #[cfg(feature = "faults")]
            faults: crate::kernel::faults::Faults::default(),
        }
    }
}
