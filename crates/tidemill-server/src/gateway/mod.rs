//! The gateway: clients of AWS, unchanged, against this server.
//!
//! The door finds out who calls and what for. Each service has a module that reads what its clients ask for, calls the engine
//! and answers in the words of AWS. What is on the wire stands in `tidemill-aws-wire`; nothing of it is known here.

mod bus;
pub(crate) mod door;
mod names;
mod passed;
mod rights;

pub use names::GatewayNames;
