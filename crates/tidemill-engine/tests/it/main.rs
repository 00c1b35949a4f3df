//! The conformance suite on the in-memory backend, and that the suite's list is whole.

mod memory_world;
mod suite_list;
