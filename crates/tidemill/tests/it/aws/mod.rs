//! The binary on a double of AWS: the same tests as on a data directory where that can be, and what AWS alone has.

#[path = "../../../../tidemill-aws/tests/it/double.rs"]
mod double;
mod home;
mod on_both;
mod settings;
mod stage;
