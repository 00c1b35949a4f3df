//! Tickets that this process has taken from the queue.
//!
//! While somebody waits for work the queue is asked for tickets. One whose message is settled is deleted; all others are
//! held, and a held ticket follows its message: whenever a commit of whichever process moves the message, the ticket is
//! hidden until then, and when the message is settled it is deleted. So a ticket comes back to the queue only when its
//! message may be claimed and nobody does, or when this process is gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, MessageSystemAttributeName,
};
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;
use tidemill_engine::commit::MessageId;
use tidemill_engine::notice::Notice;
use tidemill_engine::warn_seldom;
use tidemill_model::{TenantId, Timestamp};
use tokio::sync::mpsc;

use crate::connection::ATTEMPT_TIMEOUT;
use crate::deciding::core::Core;
use crate::deciding::writer_handle::WriterHandle;
use crate::fault::{causes, unavailable};
use crate::service_pause::ServicePause;
use crate::tickets::ticket::{BATCH, Standing, Ticket, hide_seconds, send};

/// A ticket that was received this often is replaced by a new one when it must wait: the queue counts, and would take
/// it for one that nobody can handle.
const RECEIVES_MAX: u32 = 2;
/// How many tickets are held at most. Others are hidden once and come again.
const HELD_MAX: usize = 1_000;
/// How many tickets one receive takes while all of them are for nothing.
const CLEARED_AT_ONCE: u32 = 10;
/// How long to wait for the next try where receiving does not wait.
const PAUSE_AFTER_NOTHING: Duration = Duration::from_secs(1);
/// How long a ticket that nobody here may claim for is left to others.
const PASS_ON_SECONDS: i32 = 2;
/// Each time it comes back for nothing it is held back twice as long, up to this.
const PASSED_ON_SECONDS_MAX: u64 = 900;

/// How tickets are taken from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketOptions {
    /// How many one receive takes, from 1 to 10.
    pub at_once: u32,
    /// How long a receive waits, up to 20 seconds.
    pub wait: Duration,
    /// How long a ticket is hidden until its task is claimed.
    pub visibility: Duration,
}

impl Default for TicketOptions {
    fn default() -> Self {
        Self { at_once: 1, wait: Duration::from_secs(20), visibility: Duration::from_secs(30) }
    }
}

/// The tickets of this process, and the workers that wait for more. Clones share everything.
#[derive(Clone)]
pub(crate) struct HeldTickets {
    shared: Arc<Shared>,
}

struct Shared {
    sqs: aws_sdk_sqs::Client,
    queue: String,
    options: TicketOptions,
    clock: Arc<dyn Clock>,
    held: Mutex<HashMap<MessageId, Vec<Held>>>,
    /// The workers that wait for work, and the tenants they serve.
    waiting: Mutex<BTreeMap<u64, Option<Arc<[TenantId]>>>>,
    waiters: AtomicU64,
    called: Notice,
    moved: mpsc::UnboundedSender<MessageId>,
    /// How many messages have moved whose tickets have not followed yet.
    behind: AtomicUsize,
    followed: Notice,
}

/// A ticket that was received and is not deleted.
#[derive(Debug, Clone)]
struct Held {
    /// The queue's own name of it.
    id: String,
    receipt: String,
}

struct Taken {
    ticket: Ticket,
    message: MessageId,
    held: Held,
    receives: u32,
}

/// Somebody waits for work until this is dropped.
pub(crate) struct Waiting {
    number: u64,
    tickets: HeldTickets,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.tickets.shared.lock(|shared| &shared.waiting).remove(&self.number);
    }
}

