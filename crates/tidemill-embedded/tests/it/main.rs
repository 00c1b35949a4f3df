//! End-to-end tests of this crate.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod blobs;
mod checkpoint;
mod cold_reads;
mod conformance;
mod crash;
mod damaged_rows;
mod deliveries;
mod disk_full;
mod executions;
mod export_import;
mod following;
mod groups;
mod held_rows;
mod lab;
mod log;
mod old_formats;
mod parts;
mod retention;
mod row_damage;
mod salvage;
mod short_disk;
mod specimen;
mod tmpfs;
mod torn_write;
mod triage;
mod unusable_dir;
mod usage;
mod verify;
