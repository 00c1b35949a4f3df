//! The log: every event and control entry in the order they were written, and how to find them again.
//!
//! One writer appends groups to the open segment ([`Log`]); many readers look at what was published ([`LogReader`]);
//! full segments are sealed, rewritten and dropped in the background ([`LogKeeper`]). Nothing here starts a thread or
//! reads a clock. What entries mean, heads and messages among them, belongs to the store.

mod config;
mod entry;
mod error;
mod group;
mod index;
mod keeper;
mod lock;
mod open;
mod position;
mod reader;
mod salvage;
mod segment;
mod session;
mod shared;
mod verify;
mod writer;

pub use config::LogConfig;
pub use entry::Entry;
pub use error::LogError;
pub use group::{GROUP_BYTES_MAX, Group};
pub use index::links::{History, Links, Seq, StoredEvent, Trail, jump_ordinal};
pub use index::postings::Extent;
pub use index::query::{ChainQuery, Order, StoredPage, TimelineQuery, Window};
pub use keeper::{Fate, LogKeeper, Rewritten};
pub use position::LogPosition;
pub use reader::{LogReader, SegmentInfo, SegmentKind};
pub use salvage::{Copied, Lost, copy_whole};
pub use segment::format::check_format;
pub use writer::{Appended, Log, TornTail};
