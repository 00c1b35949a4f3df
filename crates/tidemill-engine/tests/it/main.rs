//! The conformance suite on the in-memory backend, and that the suite's list is whole.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod courier;
mod health;
mod memory_world;
mod script_fairness;
mod script_lab;
mod scripts;
mod suite_list;
