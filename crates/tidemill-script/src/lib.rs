//! The JavaScript sandbox: compile, run, limits, host functions.
//!
//! Scripts run in host processes, never in the process that asks. `Pool` is the asking side: it starts hosts, hands them
//! one execution at a time, and kills one that does not answer. `host_main` is the other side: a process that confines
//! itself and runs what it is given. What a script asks for comes back as a list of calls with its result; this crate
//! performs none of them.
//!
//! Neither side trusts the other further than it must: the host takes away its own rights before it reads a script, and
//! the pool checks each answer as if the host had been taken over.

mod call;
mod engine;
mod execution;
mod failure;
mod host;
mod input;
pub mod limits;
mod pool;
mod script_source;
mod wire;

pub use call::{CallKind, Grants, HostCall, derived_id};
pub use execution::{CompletedExecution, Request, ScriptLogLevel, ScriptLogLine, Stats, Subject};
pub use failure::{ErrorClass, FailedExecution};
pub use host::host_main;
pub use limits::Limits;
pub use pool::{NO_HOST, Pool, PoolConfig, PoolStatus};
pub use script_source::{CompileError, ScriptSource, Version, compile};
