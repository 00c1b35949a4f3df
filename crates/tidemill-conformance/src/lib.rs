//! The conformance suite: what every backend must do, as cases that any adapter runs.
//!
//! An adapter implements [`TestWorld`] and calls [`conformance_tests!`](crate::conformance_tests) in a test binary, which
//! makes one `#[test]` of each case. A case is an async function from a world to nothing; it panics when the promise in
//! its name is broken. Cases speak to the backend through the engine, or directly where the engine would not let them.

mod block_on;
mod lab;
mod manual_clock;
mod shape;
mod suite;
mod test_world;

pub mod access_paths;
pub mod api_keys;
pub mod artifacts;
pub mod definitions;
pub mod deliveries;
pub mod durability;
pub mod events;
pub mod executions;
pub mod following;
pub mod growth;
pub mod health;
pub mod idempotency;
pub mod isolation;
pub mod jobs;
pub mod joins;
pub mod last_errors;
pub mod leases;
pub mod outside;
pub mod parking;
pub mod queue;
pub mod ran;
pub mod records;
pub mod repairs;
pub mod retries;
pub mod scenarios;
pub mod scripts;
pub mod state_sets;
pub mod steering;
pub mod submitting;
pub mod triage;
pub mod usage;
pub mod watching;

pub use block_on::{block_on, poll_once, side_by_side};
pub use lab::Lab;
pub use manual_clock::ManualClock;
pub use suite::{NAMES, run_case};
pub use test_world::{TestWorld, policy};
