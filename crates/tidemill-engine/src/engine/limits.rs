//! The limits of what comes from outside. Those that decisions share are in `Policy`, those of ids and graphs in the
//! model.

/// The bytes of all tasks of one submission, as JSON.
pub const TASKS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes of one task's output, as JSON.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes of a task's input together with the outputs of its parents.
pub const WORK_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The bytes of one published event's properties.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// The bytes of all properties of one publish.
pub const PUBLISH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes of an idempotency key, and of its route.
pub const KEY_BYTES_MAX: usize = 256;
/// The bytes of a job's name, of a component's name and of a step's name.
pub const NAME_BYTES_MAX: usize = 200;
/// The characters of a text that a person wrote, such as the reason of a cancel.
pub const TEXT_CHARS_MAX: usize = 2_000;
/// The attempts that a task's own retry policy may ask for.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// The longest delay between attempts, in milliseconds: 7 days.
pub const RETRY_DELAY_MILLIS_MAX: u64 = 7 * 24 * 3_600_000;
/// The shortest time limit of a task, in milliseconds.
pub const TIMEOUT_MILLIS_MIN: u64 = 1_000;
/// The longest time limit of a task, in milliseconds: 7 days.
pub const TIMEOUT_MILLIS_MAX: u64 = 7 * 24 * 3_600_000;
/// The longest delay of a message that is sent by hand, in milliseconds: 7 days.
pub const DELAY_MILLIS_MAX: u64 = 7 * 24 * 3_600_000;
/// The longest that a receive may hide a message, in milliseconds: 12 hours.
pub const VISIBILITY_MILLIS_MAX: u64 = 12 * 3_600_000;
/// The items of one page of a list.
pub const LIST_MAX: usize = 1_000;
/// The events that a question for all tasks by state reads.
pub const TASK_STATES_EVENTS_MAX: usize = 2_000_000;
