//! A job as it is shown: its tasks in the order of the graph, moved along by events.

use std::collections::HashMap;

use serde::Deserialize;
use tidemill_api::{JobStatusName, JobView, TaskRow, TaskStateName};
use tidemill_model::ErrorCategory;

/// Where a task stands, as far as a watcher cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskPhase {
    /// Some task before it is not completed.
    Waiting,
    /// It waits for a free slot.
    Queued,
    Running,
    /// An attempt failed and the next one comes.
    Retrying,
    /// It failed for good and waits for somebody.
    Parked,
    Completed,
    Failed,
    TimedOut,
    Cancelled,
}

impl TaskPhase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Parked => "parked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the attempt that counts has begun.
    pub(crate) fn has_begun(self) -> bool {
        !matches!(self, Self::Waiting | Self::Queued | Self::Retrying)
    }

    pub(crate) fn is_active(self) -> bool {
        matches!(self, Self::Queued | Self::Running | Self::Retrying)
    }
}

/// One task.
#[derive(Debug, Clone)]
pub(crate) struct TaskLine {
    pub(crate) task_id: String,
    /// How many tasks lie on the longest way to it.
    pub(crate) depth: usize,
    pub(crate) phase: TaskPhase,
    /// The attempt that runs or ran last.
    pub(crate) attempt: u32,
    /// Attempts that have ended and count.
    ended: u32,
    /// Epoch milliseconds.
    pub(crate) started_at: Option<u64>,
    pub(crate) finished_at: Option<u64>,
    pub(crate) error: Option<String>,
    /// What it said last.
    pub(crate) said: Option<String>,
    /// Whether a worker that stopped gave it back. It waits to be taken again.
    pub(crate) given_back: bool,
    /// The claim under which it runs.
    fence: Option<u64>,
}

impl TaskLine {
    /// How long it runs or ran.
    pub(crate) fn elapsed(&self, now: u64) -> Option<u64> {
        let end = if self.phase == TaskPhase::Running { now } else { self.finished_at? };
        Some(end.saturating_sub(self.started_at?))
    }
}

/// What an event changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The task at this index is in another phase.
    Task(usize),
    /// The job may be at rest.
    Job,
    /// The job has further tasks: it must be read again.
    Grown,
    Nothing,
}

#[derive(Debug, Clone)]
pub(crate) struct JobState {
    pub(crate) job_id: String,
    pub(crate) name: Option<String>,
    pub(crate) created_at: u64,
    /// In the order of the graph.
    pub(crate) tasks: Vec<TaskLine>,
    by_id: HashMap<String, usize>,
    pub(crate) counts: PhaseCounts,
}

/// How many tasks are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PhaseCounts {
    pub(crate) active: usize,
    pub(crate) running: usize,
    pub(crate) completed: usize,
    pub(crate) failed: usize,
    pub(crate) parked: usize,
}

/// The parts of an event that matter here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeenEvent {
    pub(crate) event_type: String,
    pub(crate) timestamp: u64,
    #[serde(default)]
    properties: SeenProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenProperties {
    task_id: Option<String>,
    attempt_number: Option<u32>,
    error: Option<String>,
    error_category: Option<String>,
    counted: Option<bool>,
    parked: bool,
    duration_ms: Option<u64>,
    source: Option<String>,
    fence: Option<u64>,
}

impl JobState {
    /// From the job and all its tasks, in any order.
    pub(crate) fn new(job: &JobView, rows: &[TaskRow]) -> Self {
        let order = graph_order(rows);
        let tasks: Vec<_> = order.iter().map(|&(index, depth)| line_of(&rows[index], depth)).collect();
        let by_id = tasks.iter().enumerate().map(|(index, task)| (task.task_id.clone(), index)).collect();
        let (job_id, name, created_at) = (job.job_id.clone(), job.name.clone(), job.created_at);
        let mut state = Self { job_id, name, created_at, tasks, by_id, counts: PhaseCounts::default() };
        state.recount();
        if job.status == JobStatusName::Cancelled {
            for task in &mut state.tasks {
                if task.phase == TaskPhase::Failed && task.error.is_none() {
                    task.phase = TaskPhase::Cancelled;
                }
            }
        }
        state
    }

