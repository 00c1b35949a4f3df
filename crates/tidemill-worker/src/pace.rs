//! How a running worker learns that it must stop.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the slots of a worker are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Work,
    /// End what runs and take nothing more.
    Finish,
    /// Give back what runs.
    GiveBack,
}

/// A running worker. Dropping it ends its tasks where they are; their leases run out.
#[derive(Debug)]
pub struct WorkerHandle {
    stop: watch::Sender<Pace>,
    slots: Vec<JoinHandle<()>>,
    /// How long it may take to give tasks back.
    give_back: Duration,
}

impl WorkerHandle {
    pub(crate) fn new(stop: watch::Sender<Pace>, slots: Vec<JoinHandle<()>>, give_back: Duration) -> Self {
        Self { stop, slots, give_back }
    }

    /// Claims nothing more, lets running tasks end for at most `grace`, and gives back the rest.
    pub async fn shut_down(mut self, grace: Duration) {
        // Slots that are gone already need no word.
        let _ = self.stop.send(Pace::Finish);
        if tokio::time::timeout(grace, self.ended()).await.is_err() {
            let _ = self.stop.send(Pace::GiveBack);
            if tokio::time::timeout(self.give_back, self.ended()).await.is_err() {
                self.slots.iter().for_each(JoinHandle::abort);
            }
        }
    }

    async fn ended(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_finished()) {
            // A slot that panicked has said so already.
            let _ = slot.await;
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.slots.iter().for_each(JoinHandle::abort);
    }
}
