//! The queue: messages that wait, are hidden, or may be delivered.
//!
//! Lanes by tenant take turns, so one tenant's backlog does not hold up another's. Nothing here is scanned: a message
//! is found by its id, by its lane, or by the moment it becomes visible.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tidemill_model::{TenantId, Timestamp};

use crate::kernel::backend::QueueDepth;
use crate::kernel::commit::{Delivered, Message, MessageId, Visibility};

/// A message and its deliveries so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub message: Message,
    pub visible_at: Timestamp,
    /// Deliveries of any kind; a receipt is good for the newest one.
    pub deliveries: u32,
    /// Those by hand, which are limited.
    pub receives: u32,
    /// How far `visible_at` was away when it was set, in milliseconds.
    pub wait_millis: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Queue {
    messages: HashMap<MessageId, Queued, foldhash::fast::RandomState>,
    /// Messages that are not deliverable before a moment, by that moment.
    hidden: BTreeSet<(Timestamp, MessageId)>,
    lanes: BTreeMap<TenantId, BTreeSet<MessageId>>,
    /// The lanes that hold something, in the order of their turns.
    turns: VecDeque<TenantId>,
    /// The last look: messages at or before this moment are in their lanes.
    moved_up_to: Option<Timestamp>,
}

impl Queue {
    pub fn get(&self, id: MessageId) -> Option<&Queued> {
        self.messages.get(&id)
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How many messages could be delivered, as far as the queue has been moved on.
    pub fn ready(&self) -> usize {
        self.lanes.values().map(BTreeSet::len).sum()
    }

    /// How full it is at `now`. Nothing moves for it: only advancing the queue wakes waiting workers.
    pub fn depth(&self, now: Timestamp) -> QueueDepth {
        let lanes = self.lanes.iter().filter_map(|(tenant, lane)| Some((tenant, *lane.first()?)));
        let mut next: BTreeMap<&TenantId, MessageId> = lanes.collect();
        let mut ready = self.ready();
        for (_, id) in self.hidden.iter().take_while(|(at, _)| *at <= now) {
            let Some(queued) = self.get(*id) else { continue };
            ready += 1;
            let first = next.entry(&queued.message.task.tenant).or_insert(*id);
            *first = (*first).min(*id);
        }
        let oldest_ready = next.values().filter_map(|id| Some(self.get(*id)?.visible_at)).min();
        QueueDepth { messages: self.len(), ready, oldest_ready }
    }

    /// Whether a message could be delivered to a worker that serves these tenants.
    pub fn has_ready(&self, serves: impl Fn(&TenantId) -> bool) -> bool {
        self.turns.iter().any(serves)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.messages.values()
    }

    /// The next moment at which a hidden message becomes visible.
    pub fn next_visible(&self) -> Option<Timestamp> {
        self.hidden.first().map(|(at, _)| *at)
    }

    pub(super) fn insert(&mut self, queued: Queued) {
        self.take_out(queued.message.id);
        self.place(&queued);
        self.messages.insert(queued.message.id, queued);
    }

    pub(super) fn set_visible(&mut self, change: &Visibility) {
        let (id, delivered) = (change.message, change.delivered);
        let Some(mut queued) = self.take_out(id) else { return };
        queued.visible_at = change.visible_at;
        queued.wait_millis = change.wait_millis;
        queued.deliveries = queued.deliveries.saturating_add(u32::from(delivered != Delivered::No));
        queued.receives = queued.receives.saturating_add(u32::from(delivered == Delivered::Received));
        self.place(&queued);
        self.messages.insert(id, queued);
    }

    pub(super) fn remove(&mut self, id: MessageId) -> Option<Queued> {
        self.take_out(id)
    }

    /// Moves what became visible by `now` into its lane.
    pub fn show_due_messages(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.hidden.first().copied() {
            if at > now {
                break;
            }
            self.hidden.pop_first();
            if let Some(queued) = self.messages.get(&id) {
                let tenant = queued.message.task.tenant.clone();
                self.put_in_lane(tenant, id);
            }
        }
        // A clock that was set back takes nothing out of the lanes, but what is hidden from now on waits by it.
        self.moved_up_to = Some(now);
    }

    /// Deliverable messages, one from each lane in turn, skipping lanes that `serves` refuses.
    ///
    /// Delivery itself is a commit; this only looks, and no further than it is asked.
    pub fn deliverable<F: Fn(&TenantId) -> bool>(&self, serves: F) -> Deliverable<'_, F> {
        Deliverable { queue: self, serves, turn: 0, lanes: Vec::new(), next: 0 }
    }

