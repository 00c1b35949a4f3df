//! The rows of the table, one file each.

pub mod command;
pub mod idle;
pub mod requests;
pub mod start;

use std::path::Path;

/// The settings of every row.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub binary: &'a Path,
    pub dir: &'a Path,
    pub quick: bool,
}
