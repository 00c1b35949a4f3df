//! The backend on doubles of AWS, which the tests start themselves.

mod bus;
mod conformance;
mod cost;
mod crashes;
#[expect(dead_code, reason = "the tests of other crates use more of it")]
mod double;
mod duty;
mod function_crashes;
mod functions;
mod housekeeping;
mod import;
mod lagging;
mod late_events;
#[path = "../../../tidemill-embedded/tests/it/parts.rs"]
mod parts;
mod proxy;
mod races;
mod site;
mod tickets;
mod without_double;
