//! Triage records: in rows that leave memory, in a log whose beginning goes, and in an export.

use std::sync::Arc;

use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::import_dir::import_into;
use tidemill_engine::command::{Command, Publish, PublishedEvent, StartBulk, StepBulk, Unpark};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_engine::triage::{
    BulkAction, BulkFilter, BulkId, BulkState, Cell, ErrorGroup, ErrorMark, ErrorState, MarkItem, NewToken,
    Parked, StatusItem, WorkflowItem,
};
use tidemill_model::workflow::{ErrorCode, WorkflowRunId, WorkflowStatus};
use tidemill_model::{AppName, Context, Entity, EntityId, EntityType, EventId, EventType};

use super::lab::{DAY, Fresh, Lab, acme, assert_not_imported, json, plain, publish, small, unwatched};

const SECRET: &str = "sealed-secret";

fn code(text: &str) -> ErrorCode {
    ErrorCode::new(text).unwrap()
}

fn execution(number: u64) -> WorkflowRunId {
    WorkflowRunId::new(format!("arn:run-{number:04}")).unwrap()
}

fn event(item: WorkflowItem) -> PublishedEvent {
    let id = item.execution().map_or("-", WorkflowRunId::as_str);
    PublishedEvent {
        entity: Entity { kind: EntityType::new("WORKFLOW").unwrap(), id: EntityId::new(id).unwrap() },
        event_type: EventType::new("WorkflowEvent").unwrap(),
        timestamp: None,
        properties: plain("{}"),
        ttl: None,
        workflow: Some(item),
    }
}

fn events(items: impl IntoIterator<Item = WorkflowItem>) -> Command {
    Command::Publish(Publish {
        tenant: acme(),
        app: AppName::new("flow").unwrap(),
        context: Context { environment: "dev".into(), origin: "test".into(), worker_id: None },
        events: items.into_iter().map(event).collect(),
    })
}

fn failed(number: u64, codes: &[&str], token: bool) -> WorkflowItem {
    let made = NewToken { digest: Arc::from(format!("{number:064x}")), sealed: Arc::from(SECRET.as_bytes()) };
    let mut once = [0; 32];
    once[..8].copy_from_slice(&number.to_be_bytes());
    WorkflowItem::Status(Box::new(StatusItem {
        once: Some(once),
        execution: execution(number),
        cell: Cell {
            county: Arc::from(["Cook", "Lake"][usize::from(number.is_multiple_of(2))]),
            data_group_label: Some(Arc::from("County")),
            phase: Arc::from("Transform"),
            step: Arc::from("Transform"),
        },
        status: WorkflowStatus::Failed,
        whole_second: true,
        token: token.then_some(made),
        errors: codes.iter().map(|text| code(text)).collect(),
    }))
}

fn mark(execution: Option<WorkflowRunId>, code: Option<ErrorCode>, mark: ErrorMark) -> Command {
    let (by, reason) = (Some(Arc::from("ann")), Some(Arc::from("fixed")));
    events([WorkflowItem::Mark(Box::new(MarkItem { once: None, execution, code, mark, by, reason }))])
}

