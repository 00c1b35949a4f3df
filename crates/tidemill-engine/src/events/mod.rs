//! Events from outside, and the large values of all events.

pub(crate) mod overflow;
pub(crate) mod publish;
pub(crate) mod query;