    /// What was shown before and the store does not keep.
    pub(crate) fn keep_from(&mut self, before: &Self) {
        for task in &mut self.tasks {
            let Some(known) = before.by_id.get(&task.task_id).map(|&index| &before.tasks[index]) else {
                continue;
            };
            task.said.clone_from(&known.said);
            if known.given_back && task.phase == TaskPhase::Retrying {
                (task.phase, task.given_back) = (TaskPhase::Queued, true);
            }
            // A list tells neither a timeout from other failures nor why the last attempt failed.
            if task.phase == TaskPhase::Failed
                && matches!(known.phase, TaskPhase::Failed | TaskPhase::TimedOut)
            {
                task.phase = known.phase;
                task.error.clone_from(&known.error);
            }
        }
    }

    /// The tasks whose phase is not what it was.
    pub(crate) fn moved_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a TaskLine> {
        self.tasks.iter().filter(|task| {
            let known = before.by_id.get(&task.task_id).map(|&index| before.tasks[index].phase);
            known != Some(task.phase)
        })
    }

    pub(crate) fn is_active(&self) -> bool {
        self.counts.active > 0
    }

    pub(crate) fn task_mut(&mut self, task_id: &str) -> Option<&mut TaskLine> {
        self.by_id.get(task_id).map(|&index| &mut self.tasks[index])
    }

    pub(crate) fn apply(&mut self, event: &SeenEvent) -> Change {
        match event.event_type.as_str() {
            "Job Tasks Added" => return Change::Grown,
            kind if kind.starts_with("Job ") => return Change::Job,
            _ => {}
        }
        let properties = &event.properties;
        let Some(&index) = properties.task_id.as_ref().and_then(|id| self.by_id.get(id)) else {
            return Change::Nothing;
        };
        let task = &mut self.tasks[index];
        let (before, at) = (task.phase, event.timestamp);
        match event.event_type.as_str() {
            "Task Pending" => {
                (task.phase, task.attempt, task.ended, task.error) = (TaskPhase::Queued, 0, 0, None);
                (task.started_at, task.finished_at) = (None, None);
            }
            "Task Processing Started" => {
                task.given_back = false;
                // The same start may come twice, and a task that was taken over starts again without a new attempt.
                if before == TaskPhase::Running && task.fence == properties.fence {
                    return Change::Nothing;
                }
                (task.attempt, task.fence) = (task.ended + 1, properties.fence);
                (task.phase, task.started_at, task.finished_at) = (TaskPhase::Running, Some(at), None);
            }
            "Task Processing Failed" => {
                let attempt = properties.attempt_number.unwrap_or(task.attempt);
                if properties.parked {
                    (task.phase, task.ended) = (TaskPhase::Parked, attempt);
                    (task.finished_at, task.error) = (Some(at), properties.error.clone());
                } else if properties.counted.unwrap_or(true) {
                    (task.phase, task.ended) = (TaskPhase::Retrying, attempt);
                    (task.finished_at, task.error) = (Some(at), properties.error.clone());
                } else {
                    // It did not fail: its worker stopped, and the attempt is made once more.
                    (task.phase, task.ended) = (TaskPhase::Queued, attempt.saturating_sub(1));
                    (task.started_at, task.given_back) = (None, true);
                }
                task.attempt = task.ended;
            }
            "Task Completed" => {
                (task.phase, task.finished_at, task.error) = (TaskPhase::Completed, Some(at), None);
                // The event of a short child's start may be written only when it has ended.
                if let Some(took) = properties.duration_ms.filter(|_| before != TaskPhase::Parked) {
                    task.started_at = Some(at.saturating_sub(took));
                }
            }
            "Task Failed" => {
                let cancelled = properties.error_category.as_deref() == Some("cancelled");
                task.phase = if cancelled { TaskPhase::Cancelled } else { TaskPhase::Failed };
                task.finished_at = Some(at);
                // Why the last attempt failed says more than that it was the last.
                let exhausted = properties.source.as_deref() == Some("dlq") && task.error.is_some();
                if !exhausted {
                    task.error.clone_from(&properties.error);
                }
            }
            "Task Timeout" => {
                (task.phase, task.finished_at) = (TaskPhase::TimedOut, Some(at));
                task.error = Some("it took too long and was stopped".to_owned());
            }
            _ => return Change::Nothing,
        }
        let after = task.phase;
        self.counts.move_one(before, after);
        Change::Task(index)
    }

