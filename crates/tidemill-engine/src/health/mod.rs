//! Health checks: whether running tasks report, and whether anything stands still.
//!
//! A check looks at what is live, judges it by fixed rules, and writes one event with what it saw. It never changes a
//! task. It also decides which alarms to raise; an alarm is a delivery, made in the commit of the event.

mod alarm;
mod board;
pub(crate) mod check;
mod facts;
pub(crate) mod record;
mod report;
mod rule;
pub mod text;

pub(crate) use alarm::{Alarms, Change, TaskAlarm};
pub(crate) use board::HealthBoard;
pub use board::LastCheck;
#[cfg(test)]
pub(crate) use facts::is_stalled;
pub use facts::{Hold, LiveTask, Lookout};
pub(crate) use report::Kept;
pub use report::{Finding, FindingKind, HealthReport, TASKS_MAX};
pub(crate) use rule::Judged;
pub use rule::{HealthRules, classify};

/// What the events of checks are about, and the application that they name.
pub(crate) const ENTITY: &str = "health-check";
pub(crate) const APP: &str = "tidemill";