    /// Gives the next turn to the lane after `tenant`.
    pub(super) fn took_turn(&mut self, tenant: &TenantId) {
        if self.turns.len() > 1 && self.turns.front() == Some(tenant) {
            self.turns.rotate_left(1);
        }
    }

    fn place(&mut self, queued: &Queued) {
        let id = queued.message.id;
        if self.moved_up_to.is_some_and(|moved| queued.visible_at <= moved) {
            self.put_in_lane(queued.message.task.tenant.clone(), id);
        } else {
            self.hidden.insert((queued.visible_at, id));
        }
    }

    fn put_in_lane(&mut self, tenant: TenantId, id: MessageId) {
        let lane = self.lanes.entry(tenant.clone()).or_default();
        if lane.is_empty() {
            self.turns.push_back(tenant);
        }
        lane.insert(id);
    }

    fn take_out(&mut self, id: MessageId) -> Option<Queued> {
        let queued = self.messages.remove(&id)?;
        if !self.hidden.remove(&(queued.visible_at, id)) {
            let tenant = &queued.message.task.tenant;
            if let Some(lane) = self.lanes.get_mut(tenant) {
                lane.remove(&id);
                if lane.is_empty() {
                    self.lanes.remove(tenant);
                    self.turns.retain(|turn| turn != tenant);
                }
            }
        }
        Some(queued)
    }
}

/// See [`Queue::deliverable`].
#[derive(Debug)]
pub struct Deliverable<'q, F> {
    queue: &'q Queue,
    serves: F,
    /// The next lane that has not had its first turn.
    turn: usize,
    /// Lanes that had a turn, with what is left of them.
    lanes: Vec<std::collections::btree_set::Iter<'q, MessageId>>,
    next: usize,
}

impl<'q, F: Fn(&TenantId) -> bool> Iterator for Deliverable<'q, F> {
    type Item = &'q Queued;

    fn next(&mut self) -> Option<&'q Queued> {
        while let Some(tenant) = self.queue.turns.get(self.turn) {
            self.turn += 1;
            if !(self.serves)(tenant) {
                continue;
            }
            let Some(mut lane) = self.queue.lanes.get(tenant).map(BTreeSet::iter) else { continue };
            if let Some(id) = lane.next() {
                self.lanes.push(lane);
                return self.queue.get(*id);
            }
        }
        while !self.lanes.is_empty() {
            self.next %= self.lanes.len();
            if let Some(id) = self.lanes[self.next].next() {
                self.next += 1;
                return self.queue.get(*id);
            }
            drop(self.lanes.remove(self.next));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::commit::TaskKey;
    use tidemill_model::RequestId;

    #[test]
    fn the_depth_is_that_of_the_moment_whether_or_not_the_queue_was_moved_on() {
        let mut queue = Queue::default();
        let at = |second: u64| Timestamp::clamped(1_700_000_000_000 + second * 1_000);
        for (id, tenant, second) in [(5, "a", 1), (4, "a", 2), (3, "b", 2), (2, "b", 4), (1, "c", 5)] {
            let task = TaskKey { tenant: TenantId::trusted(tenant), request: RequestId::trusted("r") };
            let (id, not_before) = (MessageId(id), at(second));
            let message = Message { id, task, run: 1, not_before, priority: 0, key: None, wait_millis: 0 };
            queue.insert(Queued {
                message,
                visible_at: not_before,
                deliveries: 0,
                receives: 0,
                wait_millis: 0,
            });
        }
        for (now, ready, oldest) in
            [(0, 0, None), (1, 1, Some(1)), (2, 3, Some(2)), (4, 4, Some(2)), (9, 5, Some(2))]
        {
            let expected = QueueDepth { messages: 5, ready, oldest_ready: oldest.map(at) };
            assert_eq!(queue.depth(at(now)), expected, "before it moves to {now}");
            queue.show_due_messages(at(now));
            assert_eq!(queue.depth(at(now)), expected, "after it moved to {now}");
        }
    }
}
