//! The commands, one file each.

mod error;
mod export;
mod import;
mod rebuild;
mod verify;

pub(crate) use error::CommandError;
pub(crate) use export::Export;
pub(crate) use import::Import;
pub(crate) use rebuild::Rebuild;
pub(crate) use verify::Verify;
