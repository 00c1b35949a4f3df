//! The key of a day, a region and a service, and what it signs.

use ring::hmac;

use super::{AmzDate, CredentialScope};
use crate::hex;

/// The one algorithm that is served.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Made of a secret and a scope. It signs requests of that scope, and nothing else.
#[derive(Debug, Clone)]
pub struct SigningKey(hmac::Key);

impl SigningKey {
    pub fn derive(secret: &str, scope: &CredentialScope) -> Self {
        let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
        let steps = [&*scope.day, &*scope.region, &*scope.service, "aws4_request"];
        Self(steps.iter().fold(first, |key, step| {
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, step.as_bytes()).as_ref())
        }))
    }

    pub(crate) fn sign(&self, text: &str) -> String {
        hex::encode(hmac::sign(&self.0, text.as_bytes()).as_ref())
    }

    /// Whether a signature is that of the text. It takes the same time wherever the first wrong byte is.
    pub(crate) fn signed(&self, text: &str, signature: &[u8; 32]) -> bool {
        hmac::verify(&self.0, text.as_bytes(), signature).is_ok()
    }
}

/// What is signed for a request: when, for what, and the hash of its canonical form.
pub(super) fn string_to_sign(date: AmzDate, scope: &CredentialScope, canonical: &[u8]) -> String {
    format!("{ALGORITHM}\n{date}\n{scope}\n{}", sha256_hex(canonical))
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}
