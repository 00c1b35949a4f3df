//! What bodies may take: memory while they come, and turns when they are large.
//!
//! All bodies in flight share one budget of bytes. A large body takes much more while it is read and carried out, so large
//! ones have turns, and they are handled on threads of their own: whatever they take, the runtime's threads answer others.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

#[derive(Debug)]
pub(crate) struct BodyBudget {
    bytes: Arc<Semaphore>,
    /// The bytes of large bodies that are handled at a time: those of one of the largest.
    turns: Arc<Semaphore>,
    turn_bytes_max: usize,
}

/// Bytes of a body that is in flight. Dropping it gives them back.
#[derive(Debug, Default)]
pub(crate) struct Held(Option<OwnedSemaphorePermit>);

impl BodyBudget {
    /// `bytes_max` for all bodies in flight, `body_bytes_max` for one.
    pub(crate) fn new(bytes_max: usize, body_bytes_max: usize) -> Self {
        let turn_bytes_max = body_bytes_max.max(TURN_BYTES_MIN);
        Self {
            bytes: Arc::new(Semaphore::new(bytes_max.min(Semaphore::MAX_PERMITS))),
            turns: Arc::new(Semaphore::new(turn_bytes_max.min(Semaphore::MAX_PERMITS))),
            turn_bytes_max,
        }
    }

    /// Counts further bytes of a body.
    pub(crate) fn take(&self, held: &mut Held, bytes: usize) -> Result<(), Problem> {
        let full = || {
            let detail = "the requests in flight hold all the memory that there is for bodies";
            Problem::unavailable("TOO_MANY_BODIES", detail, RETRY_SECONDS)
        };
        let count = u32::try_from(bytes).map_err(|_| full())?;
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(count).map_err(|_| full())?;
        match &mut held.0 {
            Some(held) => held.merge(permit),
            None => held.0 = Some(permit),
        }
        Ok(())
    }

    /// Carries out what a large body asks for, on a thread of its own, when it is its turn.
    pub(crate) async fn apart(
        &self,
        bytes: usize,
        work: impl Future<Output = Reply> + Send + 'static,
    ) -> Reply {
        let busy = || {
            let detail = "the server is busy with other large requests";
            Problem::unavailable("TOO_MANY_BODIES", detail, RETRY_SECONDS)
        };
        let bytes = bytes.clamp(TURN_BYTES_MIN, self.turn_bytes_max);
        let bytes = u32::try_from(bytes).map_err(|_| busy())?;
        let turn = Arc::clone(&self.turns).acquire_many_owned(bytes);
        let turn = tokio::time::timeout(TURN_WAIT, turn).await.map_err(|_| busy())?.map_err(|_| busy())?;
        let runtime = Handle::current();
        let done = tokio::task::spawn_blocking(move || {
            let reply = runtime.block_on(work);
            drop(turn);
            reply
        });
        done.await.unwrap_or_else(|_| Err(Problem::internal()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shared_and_come_back() {
        let budget = BodyBudget::new(100, 10);
        let (mut one, mut other) = (Held::default(), Held::default());
        budget.take(&mut one, 60).unwrap();
        budget.take(&mut other, 30).unwrap();
        let refused = budget.take(&mut other, 11).unwrap_err();
        assert_eq!((refused.status.as_u16(), &*refused.code), (503, "TOO_MANY_BODIES"));
        assert_eq!(refused.retry_after, Some(RETRY_SECONDS));
        budget.take(&mut other, 10).unwrap();
        drop(one);
        budget.take(&mut other, 60).unwrap();
    }
}