impl Shared {
    fn lock<'s, T>(&'s self, which: impl FnOnce(&'s Self) -> &'s Mutex<T>) -> std::sync::MutexGuard<'s, T> {
        which(self).lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldTickets {
    pub(crate) fn new(
        sqs: aws_sdk_sqs::Client,
        queue: String,
        options: TicketOptions,
        clock: Arc<dyn Clock>,
    ) -> (Self, mpsc::UnboundedReceiver<MessageId>) {
        let (moved, to_follow) = mpsc::unbounded_channel();
        let shared = Shared {
            sqs,
            queue,
            options,
            clock,
            held: Mutex::default(),
            waiting: Mutex::default(),
            waiters: AtomicU64::new(0),
            called: Notice::default(),
            moved,
            behind: AtomicUsize::new(0),
            followed: Notice::default(),
        };
        (Self { shared: Arc::new(shared) }, to_follow)
    }

    /// Tickets are wanted for these tenants (`None`: any) until the answer is dropped.
    pub(crate) fn wait(&self, tenants: Option<Arc<[TenantId]>>) -> Waiting {
        let number = self.shared.waiters.fetch_add(1, Ordering::Relaxed);
        self.shared.lock(|shared| &shared.waiting).insert(number, tenants);
        self.shared.called.ring();
        Waiting { number, tickets: self.clone() }
    }

    /// Notes that messages have moved or are settled.
    pub(crate) fn moved(&self, messages: &[MessageId]) {
        let held = self.shared.lock(|shared| &shared.held);
        for message in messages.iter().filter(|message| held.contains_key(message)) {
            self.note_moved(*message);
        }
    }

    /// Notes that any message may have moved.
    pub(crate) fn all_moved(&self) {
        for message in self.shared.lock(|shared| &shared.held).keys() {
            self.note_moved(*message);
        }
    }

    fn note_moved(&self, message: MessageId) {
        self.shared.behind.fetch_add(1, Ordering::AcqRel);
        // Nobody receives when the process ends.
        let _ = self.shared.moved.send(message);
    }

    /// Waits until the tickets have followed all that was committed.
    pub(crate) async fn have_followed(&self) {
        loop {
            let followed = self.shared.followed.listen();
            if self.shared.behind.load(Ordering::Acquire) == 0 {
                return;
            }
            followed.await;
        }
    }

    /// How many tickets are held.
    pub(crate) fn held(&self) -> usize {
        self.shared.lock(|shared| &shared.held).values().map(Vec::len).sum()
    }

    async fn somebody_waits(&self) {
        loop {
            let called = self.shared.called.listen();
            if !self.shared.lock(|shared| &shared.waiting).is_empty() {
                return;
            }
            called.await;
        }
    }

    fn is_wanted(&self, tenant: &TenantId) -> bool {
        let waiting = self.shared.lock(|shared| &shared.waiting);
        waiting.values().any(|tenants| tenants.as_ref().is_none_or(|served| served.contains(tenant)))
    }

    /// Takes tickets while somebody waits, and rings when there is something to claim.
    pub(crate) async fn take(self, writer: WriterHandle, arrived: Notice) {
        let mut backoff = ServicePause::default();
        // A row of tickets that are settled is cleared away faster.
        let mut at_once = self.shared.options.at_once;
        loop {
            self.somebody_waits().await;
            let taken = match self.receive_in_time(at_once, &writer, &arrived).await {
                Ok(taken) => taken,
                Err(fault) => {
                    warn_seldom!(fault, "no tickets could be received");
                    backoff.wait().await;
                    continue;
                }
            };
            let count = taken.len();
            if count == 0 && self.shared.options.wait.is_zero() {
                // The queue did not wait for us.
                tokio::time::sleep(PAUSE_AFTER_NOTHING).await;
            }
            match self.sort(taken, &writer, &arrived).await {
                Ok(over) => {
                    backoff = ServicePause::default();
                    let is_row = over > 0 && over == count;
                    at_once = if is_row { CLEARED_AT_ONCE } else { self.shared.options.at_once };
                }
                // What was received comes again.
                Err(fault) => {
                    warn_seldom!(fault, "tickets could not be looked at; they come again");
                    backoff.wait().await;
                }
            }
        }
    }

    /// Receives, and rings meanwhile whenever time makes a message visible.
    async fn receive_in_time(
        &self,
        count: u32,
        writer: &WriterHandle,
        arrived: &Notice,
    ) -> Result<Vec<Taken>, Fault> {
        let mut receiving = std::pin::pin!(self.receive(count));
        loop {
            let now = self.shared.clock.now();
            let look = |core: &mut Core| {
                core.state.show_due_messages(now);
                core.state.queue().next_visible()
            };
            let next = writer.core.look(look).await;
            let left = next.filter(|next| *next > now).map(|next| Duration::from_millis(next.since(now)));
            tokio::select! {
                received = &mut receiving => return received,
                () = sleep(left) => {
                    // The follower of the log reports failures.
                    if writer.fresh(|_| ()).await.is_ok() {
                        arrived.ring();
                    }
                }
            }
        }
    }

    async fn receive(&self, count: u32) -> Result<Vec<Taken>, Fault> {
        let Shared { sqs, queue, options, .. } = &*self.shared;
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        let receive = sqs
            .receive_message()
            .queue_url(queue)
            .max_number_of_messages(i32::try_from(count).unwrap_or(1))
            .wait_time_seconds(seconds(options.wait))
            .visibility_timeout(seconds(options.visibility))
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount);
        // The queue lets us wait, and an answer may be lost all the same.
        let timeout =
            TimeoutConfig::builder().operation_attempt_timeout(options.wait + ATTEMPT_TIMEOUT).build();
        let patient = aws_sdk_sqs::Config::builder().timeout_config(timeout);
        let received = receive.customize().config_override(patient).send().await;
        let received = received.map_err(|error| unavailable("ReceiveMessage", error))?;
        let mut taken = Vec::new();
        for message in received.messages.unwrap_or_default() {
            let count = message.attributes.as_ref().and_then(|attributes| {
                attributes.get(&MessageSystemAttributeName::ApproximateReceiveCount)?.parse().ok()
            });
            // What is no ticket is left for the queue of dead letters, where somebody looks at it.
            if let (Some(id), Some(receipt), Some((ticket, message))) =
                (message.message_id, message.receipt_handle, message.body.as_deref().and_then(Ticket::read))
            {
                let held = Held { id, receipt };
                taken.push(Taken { ticket, message, held, receives: count.unwrap_or(1) });
            }
        }
        Ok(taken)
    }

