//! The commit log in the table, and the groups of commits that its items hold.

pub(crate) mod commit_log;
pub(crate) mod group;
