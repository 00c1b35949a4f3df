//! Outbound: the one way in which this program speaks to addresses of others.
//!
//! Addresses that the operator set may be anything. Those that came with a job must be on the operator's list, and what
//! they resolve to must be public. Redirects are not followed.

mod address;
mod channel;
mod collector;
mod http_sender;
mod post;
mod signature;

pub use channel::OutboundSettings;
pub use collector::{Collector, CollectorVerdict};
pub use http_sender::{AlertLog, HttpSender};
