//! Which executions are to run, and when. The records themselves may have left memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tidemill_model::{TenantId, Timestamp};

use crate::kernel::clock::AHEAD_MILLIS_MAX;
use crate::kernel::record::{Record, RecordKey, RecordKind, RecordValue};
use crate::kernel::state::Map;
use crate::scripts::execution::{ExecutionId, ExecutionKey};

static NOBODY: BTreeMap<TenantId, BTreeSet<(Timestamp, ExecutionId)>> = BTreeMap::new();

/// Executions that are queued or to be tried again, by tenant and moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    tenants: BTreeMap<TenantId, BTreeSet<(Timestamp, ExecutionId)>>,
    moments: Map<ExecutionKey, Moments>,
    /// By the moment at which they began to wait.
    since: BTreeSet<(Timestamp, ExecutionKey)>,
}

/// When an execution began to wait, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moments {
    since: Timestamp,
    next: Timestamp,
}

/// What is to run by some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueExecutions {
    /// The tenants in turn, the earliest of each first.
    pub due: Vec<ExecutionKey>,
    /// Tenants with more that is due than there was room for.
    pub more: Vec<TenantId>,
    /// When the next one comes due that is not yet.
    pub next: Option<Timestamp>,
    /// How many wait in all, due or not.
    pub pending: usize,
    /// The tenant with most of them.
    pub fullest: Option<TenantId>,
}

/// How many are wanted, and of whom.
#[derive(Debug, Clone)]
pub struct Room {
    /// How many more are wanted of all tenants together.
    pub left: usize,
    /// A tenant gets at least this many, whatever the others hold.
    pub kept: usize,
    /// A tenant that is not alone gets no more than this many.
    pub most: usize,
    /// How many each tenant has already.
    pub held: BTreeMap<TenantId, usize>,
    /// The tenants after this one are served first.
    pub after: Option<TenantId>,
}

impl Room {
    /// At most `limit`, of any tenants.
    pub fn of(limit: usize) -> Self {
        Self { left: limit, kept: 0, most: usize::MAX, held: BTreeMap::new(), after: None }
    }
}

impl Pending {
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    pub fn of(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, BTreeSet::len)
    }

    /// What is due at `now`, without what `skip` names, as far as there is room.
    pub fn due(&self, now: Timestamp, room: &Room, skip: impl Fn(&ExecutionKey) -> bool) -> DueExecutions {
        let most = if self.tenants.len() > 1 { room.most } else { usize::MAX };
        let (later, earlier) = match &room.after {
            Some(after) => (
                self.tenants.range::<TenantId, _>((Bound::Excluded(after), Bound::Unbounded)),
                self.tenants.range::<TenantId, _>((Bound::Unbounded, Bound::Included(after))),
            ),
            None => (self.tenants.range::<TenantId, _>(..), NOBODY.range::<TenantId, _>(..)),
        };
        let mut lanes: Vec<_> = later
            .chain(earlier)
            .map(|(tenant, waiting)| {
                let key = move |(_, id): &(Timestamp, ExecutionId)| ExecutionKey {
                    tenant: tenant.clone(),
                    id: *id,
                };
                let ready = waiting.iter().take_while(move |(at, _)| *at <= now).map(key);
                let lane = ready.chain(self.of_another_clock(now, tenant).cloned());
                (tenant, room.held.get(tenant).copied().unwrap_or(0), lane)
            })
            .collect();
        let (mut due, mut more, mut left) = (Vec::new(), Vec::new(), room.left);
        while !lanes.is_empty() {
            lanes.retain_mut(|(tenant, held, lane)| {
                let Some(next) = lane.find(|key| !skip(key)) else { return false };
                let has_room = *held < room.kept || (left > 0 && *held < most);
                if has_room {
                    due.push(next);
                    *held += 1;
                    left = left.saturating_sub(1);
                } else {
                    more.push(TenantId::clone(tenant));
                }
                has_room
            });
        }
        let later = |(tenant, waiting): (&TenantId, &BTreeSet<(Timestamp, ExecutionId)>)| {
            let key = |id| ExecutionKey { tenant: tenant.clone(), id };
            let is_due = |id| self.moments.get(&key(id)).is_some_and(|at| is_of_another_clock(at, now));
            let mut later = waiting.range((now.plus(1), ExecutionId::from_u128(0))..);
            later.find(|(_, id)| !is_due(*id)).map(|(at, _)| *at)
        };
        let fullest = self.tenants.iter().max_by_key(|(_, waiting)| waiting.len());
        DueExecutions {
            due,
            more,
            next: self.tenants.iter().filter_map(later).min(),
            pending: self.len(),
            fullest: fullest.map(|(tenant, _)| tenant.clone()),
        }
    }

    /// Those of a tenant that are not due yet by what was written down, and are because the clock was set back since.
    fn of_another_clock<'s>(
        &'s self,
        now: Timestamp,
        tenant: &'s TenantId,
    ) -> impl Iterator<Item = &'s ExecutionKey> {
        let ahead = self.since.iter().rev().map_while(move |(_, key)| {
            self.moments.get(key).filter(|at| is_of_another_clock(at, now)).map(|at| (at, key))
        });
        ahead.filter(move |(at, key)| at.next > now && key.tenant == *tenant).map(|(_, key)| key)
    }

    /// Takes note of a record as it stands now.
    pub(super) fn note(&mut self, key: &RecordKey, record: Option<&Record>) {
        if key.kind != RecordKind::Execution {
            return;
        }
        let Some(key) = key.as_execution() else { return };
        let moment = record.and_then(|record| match &record.value {
            RecordValue::Execution(execution) => {
                let since = execution.ended_at.unwrap_or(execution.created_at);
                execution.status.is_pending().then_some(Moments { since, next: execution.next_run_at })
            }
            _ => None,
        });
        let before = match moment {
            Some(moment) => self.moments.insert(key.clone(), moment),
            None => self.moments.remove(&key),
        };
        if before == moment {
            return;
        }
        if let Some(before) = before
            && let Some(waiting) = self.tenants.get_mut(&key.tenant)
        {
            self.since.remove(&(before.since, key.clone()));
            waiting.remove(&(before.next, key.id));
            if waiting.is_empty() {
                self.tenants.remove(&key.tenant);
            }
        }
        if let Some(moment) = moment {
            self.since.insert((moment.since, key.clone()));
            self.tenants.entry(key.tenant).or_default().insert((moment.next, key.id));
        }
    }
}

