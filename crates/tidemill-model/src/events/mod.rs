//! Events: what they are, their keys, how they are found, and what a set of them says.

pub mod access_path;
pub mod cursor;
pub mod event;
pub mod event_fields;
pub mod event_json;
pub mod event_query;
#[cfg(test)]
mod events_page;
pub mod fold;
pub mod key;
pub mod known_type;
pub mod overflow;
pub mod properties;
