//! The log: every event and control entry in the order they were written, and how to find them again.
//!
//! One writer appends groups to the open segment ([`Log`]); many readers look at what was published ([`LogReader`]);
//! full segments are sealed, rewritten and dropped in the background ([`LogKeeper`]). Nothing here starts a thread or
//! reads a clock. What entries mean, heads and messages among them, belongs to the store.

mod block_cache;
mod chain;
mod config;
mod dictionary;
mod entry;
mod error;
mod files;
mod format;
mod frame;
mod frame_reader;
mod group;
mod keeper;
mod links;
mod lock;
mod mark;
mod open;
mod position;
mod postings;
mod query;
mod raw_segment;
mod reader;
mod salvage;
mod sealed;
mod session;
mod shared;
mod sorted_list;
mod spare;
mod timeline;
mod verify;
mod writer;

pub use config::LogConfig;
pub use entry::Entry;
pub use error::LogError;
pub use format::check_format;
pub use group::{GROUP_BYTES_MAX, Group};
pub use keeper::{Fate, LogKeeper, Rewritten};
pub use links::{History, Links, Seq, StoredEvent, Trail, jump_ordinal};
pub use position::LogPosition;
pub use postings::Extent;
pub use query::{ChainQuery, Order, StoredPage, TimelineQuery, Window};
pub use reader::{LogReader, SegmentInfo, SegmentKind};
pub use salvage::{Copied, Lost, copy_whole};
pub use writer::{Appended, Log, TornTail};
