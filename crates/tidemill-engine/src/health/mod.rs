//! Health checks: whether tasks that run are heard of, and whether anything stands still.
//!
//! A check looks at what is live, judges it by fixed rules, and writes one event with what it saw. It never changes a
//! task. Whom it alarms is decided here too; that they are told is a delivery, made in the commit of the event.

mod alarm;
mod board;
pub(crate) mod check;
mod facts;
pub(crate) mod record;
mod report;
mod rule;
pub mod text;

pub(crate) use crate::health::alarm::{Alarms, Change, TaskAlarm};
pub(crate) use crate::health::board::HealthBoard;
pub use crate::health::board::LastCheck;
#[cfg(test)]
pub(crate) use crate::health::facts::is_stalled;
pub use crate::health::facts::{Hold, LiveTask, Lookout};
pub(crate) use crate::health::report::Kept;
pub use crate::health::report::{Finding, FindingKind, HealthReport, TASKS_MAX};
pub(crate) use crate::health::rule::Judged;
pub use crate::health::rule::{HealthRules, classify};

/// What the events of checks are about, and the application that they name.
pub(crate) const ENTITY: &str = "health-check";
pub(crate) const APP: &str = "tidemill";
