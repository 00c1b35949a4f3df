//! What bodies may take: memory while they come, and turns when they are large.
//!
//! All bodies in flight share one budget of bytes. A large body takes much more while it is read and carried out, so large
//! ones have turns, and they are handled on threads of their own: whatever they take, the runtime's threads answer others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::admission::caller::Caller;
use crate::admission::login_guard::network_of;
use crate::problem::Problem;
use crate::route::Reply;

/// A body above it is large.
pub(crate) const LARGE_BODY_BYTES: usize = 64 * 1024;
/// What a large body counts at least, so that there are few threads for them.
const TURN_BYTES_MIN: usize = 1024 * 1024;
/// How long a large body waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(60);
/// Seconds after which there may be room again.
const RETRY_SECONDS: u64 = 1;
/// One tenant may hold this fraction of the bytes of all bodies, or the largest body if that is more.
const SHARES: usize = 4;
/// The large bodies of one tenant that have a turn, or wait in line with those of others. Its further ones wait for these.
const SHARE_TURNS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct BodyBudget {
    bytes: Arc<Semaphore>,
    shares: Arc<Shares>,
    share_bytes_max: usize,
    /// The bytes of large bodies that are handled at a time: those of one of the largest.
    turns: Arc<Semaphore>,
    turn_bytes_max: usize,
}

/// Whose bodies count together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Tenant(Box<str>),
    /// A key of several tenants.
    Key(Box<str>),
    /// A caller that is not known yet, by the network of the address.
    Address(Option<IpAddr>),
}

impl Holder {
    /// The holder of this caller's bodies; `None` for a caller that is alone with the server and shares with nobody.
    pub(crate) fn of(caller: &Caller) -> Option<Self> {
        if !caller.has_key() {
            return None;
        }
        Some(match caller.limited_tenant() {
            Some(tenant) => Self::Tenant(tenant.as_str().into()),
            None => Self::Key(caller.name().into()),
        })
    }

    pub(crate) fn at(address: Option<IpAddr>) -> Self {
        Self::Address(address.map(network_of))
    }

    fn full(&self) -> Problem {
        let detail = |who| format!("the requests {who} in flight hold their share of the memory for bodies");
        match self {
            Self::Tenant(_) => {
                Problem::too_many("TENANT_TOO_MANY_BODIES", detail("of this tenant"), RETRY_SECONDS)
            }
            Self::Key(_) => Problem::too_many("TENANT_TOO_MANY_BODIES", detail("of this key"), RETRY_SECONDS),
            Self::Address(_) => {
                Problem::unavailable("TOO_MANY_BODIES", detail("from this address"), RETRY_SECONDS)
            }
        }
    }
}

/// The shares of holders with bodies in flight.
type Shares = Mutex<HashMap<Holder, Weak<Share>>>;

#[derive(Debug)]
struct Share {
    holder: Holder,
    bytes: AtomicUsize,
    turns: Arc<Semaphore>,
    all: Arc<Shares>,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have begun anew meanwhile.
        if all.get(&self.holder).is_some_and(|share| share.strong_count() == 0) {
            all.remove(&self.holder);
        }
    }
}

/// Where the bodies of one holder are counted.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    bytes: Arc<Semaphore>,
    share: Option<Arc<Share>>,
    share_bytes_max: usize,
}

/// Bytes of a body that is in flight. Dropping it gives them back.
#[derive(Debug, Default)]
pub(crate) struct Held {
    all: Option<OwnedSemaphorePermit>,
    own: Option<OwnBytes>,
}

/// Bytes of a share.
#[derive(Debug)]
struct OwnBytes {
    share: Arc<Share>,
    count: usize,
}

impl Drop for OwnBytes {
    fn drop(&mut self) {
        self.share.bytes.fetch_sub(self.count, Ordering::AcqRel);
    }
}

