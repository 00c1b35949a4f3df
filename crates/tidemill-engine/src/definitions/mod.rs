//! Task definitions.

pub(crate) mod definition;
