//! Segments and the other files of the log: how bytes lie in them, sealed or not.

pub(super) mod block_cache;
pub(super) mod dictionary;
pub(super) mod files;
pub(super) mod format;
pub(super) mod frame;
pub(super) mod frame_reader;
pub(super) mod mark;
pub(super) mod raw_segment;
pub(super) mod sealed;
pub(super) mod spare;
