//! The rows of the table, one file each.

pub mod commit;
pub mod cycles;
pub mod events;
pub mod health;
pub mod hot;
pub mod jobs;
pub mod memory;
pub mod reads;
pub mod reopen;

use std::path::Path;

/// The settings of every row.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub dir: &'a Path,
    pub quick: bool,
}
