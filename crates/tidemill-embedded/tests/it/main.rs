//! End-to-end tests of this crate.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod blobs;
mod checkpoint;
mod conformance;
mod crash;
mod disk_full;
mod export_import;
mod lab;
mod log;
mod retention;
mod tmpfs;
mod torn_write;
mod unusable_dir;
mod verify;
