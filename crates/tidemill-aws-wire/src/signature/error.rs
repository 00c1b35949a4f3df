//! Why a signature is not taken.

use super::AmzDate;

/// One variant for each answer that AWS gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature, neither as a header nor in the query.
    #[error("the request has no signature")]
    Missing,
    /// There is something else that says who calls, such as a bearer token or another algorithm.
    #[error("the request is not signed by AWS4-HMAC-SHA256")]
    OtherAlgorithm,
    /// A part of the signature is missing or cannot be read.
    #[error("the signature is malformed: {0}")]
    Malformed(&'static str),
    /// A piece is longer than anybody needs.
    #[error("{piece} is larger than the limit of {limit}")]
    TooLarge { piece: &'static str, limit: usize },
    /// Temporary credentials are not served.
    #[error("session tokens are not supported")]
    SessionToken,
    /// The credential is for another service than the one called.
    #[error("the credential is scoped to the service `{scoped}`, not to `{called}`")]
    WrongService { scoped: String, called: String },
    /// A header that must be signed is not, so anybody could have changed it.
    #[error("the header `{name}` is not signed")]
    UnsignedHeader { name: String },
    /// The clocks are too far apart, or an old request is sent again.
    #[error("the request is of {requested}, too far from {now}")]
    Skewed { requested: AmzDate, now: AmzDate },
    /// A presigned address was good once.
    #[error("the presigned request expired at {expired}; it is {now}")]
    Expired { expired: AmzDate, now: AmzDate },
    /// The day of the credential is not the day of the request.
    #[error("the credential is of the day {scoped}, the request of {requested}")]
    ScopeDay { scoped: String, requested: AmzDate },
    /// S3 wants `x-amz-content-sha256` with every signed request.
    #[error("the header `x-amz-content-sha256` is missing")]
    PayloadHashMissing,
    /// `x-amz-content-sha256` is neither a hash nor a word that the service takes.
    #[error("the header `x-amz-content-sha256` is neither a hash nor a form of payload that is taken here")]
    PayloadHashMalformed,
    /// The body is not the one that was signed: S3 says `XAmzContentSHA256Mismatch`, others a wrong signature.
    #[error("the body does not have the hash that was signed")]
    BodyMismatch,
    /// The signature is not the one that the secret gives.
    #[error("the signature is not the one of this request and key")]
    Wrong,
}
