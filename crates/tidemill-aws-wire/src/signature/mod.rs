//! Signature Version 4: who sent a request, and that nobody changed it on its way.
//!
//! A request is checked in two steps, because the secret lies between them: [`SignatureClaim::of`] reads what a request
//! says of its signature, the caller looks up the secret of that key, and [`SignatureClaim::verify`] computes the signature
//! anew. Where AWS is known to be exact, so is this: what it would refuse is refused, and by the same reason.
//!
//! Every piece that is read has a bound with a name, in [`bounds`]. Sessions with tokens and Signature Version 4A are not
//! served.

pub mod bounds;
mod canonical;
mod claim;
mod date;
mod error;
mod key;
mod payload;
mod query;
mod request;
mod scope;
mod sign;
mod verify;

pub use claim::{SignatureClaim, SignatureSource};
pub use date::AmzDate;
pub use error::SignatureError;
pub(crate) use key::sha256_hex;
pub use key::{ALGORITHM, SigningKey};
pub use payload::PayloadHash;
pub use request::WireRequest;
pub use scope::CredentialScope;
pub use sign::RequestSigner;
pub use verify::{AcceptedSignature, SKEW_SECS_MAX, SignatureCheck};
