//! Rows: what is known of jobs, tasks, messages and records as of a checkpoint, and where it lies in the table.

pub(crate) mod checkpoint;
pub(crate) mod pinned_rows;
pub(crate) mod range_scan;
pub(crate) mod row_item;
pub(crate) mod row_scan;
pub(crate) mod row_store;
