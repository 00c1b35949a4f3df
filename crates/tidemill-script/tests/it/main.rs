//! Scripts in real host processes.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod lab;

mod compile;
mod confinement;
mod hostile;
mod pool;
