//! A stage on AWS as the store of this process.

mod access;
mod export;
mod import;
mod stage;

pub(crate) use access::{access, options, options_of};
pub(crate) use export::ExportedStage;
pub(crate) use import::import;
pub(crate) use stage::{Purpose, Stage, client};
