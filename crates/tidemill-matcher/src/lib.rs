//! Subscriptions: which events a script wants, as rules that are tried plainly, and as an index that finds those of very
//! many subscriptions that want an event.
//!
//! Like the model, nothing here reads a clock, a disk, a network or randomness, and nothing is async.

pub mod filter;
pub mod matcher;
pub mod subscription;

pub use filter::{ConditionResult, FilterRules};
pub use matcher::{MatchCounts, Matcher};
pub use subscription::{Subscription, SubscriptionDraft};
