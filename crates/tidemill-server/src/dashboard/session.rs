//! Sessions: users who logged in, in memory only.
//!
//! A session is named by 32 random bytes that only the browser's cookie holds; the table keeps their digest. It ends by
//! logout, after a time without use, after a time altogether, and with its key: the door asks for that at every visit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::admission::caller::Caller;
use crate::problem::Problem;

/// A session that nobody uses for this long is over.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(12 * 3600);
/// No session lasts longer.
pub(super) const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions at a time. The one that was idle longest makes room.
const SESSIONS_MAX: usize = 4_096;
/// Sessions of one key at a time, so that one key cannot drive the others out.
const SESSIONS_PER_KEY_MAX: usize = 64;

/// A text that nobody can guess.
pub(super) fn random_word() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Problem::internal(&error))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Whether two texts are the same, in a time that does not depend on where they differ.
pub(super) fn same(one: &str, other: &str) -> bool {
    // Digests are of one length, and where they differ says nothing of the texts.
    Sha256::digest(one.as_bytes()) == Sha256::digest(other.as_bytes())
}

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) caller: Caller,
    /// What every form must hold.
    pub(super) token: String,
    /// Closed once the session is over: whatever it opened ends with it.
    pub(super) open: watch::Receiver<()>,
}

#[derive(Debug)]
struct Kept {
    caller: Caller,
    token: String,
    began: Instant,
    used: Instant,
    open: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<[u8; 32], Kept>>);

fn digest(word: &str) -> [u8; 32] {
    Sha256::digest(word.as_bytes()).into()
}

impl Kept {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.used) > IDLE_MAX || now.duration_since(self.began) > AGE_MAX
    }
}

impl Sessions {
    /// A new session; its word goes into the cookie.
    pub(super) fn begin(&self, caller: Caller, now: Instant) -> Result<String, Problem> {
        let (word, token) = (random_word()?, random_word()?);
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, session| !session.is_over(now));
        let own = sessions.values().filter(|session| session.caller.name() == caller.name()).count();
        if own >= SESSIONS_PER_KEY_MAX || sessions.len() >= SESSIONS_MAX {
            let is_candidate =
                |session: &Kept| own < SESSIONS_PER_KEY_MAX || session.caller.name() == caller.name();
            let candidates = sessions.iter().filter(|(_, session)| is_candidate(session));
            let oldest = candidates.min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                sessions.remove(&oldest);
            }
        }
        let open = watch::Sender::new(());
        sessions.insert(digest(&word), Kept { caller, token, began: now, used: now, open });
        Ok(word)
    }

    /// The session of a cookie, if it is still good. Looking at it counts as use.
    pub(super) fn find(&self, word: &str, now: Instant) -> Option<Session> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = digest(word);
        if sessions.get(&id)?.is_over(now) {
            sessions.remove(&id);
            return None;
        }
        let session = sessions.get_mut(&id)?;
        session.used = now;
        let Kept { caller, token, open, .. } = session;
        Some(Session { caller: caller.clone(), token: token.clone(), open: open.subscribe() })
    }

    pub(super) fn end(&self, word: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest(word));
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::{Role, TenantId};

    use super::*;

    fn caller(name: &str) -> Caller {
        Caller::key(name, Role::Admin, &[TenantId::trusted("acme")])
    }

    #[test]
    fn a_session_ends_by_logout_by_idleness_and_by_age() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let word = sessions.begin(caller("a"), start).unwrap();
        assert!(sessions.find(&word, start + IDLE_MAX).is_some());
        assert!(sessions.find("other", start).is_none());
        let mut now = start + IDLE_MAX;
        while now + IDLE_MAX < start + AGE_MAX {
            now += IDLE_MAX;
            assert!(sessions.find(&word, now).is_some());
        }
        assert!(sessions.find(&word, start + AGE_MAX + Duration::from_secs(1)).is_none());
        let idle = sessions.begin(caller("a"), start).unwrap();
        assert!(sessions.find(&idle, start + IDLE_MAX + Duration::from_secs(1)).is_none());
        let ended = sessions.begin(caller("a"), start).unwrap();
        let opened = sessions.find(&ended, start).unwrap().open;
        assert!(opened.has_changed().is_ok());
        sessions.end(&ended);
        assert!(sessions.find(&ended, start).is_none());
        assert!(opened.has_changed().is_err(), "what it opened hears of it");
    }

    #[test]
    fn one_key_drives_out_only_its_own_sessions() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let other = sessions.begin(caller("other"), start).unwrap();
        let first = sessions.begin(caller("a"), start + Duration::from_secs(1)).unwrap();
        for second in 0..SESSIONS_PER_KEY_MAX as u64 {
            sessions.begin(caller("a"), start + Duration::from_secs(2 + second)).unwrap();
        }
        let later = start + Duration::from_secs(100);
        assert!(sessions.find(&first, later).is_none());
        assert!(sessions.find(&other, later).is_some());
    }

    #[test]
    fn words_differ_and_are_long() {
        let (one, other) = (random_word().unwrap(), random_word().unwrap());
        assert!(one.len() == 43 && one != other);
        assert!(same(&one, &one.clone()) && !same(&one, &other));
    }
}
