//! The child process of an agent's task as a worker starts it: with a `claude` that plays a script, and with the real one.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod endings;
mod failures;
mod lab;
#[path = "../../../tidemill-embedded/tests/it/parts.rs"]
mod parts;
mod prompts;
mod real_cli;
mod results;
mod sessions;
mod tries;
