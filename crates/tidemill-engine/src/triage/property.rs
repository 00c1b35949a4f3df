//! What must hold of triage records whatever happens: counts are those of a recount, and each wait ends once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemill_model::workflow::{ErrorCode, WorkflowRunId, WorkflowStatus};
use tidemill_model::{
    AppName, Context, Entity, EntityId, EntityType, EventId, EventType, Json, KnownType, Timestamp,
};

use crate::kernel::command::{
    Command, Forget, LookAfterParked, Prepared, Publish, PublishedEvent, StartBulk, StepBulk, Unpark,
};
use crate::kernel::fixture::{Fixture, tenant};
use crate::kernel::record::{RecordKey, RecordKind, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::triage::{
    BulkAction, BulkFilter, BulkId, BulkState, CELLS_MAX, Cell, ErrorCounts, ErrorGroup, ErrorMark,
    ErrorState, MarkItem, NewToken, ParkedKey, SEEN_MAX, StatusItem, TokenState, TokenTaken, TriageError,
    TriageExecution, Unparked, Until, WORKFLOW_ENTITY, WorkflowItem,
};

pub(crate) fn code(text: &str) -> ErrorCode {
    ErrorCode::new(text).unwrap()
}

pub(crate) fn execution(text: &str) -> WorkflowRunId {
    WorkflowRunId::new(text).unwrap()
}

pub(crate) fn cell(county: &str, step: &str) -> Cell {
    Cell {
        county: Arc::from(county),
        data_group_label: None,
        phase: Arc::from("Transform"),
        step: Arc::from(step),
    }
}

pub(crate) fn token(text: &str) -> NewToken {
    NewToken { digest: Arc::from(text), sealed: Arc::from(text.as_bytes()) }
}

pub(crate) fn status(id: &str, status: WorkflowStatus, errors: &[&str]) -> StatusItem {
    StatusItem {
        once: None,
        execution: execution(id),
        cell: cell("Cook", "Transform"),
        status,
        whole_second: false,
        token: None,
        errors: errors.iter().map(|text| code(text)).collect(),
    }
}

pub(crate) fn event(item: WorkflowItem, at: Option<Timestamp>) -> PublishedEvent {
    let id = item.execution().map_or("-", WorkflowRunId::as_str);
    PublishedEvent {
        entity: Entity { kind: EntityType::trusted(WORKFLOW_ENTITY), id: EntityId::trusted(id) },
        event_type: EventType::trusted("WorkflowEvent"),
        timestamp: at,
        properties: Prepared { id: None, properties: Json::empty_object() },
        ttl: None,
        workflow: Some(item),
    }
}

pub(crate) fn publish(events: Vec<PublishedEvent>) -> Command {
    let context = Context { environment: Arc::from("dev"), origin: Arc::from("test"), worker_id: None };
    Command::Publish(Publish { tenant: tenant(), app: AppName::trusted("flow"), context, events })
}

pub(crate) fn publish_status(item: StatusItem, at: Timestamp) -> Command {
    publish(vec![event(WorkflowItem::Status(Box::new(item)), Some(at))])
}

pub(crate) fn marked(id: Option<&str>, text: Option<&str>, mark: ErrorMark) -> Command {
    let item = MarkItem {
        once: None,
        execution: id.map(execution),
        code: text.map(code),
        mark,
        by: Some(Arc::from("ann")),
        reason: None,
    };
    publish(vec![event(WorkflowItem::Mark(Box::new(item)), None)])
}

pub(crate) fn resume() -> BulkAction {
    BulkAction::Resume { output: Json::trusted(r#"{"resolved":true}"#), rerun: false }
}

pub(crate) fn unpark(id: &str) -> Command {
    Command::Unpark(Unpark {
        tenant: tenant(),
        execution: execution(id),
        how: resume(),
        by: None,
        reason: None,
    })
}

pub(crate) fn group(fixture: &Fixture, text: &str) -> Arc<ErrorGroup> {
    Arc::clone(fixture.state.triage().group(&tenant(), &code(text)).unwrap())
}

pub(crate) fn known(fixture: &Fixture, id: &str) -> TriageExecution {
    let key = RecordKey::triage_execution(&tenant(), &execution(id));
    match &fixture.state.record(&key).unwrap().value {
        RecordValue::TriageExecution(known) => (**known).clone(),
        other => panic!("{other:?}"),
    }
}

fn errors(fixture: &Fixture) -> Vec<TriageError> {
    let of = |value: &RecordValue| match value {
        RecordValue::TriageError(error) => Some((**error).clone()),
        _ => None,
    };
    fixture.state.records().filter_map(|(_, record)| of(&record?.value)).collect()
}

/// The state of an error as everybody would see it now.
pub(crate) fn state_of(fixture: &Fixture, text: &str, id: &str) -> ErrorState {
    let mut group = (*group(fixture, text)).clone();
    group.lapse(fixture.now);
    let error = errors(fixture);
    let error = error.iter().find(|error| error.code == code(text) && error.execution == execution(id));
    let error = error.unwrap();
    group.state_of(error.state, error.clock)
}

/// Counts everything anew and compares.
fn recount(fixture: &Fixture) {
    let errors = errors(fixture);
    let groups = fixture.state.triage().groups(&tenant());
    let mut counted: BTreeMap<ErrorCode, BTreeMap<u32, ErrorCounts>> = BTreeMap::new();
    for error in &errors {
        let group = groups.iter().find(|group| group.code == error.code).expect("errors have groups");
        let state = group.state_of(error.state, error.clock);
        let counts = counted.entry(error.code.clone()).or_default().entry(error.cell).or_default();
        *counts.place(state) += 1;
    }
    for group in &groups {
        for (at, cell) in (0..).zip(&group.cells) {
            let expected = counted.get(&group.code).and_then(|cells| cells.get(&at)).copied();
            let expected = expected.unwrap_or_default();
            let found = ErrorCounts { occurrences: 0, ..cell.counts };
            assert_eq!(found, expected, "{} in {:?}", group.code, cell.cell);
        }
    }
    // Every execution that says so is in the list of those that wait, and no other is.
    let waiting: BTreeSet<WorkflowRunId> = fixture
        .state
        .records()
        .filter_map(|(_, record)| match &record?.value {
            RecordValue::TriageExecution(known) if known.parked => Some(known.id.clone()),
            _ => None,
        })
        .collect();
    let listed: BTreeSet<WorkflowRunId> = fixture
        .state
        .triage()
        .parked_after(&tenant(), None, None)
        .map(|parked| parked.execution.clone())
        .collect();
    assert_eq!(waiting, listed);
    for parked in fixture.state.triage().parked_after(&tenant(), None, None) {
        for code in &parked.codes {
            let mut found = fixture.state.triage().parked_after(&tenant(), Some(code), None);
            assert!(found.any(|found| found.execution == parked.execution), "it is found by {code}");
        }
    }
}

/// A small generator that repeats itself for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

const CODES: [&str; 4] = ["20Cook", "20Lake", "30abc", "31001"];
const EXECUTIONS: [&str; 6] = ["e1", "e2", "e3", "e4", "e5", "e6"];

fn random_item(random: &mut Random, number: &mut u64) -> WorkflowItem {
    *number += 1;
    let which = random.pick(&[
        &WorkflowStatus::Failed,
        &WorkflowStatus::Failed,
        &WorkflowStatus::InProgress,
        &WorkflowStatus::Succeeded,
    ]);
    let errors: Vec<&str> = (0..random.below(4)).map(|_| random.pick(&CODES)).collect();
    let mut item = status(random.pick(&EXECUTIONS), *which, &errors);
    item.cell = cell(random.pick(&["Cook", "Lake"]), random.pick(&["Transform", "SVL", "Hash"]));
    if *which == WorkflowStatus::Failed && random.below(3) > 0 {
        item.token = Some(token(&format!("t{number}")));
    }
    if random.below(3) == 0 {
        // Now and then one comes again.
        let mut once = [7; 32];
        once[7] = u8::try_from(random.below(40)).unwrap();
        item.once = Some(once);
    }
    WorkflowItem::Status(Box::new(item))
}

#[test]
fn counts_are_those_of_a_recount_and_each_wait_ends_once() {
    for seed in 0..150 {
        let mut random = Random(seed);
        let mut fixture = Fixture::new();
        fixture.policy.auto_resume = seed % 3 == 0;
        fixture.policy.triage_millis = 3_600_000;
        fixture.policy.park_millis = 60_000;
        let mut number = 0;
        let mut waits: BTreeMap<WorkflowRunId, i64> = BTreeMap::new();
        for _ in 0..120 {
            fixture.now = fixture.now.plus(random.below(20_000));
            let command = match random.below(14) {
                0..=5 => {
                    let events = (0..=random.below(6)).map(|_| {
                        let at = fixture.now.minus(random.below(3) * 1_500);
                        event(random_item(&mut random, &mut number), Some(at))
                    });
                    publish(events.collect())
                }
                6..=8 => {
                    let id = (random.below(2) == 0).then(|| random.pick(&EXECUTIONS));
                    let text = (id.is_none() || random.below(2) == 0).then(|| random.pick(&CODES));
                    let until = Until {
                        time: (random.below(2) == 0).then(|| fixture.now.plus(random.below(60_000))),
                        occurrences: (random.below(2) == 0).then(|| 1 + random.below(4)),
                    };
                    let mark = match random.below(5) {
                        0 | 1 => ErrorMark::Resolve,
                        2 => ErrorMark::Unrecoverable,
                        3 => ErrorMark::Reopen,
                        _ => ErrorMark::Ignore(until),
                    };
                    marked(id, text, mark)
                }
                9 => unpark(random.pick(&EXECUTIONS)),
                10 => Command::StartBulk(StartBulk {
                    tenant: tenant(),
                    id: BulkId::mint(EventId::from_u128(u128::from(1_000 + number))),
                    action: resume(),
                    filter: BulkFilter {
                        code: Some(code(random.pick(&CODES))),
                        settled: random.below(2) == 0,
                        ..BulkFilter::default()
                    },
                    total: None,
                    rate_per_second: (random.below(2) == 0).then_some(2),
                    by: None,
                    reason: None,
                }),
                11 => match fixture.state.triage().due(fixture.now, 0).bulks.first().cloned() {
                    Some((tenant, bulk)) => Command::StepBulk(StepBulk { tenant, bulk }),
                    None => continue,
                },
                12 => {
                    let due = fixture.state.triage().due(fixture.now, 3);
                    Command::LookAfterParked(LookAfterParked { keys: due.parked })
                }
                _ => {
                    let keys = fixture.state.records().map(|(key, _)| key.clone());
                    let keys = keys.filter(|key| key.kind == RecordKind::Triage).collect();
                    Command::Forget(Forget { keys })
                }
            };
            number += 1;
            match fixture.run(&command) {
                Ok((commit, _)) => {
                    for event in &commit.events {
                        let ended = [KnownType::ExecutionResumed, KnownType::ExecutionExpired];
                        if ended.iter().any(|known| known.as_str() == event.event_type.as_str()) {
                            *waits.entry(execution(event.entity.id.as_str())).or_default() += 1;
                        }
                    }
                }
                Err(
                    Refusal::NotParked(_)
                    | Refusal::TokenExpired(_)
                    | Refusal::NotFound { .. }
                    | Refusal::BulkEnded(_),
                ) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
            recount(&fixture);
        }
        // A wait that ended by itself, or was reported twice, would show as more ends than tokens that were used.
        let used = fixture.state.records().filter_map(|(_, record)| match &record?.value {
            RecordValue::Token(token) if matches!(token.state, TokenState::Used | TokenState::Expired) => {
                Some(token.execution.clone())
            }
            _ => None,
        });
        let mut tokens: BTreeMap<WorkflowRunId, i64> = BTreeMap::new();
        used.for_each(|id| *tokens.entry(id).or_default() += 1);
        assert_eq!(waits, tokens, "seed {seed}: each wait ends once");
    }
}

#[test]
fn a_mark_on_a_code_holds_for_all_and_for_those_that_come() {
    use ErrorState::{Ignored, Open, Resolved, Unrecoverable};
    let mut fixture = Fixture::new();
    let now = fixture.now;
    for id in ["e1", "e2"] {
        fixture
            .run(&publish_status(status(id, WorkflowStatus::Failed, &["20Cook", "20Cook", "31001"]), now))
            .unwrap();
    }
    let counts = group(&fixture, "20Cook").counts();
    assert_eq!((counts.occurrences, counts.open, counts.executions()), (4, 2, 2), "each entry counts");
    let mut expect = |mark: Command, first: ErrorState, again: ErrorState, new: ErrorState, changed: u64| {
        let (_, reply) = fixture.run(&mark).unwrap();
        assert!(matches!(reply, Reply::Noted { changed: found, .. } if found == changed), "{reply:?}");
        assert_eq!(state_of(&fixture, "20Cook", "e2"), first);
        fixture.now = fixture.now.plus(1);
        let at = fixture.now;
        fixture.run(&publish_status(status("e1", WorkflowStatus::Failed, &["20Cook"]), at)).unwrap();
        assert_eq!(state_of(&fixture, "20Cook", "e1"), again);
        let id = format!("n{}", at.millis());
        fixture.run(&publish_status(status(&id, WorkflowStatus::Failed, &["20Cook"]), at)).unwrap();
        assert_eq!(state_of(&fixture, "20Cook", &id), new);
        recount(&fixture);
    };
    let code = || Some("20Cook");
    expect(marked(None, code(), ErrorMark::Resolve), Resolved, Open, Open, 2);
    expect(marked(None, code(), ErrorMark::Ignore(Until::default())), Resolved, Ignored, Ignored, 2);
    expect(marked(None, code(), ErrorMark::Unrecoverable), Resolved, Unrecoverable, Unrecoverable, 3);
    expect(marked(None, code(), ErrorMark::Resolve), Resolved, Open, Open, 4);
    expect(marked(None, code(), ErrorMark::Reopen), Open, Open, Open, 4);
    assert_eq!(state_of(&fixture, "31001", "e1"), Open, "other codes are left alone");
    // By execution: that one only, and sticky.
    fixture.run(&marked(Some("e1"), None, ErrorMark::Unrecoverable)).unwrap();
    assert_eq!(state_of(&fixture, "31001", "e1"), Unrecoverable);
    assert_eq!(state_of(&fixture, "31001", "e2"), Open);
    let at = fixture.now;
    fixture.run(&publish_status(status("e1", WorkflowStatus::Failed, &["31001"]), at)).unwrap();
    assert_eq!(state_of(&fixture, "31001", "e1"), Unrecoverable, "it stays so whatever comes");
    fixture.run(&marked(Some("e1"), Some("31001"), ErrorMark::Resolve)).unwrap();
    assert_eq!(state_of(&fixture, "31001", "e1"), Resolved);
    assert_eq!(state_of(&fixture, "20Cook", "e1"), Unrecoverable, "both named: that code in that execution");
    recount(&fixture);
}

#[test]
fn an_ignored_code_comes_back_after_its_time_or_count() {
    for (until, comes_back) in [
        (
            Until { time: Some(Timestamp::clamped(1_800_000_010_000)), occurrences: None },
            [false, false, true],
        ),
        (Until { time: None, occurrences: Some(2) }, [false, true, true]),
        (Until::default(), [false, false, false]),
    ] {
        let mut fixture = Fixture::new();
        let now = fixture.now;
        fixture.run(&publish_status(status("e0", WorkflowStatus::Failed, &["20Cook"]), now)).unwrap();
        fixture.run(&marked(None, Some("20Cook"), ErrorMark::Ignore(until))).unwrap();
        for (number, is_back) in (1..).zip(comes_back) {
            fixture.now = now.plus(number * 4_000);
            let (id, at) = (format!("e{number}"), fixture.now);
            fixture.run(&publish_status(status(&id, WorkflowStatus::Failed, &["20Cook"]), at)).unwrap();
            let expected = if is_back { ErrorState::Open } else { ErrorState::Ignored };
            for id in ["e0", &id] {
                assert_eq!(state_of(&fixture, "20Cook", id), expected, "{id} of {until:?}");
            }
            recount(&fixture);
        }
    }
}

#[test]
fn a_repeated_event_counts_once_however_many_came_between() {
    let mut fixture = Fixture::new();
    let now = fixture.now;
    let item = |number: u64| {
        let mut once = [0; 32];
        once[..8].copy_from_slice(&number.to_be_bytes());
        let mut item = status("e1", WorkflowStatus::InProgress, &["20Cook"]);
        item.once = Some(once);
        publish_status(item, now)
    };
    let many = SEEN_MAX as u64 * 2;
    for number in 0..many {
        let (commit, reply) = fixture.run(&item(number)).unwrap();
        assert!(matches!(reply, Reply::Noted { events, .. } if !events[0].2));
        assert_eq!(commit.events.len(), 1);
    }
    for number in 0..many {
        let (commit, reply) = fixture.run(&item(number)).unwrap();
        assert!(matches!(reply, Reply::Noted { events, .. } if events[0].2), "{number} was there");
        assert!(commit.is_empty());
    }
    assert_eq!(group(&fixture, "20Cook").counts().occurrences, many);
    assert_eq!(known(&fixture, "e1").seen.len(), SEEN_MAX);
}

#[test]
fn places_beyond_the_limit_are_counted_together() {
    let mut fixture = Fixture::new();
    let now = fixture.now;
    for number in 0..CELLS_MAX + 10 {
        let mut item = status(&format!("e{number}"), WorkflowStatus::Failed, &["20Cook"]);
        item.cell = cell(&format!("county {number}"), "Transform");
        fixture.run(&publish_status(item, now)).unwrap();
    }
    let group = group(&fixture, "20Cook");
    assert_eq!(group.cells.len(), CELLS_MAX + 1);
    let last = group.cells.last().unwrap();
    assert_eq!((&*last.cell.county, last.counts.open), ("(other)", 10));
    recount(&fixture);
}

#[test]
fn an_execution_waits_with_its_newest_token_until_it_goes_on() {
    let mut fixture = Fixture::new();
    let now = fixture.now;
    let failed = |text: &str| StatusItem {
        token: Some(token(text)),
        ..status("e1", WorkflowStatus::Failed, &["20Cook"])
    };
    // What the answer says of the token.
    let heard =
        |fixture: &mut Fixture, item: StatusItem, at| match fixture.run(&publish_status(item, at)).unwrap().1
        {
            Reply::Noted { tokens, .. } => tokens.into_iter().map(|(_, token)| token).next(),
            other => panic!("{other:?}"),
        };
    assert_eq!(heard(&mut fixture, failed("t1"), now), Some(TokenTaken::Waits));
    assert_eq!(heard(&mut fixture, failed("t1"), now.plus(1)), Some(TokenTaken::Waits));
    assert_eq!(known(&fixture, "e1").token, TokenState::Unused, "the same token is the same wait");
    assert_eq!(heard(&mut fixture, failed("t2"), now.plus(2)), Some(TokenTaken::Waits));
    let foreign = StatusItem { execution: execution("e2"), ..failed("t2") };
    assert_eq!(heard(&mut fixture, foreign, now.plus(2)), Some(TokenTaken::Foreign));
    assert!(!known(&fixture, "e2").parked);
    assert_eq!(heard(&mut fixture, status("e2", WorkflowStatus::Failed, &[]), now.plus(3)), None);
    let token_of = |fixture: &Fixture, text: &str| match &fixture
        .state
        .record(&RecordKey::token(&tenant(), &Arc::from(text)))
        .unwrap()
        .value
    {
        RecordValue::Token(token) => token.state,
        other => panic!("{other:?}"),
    };
    assert_eq!(token_of(&fixture, "t1"), TokenState::Replaced);
    assert_eq!(fixture.state.triage().parked_count(&tenant()), 1);
    // One that came late ends nothing and its token is good for nothing.
    fixture.run(&publish_status(status("e1", WorkflowStatus::InProgress, &[]), now)).unwrap();
    assert_eq!(heard(&mut fixture, failed("t0"), now), Some(TokenTaken::Late));
    assert!(known(&fixture, "e1").parked);
    assert_eq!(token_of(&fixture, "t0"), TokenState::Replaced);
    let (commit, _) = fixture.run(&unpark("e1")).unwrap();
    assert_eq!(commit.events[0].event_type.as_str(), "Execution Resumed");
    assert_eq!(fixture.run(&unpark("e1")).unwrap_err(), Refusal::NotParked(execution("e1")));
    let Some(Unparked::Resumed { output, .. }) = known(&fixture, "e1").outcome else { panic!("resumed") };
    assert_eq!(output.as_str(), r#"{"resolved":true}"#);
    // A used token parks nobody.
    assert_eq!(heard(&mut fixture, failed("t2"), now.plus(3)), Some(TokenTaken::Used));
    assert!(!known(&fixture, "e1").parked);
    let outcome_of = |fixture: &Fixture, text: &str| match &fixture
        .state
        .record(&RecordKey::token(&tenant(), &Arc::from(text)))
        .unwrap()
        .value
    {
        RecordValue::Token(token) => token.outcome.clone(),
        other => panic!("{other:?}"),
    };
    // Another status says that it went on by itself.
    fixture.run(&publish_status(failed("t3"), now.plus(4))).unwrap();
    assert!(matches!(outcome_of(&fixture, "t2"), Some(Unparked::Resumed { .. })), "its token tells it still");
    let (commit, _) =
        fixture.run(&publish_status(status("e1", WorkflowStatus::Succeeded, &[]), now.plus(5))).unwrap();
    assert_eq!(commit.events.len(), 1, "nothing more is told");
    let ended = known(&fixture, "e1");
    assert_eq!((ended.parked, ended.token), (false, TokenState::Replaced));
    // The same token was never used: the execution may wait with it again. It may not with an older one.
    assert_eq!(heard(&mut fixture, failed("t1"), now.plus(6)), Some(TokenTaken::Replaced));
    assert!(!known(&fixture, "e1").parked);
    fixture.run(&publish_status(failed("t3"), now.plus(7))).unwrap();
    assert!(known(&fixture, "e1").parked);
    assert_eq!(token_of(&fixture, "t3"), TokenState::Unused);
    fixture.run(&unpark("e1")).unwrap();
    assert!(matches!(fixture.run(&unpark("nobody")), Err(Refusal::NotFound { what: "execution", .. })));
}

#[test]
fn a_step_that_is_over_is_not_begun_again_within_its_second() {
    let mut fixture = Fixture::new();
    let now = fixture.now;
    let coarse = |which| StatusItem { whole_second: true, ..status("e1", which, &[]) };
    fixture.run(&publish_status(coarse(WorkflowStatus::Failed), now)).unwrap();
    fixture.run(&publish_status(coarse(WorkflowStatus::InProgress), now)).unwrap();
    assert_eq!(known(&fixture, "e1").status, WorkflowStatus::Failed);
    fixture.run(&publish_status(coarse(WorkflowStatus::InProgress), now.plus(1_000))).unwrap();
    assert_eq!(known(&fixture, "e1").status, WorkflowStatus::InProgress);
}

#[test]
fn nobody_waits_for_ever() {
    let mut fixture = Fixture::new();
    fixture.policy.park_millis = 100_000;
    let now = fixture.now;
    let item = StatusItem { token: Some(token("t1")), ..status("e1", WorkflowStatus::Failed, &["20Cook"]) };
    fixture.run(&publish_status(item, now)).unwrap();
    let look = |fixture: &mut Fixture| {
        let keys = vec![ParkedKey { tenant: tenant(), execution: execution("e1") }];
        let (commit, reply) = fixture.run(&Command::LookAfterParked(LookAfterParked { keys })).unwrap();
        let types: Vec<_> = commit.events.iter().map(|event| event.event_type.to_string()).collect();
        (types, reply)
    };
    for (passed, expected) in [
        (89_999, vec![]),
        (90_000, vec!["Alert Raised".to_owned()]),
        (99_999, vec![]),
        (100_000, vec!["Execution Expired".to_owned()]),
        (200_000, vec![]),
    ] {
        assert_eq!(fixture.state.triage().due(now.plus(passed), 9).parked.is_empty(), expected.is_empty());
        fixture.now = now.plus(passed);
        assert_eq!(look(&mut fixture).0, expected, "after {passed} ms");
        // It stands from the alarm until the wait ends.
        let expiring = fixture.state.triage().expiring(&tenant());
        let stands = (90_000..100_000).contains(&passed);
        assert_eq!(
            expiring.map(|found| (found.count, found.first.deadline)),
            stands.then(|| (1, now.plus(100_000)))
        );
    }
    assert_eq!(fixture.run(&unpark("e1")).unwrap_err(), Refusal::TokenExpired(execution("e1")));
}

#[test]
fn a_bulk_goes_on_where_it_was_and_touches_nobody_twice() {
    let mut fixture = Fixture::new();
    let now = fixture.now;
    for number in 0..250 {
        let text = if number % 5 == 0 { "31001" } else { "20Cook" };
        let id = format!("e{number}");
        let item = StatusItem { token: Some(token(&id)), ..status(&id, WorkflowStatus::Failed, &[text]) };
        fixture.run(&publish_status(item, now)).unwrap();
    }
    let id = BulkId::mint(EventId::from_u128(1));
    let start = StartBulk {
        tenant: tenant(),
        id,
        action: resume(),
        filter: BulkFilter { code: Some(code("20Cook")), ..BulkFilter::default() },
        total: None,
        rate_per_second: None,
        by: None,
        reason: None,
    };
    fixture.run(&Command::StartBulk(start)).unwrap();
    // The bulk does not touch an execution that is parked later.
    fixture.now = now.plus(1);
    let late =
        StatusItem { token: Some(token("late")), ..status("late", WorkflowStatus::Failed, &["20Cook"]) };
    let at = fixture.now;
    fixture.run(&publish_status(late, at)).unwrap();
    let mut resumed = BTreeSet::new();
    let mut pages = 0;
    loop {
        let step = Command::StepBulk(StepBulk { tenant: tenant(), bulk: id });
        let (commit, reply) = fixture.run(&step).unwrap();
        for event in &commit.events {
            assert!(resumed.insert(event.entity.id.to_string()), "{} goes on once", event.entity.id);
        }
        pages += 1;
        let Reply::Bulk { bulk, next } = reply else { panic!("{reply:?}") };
        if next.is_none() {
            assert_eq!((bulk.done, bulk.total, bulk.state), (200, 200, BulkState::Done));
            break;
        }
    }
    assert_eq!((resumed.len(), pages), (200, 2));
    assert_eq!(fixture.state.triage().parked_count(&tenant()), 51);
    let again = fixture.run(&Command::StepBulk(StepBulk { tenant: tenant(), bulk: id }));
    assert_eq!(again.unwrap_err(), Refusal::BulkEnded(id));
    recount(&fixture);
}

#[test]
fn a_bulk_keeps_its_rate() {
    let mut fixture = Fixture::new();
    let begin = fixture.now;
    for number in 0..60 {
        let id = format!("e{number}");
        let item = StatusItem { token: Some(token(&id)), ..status(&id, WorkflowStatus::Failed, &["20Cook"]) };
        fixture.run(&publish_status(item, begin)).unwrap();
    }
    let id = BulkId::mint(EventId::from_u128(1));
    let start = StartBulk {
        tenant: tenant(),
        id,
        action: resume(),
        filter: BulkFilter::default(),
        total: None,
        rate_per_second: Some(10),
        by: None,
        reason: None,
    };
    fixture.run(&Command::StartBulk(start)).unwrap();
    loop {
        let (_, reply) = fixture.run(&Command::StepBulk(StepBulk { tenant: tenant(), bulk: id })).unwrap();
        let Reply::Bulk { bulk, next } = reply else { panic!("{reply:?}") };
        let most = fixture.now.since(begin) / 100 + 1;
        assert!(bulk.done <= most, "{} after {} ms", bulk.done, fixture.now.since(begin));
        match next {
            Some(next) => fixture.now = fixture.now.plus(1).max(next),
            None => break,
        }
    }
    let took = fixture.now.since(begin);
    assert!((5_500..7_000).contains(&took), "60 at 10 a second took {took} ms");
}

#[test]
fn executions_go_on_by_themselves_when_nothing_is_left_to_mend() {
    let mut fixture = Fixture::new();
    fixture.policy.auto_resume = true;
    let now = fixture.now;
    for (id, errors) in [("e1", &["20Cook"][..]), ("e2", &["20Cook", "31001"]), ("e3", &["31001"])] {
        let item = StatusItem { token: Some(token(id)), ..status(id, WorkflowStatus::Failed, errors) };
        fixture.run(&publish_status(item, now)).unwrap();
    }
    // By execution: at once.
    let (commit, _) = fixture.run(&marked(Some("e3"), None, ErrorMark::Resolve)).unwrap();
    let types: Vec<_> = commit.events.iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!(types, ["WorkflowEvent", "Execution Resumed"]);
    assert!(commit.events[0].position() < commit.events[1].position());
    // By code: by a bulk of its own, which leaves alone executions with other errors.
    fixture.run(&marked(None, Some("20Cook"), ErrorMark::Resolve)).unwrap();
    let (tenant, bulk) = fixture.state.triage().due(fixture.now, 0).bulks[0].clone();
    let (_, reply) = fixture.run(&Command::StepBulk(StepBulk { tenant, bulk })).unwrap();
    let Reply::Bulk { bulk, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((bulk.total, bulk.done, bulk.skipped, bulk.state), (1, 1, 1, BulkState::Done));
    assert!(!known(&fixture, "e1").parked && known(&fixture, "e2").parked);
}

#[test]
fn an_execution_is_found_by_all_its_codes_whenever_they_came() {
    let mut fixture = Fixture::new();
    fixture.policy.auto_resume = true;
    let now = fixture.now;
    let many: Vec<String> = (0..150).map(|number| format!("31{number:03}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let failed = |errors: &[&str]| status("e1", WorkflowStatus::Failed, errors);
    fixture.run(&publish_status(failed(&["20early"]), now)).unwrap();
    let parks = StatusItem { token: Some(token("t1")), ..failed(&many) };
    fixture.run(&publish_status(parks, now.plus(2))).unwrap();
    fixture.run(&publish_status(failed(&["20late"]), now.plus(1))).unwrap();
    for text in many.iter().copied().chain(["20late", "20early"]) {
        let filter = Some(code(text));
        assert_eq!(
            fixture.state.triage().parked_after(&tenant(), filter.as_ref(), None).count(),
            1,
            "{text}"
        );
        fixture.run(&marked(None, Some(text), ErrorMark::Resolve)).unwrap();
        while let Some((tenant, bulk)) = fixture.state.triage().due(fixture.now, 0).bulks.first().cloned() {
            fixture.run(&Command::StepBulk(StepBulk { tenant, bulk })).unwrap();
        }
        assert_eq!(known(&fixture, "e1").parked, text != "20early", "after {text}");
    }
}

#[test]
fn what_is_parked_and_mended_in_one_command_goes_on() {
    let mut fixture = Fixture::new();
    fixture.policy.auto_resume = true;
    let parks = StatusItem { token: Some(token("t1")), ..status("e1", WorkflowStatus::Failed, &["20Cook"]) };
    let mends = MarkItem {
        once: None,
        execution: None,
        code: Some(code("20Cook")),
        mark: ErrorMark::Resolve,
        by: None,
        reason: None,
    };
    let parks = event(WorkflowItem::Status(Box::new(parks)), Some(fixture.now));
    fixture.run(&publish(vec![parks, event(WorkflowItem::Mark(Box::new(mends)), None)])).unwrap();
    assert!(known(&fixture, "e1").parked);
    let (tenant, bulk) = fixture.state.triage().due(fixture.now, 0).bulks[0].clone();
    let (_, reply) = fixture.run(&Command::StepBulk(StepBulk { tenant, bulk })).unwrap();
    let Reply::Bulk { bulk, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((bulk.total, bulk.done, bulk.state), (1, 1, BulkState::Done));
    assert!(!known(&fixture, "e1").parked);
}

/// What the workflow webhook gets: which execution, and how its wait ended.
pub(crate) fn webhook(fixture: &Fixture) -> Vec<(String, String)> {
    let mut told: Vec<_> = fixture
        .state
        .records()
        .filter_map(|(_, record)| match &record?.value {
            RecordValue::Delivery(delivery) => {
                let body: serde_json::Value = delivery.body.read().unwrap();
                let text = |name: &str| body[name].as_str().unwrap().to_owned();
                Some((text("executionId"), text("outcome")))
            }
            _ => None,
        })
        .collect();
    told.sort();
    told
}

#[test]
fn the_webhook_hears_of_every_wait_that_somebody_ended() {
    let mut fixture = Fixture::new();
    fixture.policy.workflow_webhook = true;
    fixture.policy.auto_resume = true;
    let now = fixture.now;
    for (id, error) in
        [("bulk-1", "20Bulk"), ("bulk-2", "20Bulk"), ("code", "20Code"), ("own", "20Own"), ("on", "20On")]
    {
        let item = StatusItem { token: Some(token(id)), ..status(id, WorkflowStatus::Failed, &[error]) };
        fixture.run(&publish_status(item, now)).unwrap();
    }
    assert_eq!(webhook(&fixture), []);
    let id = BulkId::mint(EventId::from_u128(7));
    let start = StartBulk {
        tenant: tenant(),
        id,
        action: BulkAction::Fail { error: Arc::from("E"), cause: Arc::from("why") },
        filter: BulkFilter { code: Some(code("20Bulk")), ..BulkFilter::default() },
        total: None,
        rate_per_second: None,
        by: None,
        reason: None,
    };
    fixture.run(&Command::StartBulk(start)).unwrap();
    fixture.run(&Command::StepBulk(StepBulk { tenant: tenant(), bulk: id })).unwrap();
    // Mended, by the execution and by the code.
    fixture.run(&marked(Some("own"), None, ErrorMark::Resolve)).unwrap();
    fixture.run(&marked(None, Some("20Code"), ErrorMark::Resolve)).unwrap();
    let (tenant, bulk) = fixture.state.triage().due(fixture.now, 0).bulks[0].clone();
    fixture.run(&Command::StepBulk(StepBulk { tenant, bulk })).unwrap();
    // The holder of the token let this one go on.
    fixture.run(&publish_status(status("on", WorkflowStatus::Succeeded, &[]), now.plus(1))).unwrap();
    let expected = [("bulk-1", "failed"), ("bulk-2", "failed"), ("code", "resumed"), ("own", "resumed")];
    assert_eq!(webhook(&fixture), expected.map(|(id, how)| (id.to_owned(), how.to_owned())));
}
