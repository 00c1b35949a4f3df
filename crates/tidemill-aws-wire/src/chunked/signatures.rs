//! Signatures of chunks: each is over the one before it, so that no chunk can be left out, moved or put in.

use super::ChunkedError;
use crate::hex;
use crate::signature::{AmzDate, CredentialScope, SigningKey, sha256_hex};

const CHUNK_ALGORITHM: &str = "AWS4-HMAC-SHA256-PAYLOAD";
const TRAILER_ALGORITHM: &str = "AWS4-HMAC-SHA256-TRAILER";

/// Where the chain of signatures stands.
#[derive(Debug, Clone)]
pub struct ChunkSignatures {
    key: SigningKey,
    date: AmzDate,
    scope: CredentialScope,
    previous: String,
}

impl ChunkSignatures {
    /// Begins with the signature of the request.
    pub fn new(key: SigningKey, date: AmzDate, scope: CredentialScope, seed: &[u8; 32]) -> Self {
        Self { key, date, scope, previous: hex::encode(seed) }
    }

    /// Signs the next chunk, as a client does. The last chunk is empty.
    pub fn sign_chunk(&mut self, data: &[u8]) -> String {
        self.previous = self.key.sign(&self.of_chunk(&sha256_hex(data)));
        self.previous.clone()
    }

    /// Signs the trailer, as a client does: lines of `name:value`, each with its end of line `\n`.
    pub fn sign_trailer(&mut self, lines: &str) -> String {
        self.previous = self.key.sign(&self.of_trailer(&sha256_hex(lines.as_bytes())));
        self.previous.clone()
    }

    pub(super) fn check_chunk(
        &mut self,
        data_sha256: &[u8],
        signature: &[u8; 32],
    ) -> Result<(), ChunkedError> {
        self.check(&self.of_chunk(&hex::encode(data_sha256)), signature)
    }

    pub(super) fn check_trailer(&mut self, lines: &str, signature: &[u8; 32]) -> Result<(), ChunkedError> {
        self.check(&self.of_trailer(&sha256_hex(lines.as_bytes())), signature)
    }

    fn check(&mut self, text: &str, signature: &[u8; 32]) -> Result<(), ChunkedError> {
        if !self.key.signed(text, signature) {
            return Err(ChunkedError::WrongSignature);
        }
        self.previous = hex::encode(signature);
        Ok(())
    }

    fn of_chunk(&self, data_sha256: &str) -> String {
        // The hash of no bytes stands where the chunk's headers would be, of which there are none.
        format!("{}\n{}\n{data_sha256}", self.begun(CHUNK_ALGORITHM), sha256_hex(b""))
    }

    fn of_trailer(&self, lines_sha256: &str) -> String {
        format!("{}\n{lines_sha256}", self.begun(TRAILER_ALGORITHM))
    }

    fn begun(&self, algorithm: &str) -> String {
        format!("{algorithm}\n{}\n{}\n{}", self.date, self.scope, self.previous)
    }
}
