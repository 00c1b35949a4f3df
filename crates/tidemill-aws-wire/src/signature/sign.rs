//! The other side: signing a request as a client does, for tests, benches and clients of our own.

use percent_encoding::utf8_percent_encode;

use super::canonical::{canonical_request, joined};
use super::key::{ALGORITHM, SigningKey, string_to_sign};
use super::query::{Parameters, SIGNATURE, STRICT};
use super::{AmzDate, CredentialScope, PayloadHash, SignatureError, WireRequest};

/// Headers that proxies and HTTP libraries change on their way, so that no client signs them.
const LEFT_OUT: [&str; 6] =
    ["authorization", "connection", "expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"];

/// A key, and what its signatures are for.
#[derive(Clone, Copy)]
pub struct RequestSigner<'s> {
    pub access_key_id: &'s str,
    pub secret: &'s str,
    pub region: &'s str,
    pub service: &'s str,
}

impl RequestSigner<'_> {
    pub fn scope(&self, at: AmzDate) -> CredentialScope {
        let (region, service) = (self.region.to_owned(), self.service.to_owned());
        CredentialScope { day: at.day(), region, service }
    }

    /// The value of `Authorization` for a request that has its other headers: `host`, `x-amz-date` and, for S3,
    /// `x-amz-content-sha256`.
    pub fn authorization(
        &self,
        request: &WireRequest<'_>,
        payload: PayloadHash,
        at: AmzDate,
    ) -> Result<String, SignatureError> {
        let signed = signed_headers(request);
        let signature = self.signature(request, &signed, payload, at)?;
        let (key_id, scope, signed) = (self.access_key_id, self.scope(at), joined(&signed));
        Ok(format!("{ALGORITHM} Credential={key_id}/{scope}, SignedHeaders={signed}, Signature={signature}"))
    }

    /// The whole query of a presigned address: what the request has, and the signature.
    pub fn presigned_query(
        &self,
        request: &WireRequest<'_>,
        payload: PayloadHash,
        at: AmzDate,
        expires_secs: u64,
    ) -> Result<String, SignatureError> {
        let signed = signed_headers(request);
        let encoded = |text: &str| utf8_percent_encode(text, STRICT).to_string();
        let credential = encoded(&format!("{}/{}", self.access_key_id, self.scope(at)));
        let before = if request.query.is_empty() { String::new() } else { format!("{}&", request.query) };
        let query = format!(
            "{before}X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={credential}&X-Amz-Date={at}\
             &X-Amz-Expires={expires_secs}&X-Amz-SignedHeaders={}",
            encoded(&joined(&signed))
        );
        let signature = self.signature(&WireRequest { query: &query, ..*request }, &signed, payload, at)?;
        Ok(format!("{query}&{SIGNATURE}={signature}"))
    }

    fn signature(
        &self,
        request: &WireRequest<'_>,
        signed: &[String],
        payload: PayloadHash,
        at: AmzDate,
    ) -> Result<String, SignatureError> {
        let parameters = Parameters::parse(request.query)?;
        let canonical = canonical_request(request, &parameters, signed, payload, self.service)?;
        let scope = self.scope(at);
        Ok(SigningKey::derive(self.secret, &scope).sign(&string_to_sign(at, &scope, &canonical)))
    }
}

fn signed_headers(request: &WireRequest<'_>) -> Vec<String> {
    let mut names: Vec<String> = request.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.retain(|name| !LEFT_OUT.contains(&&**name));
    names.sort_unstable();
    names.dedup();
    names
}
