//! Running futures without a runtime, as far as tests need it. Unlike `pollster`, it gives up on a future that hangs.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long nothing may happen before a future is given up.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
///
/// # Panics
/// When nothing wakes it for two minutes: a test that hangs says less than one that fails.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        let since = Instant::now();
        std::thread::park_timeout(STANDSTILL_MAX);
        assert!(since.elapsed() < STANDSTILL_MAX, "nothing has woken the future for {STANDSTILL_MAX:?}");
    }
}

/// Looks once whether a future is ready.
pub async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Runs futures side by side; the answers are in the order of the futures.
pub async fn side_by_side<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut outputs: Vec<_> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (slot, output) in running.iter_mut().zip(&mut outputs) {
            if let Some(future) = slot
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
                *slot = None;
            }
        }
        if running.iter().any(Option::is_some) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
