//! API keys: which callers may call, for which tenants, and in which role.
//!
//! A key is shown once, when it is made. What is kept is its id, which may be seen, and the SHA-256 of its secret. A key that
//! signs requests as clients of AWS do needs its secret on both sides: such a key keeps it, sealed.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::values::id::TenantId;
use crate::values::time::Timestamp;

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Submits jobs and tasks of stored definitions, publishes events, reads.
    Producer,
    /// Claims and reports tasks.
    Worker,
    /// Reads.
    Reader,
    /// Everything.
    Admin,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Producer, Self::Worker, Self::Reader, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Reader => "reader",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| "must be producer, worker, reader or admin".to_owned())
    }
}

/// The part of a key that may be seen: 12 letters, digits, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    pub const LENGTH: usize = 12;

    pub fn new(text: &str) -> Result<Self, BadToken> {
        let is_id = text.len() == Self::LENGTH && text.bytes().all(is_base64url);
        if is_id { Ok(Self(text.to_owned())) } else { Err(BadToken) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// A text that is no key. It says no more: the text may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an API key")]
pub struct BadToken;

/// A whole key, `tm_<id>_<secret>`, as its owner holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiToken {
    id: KeyId,
    secret: String,
}

impl ApiToken {
    /// The secret's characters: 32 bytes in base64url.
    pub const SECRET_LENGTH: usize = 43;

    /// The key that these random bytes make: 9 for its id, 32 for its secret.
    pub fn from_random(id: [u8; 9], secret: [u8; 32]) -> Self {
        let mut id = URL_SAFE_NO_PAD.encode(id);
        // A command would take it for a flag.
        if id.starts_with('-') {
            id.replace_range(..1, "A");
        }
        Self { id: KeyId(id), secret: URL_SAFE_NO_PAD.encode(secret) }
    }

    pub fn parse(text: &str) -> Result<Self, BadToken> {
        let rest = text.strip_prefix("tm_").ok_or(BadToken)?;
        // The id may hold `_` itself, so places count and not separators.
        let (id, rest) = rest.split_at_checked(KeyId::LENGTH).ok_or(BadToken)?;
        let secret = rest.strip_prefix('_').ok_or(BadToken)?;
        if secret.len() != Self::SECRET_LENGTH || !secret.bytes().all(is_base64url) {
            return Err(BadToken);
        }
        Ok(Self { id: KeyId::new(id)?, secret: secret.to_owned() })
    }

    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// What is kept of the secret. It has 256 random bits, so a plain digest is enough.
    pub fn hash(&self) -> KeyHash {
        KeyHash(Sha256::digest(self.secret.as_bytes()).into())
    }

    /// The part that nobody else may know.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The whole key as text. Show it once.
    pub fn reveal(&self) -> String {
        format!("tm_{}_{}", self.id, self.secret)
    }
}

impl fmt::Debug for ApiToken {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tm_{}_…", self.id)
    }
}

/// The SHA-256 of a secret.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl PartialEq for KeyHash {
    /// Takes the same time wherever the difference is.
    fn eq(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(other.0).fold(0, |sum, (own, other)| sum | (own ^ other));
        std::hint::black_box(difference) == 0
    }
}

impl Eq for KeyHash {}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("a key's hash has 32 bytes"))
    }
}

/// What is kept of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyRecord {
    pub id: KeyId,
    pub hash: KeyHash,
    /// One tenant, or several for a worker.
    pub tenants: Vec<TenantId>,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The secret, sealed and in hexadecimal digits, if clients of AWS may sign with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_secret: Option<String>,
}

impl ApiKeyRecord {
    /// Whether `token` is this key and the key is in force.
    pub fn admits(&self, token: &ApiToken) -> bool {
        // Compared first and in full, so that time tells nothing.
        let is_same = self.hash == token.hash();
        is_same && self.id == *token.id() && self.revoked_at.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(seed: u8) -> ApiToken {
        ApiToken::from_random([seed; 9], [seed.wrapping_add(1); 32])
    }

    fn record(token: &ApiToken) -> ApiKeyRecord {
        ApiKeyRecord {
            id: token.id().clone(),
            hash: token.hash(),
            tenants: vec![TenantId::trusted("acme")],
            role: Role::Producer,
            label: None,
            created_at: Timestamp::MIN,
            revoked_at: None,
            sealed_secret: None,
        }
    }

    #[test]
    fn no_id_begins_like_a_flag() {
        // Six bits of ones but the lowest are the character `-`.
        let token = ApiToken::from_random([0b1111_1000; 9], [0; 32]);
        assert!(!token.id().as_str().starts_with('-'), "{}", token.id().as_str());
        assert!(ApiToken::parse(&token.reveal()).is_ok());
    }

    #[test]
    fn a_key_reads_back_and_is_admitted_by_its_record_alone() {
        // 0xff encodes to `_`, which is also the separator.
        for seed in [0, 7, 0xfb, 0xfe, 0xff] {
            let token = token(seed);
            let text = token.reveal();
            assert_eq!(text.len(), 3 + 12 + 1 + 43, "{text}");
            assert_eq!(ApiToken::parse(&text), Ok(token.clone()));
            let record = record(&token);
            assert!(record.admits(&token));
            assert!(!record.admits(&ApiToken { id: token.id.clone(), ..self::token(seed ^ 1) }));
            let revoked = ApiKeyRecord { revoked_at: Some(Timestamp::MAX), ..record.clone() };
            assert!(!revoked.admits(&token));
            let stored = serde_json::to_string(&record).unwrap();
            assert!(!stored.contains(&token.secret));
            assert_eq!(serde_json::from_str::<ApiKeyRecord>(&stored).unwrap(), record);
        }
    }

    #[test]
    fn other_texts_are_no_keys() {
        let good = token(7).reveal();
        for text in [
            "",
            "tm_",
            "tm_abc",
            &good[..good.len() - 1],
            &format!("{good}x"),
            &good.replace("tm_", "TM_"),
            &format!("{}!{}", &good[..20], &good[21..]),
            "tm_éééééé_0000000000000000000000000000000000000000000",
        ] {
            assert_eq!(ApiToken::parse(text), Err(BadToken), "{text}");
        }
    }

    #[test]
    fn the_secret_is_not_shown_by_accident() {
        let token = token(7);
        assert!(!format!("{token:?} {:?}", record(&token)).contains(&token.secret));
    }
}
