//! `docs/reference/events.md` lists every event type with its fields, and nothing else.
//!
//! The fields are those of samples in which everything that can be left out is there. The properties of alerts, executions and
//! errors have no types here: of those the page must have a table.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::events::event::Event;
use crate::events::event_fields::FIELDS;
use crate::events::key::Index;
use crate::events::known_type::{KnownType, is_reserved};
use crate::events::overflow::{DETAIL_BYTES_MAX, OVERFLOW_FIELD};
use crate::events::properties::{
    Activity, ActivityKind, BudgetExceeded, ChangeSource, ChangedTask, CompletionSource, FailureSource,
    HealthLevel, HealthSummary, JobCancelled, JobCompleted, JobCreated, JobFailureDetected, JobTasksAdded,
    JobTasksChanged, MemoryUsage, OverflowRef, TaskCompleted, TaskFailed, TaskHealth, TaskHealthCheck,
    TaskHeartbeat, TaskIdentity, TaskPending, TaskProcessingFailed, TaskProcessingStarted, TaskStatuses,
    TaskTimeout,
};
use crate::{
    ArtifactFile, Budget, BudgetScope, EntityType, ErrorCategory, Fence, JobCounts, JobId, Json, MicroUsd,
    OnFailure, Period, RequestId, SessionId, Spending, TaskId, TaskName, TaskOptions, TaskSpec, Timestamp,
    Usage, WorkerId,
};

const PAGE: &str = include_str!("../../../../docs/reference/events.md");
/// The section of fields that several types have.
const SHARED: &str = "Shared objects";

/// What a table names in its first column, by the heading above it.
fn tables() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut tables: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let (mut heading, mut is_of_fields) = ("", false);
    for line in PAGE.lines() {
        if let Some(text) = line.strip_prefix('#') {
            heading = text.trim_start_matches('#').trim();
        } else if !line.starts_with('|') {
            is_of_fields = false;
        } else if line.starts_with("| field |") || line.starts_with("| type |") {
            is_of_fields = true;
        } else if is_of_fields && let Some(cell) = line.split('|').nth(1) {
            // Every second piece stands between backticks.
            tables.entry(heading).or_default().extend(cell.split('`').skip(1).step_by(2));
        }
    }
    tables
}

/// The headings of types.
fn sections() -> BTreeSet<&'static str> {
    let (_, types) = PAGE.split_once("\n## All types\n").expect("the list of types");
    types.lines().filter_map(|line| line.strip_prefix("### ")).collect()
}

/// The fields of an object, and those of objects and lists of objects in it.
fn paths(value: &Value) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for (name, value) in value.as_object().expect("properties are an object") {
        paths.insert(name.clone());
        let (inner, between) = match value {
            Value::Array(items) => (items.first().and_then(Value::as_object), "[]."),
            value => (value.as_object(), "."),
        };
        paths.extend(
            inner.into_iter().flat_map(|inner| inner.keys()).map(|key| format!("{name}{between}{key}")),
        );
    }
    paths
}

