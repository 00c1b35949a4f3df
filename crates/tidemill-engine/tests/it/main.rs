//! The conformance suite on the in-memory backend, what claimed tasks need, and what follows from the log: scripts, deliveries,
//! health.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod courier;
mod health;
mod loading;
mod memory_world;
mod script_fairness;
mod script_lab;
mod scripts;
