//! What a task does on AWS, counted on a double. `tidemill-aws`'s test `what_a_task_asks_of_aws` prints these figures and fails
//! if they grow.

/// What one step of a task asks for when it is committed alone, which is the dearest way.
#[allow(dead_code, reason = "tests name what they measure")]
pub struct Step {
    pub name: &'static str,
    /// Bytes of the item in the log.
    pub log_bytes: u64,
    /// Events, with the bytes of their items.
    pub events: &'static [(&'static str, u64)],
    /// Strongly consistent reads of at most 4 KB.
    pub reads: u64,
    /// Calls of the queue at most, with those of a worker: one to receive, one to delete, one to send.
    pub queue: u64,
}

impl Step {
    /// Events that the dispatcher is called for.
    #[allow(dead_code, reason = "a test that shares this file counts requests only")]
    pub fn ends(&self) -> usize {
        self.events.iter().filter(|(name, _)| *name == "Task Completed").count()
    }
}

/// How long a function takes to save an event, and to look whether what follows a task was dispatched. Assumed.
pub const SAVE_SECONDS: f64 = 0.02;
pub const DISPATCH_SECONDS: f64 = 0.05;

/// A task of a job with nothing unusual: no retry, a small input and output. Its end dispatches another one, as its own
/// dispatch was part of an end.
pub const TASK: [Step; 3] = [
    Step { name: "claim", log_bytes: 169, events: &[], reads: 1, queue: 1 },
    Step { name: "begin", log_bytes: 418, events: &[("Task Processing Started", 1_349)], reads: 0, queue: 0 },
    Step {
        name: "finish",
        log_bytes: 814,
        events: &[("Task Completed", 1_301), ("Task Pending", 1_192)],
        reads: 0,
        queue: 2,
    },
];

/// A sign of life of a running task.
pub const HEARTBEAT: Step =
    Step { name: "heartbeat", log_bytes: 517, events: &[("Task Heartbeat", 1_424)], reads: 0, queue: 1 };

/// The cursor of the outbox moves once for each item of the log.
pub const CURSOR_UNITS: u64 = 1;
/// Rows written at a checkpoint for a task that was finished since the last one: the task and its part of the job.
pub const ROWS_OF_A_TASK: u64 = 2;
pub const ROW_BYTES: u64 = 1_000;
/// Indexes that hold every event, all of its attributes.
pub const INDEXES: u64 = 7;

/// Write units of an item: one for each KB begun.
pub fn write_units(bytes: u64) -> u64 {
    bytes.div_ceil(1_024).max(1)
}

/// The bytes of each event of a task.
pub fn task_events() -> impl Iterator<Item = u64> {
    TASK.iter().flat_map(|step| step.events).map(|(_, bytes)| *bytes)
}

pub fn task_log_units() -> u64 {
    TASK.iter().map(|step| write_units(step.log_bytes) + CURSOR_UNITS).sum()
}

pub fn task_row_units() -> u64 {
    ROWS_OF_A_TASK * write_units(ROW_BYTES)
}
