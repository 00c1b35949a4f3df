//! Tokens of parked executions: bearer secrets, found by their digest and kept sealed.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tidemill_model::values::hex;
use tidemill_model::workflow::{TaskToken, WorkflowRunId};
use tidemill_model::{TenantId, Timestamp};

use crate::triage::{NewToken, TokenState, Unparked};

/// A token as it is kept, under its digest.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredToken {
    pub execution: WorkflowRunId,
    pub state: TokenState,
    pub since: Timestamp,
    pub sealed: Arc<[u8]>,
    /// How its wait ended, once the execution waits with another one. Until then the execution has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Unparked>,
}

impl StoredToken {
    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let outcome = self.outcome.as_ref().map_or(0, Unparked::len);
        self.sealed.len() + self.execution.as_str().len() + outcome + 32
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredToken")
            .field("execution", &self.execution)
            .field("state", &self.state)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

/// What became of a token that came with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenTaken {
    /// The execution waits with it.
    Waits,
    /// Its wait has ended before: nobody waits with it again.
    Used,
    /// The wait with it was given up.
    Expired,
    /// A newer one took its place before.
    Replaced,
    /// Another execution came with it first.
    Foreign,
    /// A later status of the execution is known, or it is a task that runs here and tells its status itself.
    Late,
}

/// Why a token could not be sealed or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("the key of tokens cannot be had: {0}")]
    Key(String),
    #[error("a token was sealed with another key, or is damaged")]
    Damaged,
    #[error("no random numbers can be had")]
    Random,
}

type KeySource = Box<dyn Fn() -> Result<[u8; 32], String> + Send + Sync>;

/// Seals tokens with a key that lies apart from the data. The key is asked for when it is first needed.
pub struct TokenSealer {
    source: KeySource,
    key: OnceLock<LessSafeKey>,
    random: SystemRandom,
}

impl TokenSealer {
    pub fn new(source: impl Fn() -> Result<[u8; 32], String> + Send + Sync + 'static) -> Self {
        Self { source: Box::new(source), key: OnceLock::new(), random: SystemRandom::new() }
    }

    /// With a key that ends with the process: tokens can be found then, and never shown again.
    pub fn passing() -> Self {
        Self::new(|| {
            let mut key = [0; 32];
            SystemRandom::new().fill(&mut key).map_err(|_| "no random numbers".to_owned())?;
            Ok(key)
        })
    }

    fn key(&self) -> Result<&LessSafeKey, TokenFault> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        // What could not be had is asked for again: somebody may have mended it.
        let bytes = (self.source)().map_err(TokenFault::Key)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes);
        let key = key.map_err(|_| TokenFault::Key("it is no key".to_owned()))?;
        Ok(self.key.get_or_init(|| LessSafeKey::new(key)))
    }

    /// The token as it may be stored. Only the same tenant's is opened again.
    pub fn seal(&self, tenant: &TenantId, token: &TaskToken) -> Result<NewToken, TokenFault> {
        let sealed = self.seal_text(tenant.as_str(), token.expose())?;
        Ok(NewToken { digest: Arc::from(token.digest()), sealed: Arc::from(sealed) })
    }

    /// The token that was sealed.
    pub fn open(&self, tenant: &TenantId, sealed: &[u8]) -> Result<TaskToken, TokenFault> {
        TaskToken::new(self.open_text(tenant.as_str(), sealed)?).map_err(|_| TokenFault::Damaged)
    }

    /// A text as it may be stored. It is opened again under the same name only.
    pub(crate) fn seal_text(&self, name: &str, text: &str) -> Result<Vec<u8>, TokenFault> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| TokenFault::Random)?;
        let mut sealed = nonce.to_vec();
        let mut text = text.as_bytes().to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from(name.as_bytes());
        self.key()?.seal_in_place_append_tag(nonce, aad, &mut text).map_err(|_| TokenFault::Damaged)?;
        sealed.append(&mut text);
        Ok(sealed)
    }

    /// The text that was sealed under a name.
    pub(crate) fn open_text(&self, name: &str, sealed: &[u8]) -> Result<String, TokenFault> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or(TokenFault::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| TokenFault::Damaged)?;
        let mut text = text.to_vec();
        let aad = Aad::from(name.as_bytes());
        let opened = self.key()?.open_in_place(nonce, aad, &mut text).map_err(|_| TokenFault::Damaged)?;
        String::from_utf8(opened.to_vec()).map_err(|_| TokenFault::Damaged)
    }

    /// A token that nobody can guess.
    pub fn mint(&self) -> Result<TaskToken, TokenFault> {
        let mut bytes = [0; 32];
        self.random.fill(&mut bytes).map_err(|_| TokenFault::Random)?;
        TaskToken::new(format!("tmt-{}", hex::encode(&bytes))).map_err(|_| TokenFault::Random)
    }
}

impl fmt::Debug for TokenSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSealer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_opened_only_with_its_key_and_for_its_tenant() {
        let (one, other) = (TokenSealer::new(|| Ok([1; 32])), TokenSealer::new(|| Ok([2; 32])));
        let (acme, rest) = (TenantId::trusted("acme"), TenantId::trusted("rest"));
        let token = one.mint().unwrap();
        let sealed = one.seal(&acme, &token).unwrap();
        assert_eq!(*sealed.digest, *token.digest());
        let bytes = String::from_utf8_lossy(&sealed.sealed).into_owned();
        assert!(!bytes.contains(token.expose()), "it is sealed");
        assert_eq!(one.open(&acme, &sealed.sealed).unwrap().expose(), token.expose());
        assert_ne!(one.seal(&acme, &token).unwrap().sealed, sealed.sealed, "no two are alike");
        for (sealer, tenant) in [(&other, &acme), (&one, &rest)] {
            assert_eq!(sealer.open(tenant, &sealed.sealed), Err(TokenFault::Damaged));
        }
        let mut damaged = sealed.sealed.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(one.open(&acme, &damaged), Err(TokenFault::Damaged));
        assert_eq!(one.open(&acme, &damaged[..5]), Err(TokenFault::Damaged));
        assert_ne!(one.mint().unwrap().expose(), token.expose());
        let is_mended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let broken = TokenSealer::new({
            let is_mended = Arc::clone(&is_mended);
            move || {
                let key = is_mended.load(std::sync::atomic::Ordering::Relaxed).then_some([1; 32]);
                key.ok_or_else(|| "no such file".to_owned())
            }
        });
        assert_eq!(broken.seal(&acme, &token), Err(TokenFault::Key("no such file".to_owned())));
        is_mended.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(broken.seal(&acme, &token).is_ok(), "it is asked for again");
    }
}
