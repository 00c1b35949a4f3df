//! The derived rows: on their way to the file, in it, damaged, and made again.

pub(super) mod fresh_rows;
pub(super) mod row_heal;
pub(crate) mod row_store;
pub(crate) mod row_trouble;
pub mod row_value;
