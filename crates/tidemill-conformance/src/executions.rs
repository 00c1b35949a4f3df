//! Executions of scripts: queued once, ended once, never lost.

use tidemill_model::{
    AppName, EntityId, EntityType, EventId, EventType, Json, ScriptId, SubscriptionId, TenantId,
};

use super::shape::{SECOND, acme, event, json, other};
use super::{Lab, TestWorld};
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::Clock;
use tidemill_engine::command::{
    Command, EndExecution, ExecutionEnd, Match, NewExecution, Prepared, Publish, PublishedEvent, ScriptEffect,
};
use tidemill_engine::engine::{EventBatch, ExecutionFilter, LetterFilter, ShownStatus};
use tidemill_engine::execution::{ExecutionId, RunError, SourceEvent};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::DeadLetterState;
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_engine::state::{DueExecutions, Room};

fn matched(tenant: &TenantId, event: u128, subscription: &str) -> NewExecution {
    NewExecution {
        tenant: tenant.clone(),
        script: ScriptId::trusted("greet"),
        subscription: SubscriptionId::trusted(subscription),
        event: SourceEvent {
            id: EventId::from_u128(event),
            event_type: EventType::trusted("user.created"),
            timestamp: tidemill_model::Timestamp::MIN,
            app_name: AppName::trusted("orders"),
            entity_type: EntityType::trusted("USER"),
            entity_id: EntityId::trusted("u-1"),
            data: Some(json(r#"{"name":"ann"}"#)),
            hop: 0,
        },
    }
}

fn id(event: u128, subscription: &str) -> ExecutionId {
    ExecutionId::of(EventId::from_u128(event), &SubscriptionId::trusted(subscription))
}

fn matching(cursor_version: u64, to: u64, executions: Vec<NewExecution>) -> Command {
    Command::Match(Match { lane: None, cursor_version, to: Some(to), executions })
}

fn end(tenant: &TenantId, execution: ExecutionId, attempt: u32, end: ExecutionEnd) -> Command {
    let tenant = tenant.clone();
    Command::EndExecution(EndExecution { tenant, execution, attempt, duration_millis: 3, logs: None, end })
}

fn success() -> ExecutionEnd {
    ExecutionEnd::Succeeded { result: Some(json("[1]")), effects: Vec::new() }
}

fn failure(retry_in_millis: Option<u64>) -> ExecutionEnd {
    let error = RunError { class: "script".into(), message: "no".into(), stack: "at greet:1:1".into() };
    ExecutionEnd::Failed { error, retry_in_millis, data: None }
}

async fn due<W: TestWorld>(lab: &Lab<W>) -> DueExecutions {
    let now = lab.clock.now();
    let due = lab.world.backend().look(|state| state.pending().due(now, &Room::of(1_000), |_| false)).await;
    due.expect("the backend works")
}

async fn statuses<W: TestWorld>(lab: &Lab<W>, tenant: &TenantId) -> Vec<ShownStatus> {
    let page = lab.engine.executions(tenant, &ExecutionFilter::default(), None, 100).await;
    page.expect("the backend works").executions.into_iter().map(|shown| shown.status).collect()
}

/// However often an event is matched with a subscription, there is one execution, in the commit that moves the cursor.
pub async fn an_execution_is_queued_once<W: TestWorld>(lab: Lab<W>) {
    let all = vec![matched(&acme(), 1, "a"), matched(&acme(), 1, "b"), matched(&acme(), 2, "a")];
    let reply = lab.execute(matching(0, 5, all.clone())).await;
    assert_eq!(reply, Ok(Reply::Matched { created: 3, cursor_version: 1 }));
    let lab = lab.reopen_if_it_can().await;
    assert_eq!(due(&lab).await.pending, 3);
    let again = lab.execute(matching(1, 9, all.clone())).await;
    assert_eq!(again, Ok(Reply::Matched { created: 0, cursor_version: 2 }));
    let stale = lab.execute(matching(1, 9, all.clone())).await;
    assert_eq!(stale, Err(Refusal::RecordConflict { expected: 1, actual: 2 }));
    lab.execute(end(&acme(), id(1, "a"), 1, success())).await.expect("it is queued");
    let again = lab.execute(matching(2, 9, all)).await;
    assert_eq!(again, Ok(Reply::Matched { created: 0, cursor_version: 2 }), "not after its end either");
    assert_eq!(due(&lab).await.pending, 2);
    let page = lab.engine.executions(&acme(), &ExecutionFilter::default(), None, 2).await.expect("a page");
    assert_eq!(page.executions.len(), 2);
    let rest =
        lab.engine.executions(&acme(), &ExecutionFilter::default(), page.next, 2).await.expect("a page");
    assert_eq!((rest.executions.len(), rest.next), (1, None));
    let filter = ExecutionFilter { status: Some(ShownStatus::Success), ..ExecutionFilter::default() };
    let done = lab.engine.executions(&acme(), &filter, None, 9).await.expect("a page").executions;
    assert_eq!(done.iter().map(|shown| shown.execution.id).collect::<Vec<_>>(), [id(1, "a")]);
}

/// A run that ended cannot end again, and what its script asked for happens once.
pub async fn a_run_ends_once_with_its_effects<W: TestWorld>(lab: Lab<W>) {
    lab.execute(matching(0, 1, vec![matched(&acme(), 1, "a")])).await.expect("the cursor is new");
    let NewEventParts { entity, event_type, properties } = parts();
    let published = PublishedEvent {
        entity: entity.clone(),
        event_type,
        timestamp: None,
        properties,
        ttl: None,
        workflow: None,
    };
    let context =
        tidemill_model::Context { environment: "dev".into(), origin: "script/1".into(), worker_id: None };
    let publish =
        Publish { tenant: acme(), app: AppName::trusted("orders"), context, events: vec![published] };
    let effects = vec![ScriptEffect::Publish(publish)];
    let ended = ExecutionEnd::Succeeded { result: None, effects };
    let command = end(&acme(), id(1, "a"), 1, ended);
    lab.execute(command.clone()).await.expect("it is queued");
    let stale = Err(Refusal::NotUnderWay { id: id(1, "a"), attempt: 1 });
    assert_eq!(lab.execute(command.clone()).await, stale);
    let lab = lab.reopen_if_it_can().await;
    assert_eq!(lab.execute(command).await, stale);
    let events = lab.events(tidemill_model::events::access_path::AccessPath::Entity(entity)).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].id.as_u128(), 42);
    assert_eq!(statuses(&lab, &acme()).await, [ShownStatus::Success]);
}

