//! The queue by hand, and the dead letters of tasks.

pub(crate) mod dead_letter;
pub(crate) mod messages;
pub(crate) mod raw;