    /// Does with tickets what their messages ask for. Tells how many were for nothing.
    async fn sort(&self, taken: Vec<Taken>, writer: &WriterHandle, arrived: &Notice) -> Result<usize, Fault> {
        let now = self.shared.clock.now();
        // Held while the state is looked at: what moves a message afterwards finds its ticket.
        let standings = writer
            .fresh(|core| {
                let stand = |taken: &Taken| Standing::of(core.state.queue(), taken.message, now);
                let standings: Vec<_> = taken.iter().map(stand).collect();
                for (taken, standing) in taken.iter().zip(&standings) {
                    if *standing != Standing::Over {
                        self.hold(taken);
                    }
                }
                standings
            })
            .await?;
        let (mut over, mut hidden, mut renewed) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_due = false;
        for (mut taken, standing) in taken.into_iter().zip(standings) {
            match standing {
                Standing::Over => over.push(taken.held),
                Standing::Now(tenant) if self.is_wanted(&tenant) => is_due = true,
                // Nobody here may claim for it, nor could anybody else so far.
                Standing::Now(_) if taken.receives >= RECEIVES_MAX || taken.ticket.passed > 0 => {
                    taken.ticket.passed = taken.ticket.passed.saturating_add(1);
                    let at = now.plus(pass_on_millis(taken.ticket.passed));
                    renewed.push((taken, at));
                }
                Standing::Now(_) => {
                    self.forget(taken.message, &taken.held.id);
                    hidden.push((taken.held, PASS_ON_SECONDS));
                }
                Standing::Later(at) if taken.receives >= RECEIVES_MAX => {
                    taken.ticket.passed = 0;
                    renewed.push((taken, at));
                }
                Standing::Later(at) => hidden.push((taken.held, hide_seconds(at, now))),
            }
        }
        if is_due {
            arrived.ring();
        }
        let for_nothing = over.len();
        self.hide(&hidden).await;
        // The new ticket first: one too many harms nobody.
        let new: Vec<_> = renewed.iter().map(|(taken, at)| (taken.ticket.clone(), *at)).collect();
        match send(&self.shared.sqs, &self.shared.queue, new, now).await {
            Ok(()) => {
                for (taken, _) in renewed {
                    self.forget(taken.message, &taken.held.id);
                    over.push(taken.held);
                }
            }
            // Those that are there come again.
            Err(fault) => warn_seldom!(fault, "tickets could not be renewed"),
        }
        self.delete(&over).await;
        Ok(for_nothing)
    }

