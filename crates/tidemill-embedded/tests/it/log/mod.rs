//! The log: codec, torn and damaged ends, queries against a naive model, retention, full disks, crashes.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod chains;
mod codec;
mod crashes;
mod full_disk;
mod mem_disk;
mod on_disk;
mod opening;
mod retention;
mod support;
mod timelines;
