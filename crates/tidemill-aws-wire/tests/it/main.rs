//! What real clients put on the wire is read, and what is written is what their parsers were tried on.
//!
//! `fixtures/make_requests.py` wrote the requests; `fixtures/parse_answers.py` reads the answers.

mod answers;
mod fixture;
mod s3_requests;
mod sqs_requests;
mod targets;
