//! What a client says of its body: a hash of it, or in which form it comes.

use super::query::Parameters;
use super::{SignatureError, WireRequest};
use crate::hex;

/// The service whose clients send bodies in several forms, and whose paths are encoded once.
pub(super) const S3: &str = "s3";

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const UNSIGNED_CHUNKS: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_CHUNKS_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";

/// The value of `x-amz-content-sha256`, or what stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadHash {
    /// The body has this hash.
    Sha256([u8; 32]),
    /// The body is not signed.
    Unsigned,
    /// The body is `aws-chunked`; its chunks are not signed, and trailers follow.
    UnsignedChunks,
    /// The body is `aws-chunked`, and every chunk is signed.
    SignedChunks,
    /// The same, and signed trailers follow.
    SignedChunksTrailer,
}

impl PayloadHash {
    pub fn of_body(body: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, body).as_ref());
        Self::Sha256(hash)
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            UNSIGNED => Some(Self::Unsigned),
            UNSIGNED_CHUNKS => Some(Self::UnsignedChunks),
            SIGNED_CHUNKS => Some(Self::SignedChunks),
            SIGNED_CHUNKS_TRAILER => Some(Self::SignedChunksTrailer),
            hash => hex::decode_32(hash).map(Self::Sha256),
        }
    }

    /// As it is signed and as the header has it.
    pub fn to_text(self) -> String {
        match self {
            Self::Sha256(hash) => hex::encode(&hash),
            Self::Unsigned => UNSIGNED.to_owned(),
            Self::UnsignedChunks => UNSIGNED_CHUNKS.to_owned(),
            Self::SignedChunks => SIGNED_CHUNKS.to_owned(),
            Self::SignedChunksTrailer => SIGNED_CHUNKS_TRAILER.to_owned(),
        }
    }

    /// Whether the body is `aws-chunked` and must be decoded.
    pub fn is_chunked(self) -> bool {
        matches!(self, Self::UnsignedChunks | Self::SignedChunks | Self::SignedChunksTrailer)
    }

    /// Compares a body with its hash. A body that is not signed, or signed by chunks, agrees here.
    pub fn check(self, body: &[u8]) -> Result<(), SignatureError> {
        match self {
            Self::Sha256(_) if self != Self::of_body(body) => Err(SignatureError::BodyMismatch),
            _ => Ok(()),
        }
    }

    /// What a request says, by the rules of the service, or nothing if it leaves that to its body.
    pub(super) fn of_request(
        request: &WireRequest<'_>,
        parameters: &Parameters,
        presigned: bool,
        service: &str,
    ) -> Result<Option<Self>, SignatureError> {
        let header = request.single("x-amz-content-sha256");
        let said = match header.map_err(|_| SignatureError::PayloadHashMalformed)? {
            Some(said) => Some(said.to_owned()),
            None if presigned => parameters.single("X-Amz-Content-Sha256")?,
            None => None,
        };
        let Some(said) = said else {
            return match service {
                S3 if presigned => Ok(Some(Self::Unsigned)),
                S3 => Err(SignatureError::PayloadHashMissing),
                _ => Ok(None),
            };
        };
        match Self::parse(&said) {
            // Other services take a whole body, and its hash.
            Some(hash @ Self::Sha256(_)) => Ok(Some(hash)),
            Some(form) if service == S3 => Ok(Some(form)),
            _ => Err(SignatureError::PayloadHashMalformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_payload_is_a_hash_or_a_form_by_the_rules_of_its_service() {
        let malformed = Err(SignatureError::PayloadHashMalformed);
        let empty = PayloadHash::of_body(b"");
        for (header, query, presigned, service, expected) in [
            (Some(EMPTY), "", false, S3, Ok(Some(empty))),
            (Some(EMPTY), "", false, "sqs", Ok(Some(empty))),
            (Some(UNSIGNED), "", false, S3, Ok(Some(PayloadHash::Unsigned))),
            (Some(UNSIGNED), "", false, "sqs", malformed.clone()),
            (Some(UNSIGNED_CHUNKS), "", false, S3, Ok(Some(PayloadHash::UnsignedChunks))),
            (Some(SIGNED_CHUNKS), "", false, S3, Ok(Some(PayloadHash::SignedChunks))),
            (Some(SIGNED_CHUNKS_TRAILER), "", false, S3, Ok(Some(PayloadHash::SignedChunksTrailer))),
            (Some(SIGNED_CHUNKS), "", false, "dynamodb", malformed.clone()),
            (Some("unsigned-payload"), "", false, S3, malformed.clone()),
            (None, "", false, S3, Err(SignatureError::PayloadHashMissing)),
            (None, "", false, "sqs", Ok(None)),
            (None, "", true, S3, Ok(Some(PayloadHash::Unsigned))),
            (None, "X-Amz-Content-Sha256=UNSIGNED-PAYLOAD", true, S3, Ok(Some(PayloadHash::Unsigned))),
            (None, "X-Amz-Content-Sha256=x", true, S3, malformed),
            // Only a presigned request says it there.
            (
                None,
                "X-Amz-Content-Sha256=UNSIGNED-PAYLOAD",
                false,
                S3,
                Err(SignatureError::PayloadHashMissing),
            ),
        ] {
            let headers: Vec<_> =
                header.iter().map(|value| ("x-amz-content-sha256", value.as_bytes())).collect();
            let request = WireRequest { method: "PUT", path: "/", query, headers: &headers };
            let parameters = Parameters::parse(query).unwrap();
            let found = PayloadHash::of_request(&request, &parameters, presigned, service);
            assert_eq!(found, expected, "{header:?} {query} {service}");
            if let (Some(header), Ok(Some(found))) = (header, found) {
                assert_eq!(found.to_text(), header);
            }
        }
    }

    #[test]
    fn a_body_is_compared_with_its_hash() {
        let hash = PayloadHash::of_body(b"body");
        assert_eq!(hash.check(b"body"), Ok(()));
        assert_eq!(hash.check(b"Body"), Err(SignatureError::BodyMismatch));
        assert_eq!(PayloadHash::Unsigned.check(b"any"), Ok(()));
    }
}