/// Properties with all fields that they can have.
#[expect(clippy::too_many_lines, reason = "a table: one sample for each type")]
fn full(known: KnownType) -> Option<Value> {
    let (job, task_id) = (JobId::from_u128(7), TaskId::trusted("a"));
    let (name, worker, fence) = (TaskName::trusted("work"), WorkerId::trusted("w"), Fence(1));
    let request = job.request_id(&task_id);
    let task = TaskIdentity {
        request_id: request.clone(),
        job_id: Some(job),
        task_id: Some(task_id.clone()),
        run: 2,
    };
    let session = Some(SessionId::trusted("s"));
    let at = Timestamp::MIN;
    let usage = Some(Usage {
        input_tokens: 1,
        output_tokens: 1,
        cache_read_tokens: 1,
        cache_write_tokens: 1,
        turns: 1,
        cost_micros: 1,
    });
    let budget = Budget { usd: Some(MicroUsd(1)), tokens: Some(1) };
    let overflow = Some(OverflowRef { bucket: "b".to_owned(), key: "k".to_owned() });
    let specs = Some(vec![TaskSpec {
        task_id: task_id.clone(),
        name: name.clone(),
        depends_on: Vec::new(),
        input: Json::empty_object(),
        options: TaskOptions { on_failure: OnFailure::Park, ..TaskOptions::default() },
    }]);
    let counts = JobCounts { waiting: 1, pending: 1, processing: 1, completed: 1, failed: 1, parked: 1 };
    let statuses = TaskStatuses { task_statuses: BTreeMap::new(), counts: Some(counts), truncated: true };
    let text = || "x".to_owned();
    Some(match known {
        KnownType::TaskPending => {
            value(&TaskPending { task, name, depends_on: Some(Vec::new()), depends_on_count: Some(1) })
        }
        KnownType::TaskProcessingStarted => value(&TaskProcessingStarted {
            task,
            effective_until: at,
            worker_id: worker,
            process_id: 1,
            fence,
            directory: Some(text()),
            variables: vec![text()],
        }),
        KnownType::TaskProcessingFailed => value(&TaskProcessingFailed {
            task,
            attempt_number: 1,
            counted: false,
            parked: true,
            error: text(),
            error_category: ErrorCategory::Network,
            code: Some(text()),
            duration_ms: Some(1),
            usage,
            session_id: session,
            fence,
        }),
        KnownType::TaskCompleted => value(&TaskCompleted {
            task,
            output: Some(Json::of(&1)),
            duration_ms: 1,
            exit_code: 0,
            artifacts: vec![ArtifactFile { path: text(), size_bytes: 1, sha256: text() }],
            source: Some(CompletionSource::Resume),
            usage,
            session_id: session,
            fence,
            overflow,
        }),
        KnownType::TaskFailed => value(&TaskFailed {
            task,
            error: text(),
            error_category: ErrorCategory::Auth,
            retry_count: 1,
            source: FailureSource::Worker,
            code: Some(text()),
            duration_ms: Some(1),
            usage,
            session_id: session,
            fence: Some(fence),
        }),
        KnownType::TaskTimeout => value(&TaskTimeout {
            task,
            timeout_ms: 1,
            elapsed_ms: 1,
            signal: text(),
            usage,
            session_id: session,
            fence,
        }),
        KnownType::TaskHeartbeat => value(&TaskHeartbeat {
            request_id: request,
            run: task.run,
            effective_until: at,
            heartbeat_number: 1,
            elapsed_ms: 1,
            worker_id: worker,
            process_id: 1,
            memory_usage: MemoryUsage { rss: 1 },
            last_activity: Some(Activity { kind: ActivityKind::Waiting, step_name: text(), timestamp: at }),
            fence,
        }),
        KnownType::JobCreated => value(&JobCreated {
            job_id: job,
            request_id: request,
            name: Some(text()),
            budget: Some(budget),
            tasks: specs,
            total_tasks: 1,
            overflow,
        }),
        KnownType::JobTasksAdded => value(&JobTasksAdded {
            job_id: job,
            new_tasks: specs,
            previous_total_tasks: 1,
            total_tasks_now: 2,
            overflow,
        }),
        KnownType::JobTasksChanged => value(&JobTasksChanged {
            job_id: job,
            tasks: vec![ChangedTask { task_id, fields: Vec::new() }],
            task_count: 1,
            source: ChangeSource::Update,
            by: text(),
        }),
        KnownType::JobCompleted => value(&JobCompleted { job_id: job, total_tasks: 1, statuses }),
        KnownType::JobFailureDetected => {
            value(&JobFailureDetected { job_id: job, failed_task_id: task_id, statuses })
        }
        KnownType::JobCancelled => value(&JobCancelled { job_id: job, by: text(), reason: Some(text()) }),
        KnownType::BudgetExceeded => value(&BudgetExceeded {
            scope: BudgetScope::Job,
            job_id: Some(job),
            request_id: request,
            limit: budget,
            period: Some(Period::Day),
            spent: Spending { cost_micros: 1, tokens: 1 },
        }),
        KnownType::TaskHealthCheck => value(&TaskHealthCheck {
            summary: HealthSummary::default(),
            tasks: vec![TaskHealth {
                request_id: RequestId::trusted("r"),
                health: HealthLevel::Warning,
                elapsed: 1,
                time_since_last_event: 1,
                last_event_type: text(),
                worker_id: Some(worker),
            }],
        }),
        KnownType::AlertRaised
        | KnownType::AlertCleared
        | KnownType::ExecutionResumed
        | KnownType::ExecutionFailed
        | KnownType::ExecutionExpired
        | KnownType::ErrorIgnored
        | KnownType::ErrorReopened => return None,
    })
}

