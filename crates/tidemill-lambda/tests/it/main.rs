mod code;
mod cold_start;
mod deployed;
#[expect(dead_code, unused_imports, unused_macros, reason = "other tests use more of it")]
#[path = "../../../tidemill-aws/tests/it/double.rs"]
mod double;
#[path = "../../../tidemill-embedded/tests/it/parts.rs"]
mod parts;
mod site;
mod slack;
mod templates;
mod units;
mod wiring;
