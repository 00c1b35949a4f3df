//! How events are found again: the chain of an entity, timelines, and what can be asked.

pub(super) mod chain;
pub(super) mod links;
pub(super) mod postings;
pub(super) mod query;
pub(super) mod sorted_list;
pub(super) mod timeline;
