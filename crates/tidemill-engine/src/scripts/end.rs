//! Scripts: what matched is queued in the commit that moves the cursor, each run ends once, and what a script asked for
//! happens with its success or not at all.

use std::sync::Arc;

use tidemill_model::{Json, TenantId, Timestamp};

use crate::events::publish;
use crate::kernel::command::{Publish, SubmitJob};
use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::record::{DeadLetterState, Record, RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::scripts::execution::{
    ExecutionId, ExecutionStatus, RunError, ScriptExecution, ScriptLetter, SourceEvent,
};
use crate::work::submitting::submit_job;

/// Records how a run of an execution ended, with all that the script asked for.
#[derive(Debug, Clone)]
pub struct EndExecution {
    pub tenant: TenantId,
    pub execution: ExecutionId,
    /// Counts from 1. Each run ends once.
    pub attempt: u32,
    pub duration_millis: u64,
    /// A list of `{"level", "text"}`.
    pub logs: Option<Json>,
    pub end: ExecutionEnd,
}

impl Decision for EndExecution {
    fn touches(&self, state: &State, now: Timestamp) -> Vec<RowKey> {
        let mut keys = vec![RowKey::Record(RecordKey::execution(&self.tenant, self.execution))];
        if self.end.may_bury() {
            keys.push(RowKey::Record(RecordKey::script_letter(&self.tenant, self.execution)));
        }
        if let ExecutionEnd::Succeeded { effects, .. } = &self.end {
            keys.extend(effects.iter().flat_map(|effect| match effect {
                ScriptEffect::Publish(publish) => publish.touches(state, now),
                ScriptEffect::SubmitJob(submit) => submit.touches(state, now),
            }));
        }
        keys
    }

    fn log_bytes(&self) -> u64 {
        let asked = match &self.end {
            ExecutionEnd::Succeeded { result, effects } => {
                let of = |effect: &ScriptEffect| match effect {
                    ScriptEffect::Publish(publish) => publish.log_bytes(),
                    ScriptEffect::SubmitJob(submit) => submit.log_bytes(),
                };
                result.as_ref().map_or(0, |result| result.len() as u64) + effects.iter().map(of).sum::<u64>()
            }
            ExecutionEnd::Failed { error, data, .. } => {
                2 * error.len() as u64 + data.as_ref().map_or(0, |data| data.len() as u64)
            }
        };
        // The record is written again, and a dead letter with it.
        asked + self.logs.as_ref().map_or(0, |logs| logs.len() as u64) + 40_000
    }

    fn large_field(&self) -> &'static str {
        "result"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        end(state, self, draft)
    }
}

#[derive(Debug, Clone)]
pub enum ExecutionEnd {
    Succeeded {
        result: Option<Json>,
        effects: Vec<ScriptEffect>,
    },
    Failed {
        error: RunError,
        /// `None` makes a dead letter.
        retry_in_millis: Option<u64>,
        /// The event's properties, for the dead letter of an execution that has none of its own.
        data: Option<Json>,
    },
}

impl ExecutionEnd {
    /// Whether it may leave a dead letter: scripts that are too many hops away may ask for nothing.
    pub(crate) fn may_bury(&self) -> bool {
        match self {
            Self::Succeeded { effects, .. } => !effects.is_empty(),
            Self::Failed { retry_in_millis, .. } => retry_in_millis.is_none(),
        }
    }
}

/// What a script asked for. It happens in the commit of its success, or not at all.
#[derive(Debug, Clone)]
pub enum ScriptEffect {
    Publish(Publish),
    SubmitJob(Box<SubmitJob>),
}

