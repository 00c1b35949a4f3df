//! Every limit of the sandbox by its name.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The source of a script.
pub const SOURCE_BYTES_MAX: usize = 256 * 1024;
/// The name of a script.
pub const NAME_CHARS_MAX: usize = 128;
/// What is given to a script as `ctx.event.data` or `ctx.input`, unless `Limits` says otherwise.
pub const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// What `Limits` can raise that to.
pub const INPUT_BYTES_CEILING: usize = 32 * 1024 * 1024;
/// How deep lists and objects of the input stand within each other.
pub const INPUT_DEPTH_MAX: usize = 32;
/// Calls of host functions in one execution.
pub const CALLS_MAX: usize = 100;
/// The JSON of one call.
pub const CALL_BYTES_MAX: usize = 256 * 1024;
/// The JSON of all calls of one execution.
pub const CALLS_BYTES_MAX: usize = 1024 * 1024;
/// The text beside the JSON of a call: an event type. Longer ones are cut before they are refused.
pub(crate) const CALL_SUBJECT_CHARS_MAX: usize = 1024;
/// One line of a script's log.
pub const LOG_LINE_CHARS_MAX: usize = 8 * 1024;
/// The message of an error.
pub const MESSAGE_CHARS_MAX: usize = 2_000;
/// The name of an error.
pub const ERROR_NAME_CHARS_MAX: usize = 100;
/// The stack of an error.
pub const STACK_CHARS_MAX: usize = 8 * 1024;
pub const STACK_FRAMES_MAX: usize = 20;
/// The stack that scripts run on.
pub const STACK_BYTES: usize = 1024 * 1024;
/// The largest result that `Limits` can allow.
pub const RESULT_BYTES_CEILING: usize = 16 * 1024 * 1024;
/// The largest log that `Limits` can allow.
pub const LOG_BYTES_CEILING: usize = 4 * 1024 * 1024;
/// The most lines of a log that `Limits` can allow.
pub(crate) const LOG_LINES_CEILING: usize = LOG_BYTES_CEILING / 4;
/// The longest wall time that `Limits` can allow.
pub const WALL_CEILING: Duration = Duration::from_secs(3_600);
/// What an engine needs before a script of any use can run.
pub const MEMORY_BYTES_FLOOR: usize = 4 * 1024 * 1024;

/// What one execution may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// From the start of the script to its result, everything it waits for included.
    pub wall: Duration,
    /// All that the engine allocates for it, itself included (less than 1 MiB).
    pub memory_bytes: usize,
    /// The input as JSON.
    pub input_bytes: usize,
    /// The result as JSON.
    pub result_bytes: usize,
    pub log_lines: usize,
    pub log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(30),
            memory_bytes: 128 * 1024 * 1024,
            input_bytes: INPUT_BYTES_MAX,
            result_bytes: 256 * 1024,
            log_lines: 1_000,
            log_bytes: 64 * 1024,
        }
    }
}

impl Limits {
    /// The same limits, none of them beyond what the sandbox can keep.
    #[must_use]
    pub fn clamped(mut self) -> Self {
        self.wall = self.wall.clamp(Duration::from_millis(1), WALL_CEILING);
        self.memory_bytes = self.memory_bytes.max(MEMORY_BYTES_FLOOR);
        self.input_bytes = self.input_bytes.min(INPUT_BYTES_CEILING);
        self.result_bytes = self.result_bytes.clamp(4, RESULT_BYTES_CEILING);
        self.log_lines = self.log_lines.min(LOG_LINES_CEILING);
        self.log_bytes = self.log_bytes.min(LOG_BYTES_CEILING);
        self
    }
}
