//! The table itself: how it is made, and its items.

pub(crate) mod batch_get;
pub(crate) mod create_table;
pub(crate) mod item;
