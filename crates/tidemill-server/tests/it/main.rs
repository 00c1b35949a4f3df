//! The API over real sockets, on the embedded backend.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod access;
mod bad_input;
mod breakable_disk;
mod connections;
mod dashboard;
mod dashboard_overview;
mod dashboard_pages;
mod dashboard_triage;
mod dead_letters;
mod definitions;
mod document;
mod events;
mod executions;
mod exposition;
mod gateway;
mod health;
mod jobs;
mod keys;
mod lab;
mod metrics;
mod neutral_words;
mod queue;
mod scripts;
mod stream;
mod tasks;
mod usage;
mod worker;
mod workers;
mod workflow;