pub(crate) fn end(
    state: &State,
    command: &EndExecution,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let key = RecordKey::execution(&command.tenant, command.execution);
    let refused = || Refusal::NotUnderWay { id: command.execution, attempt: command.attempt };
    let Some(record) = state.record(&key) else { return Err(refused()) };
    let RecordValue::Execution(before) = &record.value else { return Err(refused()) };
    if !before.status.is_pending() || before.attempts + 1 != command.attempt {
        return Err(refused());
    }
    let now = draft.now();
    let mut after = ScriptExecution {
        attempts: command.attempt,
        ended_at: Some(now),
        duration_ms: Some(command.duration_millis),
        logs: command.logs.clone(),
        error: None,
        ..(**before).clone()
    };
    let failure = match &command.end {
        ExecutionEnd::Succeeded { result, effects } => {
            let limit = draft.policy().hops_max;
            if effects.is_empty() || before.event.hop < limit {
                for effect in effects {
                    perform(state, &command.tenant, effect, before.event.hop + 1, draft)?;
                }
                after.status = ExecutionStatus::Success;
                after.result.clone_from(result);
                // The log has it, and nobody runs it again.
                after.event.data = None;
                None
            } else {
                Some((hop_limit(limit), None, None))
            }
        }
        ExecutionEnd::Failed { error, retry_in_millis, data } => {
            Some((error.clone(), *retry_in_millis, data.as_ref()))
        }
    };
    let mut retry_at = None;
    if let Some((error, retry, data)) = failure {
        after.error = Some(error.clone());
        if let Some(millis) = retry {
            after.status = ExecutionStatus::Retrying;
            after.next_run_at = now.plus(millis);
            retry_at = Some(after.next_run_at);
        } else {
            after.status = ExecutionStatus::DeadLetter;
            let data = after.event.data.take().or_else(|| data.cloned());
            let event = SourceEvent { data, ..after.event.clone() };
            bury(state, &command.tenant, &after, event, error, draft);
        }
    }
    let status = after.status;
    let expires_at = (!status.is_pending()).then(|| now.plus(draft.policy().execution_millis));
    let value = RecordValue::Execution(Box::new(after));
    let record = Some(Record { version: record.version + 1, expires_at, value });
    draft.record(RecordWrite::Put { key, record });
    Ok(Reply::ExecutionEnded { status, retry_at })
}

/// What a script may not do because of where its event came from.
fn hop_limit(limit: u32) -> RunError {
    let message = format!("hop limit: {limit} scripts stand between this event and what came from outside");
    RunError { class: Arc::from("validation"), message: Arc::from(message), stack: Arc::from("") }
}

fn perform(
    state: &State,
    tenant: &TenantId,
    effect: &ScriptEffect,
    hops: u32,
    draft: &mut Draft<'_, '_>,
) -> Result<(), Refusal> {
    match effect {
        ScriptEffect::Publish(command) => {
            debug_assert_eq!(command.tenant, *tenant);
            publish::decide(state, command, draft)?;
        }
        ScriptEffect::SubmitJob(command) => {
            debug_assert_eq!(command.job.tenant, *tenant);
            // The same request may have made a job before, which then has hops of its own.
            if let Reply::JobSubmitted { job, repeated: false, .. } =
                submit_job::decide(state, command, draft)?
            {
                draft.record(RecordWrite::JobHops { tenant: tenant.clone(), job, hops });
            }
        }
    }
    Ok(())
}

fn bury(
    state: &State,
    tenant: &TenantId,
    execution: &ScriptExecution,
    event: SourceEvent,
    error: RunError,
    draft: &mut Draft<'_, '_>,
) {
    let key = RecordKey::script_letter(tenant, execution.id);
    let version = state.record(&key).map_or(0, |record| record.version);
    let letter = ScriptLetter {
        id: execution.id,
        script_id: execution.script_id.clone(),
        subscription_id: execution.subscription_id.clone(),
        event,
        error,
        retry_count: execution.retry_count(),
        failed_at: draft.now(),
        created_at: execution.created_at,
        state: DeadLetterState::Open,
        replayed_by: None,
    };
    draft.record(RecordWrite::over(key, version, RecordValue::ScriptLetter(Box::new(letter))));
}

#[cfg(test)]
mod tests {
    use tidemill_model::{
        AppName, Context, Entity, EntityId, EntityType, EventId, EventType, JobId, Json, ScriptId,
        SubscriptionId,
    };

    use super::*;
    use crate::kernel::command::{
        Alert, Command, DiscardLetter, Forget, Match, NewExecution, Prepared, Publish, PublishedEvent,
        ReplayLetter,
    };
    use crate::kernel::fixture::{self, Fixture, spec, tenant};
    use crate::kernel::state::{DueExecutions, Room};