    fn hold(&self, taken: &Taken) {
        let mut held = self.shared.lock(|shared| &shared.held);
        let is_full = held.len() >= HELD_MAX;
        if is_full && !held.contains_key(&taken.message) {
            return;
        }
        let of_message = held.entry(taken.message).or_default();
        // The same ticket may have come back meanwhile, with a new receipt.
        of_message.retain(|other| other.id != taken.held.id);
        of_message.push(taken.held.clone());
    }

    fn forget(&self, message: MessageId, id: &str) {
        let mut held = self.shared.lock(|shared| &shared.held);
        if let Some(of_message) = held.get_mut(&message) {
            of_message.retain(|other| other.id != id);
            if of_message.is_empty() {
                held.remove(&message);
            }
        }
    }

    /// Lets held tickets follow their messages.
    pub(crate) async fn follow(
        self,
        writer: WriterHandle,
        mut to_follow: mpsc::UnboundedReceiver<MessageId>,
    ) {
        let mut moved = Vec::new();
        while to_follow.recv_many(&mut moved, HELD_MAX).await > 0 {
            let count = moved.len();
            moved.sort_unstable();
            moved.dedup();
            let now = self.shared.clock.now();
            let stand = |core: &mut Core| {
                let stand = |message: &MessageId| Standing::of(core.state.queue(), *message, now);
                moved.iter().map(stand).collect::<Vec<_>>()
            };
            let standings = writer.core.look(stand).await;
            self.follow_all(moved.drain(..).zip(standings), now).await;
            self.shared.behind.fetch_sub(count, Ordering::AcqRel);
            self.shared.followed.ring();
        }
    }

    async fn follow_all(&self, moved: impl Iterator<Item = (MessageId, Standing)>, now: Timestamp) {
        let (mut over, mut hidden) = (Vec::new(), Vec::new());
        {
            let mut held = self.shared.lock(|shared| &shared.held);
            for (message, standing) in moved {
                match standing {
                    Standing::Over => over.extend(held.remove(&message).unwrap_or_default()),
                    // Given back: any free worker takes it.
                    Standing::Now(_) => {
                        let given = held.remove(&message).unwrap_or_default();
                        hidden.extend(given.into_iter().map(|held| (held, 0)));
                    }
                    Standing::Later(at) => {
                        let tickets = held.get(&message).into_iter().flatten();
                        hidden.extend(tickets.map(|held| (held.clone(), hide_seconds(at, now))));
                    }
                }
            }
        }
        self.hide(&hidden).await;
        self.delete(&over).await;
    }

    /// Hides each ticket for its number of seconds. One that cannot be hidden comes back earlier, and is looked at
    /// then.
    async fn hide(&self, tickets: &[(Held, i32)]) {
        for chunk in tickets.chunks(BATCH) {
            let entries = chunk.iter().enumerate().filter_map(|(index, (held, seconds))| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(index.to_string())
                    .receipt_handle(&held.receipt)
                    .visibility_timeout(*seconds)
                    .build()
                    .ok()
            });
            let batch = self.shared.sqs.change_message_visibility_batch().queue_url(&self.shared.queue);
            if let Err(error) = batch.set_entries(Some(entries.collect())).send().await {
                warn_seldom!(causes(&error), "tickets could not be hidden");
            }
        }
    }

    /// Deletes tickets. One that cannot be deleted comes again, for nothing, and is deleted then.
    async fn delete(&self, tickets: &[Held]) {
        for chunk in tickets.chunks(BATCH) {
            let entries = chunk.iter().enumerate().filter_map(|(index, held)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(index.to_string())
                    .receipt_handle(&held.receipt)
                    .build()
                    .ok()
            });
            let batch = self.shared.sqs.delete_message_batch().queue_url(&self.shared.queue);
            if let Err(error) = batch.set_entries(Some(entries.collect())).send().await {
                warn_seldom!(causes(&error), "tickets could not be deleted");
            }
        }
    }
}

/// How long a ticket is held back that was passed on this often. A process that may claim for it also follows the log
/// and need not wait for the ticket.
fn pass_on_millis(passed: u32) -> u64 {
    let seconds = u64::from(PASS_ON_SECONDS.unsigned_abs()) << passed.min(16);
    seconds.min(PASSED_ON_SECONDS_MAX) * 1_000
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