    fn recount(&mut self) {
        self.counts = PhaseCounts::default();
        for task in &self.tasks {
            self.counts.add(task.phase);
        }
    }
}

impl PhaseCounts {
    fn parts(&mut self, phase: TaskPhase) -> [Option<&mut usize>; 2] {
        match phase {
            TaskPhase::Waiting => [None, None],
            TaskPhase::Parked => [Some(&mut self.parked), None],
            TaskPhase::Queued | TaskPhase::Retrying => [Some(&mut self.active), None],
            TaskPhase::Running => [Some(&mut self.active), Some(&mut self.running)],
            TaskPhase::Completed => [Some(&mut self.completed), None],
            TaskPhase::Failed | TaskPhase::TimedOut | TaskPhase::Cancelled => [Some(&mut self.failed), None],
        }
    }

    fn add(&mut self, phase: TaskPhase) {
        self.parts(phase).into_iter().flatten().for_each(|count| *count += 1);
    }

    fn move_one(&mut self, from: TaskPhase, to: TaskPhase) {
        self.parts(from).into_iter().flatten().for_each(|count| *count = count.saturating_sub(1));
        self.add(to);
    }
}

fn line_of(row: &TaskRow, depth: usize) -> TaskLine {
    let phase = match row.status {
        None => TaskPhase::Waiting,
        Some(TaskStateName::Pending) => TaskPhase::Queued,
        Some(TaskStateName::Processing) if row.parked => TaskPhase::Parked,
        Some(TaskStateName::Processing) if row.retrying => TaskPhase::Retrying,
        // It had begun, and no attempt runs or counts.
        Some(TaskStateName::Processing) if row.attempt == 0 => TaskPhase::Queued,
        Some(TaskStateName::Processing) => TaskPhase::Running,
        Some(TaskStateName::Completed) => TaskPhase::Completed,
        Some(TaskStateName::Failed) => match row.error_category {
            Some(ErrorCategory::Cancelled) => TaskPhase::Cancelled,
            _ => TaskPhase::Failed,
        },
    };
    TaskLine {
        task_id: row.task_id.clone(),
        depth,
        phase,
        attempt: row.attempt,
        // A task that was claimed has its attempt before it has begun.
        ended: if matches!(phase, TaskPhase::Retrying | TaskPhase::Parked) {
            row.attempt
        } else {
            row.attempt.saturating_sub(1)
        },
        started_at: row.started_at,
        finished_at: row.finished_at,
        error: row.why().map(ToOwned::to_owned),
        said: None,
        given_back: phase == TaskPhase::Queued && row.status == Some(TaskStateName::Processing),
        fence: None,
    }
}