    fn new(event: u128, subscription: &str, hop: u32) -> NewExecution {
        NewExecution {
            tenant: tenant(),
            script: ScriptId::trusted("greet"),
            subscription: SubscriptionId::trusted(subscription),
            event: SourceEvent {
                id: EventId::from_u128(event),
                event_type: EventType::trusted("user.created"),
                timestamp: tidemill_model::Timestamp::MIN,
                app_name: AppName::trusted("shop"),
                entity_type: EntityType::trusted("USER"),
                entity_id: EntityId::trusted("u-1"),
                data: Some(Json::trusted(r#"{"name":"ann"}"#)),
                hop,
            },
        }
    }

    fn matching(cursor_version: u64, to: u64, executions: Vec<NewExecution>) -> Command {
        Command::Match(Match { lane: None, cursor_version, to: Some(to), executions })
    }

    fn id(event: u128, subscription: &str) -> ExecutionId {
        ExecutionId::of(EventId::from_u128(event), &SubscriptionId::trusted(subscription))
    }

    fn ending(execution: ExecutionId, attempt: u32, end: ExecutionEnd) -> Command {
        let logs = Some(Json::trusted("[]"));
        Command::EndExecution(EndExecution {
            tenant: tenant(),
            execution,
            attempt,
            duration_millis: 5,
            logs,
            end,
        })
    }

    fn success(effects: Vec<ScriptEffect>) -> ExecutionEnd {
        ExecutionEnd::Succeeded { result: Some(Json::trusted("1")), effects }
    }

    fn failure(retry_in_millis: Option<u64>) -> ExecutionEnd {
        let error = RunError { class: "script".into(), message: "no".into(), stack: "at greet:1:1".into() };
        ExecutionEnd::Failed { error, retry_in_millis, data: None }
    }

    fn publish(ids: &[u128]) -> ScriptEffect {
        let event = |id: &u128| PublishedEvent {
            entity: Entity { kind: EntityType::trusted("SCRIPT"), id: EntityId::trusted("greet") },
            event_type: EventType::trusted("user.greeted"),
            timestamp: None,
            properties: Prepared { id: Some(EventId::from_u128(*id)), properties: Json::empty_object() },
            ttl: None,
            workflow: None,
        };
        let context = Context { environment: "dev".into(), origin: "script/1".into(), worker_id: None };
        ScriptEffect::Publish(Publish {
            tenant: tenant(),
            app: AppName::trusted("shop"),
            context,
            events: ids.iter().map(event).collect(),
        })
    }

    fn execution(fixture: &Fixture, id: ExecutionId) -> ScriptExecution {
        match &fixture.state.record(&RecordKey::execution(&tenant(), id)).unwrap().value {
            RecordValue::Execution(execution) => (**execution).clone(),
            other => panic!("{other:?}"),
        }
    }

    fn letter(fixture: &Fixture, id: ExecutionId) -> ScriptLetter {
        match &fixture.state.record(&RecordKey::script_letter(&tenant(), id)).unwrap().value {
            RecordValue::ScriptLetter(letter) => (**letter).clone(),
            other => panic!("{other:?}"),
        }
    }

    fn due(fixture: &Fixture) -> DueExecutions {
        fixture.state.pending().due(fixture.now, &Room::of(100), |_| false)
    }

    #[test]
    fn what_is_matched_twice_is_queued_once() {
        let mut fixture = Fixture::new();
        let both = vec![new(1, "a", 0), new(1, "b", 0), new(1, "a", 0)];
        let (_, reply) = fixture.run(&matching(0, 7, both.clone())).unwrap();
        assert_eq!(reply, Reply::Matched { created: 2, cursor_version: 1 });
        let (commit, reply) = fixture.run(&matching(1, 7, both)).unwrap();
        assert_eq!(reply, Reply::Matched { created: 0, cursor_version: 1 });
        assert!(commit.is_empty(), "nothing changes, so nothing is written");
        let refused = fixture.run(&matching(0, 8, vec![new(2, "a", 0)])).unwrap_err();
        assert_eq!(refused, Refusal::RecordConflict { expected: 0, actual: 1 });
        assert_eq!(due(&fixture).pending, 2);
        let (_, reply) = fixture
            .run(&Command::Match(Match { lane: None, cursor_version: 1, to: None, executions: vec![] }))
            .unwrap();
        assert_eq!(reply, Reply::Matched { created: 0, cursor_version: 0 });
        assert!(fixture.state.record(&RecordKey::scripts_cursor()).is_none());
    }

    #[test]
    fn each_run_ends_once() {
        let mut fixture = Fixture::new();
        fixture.run(&matching(0, 1, vec![new(1, "a", 0)])).unwrap();
        let id = id(1, "a");
        let stale = |attempt| Err(Refusal::NotUnderWay { id, attempt });
        let ended =
            |fixture: &mut Fixture, attempt, end| fixture.run(&ending(id, attempt, end)).map(|done| done.1);
        assert_eq!(ended(&mut fixture, 2, success(vec![])), stale(2), "no run was before it");
        let retry_at = Some(fixture.now.plus(2_000));
        let status = ExecutionStatus::Retrying;
        let reply = ended(&mut fixture, 1, failure(Some(2_000)));
        assert_eq!(reply, Ok(Reply::ExecutionEnded { status, retry_at }));
        assert_eq!(ended(&mut fixture, 1, success(vec![])), stale(1));
        assert_eq!(due(&fixture).due, [], "it waits");
        assert_eq!(due(&fixture).next, retry_at);
        assert_eq!((execution(&fixture, id).attempts, execution(&fixture, id).retry_count()), (1, 1));
        fixture.now = fixture.now.plus(2_000);
        assert_eq!(due(&fixture).due.len(), 1);
        let reply = ended(&mut fixture, 2, success(vec![]));
        assert_eq!(reply, Ok(Reply::ExecutionEnded { status: ExecutionStatus::Success, retry_at: None }));
        for attempt in [2, 3] {
            assert_eq!(ended(&mut fixture, attempt, success(vec![])), stale(attempt));
        }
        let done = execution(&fixture, id);
        assert_eq!((done.attempts, done.retry_count(), done.duration_ms), (2, 1, Some(5)));
        assert_eq!((done.result, done.error, done.event.data), (Some(Json::trusted("1")), None, None));
        assert!(fixture.state.pending().is_empty());
        let record = fixture.state.record(&RecordKey::execution(&tenant(), id)).unwrap();
        assert_eq!(record.expires_at, Some(fixture.now.plus(fixture.policy.execution_millis)));
    }

    #[test]
    fn effects_happen_with_the_success_and_only_then() {
        let mut fixture = Fixture::new();
        fixture.run(&matching(0, 1, vec![new(1, "a", 2)])).unwrap();
        let id = id(1, "a");
        let job = JobId::from_u128(77);
        let mut submit = fixture::submit_job(job, vec![spec("t", &[])]);
        submit.job.request = tidemill_model::RequestId::trusted("r-77");
        // The ids stand in no order, and the events are in order all the same.
        let effects = vec![publish(&[900, 5]), ScriptEffect::SubmitJob(Box::new(submit))];
        let mut bad = effects.clone();
        let ScriptEffect::Publish(reserved) = &mut bad[0] else { unreachable!("it is an event") };
        reserved.events[0].event_type = EventType::trusted("Task Completed");
        assert!(matches!(
            fixture.run(&ending(id, 1, success(bad))),
            Err(Refusal::Reserved { what: "eventType", .. })
        ));
        assert_eq!(execution(&fixture, id).attempts, 0, "nothing of it happened");
        let (commit, _) = fixture.run(&ending(id, 1, success(effects.clone()))).unwrap();
        let told: Vec<_> = commit.events.iter().map(|event| event.event_type.as_str()).collect();
        assert_eq!(told, ["user.greeted", "user.greeted", "Job Created", "Task Pending"]);
        assert_eq!(commit.events[0].id.as_u128(), 900);
        assert!(commit.events[0].position() < commit.events[1].position());
        assert_eq!(fixture.state.job(&tenant(), job).unwrap().head.hops, 3);
        let again = fixture.run(&ending(id, 1, success(effects)));
        assert_eq!(again.unwrap_err(), Refusal::NotUnderWay { id, attempt: 1 });
    }

    #[test]
    fn what_scripts_cause_ends_after_eight_hops() {
        let mut fixture = Fixture::new();
        fixture.run(&matching(0, 1, vec![new(1, "a", 7), new(1, "b", 8), new(1, "c", 8)])).unwrap();
        let status = |fixture: &mut Fixture, name, effects| match fixture
            .run(&ending(id(1, name), 1, success(effects)))
            .unwrap()
            .1
        {
            Reply::ExecutionEnded { status, .. } => status,
            other => panic!("{other:?}"),
        };
        assert_eq!(status(&mut fixture, "a", vec![publish(&[1])]), ExecutionStatus::Success);
        assert_eq!(status(&mut fixture, "b", vec![publish(&[2])]), ExecutionStatus::DeadLetter);
        assert_eq!(status(&mut fixture, "c", vec![]), ExecutionStatus::Success, "it asks for nothing");
        let letter = letter(&fixture, id(1, "b"));
        assert!(letter.error.message.starts_with("hop limit"), "{letter:?}");
        assert_eq!(letter.retry_count, 0);
    }

    #[test]
    fn a_letter_is_replayed_once_and_never_goes() {
        let mut fixture = Fixture::new();
        fixture.run(&matching(0, 1, vec![new(1, "a", 0), new(1, "b", 0)])).unwrap();
        let first = id(1, "a");
        for attempt in 1..=3 {
            fixture.run(&ending(first, attempt, failure(Some(1)))).unwrap();
        }
        fixture.run(&ending(first, 4, failure(None))).unwrap();
        let dead = letter(&fixture, first);
        assert_eq!((dead.retry_count, dead.state), (3, DeadLetterState::Open));
        assert_eq!(dead.event.data, new(1, "a", 0).event.data);
        assert_eq!(execution(&fixture, first).retry_count(), 3);
        let replay = Command::ReplayLetter(ReplayLetter { tenant: tenant(), letter: first });
        let Reply::LetterReplayed { execution: again } = fixture.run(&replay).unwrap().1 else {
            panic!("a replay")
        };
        let queued = execution(&fixture, again);
        assert_eq!((queued.attempts, queued.replay_of, queued.event), (0, Some(first), dead.event));
        assert_eq!(letter(&fixture, first).replayed_by, Some(again));
        for command in [replay, Command::DiscardLetter(DiscardLetter { tenant: tenant(), letter: first })] {
            assert_eq!(fixture.run(&command).unwrap_err(), Refusal::NotOpen(first.to_string()));
        }
        // Its execution is forgotten after its time, and the letter is not.
        fixture.now = fixture.now.plus(fixture.policy.execution_millis + 1);
        let keys = vec![RecordKey::execution(&tenant(), first), RecordKey::script_letter(&tenant(), first)];
        let (_, forgotten) = fixture.run(&Command::Forget(Forget { keys })).unwrap();
        assert_eq!(forgotten, Reply::Forgotten { records: 1 });
        assert_eq!(letter(&fixture, first).state, DeadLetterState::Replayed);
        let foreign =
            Command::DiscardLetter(DiscardLetter { tenant: TenantId::trusted("other"), letter: first });
        assert!(matches!(fixture.run(&foreign), Err(Refusal::NotFound { .. })));
    }

    #[test]
    fn tenants_come_in_turn() {
        let mut fixture = Fixture::new();
        let of = |tenant: &str, event: u128| NewExecution {
            tenant: TenantId::trusted(tenant),
            ..new(event, "s", 0)
        };
        let mut all: Vec<_> = (0..5).map(|n| of("a", n)).collect();
        all.extend([of("b", 100), of("c", 200), of("c", 201)]);
        fixture.run(&matching(0, 1, all)).unwrap();
        let found = fixture.state.pending().due(fixture.now, &Room::of(5), |key| key.id == id(100, "s"));
        let tenants: Vec<_> = found.due.iter().map(|key| key.tenant.as_str()).collect();
        assert_eq!(tenants, ["a", "c", "a", "c", "a"]);
        assert_eq!((found.pending, found.fullest, found.next), (8, Some(TenantId::trusted("a")), None));
    }

    #[test]
    fn alerts_are_events_of_the_tenant() {
        let mut fixture = Fixture::new();
        for is_raised in [true, false] {
            let alert = Alert {
                tenant: tenant(),
                name: "x",
                is_raised,
                message: "it is so".to_owned(),
                properties: Json::empty_object(),
            };
            let (commit, _) = fixture.run(&Command::Alert(alert)).unwrap();
            let expected = if is_raised { "Alert Raised" } else { "Alert Cleared" };
            assert_eq!(commit.events[0].event_type.as_str(), expected);
        }
    }
}
