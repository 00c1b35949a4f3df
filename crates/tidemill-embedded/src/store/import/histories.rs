//! Histories under way: how far the events of each entity have come.
//!
//! There may be more entities than fit in memory, so they are kept in a row store of their own, which is thrown away at
//! the end.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_engine::state::stream::Stream;
use tidemill_model::{Entity, Event, EventId, JobId, KnownType, Position, TenantId};

use super::fields::BadField;
use super::line::StreamSummary;
use super::{Problem, forgotten};
use crate::disk::Disk;
use crate::log::{Links, LogPosition, Seq};
use crate::store::Tell;
use crate::store::rows::row_store::{Checkpoint, RowStore};
use crate::store::rows::row_trouble::RowConfig;

/// How many histories are in memory at most.
const WARM_MAX: usize = 50_000;

pub(super) struct Histories {
    rows: RowStore,
    warm: HashMap<(TenantId, Entity), Stream>,
    /// Whether a line about a history may say less than its events do.
    has_holes: bool,
}

impl Histories {
    pub(super) fn new(disk: &Arc<dyn Disk>, has_holes: bool) -> Result<Self, Fault> {
        let rows = RowStore::open(disk, RowConfig::USUAL, &Tell::default())?;
        Ok(Self { rows, warm: HashMap::new(), has_holes })
    }

    /// Takes an event into its entity's history and gives the pointers to store with it.
    ///
    /// `ordinal` is the place that it had there; without one it is the next. `late` says that it came late when it was
    /// written, which may not show any more.
    pub(super) fn push(
        &mut self,
        seq: Seq,
        event: &Event,
        ordinal: Option<u64>,
        late: bool,
    ) -> Result<Links, Problem> {
        let is_heartbeat = event.event_type.as_str() == KnownType::TaskHeartbeat.as_str();
        let stream = self.stream(&event.tenant, &event.entity)?;
        let aside = stream.goes_aside(event.position(), is_heartbeat || late);
        let trail = if aside { &mut stream.history.aside } else { &mut stream.history.main };
        let (before, tip) = (trail.count(), trail.tip());
        let ordinal = ordinal.unwrap_or(before);
        if ordinal < before {
            let problem = format!("is {ordinal}, but {before} events of {} came before", event.entity.id);
            return Err(BadField::new("ordinal", problem).into());
        }
        if let Some(cut) = forgotten::trail(ordinal, None).filter(|_| ordinal > before) {
            *trail = cut;
        }
        let mut links = stream.push(seq, event.position(), aside);
        if ordinal > before {
            // What lies between is gone; what lies before it can still be reached.
            *(if aside { &mut links.aside } else { &mut links.prev }) = tip;
        }
        Ok(links)
    }

    /// The history of an entity, with what its summary says beside its events.
    pub(super) fn stream_with_summary(
        &mut self,
        tenant: &TenantId,
        entity: &Entity,
        told: Option<StreamSummary>,
    ) -> Result<Stream, Problem> {
        let has_holes = self.has_holes;
        let stream = self.stream(tenant, entity)?;
        let Some(told) = told else { return Ok(stream.clone()) };
        let history = &mut stream.history;
        for (field, trail, count) in [
            ("stream.events", &mut history.main, told.events),
            ("stream.aside", &mut history.aside, told.aside),
        ] {
            let found = trail.count();
            if count < found && !has_holes {
                let problem = format!("is {count}, but the events before say that there were {found}");
                return Err(BadField::new(field, problem).into());
            }
            if let Some(cut) = forgotten::trail(count, trail.tip()).filter(|_| count > found) {
                *trail = cut;
            }
        }
        if told.last_timestamp < stream.last_timestamp() && !has_holes {
            return Err(BadField::new("stream.lastTimestamp", "lies before that of an event").into());
        }
        if told.last_timestamp > stream.last_timestamp() {
            // The event that had it is gone; only its time matters still.
            let id = EventId::from_u128(0);
            stream.last = told.last_timestamp.map(|timestamp| Position { timestamp, id });
        }
        Ok(stream.clone())
    }

    /// Visits the histories that a fold of the events alone would get wrong, but for those of jobs and tasks.
    pub(super) fn each_cut(
        mut self,
        mut visit: impl FnMut(RowKey, Row) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.cool()?;
        let mut visited = Ok(());
        self.rows.scan(&[], &mut |key, row| {
            if let (RowKey::Entity(_, entity), Row::Entity(stream)) = (&key, &row)
                && !is_work(entity)
                && (forgotten::is_cut(&stream.history.main) || forgotten::is_cut(&stream.history.aside))
            {
                visited = visit(key, row);
            }
            visited.is_ok()
        })?;
        visited
    }

    fn stream(&mut self, tenant: &TenantId, entity: &Entity) -> Result<&mut Stream, Fault> {
        if self.warm.len() >= WARM_MAX {
            self.cool()?;
        }
        let key = (tenant.clone(), entity.clone());
        if !self.warm.contains_key(&key) {
            let stored = self.rows.get(&RowKey::Entity(key.0.clone(), key.1.clone()))?;
            let stream = match stored {
                Some(Row::Entity(stream)) => stream,
                _ => Stream::default(),
            };
            self.warm.insert(key.clone(), stream);
        }
        Ok(self.warm.entry(key).or_default())
    }

    fn cool(&mut self) -> Result<(), Fault> {
        let rows: Vec<_> = self
            .warm
            .drain()
            .map(|((tenant, entity), stream)| (RowKey::Entity(tenant, entity), Some(Row::Entity(stream))))
            .collect();
        self.rows.write(&rows, Checkpoint { position: LogPosition::START })
    }
}

/// Whether an entity's history is kept with a job or a task.
fn is_work(entity: &Entity) -> bool {
    match entity.kind.as_str() {
        "TASK" => true,
        "JOB" => JobId::new(entity.id.as_str()).is_ok(),
        _ => false,
    }
}
