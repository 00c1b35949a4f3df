//! What the events of one task say: its runs, each with at most one end.

use tidemill_model::{EventId, JobId, Outcome, PublicState, Timestamp};

/// A task as its events tell it.
#[derive(Debug, Default)]
pub(super) struct TaskHistory {
    /// Its job and its place in it.
    pub(super) job: Option<(JobId, usize)>,
    pub(super) runs: Vec<Run>,
    /// The newest fence that an event names.
    pub(super) fence: u64,
    /// The fence and number of the last heartbeat.
    pub(super) heartbeat: (u64, u32),
}

#[derive(Debug, Default)]
pub(super) struct Run {
    /// Whether `Task Pending` opened it; a raw message opens a run without a word.
    pub(super) announced: bool,
    pub(super) begun: bool,
    /// It failed for good and waits for somebody.
    pub(super) parked: bool,
    pub(super) end: Option<End>,
    /// How often its failure was reported to the job.
    pub(super) reports: u32,
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) fence: u64,
    pub(super) event: EventId,
    pub(super) at: Timestamp,
}

impl TaskHistory {
    /// The run that is open or was last; 0 when there is none.
    pub(super) fn run(&self) -> u32 {
        u32::try_from(self.runs.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn end(&self) -> Option<End> {
        self.runs.last().and_then(|run| run.end)
    }

    pub(super) fn is_completed(&self) -> bool {
        self.end().is_some_and(|end| end.outcome == Outcome::Completed)
    }

    /// Waits for somebody.
    pub(super) fn is_parked(&self) -> bool {
        self.runs.last().is_some_and(|run| run.parked && run.end.is_none())
    }

    /// Dispatched and not done.
    pub(super) fn is_live(&self) -> bool {
        self.runs.last().is_some_and(|run| run.end.is_none())
    }

    /// The state that users see, by the fold of Appendix A.
    pub(super) fn state(&self) -> Option<PublicState> {
        let run = self.runs.last()?;
        Some(match run.end {
            Some(End { outcome: Outcome::Completed, .. }) => PublicState::Completed,
            Some(_) => PublicState::Failed,
            None if run.begun => PublicState::Processing,
            None => PublicState::Pending,
        })
    }
}
