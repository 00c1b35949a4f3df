//! The actors that route events to scripts and run them, with what the oracle knows: now and then they come too late,
//! come twice, or look again at what was matched.

use std::sync::Arc;

use tidemill_engine::command::{
    Command, DiscardLetter, EndExecution, ExecutionEnd, Match, NewExecution, Prepared, Publish,
    PublishedEvent, ReplayLetter, ScriptEffect,
};
use tidemill_engine::execution::{ExecutionKey, RunError, SourceEvent};
use tidemill_model::{
    AppName, Context, Entity, EntityId, EntityType, Event, EventId, EventType, Json, ScriptId, TenantId,
};

use crate::oracle::{Executions, subscriptions_of};
use crate::rng::Rng;

/// Events that are matched at a time.
const EVENTS_MAX: usize = 12;

#[derive(Debug)]
pub(crate) struct Scripter {
    rng: Rng,
    tenants: Vec<TenantId>,
}

impl Scripter {
    pub(crate) fn new(rng: Rng, tenants: Vec<TenantId>) -> Self {
        Self { rng, tenants }
    }

    /// Matches some of the events behind the cursor.
    pub(crate) fn match_events(&mut self, log: &[Event], known: &Executions) -> Command {
        let (cursor, version) = known.cursor();
        let begin = usize::try_from(cursor).unwrap_or(usize::MAX).min(log.len());
        let count = self.rng.index(EVENTS_MAX + 1).min(log.len() - begin);
        let mut events: Vec<&Event> = log[begin..begin + count].iter().collect();
        // After a crash some are looked at again.
        if self.rng.chance(200) && begin > 0 {
            events.extend(&log[begin - self.rng.index(begin.min(8)) - 1..begin]);
        }
        let executions = events.iter().flat_map(|event| queued(event)).collect();
        let cursor_version = if self.rng.chance(50) { version + 1 } else { version };
        let to = Some((begin + count) as u64);
        Command::Match(Match { lane: None, cursor_version, to, executions })
    }

    /// Ends a run: mostly one that is due, now and then one that has ended.
    pub(crate) fn end_execution(&mut self, known: &Executions) -> Option<Command> {
        let (key, mut attempt) = if self.rng.chance(100) {
            self.rng.pick(&known.all())?.clone()
        } else {
            self.rng.pick(&known.pending())?.clone()
        };
        if self.rng.chance(50) {
            attempt += 1;
        }
        let tenant =
            if self.rng.chance(30) { self.rng.pick(&self.tenants)?.clone() } else { key.tenant.clone() };
        let error = || RunError { class: "script".into(), message: "no".into(), stack: "".into() };
        let end = match self.rng.below(10) {
            0..=4 => {
                let effects = self.effects(&key, &tenant, attempt);
                ExecutionEnd::Succeeded { result: Some(Json::trusted("1")), effects }
            }
            5..=7 => {
                let retry = Some(self.rng.below(8_000));
                ExecutionEnd::Failed { error: error(), retry_in_millis: retry, data: None }
            }
            _ => ExecutionEnd::Failed { error: error(), retry_in_millis: None, data: None },
        };
        let execution = key.id;
        let logs = self.rng.chance(300).then(|| Json::trusted(r#"[{"level":"info","text":"x"}]"#));
        Some(Command::EndExecution(EndExecution {
            tenant,
            execution,
            attempt,
            duration_millis: 1,
            logs,
            end,
        }))
    }

    /// Replays or discards a dead letter, open or not, now and then as another tenant.
    pub(crate) fn answer_letter(&mut self, known: &Executions) -> Option<Command> {
        let ExecutionKey { tenant, id: letter } = self.rng.pick(&known.letters())?.clone();
        let tenant = if self.rng.chance(50) { self.rng.pick(&self.tenants)?.clone() } else { tenant };
        Some(if self.rng.chance(700) {
            Command::ReplayLetter(ReplayLetter { tenant, letter })
        } else {
            Command::DiscardLetter(DiscardLetter { tenant, letter })
        })
    }

    /// An event that no other run publishes, if the script publishes one.
    fn effects(&mut self, key: &ExecutionKey, tenant: &TenantId, attempt: u32) -> Vec<ScriptEffect> {
        if !self.rng.chance(600) {
            return Vec::new();
        }
        let id = EventId::from_u128(key.id.as_u128() ^ u128::from(self.rng.bits()));
        let event = PublishedEvent {
            entity: Entity { kind: EntityType::trusted("SCRIPT"), id: EntityId::trusted("any") },
            event_type: EventType::trusted("store.echoed"),
            timestamp: None,
            properties: Prepared {
                id: Some(id),
                properties: Json::trusted(&format!(r#"{{"run":{attempt},"id":"{id}"}}"#)),
            },
            ttl: None,
            workflow: None,
        };
        let context =
            Context { environment: Arc::from("dev"), origin: Arc::from("script/1"), worker_id: None };
        let (tenant, app) = (tenant.clone(), AppName::trusted("shop"));
        vec![ScriptEffect::Publish(Publish { tenant, app, context, events: vec![event] })]
    }
}

/// What is queued for an event.
fn queued(event: &Event) -> Vec<NewExecution> {
    let source = SourceEvent {
        id: event.id,
        event_type: event.event_type.clone(),
        timestamp: event.timestamp,
        app_name: event.app.clone(),
        entity_type: event.entity.kind.clone(),
        entity_id: event.entity.id.clone(),
        data: Some(event.properties.clone()),
        hop: 0,
    };
    let new = |subscription| NewExecution {
        tenant: event.tenant.clone(),
        script: ScriptId::trusted("any"),
        subscription,
        event: source.clone(),
    };
    subscriptions_of(event).into_iter().map(new).collect()
}
