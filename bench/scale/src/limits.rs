//! How many tasks a second each part takes, from published quotas.

use crate::format::thousands;
use crate::shape::{
    DISPATCH_SECONDS, INDEXES, SAVE_SECONDS, TASK, task_events, task_log_units, task_row_units, write_units,
};

/// Write units a second of one partition of a table or an index.
const PARTITION_WRITES: f64 = 1_000.0;
/// Write units a second of a table, and of each index, unless more were asked for.
const TABLE_WRITES: f64 = 40_000.0;
/// How many writes a second a new table on demand accepts at first.
const NEW_TABLE_WRITES: f64 = 4_000.0;
const PUT_EVENTS_CALLS: [(&str, f64); 3] = [
    ("us-east-1, us-west-2, eu-west-1", 10_000.0),
    ("us-east-2, eu-central-1", 2_400.0),
    ("smallest", 400.0),
];
const TARGET_CALLS: [f64; 3] = [18_750.0, 4_500.0, 750.0];
const ENTRIES_PER_CALL: f64 = 10.0;
/// Rules that an event of a task meets: all are saved, and an end goes to the dispatcher.
const TARGETS_OF_A_TASK: f64 = 4.0;
const LAMBDAS_AT_ONCE: f64 = 1_000.0;
const PUT_SECONDS: f64 = 0.004;

pub struct Limit {
    pub part: String,
    pub what: String,
    pub tasks_per_second: f64,
}

/// `shards`: how many partitions the events of one key are spread over. 1 is what readers outside expect.
pub fn limits(shards: f64) -> Vec<Limit> {
    let limit = |part: &str, what: String, tasks_per_second: f64| Limit {
        part: part.to_owned(),
        what,
        tasks_per_second,
    };
    let event_units = task_events().map(write_units).sum::<u64>() as f64;
    let dearest_event = task_events().map(write_units).max().unwrap_or(1) as f64;
    let events = task_events().count() as f64;
    let steps = TASK.len() as f64;
    let mut found = vec![
        limit(
            "table, partition `TENANT#…`",
            format!("all events of a tenant: {event_units} units a task, 1,000 a second"),
            shards * PARTITION_WRITES / event_units,
        ),
        limit(
            "GSI2, partition `APP#…`",
            "all events of an app, of all tenants: the same".to_owned(),
            shards * PARTITION_WRITES / event_units,
        ),
        limit(
            "GSI4, GSI6, partition `EVENT#…`",
            format!("all events of a type: {dearest_event} units a task, 1,000 a second"),
            shards * PARTITION_WRITES / dearest_event,
        ),
        limit(
            "table, new",
            format!("{} units a task in the table, 4,000 a second at first", table_units()),
            NEW_TABLE_WRITES / table_units(),
        ),
        limit(
            "table",
            format!("{} units a task in the table, 40,000 a second by default", table_units()),
            TABLE_WRITES / table_units(),
        ),
    ];
    for ((region, calls), targets) in PUT_EVENTS_CALLS.into_iter().zip(TARGET_CALLS) {
        let by_calls = calls * ENTRIES_PER_CALL / events;
        found.push(limit(
            "bus",
            format!(
                "{region}: {} calls of at most 10 events, {} deliveries a second",
                thousands(calls as u64),
                thousands(targets as u64)
            ),
            by_calls.min(targets / TARGETS_OF_A_TASK),
        ));
    }
    found.push(limit(
        "functions",
        format!(
            "{} at once, {} ms to save an event, {} to look at what follows a task",
            thousands(LAMBDAS_AT_ONCE as u64),
            SAVE_SECONDS * 1e3,
            DISPATCH_SECONDS * 1e3
        ),
        LAMBDAS_AT_ONCE / (SAVE_SECONDS * events + DISPATCH_SECONDS),
    ));
    found.push(limit(
        "log, one process decides",
        format!(
            "{} ms a put, groups of up to 2,000 commands, {steps} commands a task, 30 us each",
            PUT_SECONDS * 1e3
        ),
        1.0 / (steps * (30e-6 + PUT_SECONDS / 2_000.0)),
    ));
    found
}

/// Write units of a task in the table itself, indexes not counted.
fn table_units() -> f64 {
    (task_events().map(write_units).sum::<u64>() + task_log_units() + task_row_units()) as f64
}

/// Write units of a task, indexes counted.
pub fn all_units() -> f64 {
    table_units() + (INDEXES * task_events().map(write_units).sum::<u64>()) as f64
}
