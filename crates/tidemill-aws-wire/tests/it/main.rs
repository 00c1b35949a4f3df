//! The crate from outside: what AWS publishes, what its clients send and read, and what a forger tries.
//!
//! `fixtures/make_requests.py` and `fixtures/signed_requests.py` wrote the requests; `fixtures/parse_answers.py` reads the answers.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod answers;
mod any_expression;
mod checks;
mod chunked;
mod fixture;
mod moto;
mod published;
mod real_clients;
mod s3_requests;
mod sqs_requests;
mod table_requests;
mod targets;