fn value(properties: &impl Serialize) -> Value {
    serde_json::to_value(properties).expect("properties are JSON")
}

#[test]
fn every_type_has_a_row_and_a_section_and_no_other_has() {
    let known: BTreeSet<_> = KnownType::ALL.iter().map(|known| known.as_str()).collect();
    assert_eq!(tables()["All types"], known);
    assert_eq!(sections(), known);
}

#[test]
fn every_field_of_a_type_is_in_its_table_and_no_other_is() {
    let tables = tables();
    let shared = &tables[SHARED];
    let mut all = BTreeSet::new();
    for known in KnownType::ALL {
        let Some(own) = tables.get(known.as_str()) else { panic!("{known:?} has no table of fields") };
        let Some(sample) = full(*known) else { continue };
        let paths = paths(&sample);
        for path in &paths {
            let is_listed =
                own.contains(path.as_str()) || path.contains('.') && shared.contains(path.as_str());
            assert!(is_listed, "the table of {known:?} does not list {path}");
        }
        for listed in own {
            // Whether a list has to move is nothing that its type says.
            assert!(paths.contains(*listed) || *listed == OVERFLOW_FIELD, "{known:?} has no field {listed}");
        }
        all.extend(paths);
    }
    let unknown: Vec<_> = shared.iter().filter(|listed| !all.contains(**listed)).collect();
    assert!(unknown.is_empty(), "no type has {unknown:?}");
}

#[test]
fn the_example_has_the_keys_of_its_fields() {
    let (_, rest) = PAGE.split_once("```json\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let event = Event::from_json(example).unwrap();
    let rendered: Value = serde_json::from_str(&event.to_json()).unwrap();
    assert_eq!(rendered, serde_json::from_str::<Value>(example).unwrap());
    let known = KnownType::from_name(event.event_type.as_str()).unwrap();
    assert_eq!(known, KnownType::TaskProcessingStarted);
    let started: TaskProcessingStarted = event.properties.read().unwrap();
    assert_eq!(value(&started), event.properties.read::<Value>().unwrap());
    assert_eq!(event.id.as_u128() >> 80, u128::from(event.timestamp.millis()), "the id has its time");
}

#[test]
fn the_form_of_an_event_is_told_whole() {
    let listed = &tables()["The form of an event"];
    for field in FIELDS.iter().skip(2 * Index::ALL.len()) {
        assert!(listed.contains(field), "{field}");
    }
    for index in Index::ALL {
        let [pk, sk] = index.attributes();
        assert!(PAGE.contains(&format!("\n| `{pk}`, `{sk}` | `")), "{pk}");
    }
    let unknown: Vec<_> = listed.iter().filter(|listed| !FIELDS.contains(listed)).collect();
    assert!(unknown.is_empty(), "an event has no field {unknown:?}");
}

#[test]
fn what_is_reserved_and_the_limit_are_those_of_the_code() {
    let (_, rest) = PAGE.split_once("\n### Entities\n").expect("a section");
    let (section, _) = rest.split_once("\n### ").expect("its end");
    let named: BTreeSet<_> = section.split('`').skip(1).step_by(2).collect();
    for entity in EntityType::RESERVED {
        assert!(named.contains(entity), "{entity}");
    }
    for known in KnownType::ALL.iter().map(|known| known.as_str()) {
        assert!(is_reserved(known), "{known}");
        let by_prefix = ["Task ", "Job "].into_iter().any(|prefix| known.starts_with(prefix));
        assert!(by_prefix || named.contains(known), "{known}");
    }
    assert_eq!(DETAIL_BYTES_MAX, 204_800);
    assert!(PAGE.contains("has at most 204,800 bytes (200 KiB)"));
}
