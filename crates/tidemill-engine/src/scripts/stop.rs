//! Stopping, and waiting for the first of several things, on any runtime.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use crate::kernel::notice::Notice;

/// Set once.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    is_set: AtomicBool,
    notice: Notice,
}

impl Stop {
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.notice.ring();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self) {
        let rung = self.notice.listen();
        if !self.is_set() {
            rung.await;
        }
    }
}

/// Which of two things happened first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    One,
    Two,
}

/// Waits until one of two things happens, whichever it is.
pub(crate) async fn any(one: impl Future<Output = ()>, two: impl Future<Output = ()>) {
    either(one, two).await;
}

/// Waits until one of two things happens, and tells which.
pub(crate) async fn either(one: impl Future<Output = ()>, two: impl Future<Output = ()>) -> First {
    let (mut one, mut two) = (pin!(one), pin!(two));
    poll_fn(|context| {
        if one.as_mut().poll(context).is_ready() {
            return Poll::Ready(First::One);
        }
        two.as_mut().poll(context).map(|()| First::Two)
    })
    .await
}