struct NewEventParts {
    entity: tidemill_model::Entity,
    event_type: EventType,
    properties: Prepared,
}

fn parts() -> NewEventParts {
    let entity =
        tidemill_model::Entity { kind: EntityType::trusted("SCRIPT"), id: EntityId::trusted("greet") };
    let properties = Prepared { id: Some(EventId::from_u128(42)), properties: Json::empty_object() };
    NewEventParts { entity, event_type: EventType::trusted("user.greeted"), properties }
}

/// What waits is there after a restart, with its moment and its data.
pub async fn pending_executions_survive<W: TestWorld>(lab: Lab<W>) {
    let all = (1..=50).map(|n| matched(&acme(), n, "a")).collect();
    lab.execute(matching(0, 7, all)).await.expect("the cursor is new");
    lab.execute(end(&acme(), id(1, "a"), 1, failure(Some(2 * SECOND)))).await.expect("it is queued");
    lab.execute(end(&acme(), id(2, "a"), 1, success())).await.expect("it is queued");
    let before = due(&lab).await;
    assert_eq!((before.due.len(), before.pending, before.next), (48, 49, Some(lab.now().plus(2 * SECOND))));
    let lab = lab.reopen_if_it_can().await;
    assert_eq!(due(&lab).await, before);
    lab.pass(2 * SECOND);
    let after = due(&lab).await;
    assert_eq!((after.due.len(), after.next), (49, None));
    for key in after.due {
        let shown =
            lab.engine.execution(&acme(), key.id).await.expect("the backend works").expect("it waits");
        assert!(shown.execution.event.data.is_some());
        let attempt = shown.execution.attempts + 1;
        lab.execute(end(&acme(), key.id, attempt, success())).await.expect("it is due");
    }
    assert_eq!(due(&lab).await, DueExecutions::default());
}

