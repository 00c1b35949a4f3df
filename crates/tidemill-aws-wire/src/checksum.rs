//! Checksums of bodies: what a client says the sum of its bytes is, and what it is.
//!
//! A sum comes as a header or as a trailer, in base64. Sums find damage, not forgery, so they are compared plainly; what
//! proves who sent a body is in [`crate::signature`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::crc::Crc;

/// What every header of a sum but `Content-MD5` begins with.
const CHECKSUM_PREFIX: &str = "x-amz-checksum-";
/// Headers that begin so too and hold no sum.
const NOT_SUMS: [&str; 3] = ["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

/// How a sum is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumAlgorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
    /// Of `Content-MD5`, of entity tags and of the sums of queue messages.
    Md5,
}

/// Why a sum is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// The client asks for a sum that is not computed here.
    #[error("`{header}` is no checksum that is known")]
    Unknown { header: String },
    /// The value is no sum at all: S3 says `InvalidDigest` of `Content-MD5`, else `InvalidRequest`.
    #[error("the value of `{header}` is not a checksum of {bytes} bytes in base64")]
    Malformed { header: &'static str, bytes: usize },
    /// S3 takes one sum beside `Content-MD5`.
    #[error("the request has more than one `x-amz-checksum-` header")]
    SeveralSums,
    /// The bytes are not those that the client meant: S3 says `BadDigest`.
    #[error("the body does not have the checksum of `{header}`")]
    Mismatch { header: &'static str },
}

impl ChecksumAlgorithm {
    const ALL: [Self; 6] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256, Self::Md5];

    /// The header or trailer that holds such a sum, in lower case.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
            Self::Md5 => "content-md5",
        }
    }

    pub fn of_header(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.header().eq_ignore_ascii_case(name))
    }

    /// How many bytes a sum has.
    pub fn sum_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The sum of a body that is there as a whole.
    pub fn sum(self, body: &[u8]) -> Vec<u8> {
        let mut hasher = ChecksumHasher::new(self);
        hasher.update(body);
        hasher.finish()
    }
}

/// The sum of a body that comes in pieces.
#[derive(Clone)]
pub struct ChecksumHasher(Running);

#[derive(Clone)]
enum Running {
    Crc32(crc32fast::Hasher),
    Crc32c(Crc),
    Crc64Nvme(Crc),
    Sha(Context),
    Md5(Md5),
}

impl ChecksumHasher {
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        Self(match algorithm {
            ChecksumAlgorithm::Crc32 => Running::Crc32(crc32fast::Hasher::new()),
            ChecksumAlgorithm::Crc32c => Running::Crc32c(Crc::crc32c()),
            ChecksumAlgorithm::Crc64Nvme => Running::Crc64Nvme(Crc::crc64_nvme()),
            ChecksumAlgorithm::Sha1 => Running::Sha(Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
            ChecksumAlgorithm::Sha256 => Running::Sha(Context::new(&SHA256)),
            ChecksumAlgorithm::Md5 => Running::Md5(Md5::new()),
        })
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Running::Crc32(hasher) => hasher.update(bytes),
            Running::Crc32c(crc) | Running::Crc64Nvme(crc) => crc.update(bytes),
            Running::Sha(context) => context.update(bytes),
            Running::Md5(hasher) => hasher.update(bytes),
        }
    }

    /// The sum as bytes, the highest first.
    pub fn finish(self) -> Vec<u8> {
        match self.0 {
            Running::Crc32(hasher) => hasher.finalize().to_be_bytes().to_vec(),
            Running::Crc32c(crc) => crc.finish().to_be_bytes()[4..].to_vec(),
            Running::Crc64Nvme(crc) => crc.finish().to_be_bytes().to_vec(),
            Running::Sha(context) => context.finish().as_ref().to_vec(),
            Running::Md5(hasher) => hasher.finalize().to_vec(),
        }
    }
}

/// A sum that a client sent, to be compared with that of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedChecksum {
    algorithm: ChecksumAlgorithm,
    sum: Vec<u8>,
}

impl ExpectedChecksum {
    pub fn parse(algorithm: ChecksumAlgorithm, value: &[u8]) -> Result<Self, ChecksumError> {
        let bytes = algorithm.sum_bytes();
        let malformed = ChecksumError::Malformed { header: algorithm.header(), bytes };
        // Longer than the longest sum: not worth decoding.
        if value.len() > 64 {
            return Err(malformed);
        }
        match STANDARD.decode(value.trim_ascii()) {
            Ok(sum) if sum.len() == bytes => Ok(Self { algorithm, sum }),
            _ => Err(malformed),
        }
    }