/// Each task below the last one that it waits for, siblings in the order they were written; with its depth.
fn graph_order(rows: &[TaskRow]) -> Vec<(usize, usize)> {
    let index: HashMap<&str, usize> =
        rows.iter().enumerate().map(|(index, row)| (row.task_id.as_str(), index)).collect();
    let parents: Vec<Vec<usize>> = rows
        .iter()
        .map(|row| row.depends_on.iter().filter_map(|id| index.get(id.as_str()).copied()).collect())
        .collect();
    let mut children = vec![Vec::new(); rows.len()];
    let mut missing: Vec<usize> = parents.iter().map(Vec::len).collect();
    for (child, parents) in parents.iter().enumerate() {
        for &parent in parents {
            children[parent].push(child);
        }
    }
    let mut depth = vec![0; rows.len()];
    // The parent that a task is shown below: of those at the greatest depth the last.
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    let mut roots = Vec::new();
    let mut ready: std::collections::VecDeque<usize> =
        (0..rows.len()).filter(|&task| missing[task] == 0).collect();
    while let Some(task) = ready.pop_front() {
        match parents[task].iter().copied().max_by_key(|&parent| (depth[parent], parent)) {
            None => roots.push(task),
            Some(parent) => {
                depth[task] = depth[parent] + 1;
                below[parent].push(task);
            }
        }
        for &child in &children[task] {
            missing[child] -= 1;
            if missing[child] == 0 {
                ready.push_back(child);
            }
        }
    }
    let mut order = Vec::with_capacity(rows.len());
    let mut open: Vec<usize> = roots;
    open.sort_unstable_by(|left, right| right.cmp(left));
    while let Some(task) = open.pop() {
        order.push((task, depth[task]));
        below[task].sort_unstable_by(|left, right| right.cmp(left));
        open.append(&mut below[task]);
    }
    order
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(id: &str, parents: &[&str]) -> TaskRow {
        serde_json::from_value(json!({
            "taskId": id, "requestId": format!("job-1_{id}"), "name": id, "dependsOn": parents, "status": null, "run": 1,
            "attempt": 0, "startedAt": null, "finishedAt": null, "blockedBy": []
        }))
        .unwrap()
    }

    fn job() -> JobView {
        serde_json::from_value(json!({
            "jobId": "job-1", "requestId": "r", "app": "a", "status": "running", "totalTasks": 5, "tasks": [],
            "counts": {"waiting": 5, "pending": 0, "processing": 0, "completed": 0, "failed": 0},
            "nextCursor": null, "createdAt": 1, "completedAt": null
        }))
        .unwrap()
    }

    fn sample() -> JobState {
        let rows =
            [row("e", &["c", "d"]), row("a", &[]), row("b", &[]), row("c", &["a"]), row("d", &["a", "b"])];
        JobState::new(&job(), &rows)
    }

    fn event(kind: &str, properties: &serde_json::Value) -> SeenEvent {
        serde_json::from_value(json!({"eventType": kind, "timestamp": 100, "properties": properties}))
            .unwrap()
    }

    #[test]
    fn tasks_stand_below_what_they_wait_for() {
        let state = sample();
        let order: Vec<_> = state.tasks.iter().map(|task| (task.task_id.as_str(), task.depth)).collect();
        assert_eq!(order, [("a", 0), ("c", 1), ("b", 0), ("d", 1), ("e", 2)]);
    }

    #[test]
    fn events_move_tasks() {
        let mut state = sample();
        let mut attempt = 0;
        for (kind, properties, phase, attempts) in [
            ("Task Pending", json!({"taskId": "a"}), TaskPhase::Queued, 0),
            ("Task Processing Started", json!({"taskId": "a"}), TaskPhase::Running, 1),
            (
                "Task Processing Failed",
                json!({"taskId": "a", "attemptNumber": 1, "error": "x"}),
                TaskPhase::Retrying,
                1,
            ),
            ("Task Processing Started", json!({"taskId": "a"}), TaskPhase::Running, 2),
            (
                "Task Processing Failed",
                json!({"taskId": "a", "attemptNumber": 2, "counted": false, "error": "shutdown"}),
                TaskPhase::Queued,
                1,
            ),
            ("Task Processing Started", json!({"taskId": "a"}), TaskPhase::Running, 2),
            ("Task Completed", json!({"taskId": "a"}), TaskPhase::Completed, 2),
            (
                "Task Failed",
                json!({"taskId": "a", "error": "no", "errorCategory": "cancelled"}),
                TaskPhase::Cancelled,
                2,
            ),
            ("Task Timeout", json!({"taskId": "a"}), TaskPhase::TimedOut, 2),
        ] {
            assert_eq!(state.apply(&event(kind, &properties)), Change::Task(0), "{kind}");
            let task = state.task_mut("a").unwrap();
            assert_eq!((task.phase, task.attempt), (phase, attempts), "{kind} after {attempt}");
            attempt = task.attempt;
        }
        assert_eq!(state.counts, PhaseCounts { failed: 1, ..PhaseCounts::default() });
        assert_eq!(state.apply(&event("Task Completed", &json!({"taskId": "unknown"}))), Change::Nothing);
        assert_eq!(state.apply(&event("Job Tasks Added", &json!({}))), Change::Grown);
        assert_eq!(state.apply(&event("Job Completed", &json!({}))), Change::Job);
    }

    #[test]
    fn a_long_chain_is_ordered_without_recursion() {
        let mut rows = vec![row("t0", &[])];
        rows.extend((1..50_000).map(|n| row(&format!("t{n}"), &[&format!("t{}", n - 1)])));
        let state = JobState::new(&job(), &rows);
        assert_eq!((state.tasks.len(), state.tasks[49_999].depth), (50_000, 49_999));
    }
}