/// A dead letter is replayed or discarded once, and stays on record.
pub async fn a_scripts_letter_is_never_deleted<W: TestWorld>(lab: Lab<W>) {
    let all = (1..=4).map(|n| matched(&acme(), n, "a")).collect();
    lab.execute(matching(0, 7, all)).await.expect("the cursor is new");
    for n in 1..=4 {
        lab.execute(end(&acme(), id(n, "a"), 1, failure(None))).await.expect("it is queued");
    }
    let replayed = lab.engine.replay_letter(acme(), id(1, "a")).await.expect("it is open");
    lab.engine.discard_letter(acme(), id(2, "a")).await.expect("it is open");
    let lab = lab.reopen_if_it_can().await;
    for n in [1, 2] {
        assert!(lab.engine.replay_letter(acme(), id(n, "a")).await.is_err());
        assert!(lab.engine.discard_letter(acme(), id(n, "a")).await.is_err());
    }
    let again = lab.engine.execution(&acme(), replayed).await.expect("the backend works").expect("it waits");
    assert_eq!((again.execution.replay_of, again.execution.attempts), (Some(id(1, "a")), 0));
    let page = lab.engine.script_letters(&acme(), &LetterFilter::default(), None, 3).await.expect("a page");
    assert_eq!((page.letters.len(), page.next), (3, page.letters.last().map(|letter| letter.id)));
    let rest =
        lab.engine.script_letters(&acme(), &LetterFilter::default(), page.next, 3).await.expect("a page");
    assert_eq!((rest.letters.len(), rest.next), (1, None));
    let many =
        lab.engine.discard_letters(&acme(), &LetterFilter::default()).await.expect("the backend works");
    assert_eq!((many.letters.len(), many.more), (2, false));
    let all =
        lab.engine.script_letters(&acme(), &LetterFilter::default(), None, 9).await.expect("a page").letters;
    let states: Vec<_> = all.iter().map(|letter| letter.state).collect();
    let mut sorted = states.clone();
    sorted.sort_by_key(|state| *state as u8);
    let mut expected = vec![DeadLetterState::Discarded; 3];
    expected.insert(0, DeadLetterState::Replayed);
    assert_eq!(sorted, expected, "{states:?}");
    // Letters of messages and of scripts are lists of their own.
    let letters = lab.engine.dead_letters(acme(), None, None, 9).await.expect("the backend works").letters;
    assert!(letters.is_empty());
}

/// Nothing of a tenant's executions is seen or changed by another.
pub async fn executions_stay_within_their_tenant<W: TestWorld>(lab: Lab<W>) {
    lab.execute(matching(0, 1, vec![matched(&acme(), 1, "a"), matched(&acme(), 2, "a")])).await.expect("new");
    let first = id(1, "a");
    let foreign = lab.execute(end(&other(), first, 1, success())).await;
    assert_eq!(foreign, Err(Refusal::NotUnderWay { id: first, attempt: 1 }));
    assert!(statuses(&lab, &other()).await.is_empty());
    assert_eq!(lab.engine.execution(&other(), first).await.expect("the backend works"), None);
    lab.execute(end(&acme(), first, 1, failure(None))).await.expect("it is queued");
    assert!(lab.engine.replay_letter(other(), first).await.is_err());
    assert!(lab.engine.discard_letter(other(), first).await.is_err());
    assert_eq!(lab.engine.script_letter(&other(), first).await.expect("the backend works"), None);
    let many = lab.engine.replay_letters(&other(), &LetterFilter::default()).await.expect("nothing is there");
    assert!(many.letters.is_empty());
    // The same event and subscription in another tenant is an execution of its own.
    lab.execute(matching(1, 1, vec![matched(&other(), 2, "a")])).await.expect("the cursor is right");
    assert_eq!(statuses(&lab, &other()).await, [ShownStatus::Queued]);
}

/// Records of a kind are found for all tenants, in order, by pages.
pub async fn records_of_all_tenants_are_listed<W: TestWorld>(lab: Lab<W>) {
    let all = vec![matched(&other(), 1, "a"), matched(&acme(), 1, "a"), matched(&acme(), 2, "a")];
    lab.execute(matching(0, 1, all)).await.expect("the cursor is new");
    let lab = lab.reopen_if_it_can().await;
    lab.execute(matching(1, 1, vec![matched(&other(), 3, "a")])).await.expect("the cursor is right");
    let publish = EventBatch {
        tenant: acme(),
        app: super::shape::app("orders"),
        origin: "test".to_owned(),
        events: vec![event("s", "x.y", "{}")],
    };
    lab.engine.publish(publish).await.expect("the event is accepted");
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let backend = lab.world.backend();
        let page = backend.all_records(tidemill_engine::record::RecordKind::Execution, after.take(), 3).await;
        let page = page.expect("the backend works");
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        keys.extend(page.into_iter().map(|(key, _)| key));
    }
    assert_eq!(keys.len(), 4);
    assert!(keys.is_sorted());
    assert_eq!(keys[0].tenant, Some(acme()));
}
