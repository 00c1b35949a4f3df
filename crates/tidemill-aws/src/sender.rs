//! Sends what was committed to the bus and the queue, and moves the cursor behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::log::Log;
use crate::outbox::{Bus, Outbox, Progress, Sending};
use crate::turnstile::Turnstile;
use crate::writer::Bells;

/// How many groups are sent side by side.
const SENDS_AT_ONCE: usize = 8;

pub(crate) struct Sender {
    pub(crate) outbox: Outbox,
    pub(crate) log: Log,
    pub(crate) core: Arc<Turnstile>,
    pub(crate) progress: Progress,
    pub(crate) bells: Bells,
    /// Up to where all is sent, for those who wait for it.
    pub(crate) sent: Arc<AtomicU64>,
    pub(crate) unsent: Arc<AtomicU64>,
    /// If the outbox stands still for so long, whoever should have sent is believed dead, and others send.
    pub(crate) patience: Duration,
    /// How long the way from the bus to the table may take before an event is believed to be in the table.
    pub(crate) save_lag: Duration,
}

impl Sender {
    pub(crate) async fn run(mut self, mut sendings: mpsc::UnboundedReceiver<Sending>) {
        let mut sending: JoinSet<u64> = JoinSet::new();
        // Groups that are sent, and when they are believed to be in the table.
        let mut saved: VecDeque<(Instant, u64)> = VecDeque::new();
        let mut stood_at = None;
        let mut looks = tokio::time::interval(self.patience.max(Duration::from_millis(1)));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let has_room = sending.len() < SENDS_AT_ONCE;
            let next_saved = saved.front().map(|(at, _)| *at);
            tokio::select! {
                next = sendings.recv(), if has_room => {
                    let Some(next) = next else { return };
                    let outbox = self.outbox.clone();
                    sending.spawn(async move {
                        outbox.send(&next).await;
                        next.number
                    });
                }
                Some(done) = sending.join_next() => {
                    let Ok(number) = done else { continue };
                    if self.progress.note(number) {
                        self.moved(&mut saved).await;
                    } else if self.progress.has_gap()
                        && let Ok(cursor) = self.outbox.cursor().await
                        && self.progress.rise_to(cursor)
                    {
                        self.moved(&mut saved).await;
                    }
                    self.unsent.fetch_sub(1, Ordering::AcqRel);
                    self.bells.sent.ring();
                }
                () = until(next_saved) => {
                    if let Some((_, number)) = saved.pop_front() {
                        self.core.look(|core| core.recent.saved(number)).await;
                    }
                }
                _ = looks.tick() => self.look(&mut stood_at, &mut saved).await,
            }
        }
    }

    async fn moved(&self, saved: &mut VecDeque<(Instant, u64)>) {
        let sent = self.progress.sent;
        // If that fails the next one moves it.
        let _ = self.outbox.move_cursor(sent).await;
        match self.outbox.bus {
            Bus::Loopback => self.core.look(|core| core.recent.saved(sent)).await,
            Bus::Named(_) => saved.push_back((Instant::now() + self.save_lag, sent)),
        }
        self.sent.fetch_max(sent, Ordering::AcqRel);
        self.bells.sent.ring();
    }

    /// Sends what somebody else committed and did not send, if nobody got further since the last look.
    async fn look(&mut self, stood_at: &mut Option<u64>, saved: &mut VecDeque<(Instant, u64)>) {
        let Ok(cursor) = self.outbox.cursor().await else { return };
        let end = self.core.look(|core| core.end).await;
        let mut reached = cursor;
        // What this process is at itself needs no help.
        let is_idle = self.unsent.load(Ordering::Acquire) == 0;
        if stood_at.replace(cursor) == Some(cursor) && cursor < end && is_idle {
            // What is left is for the next look.
            match self.outbox.push(&self.log, end, Duration::ZERO).await {
                Ok(pushed) => reached += pushed,
                Err(_) => return,
            }
        }
        if self.progress.rise_to(reached) || self.progress.sent > cursor {
            self.moved(saved).await;
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
