//! End-to-end tests: the library with real handlers, and the binary as users run it.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod command_line;
mod config;
mod diamonds;
mod failures;
mod host;
mod keys;
mod offline;
mod remote_worker;
mod run;
mod run_signals;
mod sandbox;
mod serve;
mod terminal;
