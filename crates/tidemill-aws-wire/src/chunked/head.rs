//! What the headers of a request say of its `aws-chunked` body.

use super::ChunkedError;
use crate::checksum::{ChecksumAlgorithm, ChecksumError};
use crate::signature::{PayloadHash, WireRequest};

/// The form and the length of a body that is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkedHead {
    pub(super) chunks_signed: bool,
    pub(super) trailer_signed: bool,
    pub(super) decoded_length: u64,
    /// The checksum that follows the last chunk. S3 takes one.
    pub(super) trailer: Option<ChecksumAlgorithm>,
}

impl ChunkedHead {
    /// Reads the headers of a request whose payload has a chunked form.
    pub fn of(request: &WireRequest<'_>, payload: PayloadHash) -> Result<Self, ChunkedError> {
        let (chunks_signed, trailer_signed) = match payload {
            PayloadHash::UnsignedChunks => (false, false),
            PayloadHash::SignedChunks => (true, false),
            PayloadHash::SignedChunksTrailer => (true, true),
            PayloadHash::Sha256(_) | PayloadHash::Unsigned => {
                return Err(ChunkedError::Malformed("`x-amz-content-sha256` does not announce chunks"));
            }
        };
        let trailer = announced_trailer(request)?;
        if payload == PayloadHash::SignedChunks && trailer.is_some() {
            return Err(ChunkedError::Trailer("`x-amz-content-sha256` announces none, `x-amz-trailer` does"));
        }
        Ok(Self { chunks_signed, trailer_signed, decoded_length: decoded_length(request)?, trailer })
    }

    /// How long the body is without its frame. The caller compares it with what it takes before reading on.
    pub fn decoded_length(&self) -> u64 {
        self.decoded_length
    }

    pub fn trailer(&self) -> Option<ChecksumAlgorithm> {
        self.trailer
    }
}

fn decoded_length(request: &WireRequest<'_>) -> Result<u64, ChunkedError> {
    let text = request.single("x-amz-decoded-content-length").ok().flatten();
    let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(ChunkedError::DecodedLength)
}

fn announced_trailer(request: &WireRequest<'_>) -> Result<Option<ChecksumAlgorithm>, ChunkedError> {
    let name = request.single("x-amz-trailer");
    let name = name.map_err(|_| ChunkedError::Trailer("`x-amz-trailer` is not one text"))?;
    let Some(name) = name else { return Ok(None) };
    match ChecksumAlgorithm::of_header(name) {
        Some(ChecksumAlgorithm::Md5) | None => {
            // Kept short: it goes into an answer.
            let header = name.chars().take(64).collect();
            Err(ChunkedError::Checksum(ChecksumError::Unknown { header }))
        }
        algorithm => Ok(algorithm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_length_form_and_trailer() {
        let length = ("X-Amz-Decoded-Content-Length", "11");
        let crc = ("x-amz-trailer", "x-amz-checksum-crc32");
        let unknown = |header: &str| ChecksumError::Unknown { header: header.to_owned() }.to_string();
        for (payload, headers, expected) in [
            (PayloadHash::UnsignedChunks, vec![length], Ok((11, None))),
            (PayloadHash::UnsignedChunks, vec![length, crc], Ok((11, Some(ChecksumAlgorithm::Crc32)))),
            (PayloadHash::SignedChunksTrailer, vec![crc, length], Ok((11, Some(ChecksumAlgorithm::Crc32)))),
            (PayloadHash::SignedChunks, vec![length], Ok((11, None))),
            (PayloadHash::SignedChunks, vec![length, crc], Err("announces none".to_owned())),
            (PayloadHash::Unsigned, vec![length], Err("does not announce chunks".to_owned())),
            (PayloadHash::UnsignedChunks, vec![crc], Err("decoded-content-length` is missing".to_owned())),
            (PayloadHash::UnsignedChunks, vec![length, length], Err("is missing or not".to_owned())),
            (
                PayloadHash::UnsignedChunks,
                vec![("x-amz-decoded-content-length", "+1")],
                Err("is missing or not".to_owned()),
            ),
            (
                PayloadHash::UnsignedChunks,
                vec![("x-amz-decoded-content-length", "18446744073709551616")],
                Err("is missing or not".to_owned()),
            ),
            (
                PayloadHash::UnsignedChunks,
                vec![length, ("x-amz-trailer", "content-md5")],
                Err(unknown("content-md5")),
            ),
            (
                PayloadHash::UnsignedChunks,
                vec![length, ("x-amz-trailer", "x-amz-checksum-crc32,x-amz-checksum-sha1")],
                Err(unknown("x-amz-checksum-crc32,x-amz-checksum-sha1")),
            ),
        ] {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            let request = WireRequest { method: "PUT", path: "/", query: "", headers: &headers };
            let found = ChunkedHead::of(&request, payload);
            match (found, expected) {
                (Ok(head), Ok(expected)) => assert_eq!((head.decoded_length(), head.trailer()), expected),
                (Err(ChunkedError::Checksum(found)), Err(expected)) => {
                    assert_eq!(found.to_string(), expected);
                }
                (Err(found), Err(expected)) => assert!(found.to_string().contains(&expected), "{found}"),
                (found, expected) => panic!("{payload:?}: {found:?}, not {expected:?}"),
            }
        }
    }
}
