//! What is kept and shown of the work: traces, tries, todo lists, prices, lines for the worker, without secrets.

pub(crate) mod kept;
pub(crate) mod price;
pub(crate) mod redact;
pub(crate) mod report;
pub(crate) mod todo;
pub(crate) mod trace;
pub(crate) mod try_record;
