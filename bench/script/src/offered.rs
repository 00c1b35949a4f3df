//! Events that come at fixed moments, whether or not those before them are answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_model::EventId;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::lab::Publisher;

/// An event with the moment it was offered and how long it took to be accepted.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    pub event: EventId,
    pub at: Instant,
    pub accepted_in: Duration,
}

pub fn offer(runtime: &Runtime, publisher: &Publisher, per_second: u64, span: Duration) -> Vec<Offered> {
    let count = (span.as_secs_f64() * per_second as f64) as u64;
    let all = Arc::new(Mutex::new(Vec::with_capacity(usize::try_from(count).unwrap_or(0))));
    let mut tasks = JoinSet::new();
    let start = Instant::now() + Duration::from_millis(5);
    for number in 0..count {
        let due = start + Duration::from_nanos(number * 1_000_000_000 / per_second);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (publisher, all) = (publisher.clone(), Arc::clone(&all));
        let at = Instant::now();
        let one = async move {
            let event = publisher.publish().await;
            let offered = Offered { event, at, accepted_in: at.elapsed() };
            all.lock().unwrap_or_else(PoisonError::into_inner).push(offered);
        };
        tasks.spawn_on(one, runtime.handle());
        while tasks.try_join_next().is_some() {}
    }
    runtime.block_on(tasks.join_all());
    Arc::into_inner(all).expect("all are done").into_inner().unwrap_or_else(PoisonError::into_inner)
}
