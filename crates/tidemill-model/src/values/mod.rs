//! Values that everything else is made of: ids, times, spans, JSON, hexadecimal text.

pub mod day;
pub mod hex;
pub mod id;
pub mod json;
pub(crate) mod left_out;
pub(crate) mod plain_json;
pub(crate) mod sink;
pub mod span;
pub mod time;
