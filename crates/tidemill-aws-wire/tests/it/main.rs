//! The crate from outside: what AWS publishes, what its clients send, and what a forger tries.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod checks;
mod chunked;
mod published;
mod real_clients;
