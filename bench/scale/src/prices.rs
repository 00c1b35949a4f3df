//! What it costs, from published prices: us-east-1, on demand, 2026, in USD, without free tiers and discounts.

use crate::shape::{
    CURSOR_UNITS, DISPATCH_SECONDS, HEARTBEAT, INDEXES, SAVE_SECONDS, Step, TASK, task_row_units, write_units,
};

const WRITE_UNIT: f64 = 0.625e-6;
/// Strongly consistent, up to 4 KB.
const READ_UNIT: f64 = 0.125e-6;
/// An event of up to 64 KB.
const BUS_EVENT: f64 = 1.00e-6;
const QUEUE_CALL: f64 = 0.40e-6;
const FUNCTION_CALL: f64 = 0.20e-6;
const FUNCTION_GB_SECOND: f64 = 16.6667e-6;
const FUNCTION_GB: f64 = 0.25;
/// What a function writes to its log of itself at each call, about 0.5 KB.
const FUNCTION_LOG: f64 = 0.5e-6 * 0.50;
/// Other processes that follow the log. Each reads every item once.
const FOLLOWERS: f64 = 4.0;
const STORED_GB_MONTH: f64 = 0.25;

/// What one thing costs, by part.
#[derive(Debug, Default, Clone, Copy)]
pub struct Cost {
    pub log: f64,
    pub events: f64,
    pub rows: f64,
    pub bus: f64,
    pub functions: f64,
    pub queue: f64,
}

impl Cost {
    pub fn sum(self) -> f64 {
        self.log + self.events + self.rows + self.bus + self.functions + self.queue
    }

    fn and(self, other: Self) -> Self {
        Self {
            log: self.log + other.log,
            events: self.events + other.events,
            rows: self.rows + other.rows,
            bus: self.bus + other.bus,
            functions: self.functions + other.functions,
            queue: self.queue + other.queue,
        }
    }
}

fn of_step(step: &Step) -> Cost {
    let units = step.events.iter().map(|(_, bytes)| write_units(*bytes)).sum::<u64>();
    let events = step.events.len() as f64;
    let call = |seconds: f64| FUNCTION_CALL + FUNCTION_LOG + seconds * FUNCTION_GB * FUNCTION_GB_SECOND;
    Cost {
        log: (write_units(step.log_bytes) + CURSOR_UNITS) as f64 * WRITE_UNIT
            + (step.reads as f64 + FOLLOWERS) * READ_UNIT,
        // Each is written once, and looked for once before its group of the log goes.
        events: (units * (1 + INDEXES)) as f64 * WRITE_UNIT + events * READ_UNIT,
        rows: 0.0,
        bus: events * BUS_EVENT,
        functions: events * call(SAVE_SECONDS) + step.ends() as f64 * call(DISPATCH_SECONDS),
        queue: step.queue as f64 * QUEUE_CALL,
    }
}

/// A task whose steps are committed one by one.
pub fn task() -> Cost {
    let rows = Cost { rows: task_row_units() as f64 * WRITE_UNIT, ..Cost::default() };
    TASK.iter().map(of_step).fold(rows, Cost::and)
}

pub fn heartbeat() -> Cost {
    of_step(&HEARTBEAT)
}

/// A million tasks' events, kept for a month.
pub fn stored_month() -> f64 {
    let bytes = TASK.iter().flat_map(|step| step.events).map(|(_, bytes)| *bytes).sum::<u64>();
    (bytes * (1 + INDEXES)) as f64 * 1e6 / 1e9 * STORED_GB_MONTH
}