/// Whether it began to wait ahead of `now`. The clock was set back since, and it would wait for as long as that.
fn is_of_another_clock(at: &Moments, now: Timestamp) -> bool {
    at.since.since(now) > AHEAD_MILLIS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_to_wait_before_the_clock_was_set_back_is_due() {
        let at = |minutes: u64| Timestamp::clamped(1_800_000_000_000 + minutes * 60_000);
        let key = |n| ExecutionKey { tenant: TenantId::trusted("a"), id: ExecutionId::from_u128(n) };
        let mut pending = Pending::default();
        for (n, since, next) in [(1, 0, 0), (2, 0, 30), (3, 600, 600), (4, 600, 630)] {
            let moments = Moments { since: at(since), next: at(next) };
            pending.moments.insert(key(n), moments);
            pending.since.insert((moments.since, key(n)));
            pending.tenants.entry(TenantId::trusted("a")).or_default().insert((moments.next, key(n).id));
        }
        for (now, due, next) in
            [(601, vec![1, 2, 3], Some(630)), (1, vec![1, 3, 4], Some(30)), (31, vec![1, 2, 3, 4], None)]
        {
            let found = pending.due(at(now), &Room::of(9), |_| false);
            let mut ids: Vec<u128> = found.due.iter().map(|key| key.id.as_u128()).collect();
            ids.sort_unstable();
            assert_eq!((ids, found.next), (due, next.map(at)), "minute {now}");
        }
    }

    fn pending(tenants: &[(&str, u128)]) -> Pending {
        let mut pending = Pending::default();
        for (name, count) in tenants {
            let waiting = (0..*count).map(|n| (Timestamp::MIN, ExecutionId::from_u128(n)));
            pending.tenants.insert(TenantId::trusted(name), waiting.collect());
        }
        pending
    }

    fn served(found: &DueExecutions) -> Vec<(&str, usize)> {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for key in &found.due {
            match counts.iter_mut().find(|(name, _)| *name == key.tenant.as_str()) {
                Some((_, count)) => *count += 1,
                None => counts.push((key.tenant.as_str(), 1)),
            }
        }
        counts
    }

    fn room(left: usize, held: &[(&str, usize)]) -> Room {
        let held = held.iter().map(|(name, count)| (TenantId::trusted(name), *count)).collect();
        Room { left, kept: 2, most: 5, held, after: None }
    }

    #[test]
    fn a_tenant_with_little_is_served_although_there_is_no_room_left() {
        let pending = pending(&[("a", 100), ("b", 3)]);
        let found = pending.due(Timestamp::MAX, &room(0, &[("a", 10)]), |_| false);
        assert_eq!(served(&found), [("b", 2)]);
        assert_eq!(found.more, [TenantId::trusted("a"), TenantId::trusted("b")]);
        let found = pending.due(Timestamp::MAX, &room(0, &[("a", 10), ("b", 2)]), |_| false);
        assert!(found.due.is_empty());
    }

    #[test]
    fn nobody_gets_all_of_the_room_while_others_wait() {
        let waiting = pending(&[("a", 100), ("b", 1)]);
        let found = waiting.due(Timestamp::MAX, &room(10, &[]), |_| false);
        assert_eq!(served(&found), [("a", 5), ("b", 1)]);
        let alone = pending(&[("a", 100)]);
        assert_eq!(served(&alone.due(Timestamp::MAX, &room(10, &[]), |_| false)), [("a", 10)]);
    }

    #[test]
    fn the_tenants_after_the_last_one_come_first() {
        let pending = pending(&[("a", 9), ("b", 9), ("c", 9)]);
        for (after, expected) in [(None, "a"), (Some("a"), "b"), (Some("bb"), "c"), (Some("c"), "a")] {
            let room = Room { after: after.map(TenantId::trusted), ..Room::of(1) };
            let found = pending.due(Timestamp::MAX, &room, |_| false);
            assert_eq!(served(&found), [(expected, 1)], "{after:?}");
        }
    }
}
