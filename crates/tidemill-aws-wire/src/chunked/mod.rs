//! Bodies as `aws-chunked`: in pieces with their sizes, perhaps signed one by one, perhaps with a checksum after the last.
//!
//! Clients send streams so, whose hash they do not know when the headers go out. [`ChunkedHead`] reads what the headers say,
//! [`ChunkDecoder`] takes the bytes as they come. What it gives out is proven only once [`ChunkDecoder::finish`] succeeds:
//! whoever keeps bytes earlier throws them away if it does not.

mod decoder;
mod error;
mod head;
mod signatures;
mod size_line;

pub use decoder::{ChunkDecoder, DecodedBody, TRAILER_LINE_BYTES_MAX};
pub use error::ChunkedError;
pub use head::ChunkedHead;
pub use signatures::ChunkSignatures;
pub use size_line::SIZE_LINE_BYTES_MAX;
