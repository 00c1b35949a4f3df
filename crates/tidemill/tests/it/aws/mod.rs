//! The binary on a double of AWS: the same tests as on a data directory where that can be, and what AWS alone has.

#[path = "../../../../tidemill-lambda/tests/it/code.rs"]
mod code;
mod deployed;
#[expect(dead_code, unused_imports, unused_macros, reason = "other tests use more of it")]
#[path = "../../../../tidemill-aws/tests/it/double.rs"]
mod double;
mod home;
mod late;
mod moves;
mod on_both;
mod persister;
mod settings;
mod stage;
