//! Sends what was committed to the bus and the queue, and moves the cursor behind it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_engine::warn_seldom;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::bus::outbox::{Bus, Outbox, Progress, Sending};
use crate::deciding::shared_core::SharedCore;
use crate::deciding::writer::Notices;
use crate::log::commit_log::CommitLog;

/// How many groups are sent side by side.
const SENDS_AT_ONCE: usize = 8;
/// How many groups of others are sent at one look. Its own wait for it meanwhile.
const HOLES_AT_ONCE: usize = 32;

pub(crate) struct OutboxSender {
    pub(crate) outbox: Outbox,
    pub(crate) log: CommitLog,
    pub(crate) core: Arc<SharedCore>,
    pub(crate) progress: Progress,
    pub(crate) notices: Notices,
    /// Up to where everything is sent, for callers that wait for it.
    pub(crate) sent: Arc<AtomicU64>,
    pub(crate) unsent: Arc<AtomicU64>,
    /// If the outbox stands still for this long, its sender is believed dead, and others send.
    pub(crate) patience: Duration,
    /// How long the way from the bus to the table may take before an event is believed to be in the table.
    pub(crate) save_lag: Duration,
}

impl OutboxSender {
    pub(crate) async fn run(mut self, mut sendings: mpsc::UnboundedReceiver<Sending>) {
        let mut sending: JoinSet<u64> = JoinSet::new();
        let mut own = Own::default();
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
                    own.begun(next.number);
                    sending.spawn(async move {
                        outbox.send(&next).await;
                        next.number
                    });
                }
                Some(done) = sending.join_next() => {
                    let Ok(number) = done else { continue };
                    own.under_way.remove(&number);
                    if self.progress.note(number) {
                        self.moved(&mut saved).await;
                    } else if self.progress.has_gap()
                        && let Ok(cursor) = self.outbox.cursor().await
                        && self.progress.rise_to(cursor)
                    {
                        self.moved(&mut saved).await;
                    }
                    self.unsent.fetch_sub(1, Ordering::AcqRel);
                    self.notices.sent.ring();
                }
                () = until(next_saved) => {
                    if let Some((_, number)) = saved.pop_front() {
                        self.core.look(|core| core.recent.saved(number)).await;
                    }
                }
                _ = looks.tick() => self.look(&own, &sendings, &mut stood_at, &mut saved).await,
            }
        }
    }

    async fn moved(&self, saved: &mut VecDeque<(Instant, u64)>) {
        let sent = self.progress.sent;
        // If that fails the next one moves it.
        if let Err(fault) = self.outbox.move_cursor(sent).await {
            warn_seldom!(fault, "how far groups were sent could not be noted");
        }
        match self.outbox.bus {
            Bus::Loopback => self.core.look(|core| core.recent.saved(sent)).await,
            Bus::Named(_) => saved.push_back((Instant::now() + self.save_lag, sent)),
        }
        self.sent.fetch_max(sent, Ordering::AcqRel);
        self.notices.sent.ring();
    }

    /// Sends what somebody else committed and did not send, if nobody got further since the last look.
    async fn look(
        &mut self,
        own: &Own,
        sendings: &mpsc::UnboundedReceiver<Sending>,
        stood_at: &mut Option<u64>,
        saved: &mut VecDeque<(Instant, u64)>,
    ) {
        let cursor = match self.outbox.cursor().await {
            Ok(cursor) => cursor,
            Err(fault) => {
                warn_seldom!(fault, "how far groups were sent could not be read");
                return;
            }
        };
        let end = self.core.look(|core| core.end).await;
        if self.progress.rise_to(cursor) || self.progress.sent > cursor {
            self.moved(saved).await;
        }
        if stood_at.replace(cursor) != Some(cursor) {
            return;
        }
        loop {
            // Others may be at what lies between, too; to send it twice does no harm.
            let has_more = !sendings.is_empty();
            let holes = own.holes(&self.progress, if has_more { own.last } else { end });
            let mut sent = Vec::new();
            let filled = self.outbox.fill(&self.log, &holes, &mut sent).await;
            if let Err(fault) = &filled {
                warn_seldom!(fault, "what others left unsent could not be sent");
            }
            let is_stuck = filled.is_err() || sent.is_empty();
            let mut has_risen = false;
            for number in sent {
                has_risen |= self.progress.note(number);
            }
            if has_risen {
                self.moved(saved).await;
            }
            // A busy sender leaves the rest for the next look.
            if is_stuck || has_more || !own.under_way.is_empty() {
                return;
            }
        }
    }
}

/// The groups that this process is to send itself.
#[derive(Debug, Default)]
struct Own {
    under_way: BTreeSet<u64>,
    /// The last that was begun. They come in the order of their numbers.
    last: u64,
}

impl Own {
    fn begun(&mut self, number: u64) {
        self.under_way.insert(number);
        self.last = number;
    }

    /// The first groups up to `end` that nobody is known to have sent or to be about to send.
    fn holes(&self, progress: &Progress, end: u64) -> BTreeSet<u64> {
        let unsent = (progress.sent + 1..=end).filter(|number| !progress.is_sent(*number));
        unsent.filter(|number| !self.under_way.contains(number)).take(HOLES_AT_ONCE).collect()
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_here_sends_is_a_hole() {
        let mut progress = Progress::from(10);
        let mut own = Own::default();
        for number in [12, 14, 16] {
            own.begun(number);
        }
        own.under_way.remove(&14);
        progress.note(14);
        assert_eq!(own.holes(&progress, 18), BTreeSet::from([11, 13, 15, 17, 18]));
        progress.rise_to(17);
        assert_eq!(own.holes(&progress, 18), BTreeSet::from([18]));
        assert_eq!(own.holes(&progress, own.last), BTreeSet::new());
        assert_eq!(Own::default().holes(&Progress::from(1), 100).len(), HOLES_AT_ONCE);
    }
}
