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

pub(crate) use channel::OutboundSettings;
pub(crate) use collector::{Collector, Sent};
pub(crate) use http_sender::HttpSender;