    /// All sums among the headers of a request: at most one, and `Content-MD5`.
    pub fn of_headers<'h>(
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<Vec<Self>, ChecksumError> {
        let mut found: Vec<Self> = Vec::new();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            let algorithm = match ChecksumAlgorithm::of_header(&name) {
                Some(algorithm) => algorithm,
                None if name.starts_with(CHECKSUM_PREFIX) && !NOT_SUMS.contains(&&*name) => {
                    return Err(ChecksumError::Unknown { header: name });
                }
                None => continue,
            };
            let is_md5 = algorithm == ChecksumAlgorithm::Md5;
            if found.iter().any(|other| (other.algorithm == ChecksumAlgorithm::Md5) == is_md5) {
                return Err(ChecksumError::SeveralSums);
            }
            found.push(Self::parse(algorithm, value)?);
        }
        Ok(found)
    }

    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// The sum as it is written in a header.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.sum)
    }

    /// Compares with the sum of a body that came in pieces, as [`ChecksumHasher::finish`] gives it.
    pub fn check_sum(&self, sum: &[u8]) -> Result<(), ChecksumError> {
        if self.sum == sum {
            Ok(())
        } else {
            Err(ChecksumError::Mismatch { header: self.algorithm.header() })
        }
    }

    pub fn check(&self, body: &[u8]) -> Result<(), ChecksumError> {
        self.check_sum(&self.algorithm.sum(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of `hello world`, as the clients of AWS write them.
    const HELLO: [(ChecksumAlgorithm, &str); 6] = [
        (ChecksumAlgorithm::Crc32, "DUoRhQ=="),
        (ChecksumAlgorithm::Crc32c, "yZRlqg=="),
        (ChecksumAlgorithm::Crc64Nvme, "jSnVw/bqjr4="),
        (ChecksumAlgorithm::Sha1, "Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
        (ChecksumAlgorithm::Sha256, "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="),
        (ChecksumAlgorithm::Md5, "XrY7u+Ae7tCTyyK7j1rNww=="),
    ];

    #[test]
    fn every_sum_is_computed_and_compared() {
        for (algorithm, value) in HELLO {
            let expected = ExpectedChecksum::parse(algorithm, value.as_bytes()).unwrap();
            assert_eq!(expected.to_base64(), value);
            assert_eq!(expected.check(b"hello world"), Ok(()), "{algorithm:?}");
            let mismatch = ChecksumError::Mismatch { header: algorithm.header() };
            assert_eq!(expected.check(b"hello_world"), Err(mismatch), "{algorithm:?}");
            let mut hasher = ChecksumHasher::new(algorithm);
            hasher.update(b"hello");
            hasher.update(b" world");
            assert_eq!(expected.check_sum(&hasher.finish()), Ok(()), "{algorithm:?} in pieces");
            assert_eq!(ChecksumAlgorithm::of_header(&algorithm.header().to_uppercase()), Some(algorithm));
        }
    }

    #[test]
    fn a_value_that_is_no_sum_is_malformed() {
        for value in ["", "DUoRhQ", "DUoRhQ=", "DUoR!Q==", "DUoRhYU=", "ÿ", &"A".repeat(10_000)] {
            let found = ExpectedChecksum::parse(ChecksumAlgorithm::Crc32, value.as_bytes());
            let malformed = ChecksumError::Malformed { header: "x-amz-checksum-crc32", bytes: 4 };
            assert_eq!(found, Err(malformed), "{value}");
        }
    }

    #[test]
    fn one_sum_and_an_md5_are_found_among_headers() {
        let crc = ("X-Amz-Checksum-CRC32", &b"DUoRhQ=="[..]);
        let sha = ("x-amz-checksum-sha1", &b"Kq5sNclPz7QV2+lfQIuc6R7oRu0="[..]);
        let md5 = ("Content-MD5", &b"XrY7u+Ae7tCTyyK7j1rNww=="[..]);
        let unknown = ("x-amz-checksum-xxhash3", &b"AAAA"[..]);
        let mode = ("x-amz-checksum-mode", &b"ENABLED"[..]);
        let host = ("host", &b"here"[..]);
        for (headers, found) in [
            (vec![host, mode], Ok(0)),
            (vec![crc, host], Ok(1)),
            (vec![md5, mode, crc], Ok(2)),
            (vec![crc, sha], Err(ChecksumError::SeveralSums)),
            (vec![md5, md5], Err(ChecksumError::SeveralSums)),
            (vec![unknown], Err(ChecksumError::Unknown { header: unknown.0.to_owned() })),
        ] {
            let count = ExpectedChecksum::of_headers(headers.clone()).map(|sums| sums.len());
            assert_eq!(count, found, "{headers:?}");
        }
    }
}
