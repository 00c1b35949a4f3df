//! End-to-end tests of the library: real handlers on a real data directory.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod host;
mod offline;
