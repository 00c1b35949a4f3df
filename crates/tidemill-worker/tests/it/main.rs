//! Workers with real processes, on the embedded backend.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod lab;

mod agent;
mod command;
mod endings;
mod files;
mod leases;
mod native;
mod output;
#[path = "../../../tidemill-embedded/tests/it/parts.rs"]
mod parts;
mod spawner;
#[path = "../../../tidemill-embedded/tests/it/tmpfs.rs"]
mod tmpfs;
mod troubles;
