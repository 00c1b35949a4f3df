//! The queue by hand, and the dead letters of tasks.

pub(crate) mod dead_letter;
pub(crate) mod receipt;
pub(crate) mod receive;
pub(crate) mod send;
