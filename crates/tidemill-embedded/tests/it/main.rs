//! End-to-end tests of this crate.

mod conformance;
mod log;
