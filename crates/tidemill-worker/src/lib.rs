//! Workers: they claim tasks, run them, send heartbeats and report outcomes.
//!
//! `native` runs async Rust functions inside an embedding program, `command_worker` runs programs as child processes. A
//! worker claims only when it has a free slot, renews its leases while it works, and drops what it no longer holds:
//! outcomes are taken by fence, so a late one harms nothing.
//!
//! `source` is the port where a command worker gets its tasks; behind it `engine_source` is the engine in this process,
//! `remote_source` a server.
//! `spawner` is the small process that starts and ends all others.

mod attempt;
mod attempt_files;
mod child;
mod command_line;
pub mod command_worker;
pub mod engine_source;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod handler;
pub mod lease_keeper;
mod leftovers;
pub mod log_sink;
pub mod moment;
pub mod native;
mod pace;
mod process_table;
pub mod remote_source;
mod script_task;
mod slot;
pub mod source;
pub mod spawner;
mod trouble;
mod vitals;

pub use command_worker::{CommandConfig, CommandWorker};
pub use engine_source::{EngineSource, EngineSourceConfig};
pub use handler::{Handlers, TaskContext, TaskError};
pub use leftovers::{Leftovers, kill_leftovers};
pub use log_sink::{LogLine, LogSink, NoSink, StderrSink};
pub use native::{NativeWorker, WorkerConfig};
pub use pace::WorkerHandle;
pub use remote_source::RemoteSource;
pub use script_task::{ScriptEnd, ScriptFailure, ScriptTask, ScriptTasks};
