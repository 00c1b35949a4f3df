//! Events of the newest groups, for followers of the log and for questions that the table cannot answer yet.

use std::collections::VecDeque;
use std::sync::Arc;

use tidemill_model::Event;

/// How many groups are kept at least, for followers.
const GROUPS: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct RecentEvents {
    groups: VecDeque<RecentGroup>,
    /// Groups up to this one are in the table.
    saved: u64,
}

#[derive(Debug)]
struct RecentGroup {
    number: u64,
    events: Arc<Vec<(u64, Event)>>,
}

impl RecentEvents {
    pub(crate) fn push(&mut self, number: u64, events: Arc<Vec<(u64, Event)>>) {
        self.groups.push_back(RecentGroup { number, events });
        self.trim();
    }

    /// Notes that the events of groups up to `number` can be read from the table.
    pub(crate) fn saved(&mut self, number: u64) {
        self.saved = self.saved.max(number);
        self.trim();
    }

    fn trim(&mut self) {
        while self.groups.len() > GROUPS
            && self.groups.front().is_some_and(|oldest| oldest.number <= self.saved)
        {
            self.groups.pop_front();
        }
    }

    /// The events of the groups from `number` on, if all of them are here.
    pub(crate) fn from(&self, number: u64) -> Option<impl Iterator<Item = &(u64, Event)>> {
        let first = self.groups.front()?.number;
        let skipped = usize::try_from(number.checked_sub(first)?).ok()?;
        Some(self.groups.iter().skip(skipped).flat_map(|group| group.events.iter()))
    }

    /// The events of a group, if it is here.
    pub(crate) fn group(&self, number: u64) -> Option<impl Iterator<Item = &(u64, Event)>> {
        let first = self.groups.front()?.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        Some(self.groups.get(at)?.events.iter())
    }

    /// Events that the table may not have yet.
    pub(crate) fn unsaved(&self) -> impl Iterator<Item = &Event> {
        let unsaved = self.groups.iter().rev().take_while(|group| group.number > self.saved);
        unsaved.flat_map(|group| group.events.iter().map(|(_, event)| event))
    }
}
