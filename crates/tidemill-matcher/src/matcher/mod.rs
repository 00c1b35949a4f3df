//! The matcher: which of very many subscriptions want an event.
//!
//! Subscriptions are kept per tenant and event type, so that nobody pays for those of another. Within such a
//! `Bucket` rules are split into conjunctions, and each of them hangs in a tree of indexes under one of the
//! comparisons it must pass, the one that it shares with the fewest others. An event looks up its own values, and
//! what it finds there is tested by [`crate::filter::Operator::holds`], which alone knows what matches: an index may
//! give too much, never too little.
//!
//! Nothing is ever built anew as a whole: a change touches the places of one subscription.

mod access;
mod affixes;
mod alternatives;
mod branch;
mod bucket;
mod conjunction;
mod event_values;
mod grams;
mod intervals;
mod key_map;
mod node;
mod path_index;
mod path_trie;
#[cfg(test)]
mod property;
mod runs;
mod slab;
mod subscriptions;
mod text_parts;
mod value_hash;

pub use bucket::{BUCKET_BYTES_MAX, BUCKET_CONDITIONS_MAX, BUCKET_SUBSCRIPTIONS_MAX, BucketFull};
pub use subscriptions::{MatchCounts, Matcher};
