//! Triage: workflow events are counted once, marks hold, each wait ends once, and all of it survives.

use std::time::Duration;

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::workflow::{
    ErrorCode, ErrorScope, TaskToken, WorkflowMessage, WorkflowRunId, WorkflowStatus,
};
use tidemill_model::{AppName, Entity, EntityId, EntityType, EventType, Json, TenantId};

use super::shape::{SECOND, acme, json, other};
use super::{Lab, TestWorld, poll_once};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{
    EngineError, EventBatch, GroupFilter, GroupSort, IngestRequest, Ingested, NewBulk, NewEvent,
    TokenOutcome, TriageFilter, UnparkRequest,
};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::RecordKind;
use tidemill_engine::reply::Refusal;
use tidemill_engine::scripts::AlertKind;
use tidemill_engine::triage::{
    BulkAction, BulkFilter, BulkState, ErrorMark, ErrorState, TokenState, TriageKeeper, TriageTimer,
    Unparked, Until,
};

const TOKEN: &str = "AAAAKgAAAAIAAAAAAAAAAbcdefSecretToken";

fn code(text: &str) -> ErrorCode {
    ErrorCode::new(text).expect("a code")
}

fn execution(text: &str) -> WorkflowRunId {
    WorkflowRunId::new(text).expect("an id")
}

/// An envelope as it comes in.
fn envelope(id: &str, status: &str, token: Option<&str>, errors: &[&str]) -> String {
    let errors: Vec<_> = errors
        .iter()
        .map(|code| format!(r#"{{"code":"{code}","details":{{"why":"{code} of {id}"}}}}"#))
        .collect();
    let token = token.map_or_else(String::new, |token| format!(r#","taskToken":"{token}""#));
    format!(
        r#"{{"source":"elephant.workflow","detail-type":"WorkflowEvent","detail":{{"executionId":"{id}",
        "county":"Cook","dataGroupLabel":"County","status":"{status}","phase":"Transform","step":"Transform"
        {token},"errors":[{}]}}}}"#,
        errors.join(",")
    )
}

