//! How the other side can tell that something came from here.

use ring::hmac;
use tidemill_model::values::hex;

/// The header that holds the signature.
pub(crate) const HEADER: &str = "tidemill-signature";

/// The value of the header: the moment in epoch seconds, and the HMAC-SHA256 of it, a dot and the body.
pub(crate) fn of(key: &str, at_seconds: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{at_seconds}.").as_bytes());
    context.update(body);
    format!("t={at_seconds},v1={}", hex::encode(context.sign().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_mac_of_moment_and_body() {
        // printf '1800000000.{}' | openssl dgst -sha256 -hmac secret
        assert_eq!(
            of("secret", 1_800_000_000, b"{}"),
            "t=1800000000,v1=bb7079132825ac793cea8c013c1dd24d926b9b02132245b10588d9e5c0df70d7"
        );
        assert_ne!(of("secret", 1_800_000_001, b"{}"), of("secret", 1_800_000_000, b"{}"));
        assert_ne!(of("other", 1_800_000_000, b"{}"), of("secret", 1_800_000_000, b"{}"));
    }
}
