//! Groups: all errors of one code, counted, with the marks that hold for all of them at once.
//!
//! A mark on a code touches no record of an execution. Each (execution, code) error keeps the state that it had when it
//! was last looked at, and the group's clock of that moment; what the group's marks made of it since is a function of
//! the two ([`ErrorGroup::state_of`]). Counts move with the mark, a cell at a time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::workflow::{ErrorCode, WorkflowRunId};
use tidemill_model::{EventId, Timestamp};

use crate::triage::{CELLS_MAX, Cell, ErrorCounts, GroupCell};

/// How many hours the trend of a code goes back.
pub const HOURS_MAX: usize = 48;
/// How many of the newest occurrences a group names.
pub const SAMPLES_MAX: usize = 5;

const HOUR_MILLIS: u64 = 3_600_000;

/// Where an error of an execution stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorState {
    Open,
    /// It was mended. It opens again when it comes again.
    Resolved,
    /// It cannot be mended, and stays so whatever comes, until it is resolved or reopened by hand.
    Unrecoverable,
    /// Nobody wants to see it for some time.
    Ignored,
}

impl ErrorState {
    pub const ALL: [Self; 4] = [Self::Open, Self::Resolved, Self::Unrecoverable, Self::Ignored];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resolved => "resolved",
            Self::Unrecoverable => "unrecoverable",
            Self::Ignored => "ignored",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// What has errors of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupKind {
    /// Workflows elsewhere, under codes of their own.
    Workflow,
    /// Tasks that run here.
    Task,
}

/// A mark on a code: when, its author, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The group's clock when it was set.
    pub clock: u64,
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

/// The last mark that set all errors of a code to one state: resolved or open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settled {
    pub state: ErrorState,
    pub mark: Mark,
}

/// A code that is, or was, not to be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ignored {
    pub mark: Mark,
    /// It ends at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// It ends when the code has occurred this often in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_occurrences: Option<u64>,
    /// The group's clock when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
}

/// One occurrence, by which its details are found in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    pub execution: WorkflowRunId,
    pub event: EventId,
    /// Which of the event's errors, from 0.
    pub index: u32,
    pub at: Timestamp,
    /// Whether the event is one of a task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_task: bool,
}

/// All errors of a code, within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorGroup {
    pub code: ErrorCode,
    pub kind: GroupKind,
    /// What an uncoded error says, without what differs from one occurrence to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Arc<str>>,
    pub cells: Vec<GroupCell>,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    /// Hours since 1970 with what was counted in them, oldest first, without empty ones.
    pub hours: Vec<(u64, u64)>,
    /// Newest last.
    pub samples: Vec<Sample>,
    /// Counts whatever happens to the group.
    pub clock: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecoverable: Option<Mark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<Ignored>,
}

impl ErrorGroup {
    pub(crate) fn new(code: ErrorCode, kind: GroupKind, title: Option<Arc<str>>, at: Timestamp) -> Self {
        Self {
            code,
            kind,
            title,
            cells: Vec::new(),
            first_seen: at,
            last_seen: at,
            hours: Vec::new(),
            samples: Vec::new(),
            clock: 0,
            settled: None,
            unrecoverable: None,
            ignored: None,
        }
    }

    /// What was counted in all places.
    pub fn counts(&self) -> ErrorCounts {
        let mut counts = ErrorCounts::default();
        self.cells.iter().for_each(|cell| counts.add(&cell.counts));
        counts
    }

    /// Whether the code is ignored now. See [`ErrorGroup::lapse`].
    pub fn is_ignored(&self) -> bool {
        self.ignored.as_ref().is_some_and(|ignored| ignored.ended.is_none())
    }

    /// What an error's state, known at a moment of the group's clock, is by now.
    pub fn state_of(&self, state: ErrorState, clock: u64) -> ErrorState {
        let mut state = state;
        if let Some(settled) = self.settled.as_ref().filter(|settled| clock < settled.mark.clock) {
            state = settled.state;
        }
        if !matches!(state, ErrorState::Open | ErrorState::Ignored) {
            return state;
        }
        if self.unrecoverable.as_ref().is_some_and(|mark| clock < mark.clock) {
            return ErrorState::Unrecoverable;
        }
        match &self.ignored {
            Some(Ignored { ended: Some(ended), .. }) if clock < *ended => ErrorState::Open,
            Some(Ignored { ended: None, mark, .. }) if clock < mark.clock => ErrorState::Ignored,
            _ => state,
        }
    }

    /// The state of an error that occurs now and was in `before`; `None` if the execution never had it.
    pub(crate) fn state_after(&self, before: Option<ErrorState>) -> ErrorState {
        if self.unrecoverable.is_some() || before == Some(ErrorState::Unrecoverable) {
            ErrorState::Unrecoverable
        } else if self.is_ignored() {
            ErrorState::Ignored
        } else {
            ErrorState::Open
        }
    }