impl Account {
    /// Counts further bytes of a body.
    pub(crate) fn take(&self, held: &mut Held, bytes: usize) -> Result<(), Problem> {
        let full = || {
            let detail = "the requests in flight hold all the memory that there is for bodies";
            Problem::unavailable("TOO_MANY_BODIES", detail, RETRY_SECONDS)
        };
        let count = u32::try_from(bytes).map_err(|_| full())?;
        let own = match &self.share {
            Some(share) => {
                let more = |sum: usize| sum.checked_add(bytes).filter(|sum| *sum <= self.share_bytes_max);
                let taken = share.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
                taken.map_err(|_| share.holder.full())?;
                Some(OwnBytes { share: Arc::clone(share), count: bytes })
            }
            None => None,
        };
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(count).map_err(|_| full())?;
        match &mut held.all {
            Some(held) => held.merge(permit),
            None => held.all = Some(permit),
        }
        match (&mut held.own, own) {
            (Some(held), Some(mut own)) => held.count += std::mem::take(&mut own.count),
            (held @ None, own) => *held = own,
            (Some(_), None) => {}
        }
        Ok(())
    }
}

impl BodyBudget {
    /// `bytes_max` for all bodies in flight, `body_bytes_max` for one in JSON, `blob_bytes_max` for a file.
    pub(crate) fn new(bytes_max: usize, body_bytes_max: usize, blob_bytes_max: usize) -> Self {
        let turn_bytes_max = body_bytes_max.max(TURN_BYTES_MIN);
        Self {
            bytes: Arc::new(Semaphore::new(bytes_max.min(Semaphore::MAX_PERMITS))),
            shares: Arc::default(),
            share_bytes_max: (bytes_max / SHARES).max(body_bytes_max).max(blob_bytes_max),
            turns: Arc::new(Semaphore::new(turn_bytes_max.min(Semaphore::MAX_PERMITS))),
            turn_bytes_max,
        }
    }

    /// Where the bodies of `holder` are counted; those of nobody count for all only.
    pub(crate) fn account(&self, holder: Option<Holder>) -> Account {
        let share = holder.map(|holder| self.share(holder));
        Account { bytes: Arc::clone(&self.bytes), share, share_bytes_max: self.share_bytes_max }
    }

