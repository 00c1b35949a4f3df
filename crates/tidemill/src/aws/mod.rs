//! A stage on AWS as the store of this process.

mod access;
mod stage;

pub(crate) use access::{access, options};
pub(crate) use stage::{Purpose, Stage, client};
