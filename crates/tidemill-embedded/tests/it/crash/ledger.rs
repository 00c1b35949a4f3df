//! What was acknowledged to the child, and whether a store holds it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidemill_embedded::Store;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::{AccessPath, Event, KnownType};

use crate::lab::acme;

pub(super) const PRODUCERS: u64 = 3;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The job of each request, by producer and number.
    jobs: BTreeMap<(u64, u64), String>,
    /// The id of each event, by the name in it.
    events: BTreeMap<String, String>,
    /// Claims: the task and the fence.
    claimed: BTreeSet<(String, u64)>,
    finished: BTreeMap<String, u64>,
    acknowledged: u64,
    events_seen: u64,
}

impl Ledger {
    /// What the child told.
    pub(super) fn take(&mut self, line: &str) {
        self.acknowledged += 1;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["opened"] => {}
            ["job", producer, number, job] => {
                let key = (producer.parse().unwrap(), number.parse().unwrap());
                self.jobs.insert(key, job.to_owned());
            }
            ["event", name, id] => {
                self.events.insert(name.to_owned(), id.to_owned());
            }
            ["claimed", request, fence] => {
                let fresh = self.claimed.insert((request.to_owned(), fence.parse().unwrap()));
                assert!(fresh, "{request} was given out twice with fence {fence}");
            }
            ["finished", request, fence] => {
                let earlier = self.finished.insert(request.to_owned(), fence.parse().unwrap());
                assert_eq!(earlier, None, "{request} was finished twice");
            }
            _ => panic!("{line:?} is no acknowledgement"),
        }
    }

    /// Where each producer goes on: with the request that it does not know the answer of.
    pub(super) fn next_numbers(&self) -> String {
        let next = (0..PRODUCERS).map(|producer| {
            let last = self.jobs.range((producer, 0)..(producer + 1, 0)).next_back();
            last.map_or(0, |((_, number), _)| number + 1).to_string()
        });
        next.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(super) fn events(&self) -> u64 {
        self.events_seen
    }

    /// Looks for all of it in the store.
    pub(super) fn check(&mut self, store: &Store) -> Result<(), String> {
        let findings = store.verify().map_err(|fault| fault.to_string())?;
        if !findings.is_clean() {
            return Err(format!("verify found {:#?}", findings.differences));
        }
        self.events_seen = findings.events;
        let seen = Seen::of(store)?;
        for ((producer, number), job) in &self.jobs {
            let request = (*producer, *number);
            demand(seen.created.get(job) == Some(&1), || {
                format!("job {job} of {request:?} is not there once")
            })?;
        }
        for (name, id) in &self.events {
            let found = seen.published.get(name);
            demand(found == Some(id), || format!("event {name} is {found:?}, not {id}"))?;
        }
        for (request, fence) in &self.claimed {
            let newest = seen.fences.get(request).copied().unwrap_or(0);
            demand(newest >= *fence, || {
                format!("{request} was given out with fence {fence}, but {newest} is newest")
            })?;
        }
        for (request, fence) in &self.finished {
            let found = seen.completed.get(request);
            demand(found == Some(fence), || {
                format!("{request} was finished with fence {fence}, not {found:?}")
            })?;
        }
        Ok(())
    }
}

/// What the events of a store say.
#[derive(Default)]
struct Seen {
    created: HashMap<String, u64>,
    published: HashMap<String, String>,
    /// The newest fence that an event of the task names.
    fences: HashMap<String, u64>,
    completed: HashMap<String, u64>,
}

impl Seen {
    fn of(store: &Store) -> Result<Self, String> {
        let mut seen = Self::default();
        let mut ids = BTreeSet::new();
        let mut query = EventQuery::all(acme(), AccessPath::Tenant);
        loop {
            let page = store.events(&query).map_err(|fault| fault.to_string())?;
            for event in &page.events {
                demand(ids.insert(event.id), || format!("event {} is there twice", event.id))?;
                seen.take(event)?;
            }
            query.after = page.next;
            if query.after.is_none() {
                return Ok(seen);
            }
        }
    }

    fn take(&mut self, event: &Event) -> Result<(), String> {
        let properties: serde_json::Value = event.properties.read().map_err(|error| error.to_string())?;
        let entity = event.entity.id.to_string();
        if let Some(fence) = properties["fence"].as_u64() {
            let newest = self.fences.entry(entity.clone()).or_default();
            *newest = fence.max(*newest);
        }
        match KnownType::from_name(event.event_type.as_str()) {
            Some(KnownType::JobCreated) => *self.created.entry(entity).or_default() += 1,
            Some(KnownType::TaskCompleted) => {
                let fence = properties["fence"].as_u64().unwrap_or(0);
                let earlier = self.completed.insert(entity.clone(), fence);
                demand(earlier.is_none(), || format!("{entity} completed twice"))?;
            }
            Some(_) => {}
            None => {
                let name = properties["name"].as_str().unwrap_or_default().to_owned();
                let earlier = self.published.insert(name.clone(), event.id.to_string());
                demand(earlier.is_none(), || format!("event {name} was stored twice"))?;
            }
        }
        Ok(())
    }
}

fn demand(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}