    /// The group as it is at `now`: an ignoring whose time is over has ended.
    pub fn lapse(&mut self, now: Timestamp) {
        let total = self.counts().occurrences;
        let Some(ignored) = self.ignored.as_mut().filter(|ignored| ignored.ended.is_none()) else { return };
        let is_over = ignored.until.is_some_and(|until| until <= now)
            || ignored.until_occurrences.is_some_and(|count| count <= total);
        if is_over {
            self.clock += 1;
            ignored.ended = Some(self.clock);
            self.turn(&[ErrorState::Ignored], ErrorState::Open);
        }
    }

    /// Counts all errors of some states as of another. Says how many.
    fn turn(&mut self, from: &[ErrorState], to: ErrorState) -> u64 {
        let mut moved = 0;
        for cell in &mut self.cells {
            moved += from.iter().map(|from| cell.counts.turn(*from, to)).sum::<u64>();
        }
        moved
    }

    /// Sets all errors to resolved or to open. Says how many that changed.
    pub(crate) fn settle(&mut self, state: ErrorState, mut mark: Mark) -> u64 {
        self.clock += 1;
        mark.clock = self.clock;
        self.settled = Some(Settled { state, mark });
        self.unrecoverable = None;
        self.ignored = None;
        self.turn(&ErrorState::ALL, state)
    }

    /// Says that errors of the code cannot be mended, those that come too. Says how many that changed.
    pub(crate) fn give_up(&mut self, mut mark: Mark) -> u64 {
        self.clock += 1;
        mark.clock = self.clock;
        self.unrecoverable = Some(mark);
        self.ignored = None;
        self.turn(&[ErrorState::Open, ErrorState::Ignored], ErrorState::Unrecoverable)
    }

    /// Ignores errors of the code, those that come too. Says how many that changed.
    pub(crate) fn ignore(&mut self, mut ignored: Ignored) -> u64 {
        self.clock += 1;
        ignored.mark.clock = self.clock;
        self.ignored = Some(ignored);
        self.turn(&[ErrorState::Open], ErrorState::Ignored)
    }

    /// The place of a cell; a new one if there is room.
    pub(crate) fn cell(&mut self, cell: &Cell) -> usize {
        if let Some(found) = self.cells.iter().position(|known| known.cell == *cell) {
            return found;
        }
        if self.cells.len() < CELLS_MAX {
            self.cells.push(GroupCell { cell: cell.clone(), counts: ErrorCounts::default() });
        } else if self.cells.len() == CELLS_MAX {
            self.cells.push(GroupCell { cell: Cell::other(), counts: ErrorCounts::default() });
        }
        self.cells.len() - 1
    }

    /// Counts an occurrence.
    pub(crate) fn occurred(&mut self, cell: usize, sample: Sample) {
        self.clock += 1;
        self.cells[cell].counts.occurrences += 1;
        self.first_seen = self.first_seen.min(sample.at);
        self.last_seen = self.last_seen.max(sample.at);
        self.count_hour(sample.at.millis() / HOUR_MILLIS);
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.remove(0);
        }
        self.samples.push(sample);
    }

    fn count_hour(&mut self, hour: u64) {
        match self.hours.binary_search_by_key(&hour, |(hour, _)| *hour) {
            Ok(found) => self.hours[found].1 += 1,
            Err(place) => self.hours.insert(place, (hour, 1)),
        }
        let newest = self.hours.last().map_or(0, |(hour, _)| *hour);
        let first = newest.saturating_sub(HOURS_MAX as u64 - 1);
        let old = self.hours.partition_point(|(hour, _)| *hour < first);
        self.hours.drain(..old);
    }

    /// Moves one error of a place from one state to another. `None`: it is new, or it is gone.
    pub(crate) fn move_one(&mut self, cell: usize, from: Option<ErrorState>, to: Option<ErrorState>) {
        let counts = &mut self.cells[cell].counts;
        if let Some(from) = from {
            let count = counts.place(from);
            *count = count.saturating_sub(1);
        }
        if let Some(to) = to {
            *counts.place(to) += 1;
        }
    }

    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let marks = [
            self.settled.as_ref().map(|settled| &settled.mark),
            self.unrecoverable.as_ref(),
            self.ignored.as_ref().map(|ignored| &ignored.mark),
        ];
        let mark = |mark: &Mark| {
            let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
            text(&mark.by) + text(&mark.reason) + 64
        };
        let title = self.title.as_ref().map_or(0, |title| title.len());
        self.code.as_str().len()
            + title
            + self.cells.iter().map(|cell| cell.cell.len() + 60).sum::<usize>()
            + self.hours.len() * 20
            + self.samples.iter().map(|sample| sample.execution.as_str().len() + 48).sum::<usize>()
            + marks.into_iter().flatten().map(mark).sum::<usize>()
            + 64
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}
