//! Why an `aws-chunked` body is not taken.

use crate::checksum::ChecksumError;

/// One variant for each answer that S3 gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkedError {
    /// The client must say how long the body is without its frame: S3 says `MissingContentLength`.
    #[error("`x-amz-decoded-content-length` is missing or not a number")]
    DecodedLength,
    /// The frame is broken: S3 says `InvalidRequest`.
    #[error("the chunked body is malformed: {0}")]
    Malformed(&'static str),
    /// A line of the frame is longer than any client writes it.
    #[error("a line of the chunked body is longer than the limit of {limit} bytes")]
    LineTooLong { limit: usize },
    /// The chunks hold more or less than the headers say: S3 says `IncompleteBody`.
    #[error("the chunked body does not hold the {declared} bytes that `x-amz-decoded-content-length` says")]
    Length { declared: u64 },
    /// The signature of a chunk or of the trailer is wrong: S3 says `SignatureDoesNotMatch`.
    #[error("the signature of a chunk is not the one of its bytes and key")]
    WrongSignature,
    /// The trailer is not the one that the headers announce: S3 says `MalformedTrailerError`.
    #[error("the trailer of the chunked body is malformed: {0}")]
    Trailer(&'static str),
    /// The checksum of the trailer cannot be read or is another.
    #[error("the checksum of the trailer is not taken")]
    Checksum(#[source] ChecksumError),
}
