//! Cells: the places in which errors of a code were seen, with what was counted there.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::workflow::OTHER_PLACES;

use crate::triage::ErrorState;

/// How many places of one code are told apart. Further ones are counted together.
pub const CELLS_MAX: usize = 64;

/// Where something happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    pub county: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_group_label: Option<Arc<str>>,
    pub phase: Arc<str>,
    pub step: Arc<str>,
}

impl Cell {
    /// Stands for all places beyond the limit.
    pub(crate) fn other() -> Self {
        let other: Arc<str> = Arc::from(OTHER_PLACES);
        Self { county: Arc::clone(&other), data_group_label: None, phase: Arc::clone(&other), step: other }
    }

    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let label = self.data_group_label.as_ref().map_or(0, |label| label.len());
        self.county.len() + label + self.phase.len() + self.step.len() + 8
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

/// How often, and in how many executions, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorCounts {
    pub occurrences: u64,
    pub open: u64,
    pub resolved: u64,
    pub unrecoverable: u64,
    pub ignored: u64,
}

impl ErrorCounts {
    /// The executions that had the error.
    pub fn executions(&self) -> u64 {
        self.open + self.resolved + self.unrecoverable + self.ignored
    }

    pub fn of(&self, state: ErrorState) -> u64 {
        match state {
            ErrorState::Open => self.open,
            ErrorState::Resolved => self.resolved,
            ErrorState::Unrecoverable => self.unrecoverable,
            ErrorState::Ignored => self.ignored,
        }
    }

    pub(crate) fn place(&mut self, state: ErrorState) -> &mut u64 {
        match state {
            ErrorState::Open => &mut self.open,
            ErrorState::Resolved => &mut self.resolved,
            ErrorState::Unrecoverable => &mut self.unrecoverable,
            ErrorState::Ignored => &mut self.ignored,
        }
    }

    /// Counts all executions of one state as of another. Says how many.
    pub(crate) fn turn(&mut self, from: ErrorState, to: ErrorState) -> u64 {
        if from == to {
            return 0;
        }
        let moved = std::mem::take(self.place(from));
        *self.place(to) += moved;
        moved
    }

    pub fn add(&mut self, other: &Self) {
        self.occurrences += other.occurrences;
        self.open += other.open;
        self.resolved += other.resolved;
        self.unrecoverable += other.unrecoverable;
        self.ignored += other.ignored;
    }
}

/// A place of one code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupCell {
    #[serde(flatten)]
    pub cell: Cell,
    pub counts: ErrorCounts,
}
