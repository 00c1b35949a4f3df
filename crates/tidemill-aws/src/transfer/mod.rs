//! Moving all data of a stage: an export out of it, and filling an empty one from another store.

mod export;
mod export_window;
pub(crate) mod restore;
