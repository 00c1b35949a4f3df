//! Items and expressions from outside: against a double of DynamoDB, and against whatever comes.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod any_expression;
mod moto;
mod requests;
