//! The limits of what comes from outside. Those that decisions share are in `Policy`, those of ids and graphs in the
//! model.

pub use tidemill_model::authored::job_file::{
    ATTEMPTS_MAX, RETRY_DELAY_MILLIS_MAX, TIMEOUT_MILLIS_MAX, TIMEOUT_MILLIS_MIN,
};

/// The bytes of all tasks of one submission, as JSON.
pub const TASKS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The same for the tasks of a file, with all that their definitions add. A request itself is smaller.
pub const FILE_TASKS_BYTES_MAX: usize = 48 * 1024 * 1024;
/// The bytes of one task's output, as JSON.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes of a task's input together with the outputs of its parents.
pub const WORK_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The files that all parents of a task may have left together.
pub const INPUT_FILES_MAX: usize = 10_000;
/// The bytes of an attempt's directory that its worker tells.
pub const DIRECTORY_BYTES_MAX: usize = 1_024;
/// The variables of its own that a worker tells to have passed on, and the bytes of a name.
pub const VARIABLES_MAX: usize = 64;
pub const VARIABLE_NAME_BYTES_MAX: usize = 128;
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
/// The longest delay of a message that is sent by hand, in milliseconds: 7 days.
pub const DELAY_MILLIS_MAX: u64 = 7 * 24 * 3_600_000;
/// The longest that a receive may hide a message, in milliseconds: 12 hours.
pub const VISIBILITY_MILLIS_MAX: u64 = 12 * 3_600_000;
/// The items of one page of a list.
pub const LIST_MAX: usize = 1_000;
/// The events that a question for all tasks by state reads.
pub const TASK_STATES_EVENTS_MAX: usize = 2_000_000;
/// The bytes of an output that a list of tasks shows; larger ones are shown with their task alone.
pub const LISTED_OUTPUT_BYTES_MAX: usize = 2 * 1024;
/// The sums by day and name that a question for names within some days adds up.
pub const USAGE_ROWS_MAX: usize = 100_000;
/// The jobs that one call resumes or cancels by a filter.
pub const MANY_JOBS_MAX: usize = 1_000;
/// The dead letters of scripts that one call replays or discards by a filter.
pub const MANY_LETTERS_MAX: usize = 1_000;
/// The bytes of what a parked execution is resumed with.
pub const RESUME_BYTES_MAX: usize = 256 * 1024;
/// The executions that one bulk may name.
pub const BULK_EXECUTIONS_MAX: usize = 1_000;
/// The tenants of one worker's key.
pub const KEY_TENANTS_MAX: usize = 100;
/// How far ahead the lease of another system's worker may end, in milliseconds.
pub const LEASE_AHEAD_MILLIS_MAX: u64 = 12 * 3_600_000;