fn scoped(kind: &str, detail: &str) -> String {
    format!(r#"{{"source":"elephant.workflow","detail-type":"{kind}","detail":{detail}}}"#)
}

fn with_id(envelope: &str, id: &str) -> String {
    envelope.replacen('{', &format!(r#"{{"id":"{id}","#), 1)
}

async fn ingest<W: TestWorld>(lab: &Lab<W>, envelopes: &[String]) -> Result<Vec<Ingested>, EngineError> {
    ingest_for(lab, &acme(), envelopes).await
}

async fn ingest_for<W: TestWorld>(
    lab: &Lab<W>,
    tenant: &TenantId,
    envelopes: &[String],
) -> Result<Vec<Ingested>, EngineError> {
    let mut messages = Vec::new();
    for text in envelopes {
        messages.push(WorkflowMessage::read("", &json(text), lab.engine.families())?);
    }
    let (tenant, app) = (tenant.clone(), AppName::trusted("flow"));
    lab.engine.ingest(IngestRequest { tenant, app, origin: "test".into(), messages }).await
}

fn resume() -> BulkAction {
    BulkAction::Resume { output: json(r#"{"resolved":true}"#), rerun: false }
}

fn unpark(id: &str, how: BulkAction) -> UnparkRequest {
    let (by, reason) = (Some("ann".to_owned()), Some("fixed".to_owned()));
    UnparkRequest { tenant: acme(), execution: execution(id), how, by, reason }
}

async fn group<W: TestWorld>(lab: &Lab<W>, text: &str) -> tidemill_engine::engine::ShownGroup {
    lab.engine.error_group(&acme(), &code(text)).await.expect("it works").expect("the code is known")
}

fn workflow_entity(id: &str) -> AccessPath {
    AccessPath::Entity(Entity { kind: EntityType::trusted("WORKFLOW"), id: EntityId::trusted(id) })
}

/// What is taken in twice counts once, in one call, in two, and in two lives.
pub async fn a_workflow_event_counts_once<W: TestWorld>(lab: Lab<W>) {
    let first = with_id(&envelope("e-1", "FAILED", None, &["20Cook", "20Cook"]), "bus-1");
    let taken = ingest(&lab, &[first.clone(), first.clone()]).await.expect("it is valid");
    assert_eq!(taken.iter().map(|taken| taken.repeated).collect::<Vec<_>>(), [false, true]);
    assert_eq!(taken[0].event, taken[1].event);
    let lab = lab.reopen_if_it_can().await;
    let again = ingest(&lab, std::slice::from_ref(&first)).await.expect("it is valid");
    assert_eq!((again[0].repeated, again[0].event), (true, taken[0].event));
    let counts = group(&lab, "20Cook").await.counts;
    assert_eq!((counts.occurrences, counts.open), (2, 1), "each entry of an event counts");
    assert_eq!(lab.events(workflow_entity("e-1")).await.len(), 1);
    // Without an id and a time nothing tells a repetition from a second failure.
    let bare = envelope("e-1", "FAILED", None, &["20Cook"]);
    ingest(&lab, &[bare.clone(), bare]).await.expect("it is valid");
    assert_eq!(group(&lab, "20Cook").await.counts.occurrences, 4);
}

/// A message with a mistake changes nothing, nor do those beside it; the mistake has its field's name.
pub async fn a_wrong_workflow_event_is_refused<W: TestWorld>(lab: Lab<W>) {
    let good = envelope("e-1", "FAILED", None, &["20Cook"]);
    for (bad, field) in [
        (good.replace("20Cook\"", "X\""), "detail.errors[0].code"),
        (good.replace("FAILED", "PARKED"), "detail.status"),
        (good.replace("\"county\"", "\"country\""), "detail.county"),
        (good.replace("elephant.workflow", "somebody"), "source"),
        (scoped("ElephantErrorResolved", "{}"), "detail"),
    ] {
        let refused = ingest(&lab, &[good.clone(), bad.clone()]).await.expect_err("one of them is wrong");
        let EngineError::Fields(problems) = refused else { panic!("{refused:?}") };
        assert_eq!(problems.listed[0].path, field, "{problems:?}");
    }
    assert!(lab.engine.error_group(&acme(), &code("20Cook")).await.expect("it works").is_none());
    // The same by the way of other events.
    let publish = |properties: Json| EventBatch {
        tenant: acme(),
        app: AppName::trusted("flow"),
        origin: "test".into(),
        events: vec![NewEvent {
            entity: Entity { kind: EntityType::trusted("ANY"), id: EntityId::trusted("x") },
            event_type: EventType::trusted("WorkflowEvent"),
            timestamp: None,
            properties,
            ttl: None,
        }],
    };
    let detail = r#"{"executionId":"e-9","county":"Cook","status":"FAILED","phase":"SVL","step":"SVL",
        "taskToken":"TOKEN","errors":[{"code":"31001"}]}"#
        .replace("TOKEN", TOKEN);
    let refused = lab.engine.publish(publish(json(&detail.replace("31001", "3")))).await;
    let Err(EngineError::Fields(problems)) = refused else { panic!("{refused:?}") };
    assert_eq!(problems.listed[0].path, "events[0].properties.errors[0].code");
    lab.engine.publish(publish(json(&detail))).await.expect("it is valid");
    assert_eq!(group(&lab, "31001").await.counts.open, 1);
    let events = lab.events(workflow_entity("e-9")).await;
    assert!(!events[0].properties.as_str().contains(TOKEN), "the token is cut out");
    let shown = lab.engine.triage_execution(&acme(), &execution("e-9")).await.expect("it works");
    assert!(shown.expect("it is known").parked.is_some());
}

/// Marks on codes and executions hold across restarts; what comes again is open again, unless it cannot be mended.
pub async fn marks_hold<W: TestWorld>(lab: Lab<W>) {
    for id in ["e-1", "e-2", "e-3"] {
        let text = envelope(id, "FAILED", None, &["20Cook", "31001"]);
        ingest(&lab, &[text]).await.expect("it is valid");
    }
    let by = || Some("ann".to_owned());
    let of_code = |text: &str| ErrorScope::Code(code(text));
    let marked = lab.engine.mark_errors(acme(), of_code("20Cook"), ErrorMark::Resolve, by(), None).await;
    assert_eq!(marked.expect("it is known").changed, 3);
    let scope = ErrorScope::Pair(execution("e-1"), code("31001"));
    let marked = lab.engine.mark_errors(acme(), scope, ErrorMark::Unrecoverable, by(), None).await;
    assert_eq!(marked.expect("it is known").changed, 1);
    let lab = lab.reopen_if_it_can().await;
    let counts = group(&lab, "20Cook").await.counts;
    assert_eq!((counts.open, counts.resolved), (0, 3));
    ingest(&lab, &[envelope("e-1", "FAILED", None, &["20Cook", "31001"])]).await.expect("it is valid");
    let states: Vec<_> = lab.engine.errors_of_execution(&acme(), &execution("e-1")).await.expect("it works");
    let states: Vec<_> = states.iter().map(|shown| shown.state).collect();
    assert_eq!(states, [ErrorState::Open, ErrorState::Unrecoverable]);
    // The events of the contract do the same.
    let detail = r#"{"executionId":"e-1","errorCode":"31001"}"#;
    ingest(&lab, &[scoped("ElephantErrorResolved", detail)]).await.expect("it is valid");
    let detail = r#"{"errorCode":"20Cook"}"#;
    ingest(&lab, &[scoped("ElephantErrorFailedToResolve", detail)]).await.expect("it is valid");
    let counts = group(&lab, "20Cook").await.counts;
    assert_eq!((counts.resolved, counts.unrecoverable), (2, 1), "resolved ones stay resolved");
    ingest(&lab, &[envelope("e-9", "FAILED", None, &["20Cook"])]).await.expect("it is valid");
    assert_eq!(group(&lab, "20Cook").await.counts.unrecoverable, 2, "those that come are covered too");
    let candidates = lab.engine.candidates(&acme(), 0, 10).await.expect("it works").groups;
    let codes: Vec<_> = candidates.iter().map(|shown| shown.group.code.as_str()).collect();
    assert_eq!(codes, ["31001"]);
    let ignored = ErrorMark::Ignore(Until { time: Some(lab.now().plus(SECOND)), occurrences: None });
    lab.engine.mark_errors(acme(), of_code("31001"), ignored, by(), None).await.expect("it is known");
    assert!(lab.engine.candidates(&acme(), 0, 10).await.expect("it works").groups.is_empty());
    lab.pass(SECOND);
    assert_eq!(lab.engine.candidates(&acme(), 0, 10).await.expect("it works").groups.len(), 1);
    let wrong = ErrorScope::Execution(execution("e-1"));
    let refused = lab.engine.mark_errors(acme(), wrong, ignored, by(), None).await;
    assert!(matches!(refused, Err(EngineError::Invalid { .. })), "{refused:?}");
    let unknown = lab.engine.mark_errors(acme(), of_code("99nothing"), ErrorMark::Resolve, by(), None).await;
    assert!(matches!(unknown, Err(EngineError::Refused(Refusal::NotFound { .. }))), "{unknown:?}");
}

/// Groups are found by what they are, in the order that was asked for, with their samples.
pub async fn groups_are_listed_and_filtered<W: TestWorld>(lab: Lab<W>) {
    for (id, errors) in
        [("e-1", &["20Cook", "20Cook", "31001"][..]), ("e-2", &["31001", "40001"]), ("e-3", &["31001"])]
    {
        ingest(&lab, &[envelope(id, "FAILED", None, errors)]).await.expect("it is valid");
        lab.pass(SECOND);
    }
    let list = async |filter: GroupFilter, sort: GroupSort, offset: usize, limit: usize| {
        let page = lab.engine.error_groups(&acme(), &filter, sort, offset, limit).await.expect("it works");
        let codes: Vec<_> = page.groups.iter().map(|shown| shown.group.code.to_string()).collect();
        (codes, page.total, page.next)
    };
    let all = GroupFilter::default;
    let codes = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let found = list(all(), GroupSort::Count, 0, 2).await;
    assert_eq!(found, (codes(&["31001", "20Cook"]), 3, Some(2)));
    assert_eq!(list(all(), GroupSort::Count, 2, 2).await, (codes(&["40001"]), 3, None));
    let recent = list(all(), GroupSort::Recent, 0, 9).await;
    assert_eq!(recent.0, codes(&["31001", "40001", "20Cook"]));
    let typed = GroupFilter { error_type: Some(code("31001").error_type()), ..all() };
    assert_eq!(list(typed, GroupSort::Executions, 0, 9).await.0, codes(&["31001"]));
    let text = GroupFilter { text: Some("cook".into()), ..all() };
    assert_eq!(list(text, GroupSort::Count, 0, 9).await.0, codes(&["20Cook"]));
    let county = GroupFilter { county: Some("Lake".into()), ..all() };
    assert_eq!(list(county, GroupSort::Count, 0, 9).await.1, 0);
    let resolved = GroupFilter { state: Some(ErrorState::Resolved), ..all() };
    assert_eq!(list(resolved, GroupSort::Count, 0, 9).await.1, 0);
    let shown = group(&lab, "31001").await;
    lab.world.settled().await;
    let samples = lab.engine.samples(&acme(), &shown.group).await.expect("it works");
    let details: Vec<_> =
        samples.iter().map(|sample| sample.details.clone().expect("it is in the log")).collect();
    let why: Vec<_> = details.iter().map(Json::as_str).collect();
    assert_eq!(why, [r#"{"why":"31001 of e-3"}"#, r#"{"why":"31001 of e-2"}"#, r#"{"why":"31001 of e-1"}"#]);
    let page = lab.engine.errors_of_code(&acme(), &code("31001"), None, None, 2).await.expect("it works");
    assert_eq!((page.errors.len(), page.next.clone()), (2, Some(execution("e-2"))));
    let rest =
        lab.engine.errors_of_code(&acme(), &code("31001"), None, page.next, 2).await.expect("it works");
    assert_eq!((rest.errors.len(), rest.next), (1, None));
    assert_eq!(rest.errors[0].error.execution, execution("e-3"));
    let filter = TriageFilter { status: Some(WorkflowStatus::Failed), ..TriageFilter::default() };
    let page = lab.engine.triage_executions(&acme(), &filter, None, 2).await.expect("it works");
    assert_eq!((page.executions.len(), page.next.is_some()), (2, true));
    let none = lab.engine.error_groups(&other(), &all(), GroupSort::Count, 0, 9).await.expect("it works");
    assert_eq!(none.total, 0, "nothing of another tenant is shown");
    let strange = lab.engine.error_group(&other(), &code("31001")).await.expect("it works");
    assert!(strange.is_none());
    let metrics = lab.engine.triage_metrics().await.expect("it works");
    let counted: Vec<_> =
        metrics.by_type.iter().map(|(_, kind, counts)| (kind.as_str(), counts.open)).collect();
    assert_eq!(counted, [("20", 1), ("31", 3), ("40", 1)]);
    // What was ignored for a time is open again when the time is over, though nothing else happened.
    let until = Until { time: Some(lab.now().plus(SECOND)), occurrences: None };
    let scope = ErrorScope::Code(code("31001"));
    lab.engine.mark_errors(acme(), scope, ErrorMark::Ignore(until), None, None).await.expect("it is valid");
    for expected in [0, 3] {
        let metrics = lab.engine.triage_metrics().await.expect("it works");
        let (.., of_type) =
            metrics.by_type.iter().find(|(_, kind, _)| kind.as_str() == "31").expect("it is there");
        assert_eq!(of_type.open, expected);
        lab.pass(2 * SECOND);
    }
}

/// A wait ends once, no matter which way it ends, and the holder of the token learns how.
pub async fn a_wait_ends_once<W: TestWorld>(lab: Lab<W>) {
    let text = envelope("e-1", "FAILED", Some(TOKEN), &["20Cook"]);
    ingest(&lab, &[text]).await.expect("it is valid");
    let token = TaskToken::new(TOKEN).expect("a token");
    let lab = lab.reopen_if_it_can().await;
    let outcome = lab.engine.token_outcome(&acme(), &token).await.expect("it is known");
    assert_eq!(outcome, TokenOutcome::Waiting);
    let foreign = lab.engine.token_outcome(&other(), &token).await;
    assert!(matches!(foreign, Err(EngineError::Refused(Refusal::NotFound { what: "token", .. }))));
    let tenant = acme();
    let mut waiting = Box::pin(lab.engine.wait_for_outcome(&tenant, &token));
    assert!(poll_once(waiting.as_mut()).await.is_pending());
    let page = lab.engine.parked(&acme(), &BulkFilter::default(), None, 10).await.expect("it works");
    assert_eq!((page.parked.len(), page.total), (1, 1));
    assert_eq!(page.parked[0].codes, [code("20Cook")]);
    lab.engine.unpark(unpark("e-1", resume())).await.expect("it waits");
    let TokenOutcome::Ended(Unparked::Resumed { output, by, .. }) = waiting.await.expect("it ended") else {
        panic!("it was resumed")
    };
    assert_eq!((output.as_str(), by.as_deref()), (r#"{"resolved":true}"#, Some("ann")));
    for how in [resume(), BulkAction::Fail { error: "E".into(), cause: "c".into() }] {
        let again = lab.engine.unpark(unpark("e-1", how)).await;
        assert!(matches!(again, Err(EngineError::Refused(Refusal::NotParked(_)))), "{again:?}");
    }
    let unknown = lab.engine.unpark(unpark("e-0", resume())).await;
    assert!(matches!(unknown, Err(EngineError::Refused(Refusal::NotFound { what: "execution", .. }))));
    let types: Vec<_> =
        lab.events(workflow_entity("e-1")).await.iter().map(|event| event.event_type.to_string()).collect();
    assert_eq!(types, ["WorkflowEvent", "Execution Resumed"]);
    // The token is nowhere but sealed under its digest.
    let records = lab.world.backend().records(RecordKind::Token, Some(acme()), None, 10).await;
    let (key, record) = records.expect("it works").remove(0);
    assert_eq!(*key.id, *token.digest());
    assert!(!format!("{record:?}").contains(TOKEN));
    let lab = lab.reopen_if_it_can().await;
    let shown = lab.engine.triage_execution(&acme(), &execution("e-1")).await.expect("it works");
    let known = shown.expect("it is known").execution;
    assert_eq!((known.parked, known.token), (false, TokenState::Used));
    // It waits again with another token: the first one still tells what became of it.
    lab.pass(SECOND);
    ingest(&lab, &[envelope("e-1", "FAILED", Some("another-token"), &["20Cook"])])
        .await
        .expect("it is valid");
    let lab = lab.reopen_if_it_can().await;
    let outcome = lab.engine.token_outcome(&acme(), &token).await.expect("it is known");
    assert!(matches!(outcome, TokenOutcome::Ended(Unparked::Resumed { .. })), "{outcome:?}");
    let newer = TaskToken::new("another-token").expect("a token");
    let outcome = lab.engine.token_outcome(&acme(), &newer).await.expect("it is known");
    assert_eq!(outcome, TokenOutcome::Waiting);
    // A token is taken out of all events that came with it.
    let token = "secret/of+e-2==";
    let beside = envelope("e-3", "SUCCEEDED", None, &[])
        .replace("Cook", r"by secret\/of+e-2== or secret%2Fof%2Be-2%3D%3D");
    ingest(&lab, &[beside, envelope("e-2", "FAILED", Some(token), &[])]).await.expect("they are valid");
    let events = lab.events(workflow_entity("e-3")).await;
    let stored = events[0].properties.as_str();
    assert!(stored.contains(r#""by [REDACTED] or [REDACTED]""#), "{stored}");
    let shown = lab.engine.triage_execution(&acme(), &execution("e-3")).await.expect("it works");
    assert_eq!(&*shown.expect("it is known").execution.cell.county, "by [REDACTED] or [REDACTED]");
}

/// Time is moved by the test.
struct Still;

impl TriageTimer for Still {
    async fn sleep(&self, _time: Duration) {
        std::future::pending::<()>().await;
    }
}

/// The triage keeper reports an execution that waits too long, and then gives it up.
pub async fn nobody_waits_for_ever<W: TestWorld>(lab: Lab<W>) {
    ingest(&lab, &[envelope("e-1", "FAILED", Some(TOKEN), &["20Cook"])]).await.expect("it is valid");
    let week = lab.engine.policy().park_millis;
    let look = async |lab: &Lab<W>| {
        let keeper = TriageKeeper::new(lab.engine.clone(), Still);
        let mut run = Box::pin(keeper.run());
        // It does what is due and waits for the next moment.
        loop {
            assert!(poll_once(run.as_mut()).await.is_pending());
            let now = lab.now();
            let due = lab.world.backend().look(|state| state.triage().due(now, 1)).await;
            if due.expect("it works").parked.is_empty() {
                break;
            }
        }
        keeper.stop();
        run.await;
    };
    lab.pass(week / 10 * 9);
    look(&lab).await;
    let system = AccessPath::Entity(Entity::system("workflow"));
    let alerts = lab.events(system.clone()).await;
    assert_eq!(alerts.len(), 1);
    assert!(alerts[0].properties.as_str().contains("parked_expiring"), "{:?}", alerts[0].properties);
    look(&lab).await;
    assert_eq!(lab.events(system).await.len(), 1, "it is told once");
    let lab = lab.reopen_if_it_can().await;
    // It stands as long as it waits.
    let standing = lab.engine.standing_alerts(Some(&acme())).await.expect("it works");
    assert_eq!(standing.iter().map(|alert| alert.kind).collect::<Vec<_>>(), [AlertKind::ParkedExpiring]);
    assert!(standing[0].message.starts_with("e-1 is parked"), "{standing:?}");
    assert_eq!(lab.engine.standing_alerts(Some(&other())).await.expect("it works"), []);
    assert_eq!(lab.engine.standing_alerts(None).await.expect("it works"), standing);
    lab.pass(week / 10 + 1);
    look(&lab).await;
    assert_eq!(lab.engine.standing_alerts(None).await.expect("it works"), []);
    let refused = lab.engine.unpark(unpark("e-1", resume())).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::TokenExpired(_)))), "{refused:?}");
    let types: Vec<_> =
        lab.events(workflow_entity("e-1")).await.iter().map(|event| event.event_type.to_string()).collect();
    assert_eq!(types, ["WorkflowEvent", "Execution Expired"]);
}

/// One wish resumes a thousand, each once, also when the process dies in the middle.
pub async fn a_bulk_survives_and_resumes_each_once<W: TestWorld>(lab: Lab<W>) {
    let total = if W::IS_DISTANT { 400 } else { 1_000 };
    for first in (0..total).step_by(100) {
        let texts: Vec<_> = (first..first + 100)
            .map(|number| {
                let id = format!("e-{number:04}");
                envelope(&id, "FAILED", Some(&format!("{TOKEN}{number}")), &["20Cook"])
            })
            .collect();
        ingest(&lab, &texts).await.expect("they are valid");
    }
    ingest(&lab, &[envelope("x", "FAILED", Some("other"), &["31001"])]).await.expect("it is valid");
    let filter = BulkFilter { code: Some(code("20Cook")), ..BulkFilter::default() };
    let preview = lab.engine.preview_bulk(&acme(), &filter).await.expect("it works");
    assert_eq!((preview.total, preview.first.len()), (total, 10));
    let pair = ErrorScope::Pair(execution("x"), code("31001"));
    lab.engine.mark_errors(acme(), pair, ErrorMark::Resolve, None, None).await.expect("it is valid");
    let settled = BulkFilter { settled: true, ..BulkFilter::default() };
    let preview = lab.engine.preview_bulk(&acme(), &settled).await.expect("it works");
    assert_eq!(preview.total, 1, "the others have open errors");
    assert_eq!(preview.first[0].execution, execution("x"));
    let request = NewBulk {
        tenant: acme(),
        action: resume(),
        filter,
        rate_per_second: None,
        by: Some("ann".into()),
        reason: None,
    };
    let bulk = lab.engine.start_bulk(request).await.expect("it is valid");
    for _ in 0..3 {
        let step = tidemill_engine::command::Command::StepBulk(tidemill_engine::command::StepBulk {
            tenant: acme(),
            bulk: bulk.id,
        });
        lab.execute(step).await.expect("it runs");
    }
    let lab = lab.reopen_if_it_can().await;
    let keeper = TriageKeeper::new(lab.engine.clone(), Still);
    let mut run = Box::pin(keeper.run());
    let mut done = 0;
    while done < total {
        assert!(poll_once(run.as_mut()).await.is_pending());
        let shown = lab.engine.bulk(&acme(), bulk.id).await.expect("it works").expect("it is there");
        done = shown.done + shown.failed + shown.skipped;
    }
    keeper.stop();
    run.await;
    let shown = lab.engine.bulk(&acme(), bulk.id).await.expect("it works").expect("it is there");
    assert_eq!((shown.done, shown.total, shown.state), (total, total, BulkState::Done));
    for number in 0..total {
        let events = lab.events(workflow_entity(&format!("e-{number:04}"))).await;
        assert_eq!(events.len(), 2, "e-{number:04} goes on once");
    }
    let left = lab.engine.parked(&acme(), &BulkFilter::default(), None, 10).await.expect("it works");
    assert_eq!(left.parked.iter().map(|parked| parked.execution.as_str()).collect::<Vec<_>>(), ["x"]);
    let cancelled = lab.engine.cancel_bulk(acme(), bulk.id).await;
    assert!(matches!(cancelled, Err(EngineError::Refused(Refusal::BulkEnded(_)))), "{cancelled:?}");
}

/// Nothing of one tenant's triage is seen or changed by another.
pub async fn triage_stays_within_its_tenant<W: TestWorld>(lab: Lab<W>) {
    for tenant in [acme(), other()] {
        let text = envelope("e-1", "FAILED", Some(TOKEN), &["20Cook"]);
        ingest_for(&lab, &tenant, &[text]).await.expect("it is valid");
    }
    lab.engine.unpark(unpark("e-1", resume())).await.expect("it waits");
    let scope = ErrorScope::Code(code("20Cook"));
    lab.engine.mark_errors(acme(), scope, ErrorMark::Resolve, None, None).await.expect("it is known");
    let shown = lab.engine.error_group(&other(), &code("20Cook")).await.expect("it works");
    assert_eq!(shown.expect("it is known").counts.open, 1);
    let page = lab.engine.parked(&other(), &BulkFilter::default(), None, 10).await.expect("it works");
    assert_eq!(page.total, 1);
    let token = TaskToken::new(TOKEN).expect("a token");
    let outcome = lab.engine.token_outcome(&other(), &token).await.expect("it is known");
    assert_eq!(outcome, TokenOutcome::Waiting);
}
