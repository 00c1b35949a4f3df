//! The verdict on a signature: computed anew from the request and the secret, and compared.

use super::canonical::canonical_request;
use super::claim::{SignatureClaim, SignatureSource};
use super::key::{SigningKey, string_to_sign};
use super::{AmzDate, CredentialScope, PayloadHash, SignatureError, WireRequest};
use crate::chunked::ChunkSignatures;

/// How far the clocks of client and server may be apart.
pub const SKEW_SECS_MAX: u64 = 15 * 60;

/// What a signature is checked against.
#[derive(Clone, Copy)]
pub struct SignatureCheck<'c> {
    /// The secret of the key that the claim names.
    pub secret: &'c str,
    /// The service that is called, as credentials call it: `s3`, `sqs`, `dynamodb`, `events`, `states`, `sts`.
    pub service: &'c str,
    /// The time of the server.
    pub now_secs: u64,
}

/// A signature that is right.
#[derive(Debug, Clone)]
pub struct AcceptedSignature {
    payload: PayloadHash,
    key: SigningKey,
    date: AmzDate,
    scope: CredentialScope,
    signature: [u8; 32],
}

impl AcceptedSignature {
    /// What the signature says of the body.
    pub fn payload(&self) -> PayloadHash {
        self.payload
    }

    /// What the signatures of chunks are checked with: the first of them continues that of the request.
    pub fn chunk_signatures(&self) -> ChunkSignatures {
        ChunkSignatures::new(self.key.clone(), self.date, self.scope.clone(), &self.signature)
    }
}

impl SignatureClaim {
    /// Checks a request whose whole body is there. An `aws-chunked` body is checked when it is decoded.
    pub fn verify(
        &self,
        request: &WireRequest<'_>,
        body: &[u8],
        check: &SignatureCheck<'_>,
    ) -> Result<AcceptedSignature, SignatureError> {
        let payload = self.payload(request, check.service)?;
        let accepted = self.accept(request, payload.unwrap_or_else(|| PayloadHash::of_body(body)), check)?;
        // What was hashed just now agrees with itself.
        if payload.is_some() {
            accepted.payload.check(body)?;
        }
        Ok(accepted)
    }

    /// Checks a request before its body is read. The caller checks the body against [`AcceptedSignature::payload`] later.
    pub fn verify_head(
        &self,
        request: &WireRequest<'_>,
        check: &SignatureCheck<'_>,
    ) -> Result<AcceptedSignature, SignatureError> {
        let payload = self.payload(request, check.service)?;
        self.accept(request, payload.ok_or(SignatureError::PayloadHashMissing)?, check)
    }

    fn accept(
        &self,
        request: &WireRequest<'_>,
        payload: PayloadHash,
        check: &SignatureCheck<'_>,
    ) -> Result<AcceptedSignature, SignatureError> {
        request.within_bounds()?;
        let token = request.values("x-amz-security-token").next().is_some();
        if token || self.parameters.contains("X-Amz-Security-Token") {
            return Err(SignatureError::SessionToken);
        }
        if self.scope.service != check.service {
            let (scoped, called) = (self.scope.service.clone(), check.service.to_owned());
            return Err(SignatureError::WrongService { scoped, called });
        }
        self.check_date(AmzDate::of_epoch_secs(check.now_secs))?;
        self.check_headers(request)?;
        let canonical =
            canonical_request(request, &self.parameters, &self.signed_headers, payload, check.service)?;
        let text = string_to_sign(self.date, &self.scope, &canonical);
        let key = SigningKey::derive(check.secret, &self.scope);
        let signature = self.signature.filter(|signature| key.signed(&text, signature));
        let signature = signature.ok_or(SignatureError::Wrong)?;
        Ok(AcceptedSignature { payload, key, date: self.date, scope: self.scope.clone(), signature })
    }

    fn check_date(&self, now: AmzDate) -> Result<(), SignatureError> {
        let requested = self.date;
        if self.scope.day != requested.day() {
            return Err(SignatureError::ScopeDay { scoped: self.scope.day.clone(), requested });
        }
        if requested > now.plus_secs(SKEW_SECS_MAX) {
            return Err(SignatureError::Skewed { requested, now });
        }
        match self.source {
            SignatureSource::Header if now > requested.plus_secs(SKEW_SECS_MAX) => {
                Err(SignatureError::Skewed { requested, now })
            }
            SignatureSource::Presigned { expires_secs } if now > requested.plus_secs(expires_secs) => {
                Err(SignatureError::Expired { expired: requested.plus_secs(expires_secs), now })
            }
            _ => Ok(()),
        }
    }

    /// A header that a service acts upon must be signed: where the request goes, and all that is said to AWS.
    fn check_headers(&self, request: &WireRequest<'_>) -> Result<(), SignatureError> {
        let is_signed = |name: &str| self.signed_headers.iter().any(|signed| signed == name);
        if !is_signed("host") {
            return Err(SignatureError::UnsignedHeader { name: "host".to_owned() });
        }
        for (name, _) in request.headers {
            let name = name.to_ascii_lowercase();
            if name.starts_with("x-amz-") && !is_signed(&name) {
                return Err(SignatureError::UnsignedHeader { name });
            }
        }
        Ok(())
    }
}
