//! A host: the process in which scripts run. It takes away its own rights, then runs what it is given, one execution at
//! a time, until the other side of its socket is closed.
//!
//! `serve` is the loop, `programs` keeps compiled scripts, `confine` the limits and `filter` the system calls.

mod confine;
mod filter;
mod programs;
mod serve;

pub use serve::host_main;