    fn share(&self, holder: Holder) -> Arc<Share> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&holder).and_then(Weak::upgrade) {
            return share;
        }
        let share = Arc::new(Share {
            holder: holder.clone(),
            bytes: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(SHARE_TURNS_MAX)),
            all: Arc::clone(&self.shares),
        });
        shares.insert(holder, Arc::downgrade(&share));
        share
    }

    /// Carries out what a large body asks for, on a thread of its own, when it is its turn.
    pub(crate) async fn apart(
        &self,
        account: &Account,
        bytes: usize,
        work: impl Future<Output = Reply> + Send + 'static,
    ) -> Reply {
        let busy = || {
            let detail = "the server is busy with other large requests";
            Problem::unavailable("TOO_MANY_BODIES", detail, RETRY_SECONDS)
        };
        let bytes = bytes.clamp(TURN_BYTES_MIN, self.turn_bytes_max);
        let bytes = u32::try_from(bytes).map_err(|_| busy())?;
        let share = account.share.clone();
        let turn = async {
            let own = match &share {
                Some(share) => Some(Arc::clone(&share.turns).acquire_owned().await?),
                None => None,
            };
            Ok::<_, AcquireError>((own, Arc::clone(&self.turns).acquire_many_owned(bytes).await?))
        };
        let turn = tokio::time::timeout(TURN_WAIT, turn).await.map_err(|_| busy())?.map_err(|_| busy())?;
        let runtime = Handle::current();
        let done = tokio::task::spawn_blocking(move || {
            let reply = runtime.block_on(work);
            drop((turn, share));
            reply
        });
        done.await.unwrap_or_else(|error| Err(Problem::internal(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(refused: Result<(), Problem>) -> (u16, String, Option<u64>) {
        let refused = refused.unwrap_err();
        (refused.status.as_u16(), refused.code.to_string(), refused.retry_after)
    }

    #[test]
    fn bytes_are_shared_and_come_back() {
        let budget = BodyBudget::new(100, 10, 10);
        let account = budget.account(None);
        let (mut one, mut other) = (Held::default(), Held::default());
        account.take(&mut one, 60).unwrap();
        account.take(&mut other, 30).unwrap();
        let refused = code_of(account.take(&mut other, 11));
        assert_eq!(refused, (503, "TOO_MANY_BODIES".to_owned(), Some(RETRY_SECONDS)));
        account.take(&mut other, 10).unwrap();
        drop(one);
        account.take(&mut other, 60).unwrap();
    }

    #[test]
    fn a_holder_has_a_quarter_and_the_others_theirs() {
        let budget = BodyBudget::new(100, 10, 10);
        let tenant = |name: &str| Some(Holder::Tenant(name.into()));
        let (acme, globex) = (budget.account(tenant("acme")), budget.account(tenant("globex")));
        let (mut one, mut other) = (Held::default(), Held::default());
        acme.take(&mut one, 10).unwrap();
        acme.take(&mut one, 5).unwrap();
        budget.account(tenant("acme")).take(&mut other, 10).unwrap();
        let refused = code_of(acme.take(&mut other, 1));
        assert_eq!(refused, (429, "TENANT_TOO_MANY_BODIES".to_owned(), Some(RETRY_SECONDS)));
        globex.take(&mut Held::default(), 25).unwrap();
        let address = budget.account(Some(Holder::at(Some(IpAddr::from([192, 0, 2, 1])))));
        assert_eq!(code_of(address.take(&mut Held::default(), 26)).1, "TOO_MANY_BODIES");
        drop(one);
        acme.take(&mut other, 15).unwrap();
        assert_eq!(code_of(acme.take(&mut other, 1)).0, 429);
        drop((acme, globex, address));
        assert_eq!(budget.shares.lock().unwrap().len(), 1, "one has a body in flight");
        drop(other);
        assert!(budget.shares.lock().unwrap().is_empty());
    }

    #[test]
    fn what_is_refused_for_all_is_not_counted_for_its_holder() {
        let budget = BodyBudget::new(100, 10, 100);
        let acme = budget.account(Some(Holder::Tenant("acme".into())));
        let mut held = Held::default();
        budget.account(None).take(&mut held, 90).unwrap();
        assert_eq!(code_of(acme.take(&mut Held::default(), 20)).0, 503);
        assert_eq!(acme.share.unwrap().bytes.load(Ordering::Acquire), 0);
    }

    #[tokio::test]
    async fn a_tenant_that_waits_for_turns_keeps_nobody_else_waiting() {
        let budget = Arc::new(BodyBudget::new(1 << 30, 16 << 20, 0));
        let (open, opened) = tokio::sync::watch::channel(false);
        let mut waiting = Vec::new();
        // More than there are turns, and none of them ends before the other tenant is served.
        for _ in 0..64 {
            let (budget, mut opened) = (Arc::clone(&budget), opened.clone());
            waiting.push(tokio::spawn(async move {
                let account = budget.account(Some(Holder::Tenant("acme".into())));
                let work = async move {
                    let _ = opened.wait_for(|open| *open).await;
                    Ok(axum::http::Response::default())
                };
                budget.apart(&account, LARGE_BODY_BYTES, work).await.is_ok()
            }));
        }
        while budget.turns.available_permits() > (16 - SHARE_TURNS_MAX) << 20 {
            tokio::task::yield_now().await;
        }
        let globex = budget.account(Some(Holder::Tenant("globex".into())));
        let done = budget.apart(&globex, LARGE_BODY_BYTES, async { Ok(axum::http::Response::default()) });
        assert!(done.await.is_ok());
        open.send_replace(true);
        for waiting in waiting {
            assert!(waiting.await.unwrap());
        }
    }
}