fn resume() -> BulkAction {
    BulkAction::Resume { output: json(r#"{"resolved":true}"#), rerun: false }
}

fn unpark(number: u64) -> Command {
    let (tenant, execution) = (acme(), execution(number));
    Command::Unpark(Unpark { tenant, execution, how: resume(), by: None, reason: None })
}

/// All that must be known from the start.
fn known(lab: &Lab) -> (Vec<Arc<ErrorGroup>>, Vec<Arc<Parked>>) {
    let mut groups = lab.store.state().triage().groups(&acme());
    groups.sort_by(|one, two| one.code.cmp(&two.code));
    let parked = lab.store.state().triage().parked_after(&acme(), None, None).cloned().collect();
    (groups, parked)
}

/// Counts the errors that are kept and compares them with what the groups say.
fn recount(lab: &Lab) {
    let (groups, _) = known(lab);
    let records = lab.store.records(RecordKind::Triage).unwrap();
    for group in groups {
        for state in ErrorState::ALL {
            let counted = records
                .iter()
                .filter(|(_, record)| match &record.value {
                    RecordValue::TriageError(error) => {
                        error.code == group.code && group.state_of(error.state, error.clock) == state
                    }
                    _ => false,
                })
                .count();
            assert_eq!(group.counts().of(state), counted as u64, "{} {state:?}", group.code);
        }
    }
}

fn in_memory(lab: &Lab, kind: RecordKind) -> usize {
    lab.store.state().records().filter(|(key, _)| key.kind == kind).count()
}

/// Some of everything: open, resolved and given up errors, executions that wait and that do not.
fn rich(lab: &mut Lab) {
    for first in (0..200).step_by(50) {
        let item = |number: u64| match number % 3 {
            0 => failed(number, &["20Cook", "20Cook"], true),
            1 => failed(number, &["20Cook", "31001"], false),
            _ => failed(number, &["31001"], true),
        };
        lab.run(events((first..first + 50).map(item))).unwrap();
    }
    lab.run(mark(None, Some(code("20Cook")), ErrorMark::Resolve)).unwrap();
    lab.run(mark(Some(execution(1)), None, ErrorMark::Unrecoverable)).unwrap();
    lab.run(unpark(0)).unwrap();
}

fn start(lab: &mut Lab, id: BulkId) {
    let start = StartBulk {
        tenant: acme(),
        id,
        action: resume(),
        filter: BulkFilter { code: Some(code("31001")), ..BulkFilter::default() },
        total: None,
        rate_per_second: None,
        by: Some(Arc::from("ann")),
        reason: None,
    };
    lab.run(Command::StartBulk(start)).unwrap();
}

#[test]
fn errors_and_executions_leave_memory_and_groups_and_those_that_wait_stay() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    rich(&mut lab);
    recount(&lab);
    lab.store.flush_rows().unwrap();
    assert_eq!(in_memory(&lab, RecordKind::Triage), 0, "the rows have them");
    assert_eq!(in_memory(&lab, RecordKind::ErrorGroup), 2);
    assert_eq!(in_memory(&lab, RecordKind::Parked), 132);
    lab.assert_clean();
    // A repetition is known though its execution has left memory; a new occurrence finds its error.
    let before = known(&lab);
    let reply = lab.run(events([failed(3, &["20Cook", "20Cook"], true)])).unwrap();
    assert!(matches!(reply, Reply::Noted { ref events, .. } if events[0].2), "{reply:?}");
    assert_eq!(known(&lab), before);
    assert_eq!(lab.run(unpark(0)).unwrap_err(), Refusal::NotParked(execution(0)));
    let id = BulkId::mint(EventId::from_u128(9));
    start(&mut lab, id);
    let step = || Command::StepBulk(StepBulk { tenant: acme(), bulk: id });
    // Rows come and go while it runs.
    let pages = |lab: &mut Lab| {
        let Reply::Bulk { bulk, .. } = lab.run(step()).unwrap() else { panic!("a bulk") };
        (bulk.done, bulk.state)
    };
    assert_eq!(bulk_total(&lab, id), 66);
    let done = pages(&mut lab);
    assert_eq!(done, (66, BulkState::Done));
    recount(&lab);
    let expected = known(&lab);
    let now = lab.now;
    drop(lab);
    let lab = Lab::keeping(&dir, 0, now);
    assert_eq!(known(&lab), expected);
    recount(&lab);
    lab.assert_clean();
    let mut lab = lab.rebuilt(&dir, 0);
    assert_eq!(known(&lab), expected);
    lab.store.flush_rows().unwrap();
    assert_eq!(in_memory(&lab, RecordKind::Parked), 66, "those that went on need no memory");
    lab.assert_clean();
}

fn bulk_total(lab: &Lab, id: BulkId) -> u64 {
    lab.store.state().triage().bulk(&acme(), id).unwrap().total
}

/// Fills several segments and seals them, with a checkpoint behind.
fn fill(lab: &mut Lab) {
    for n in 0..200 {
        let padding = "x".repeat(400);
        let event = publish("filler", plain(&format!(r#"{{"n":{n},"padding":"{padding}"}}"#)), None, None);
        lab.run(event).unwrap();
    }
    lab.store.flush_rows().unwrap();
    lab.seal_all();
}

#[test]
fn records_outlive_their_events_and_go_when_nothing_of_them_is_open() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 10);
    rich(&mut lab);
    fill(&mut lab);
    lab.pass(20 * DAY);
    fill(&mut lab);
    let before = known(&lab);
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_dropped > 0 && expired.rows_carried > 0, "{expired:?}");
    lab.assert_clean();
    for round in 0..2 {
        assert_eq!(known(&lab), before, "round {round}");
        recount(&lab);
        lab = lab.rebuilt(&dir, 10);
    }
    // After 90 days settled records go; open errors and waiting executions stay.
    lab.pass(75 * DAY);
    lab.store.flush_rows().unwrap();
    lab.store.expire(lab.now).unwrap();
    lab.store.flush_rows().unwrap();
    lab.store.expire(lab.now).unwrap();
    recount(&lab);
    let (groups, parked) = known(&lab);
    let codes: Vec<_> = groups.iter().map(|group| (group.code.to_string(), group.counts())).collect();
    assert_eq!(codes.len(), 1, "all of 20Cook was resolved: {codes:?}");
    assert_eq!((codes[0].0.as_str(), codes[0].1.open), ("31001", 132));
    assert_eq!(parked, before.1);
    let row = |number| {
        lab.store.row(&RowKey::Record(RecordKey::triage_execution(&acme(), &execution(number)))).unwrap()
    };
    assert!(row(0).is_none(), "it waits no longer and its errors are settled");
    assert!(row(3).is_some(), "it waits");
    assert!(row(4).is_some(), "it has an open error");
    lab.store.flush_rows().unwrap();
    lab.assert_clean();
}

#[test]
fn an_export_takes_triage_along_and_leaves_the_tokens() {
    let (one, two) = (Fresh::new(), Fresh::new());
    let mut lab = Lab::begun(&one, 0);
    rich(&mut lab);
    start(&mut lab, BulkId::mint(EventId::from_u128(9)));
    let text = lab.export();
    assert!(!text.contains(SECRET));
    let sealed = base64_of(SECRET.as_bytes());
    assert!(!text.contains(&sealed), "not as bytes either");
    let lock = DataLock::take(&two).unwrap();
    import_into(&two, &lock, small(), &mut text.as_bytes(), lab.now, &mut unwatched).unwrap();
    drop(lock);
    let mut copy = Lab::keeping(&two, 0, lab.now);
    copy.assert_clean();
    assert_eq!(copy.export(), text);
    assert_eq!(known(&copy), known(&lab));
    recount(&copy);
    // The holder of a token cannot ask for it here; people can still let the execution go on.
    let key = RecordKey::token(&acme(), &Arc::from(format!("{:064x}", 3)));
    assert_eq!(copy.store.row(&RowKey::Record(key)).unwrap(), None);
    copy.run(unpark(3)).unwrap();
    assert_eq!(copy.run(unpark(3)).unwrap_err(), Refusal::NotParked(execution(3)));
    for (from, to) in
        [("\"state\":\"open\"", "\"state\":\"ajar\""), ("\"status\":\"FAILED\"", "\"status\":\"LOST\"")]
    {
        assert_not_imported(&text, from, to, lab.now);
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn rows_say_what_the_log_says() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    rich(&mut lab);
    lab.store.flush_rows().unwrap();
    let row = RowKey::Record(RecordKey::triage_execution(&acme(), &execution(2)));
    let Some(Row::Record(record)) = lab.store.row(&row).unwrap() else { panic!("it is there") };
    let RecordValue::TriageExecution(found) = record.value else { panic!("an execution") };
    assert_eq!((found.parked, found.codes.as_slice()), (true, &[code("31001")][..]));
    assert_eq!(record.expires_at, None, "whoever waits is not forgotten");
}
