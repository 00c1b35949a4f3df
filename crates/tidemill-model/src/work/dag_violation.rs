//! What can be wrong with a job's tasks. All of it is reported at once, up to a limit.

use std::fmt;

use crate::values::id::TaskId;
use crate::work::dag::JOB_TASKS_MAX;
use crate::work::task_input::InputProblem;

/// How many violations are reported; the rest is only counted.
pub const VIOLATIONS_MAX: usize = 100;

/// One thing that is wrong. `at` is the place of the task in the list that was given, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DagViolation {
    EmptyTasks,
    /// `count` includes the tasks that the job has already.
    TooManyTasks {
        count: usize,
    },
    DuplicateTaskId {
        at: usize,
        task: TaskId,
    },
    SelfDependency {
        at: usize,
        task: TaskId,
    },
    DuplicateDependency {
        at: usize,
        task: TaskId,
        dependency: TaskId,
    },
    UnknownDependency {
        at: usize,
        task: TaskId,
        dependency: TaskId,
    },
    /// Each task of the path depends on the next one; the last is the first again.
    Cycle {
        at: usize,
        path: Vec<TaskId>,
    },
    InvalidInput {
        at: usize,
        task: TaskId,
        problem: InputProblem,
    },
}

/// How many tasks of a cycle are named in its message.
const CYCLE_SHOWN_MAX: usize = 10;

impl DagViolation {
    /// The stable code that clients see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::EmptyTasks => "EMPTY_TASKS",
            Self::TooManyTasks { .. } => "TOO_MANY_TASKS",
            Self::DuplicateTaskId { .. } => "DUPLICATE_TASK_ID",
            Self::SelfDependency { .. } => "SELF_DEPENDENCY",
            Self::DuplicateDependency { .. } => "DUPLICATE_DEPENDENCY",
            Self::UnknownDependency { .. } => "UNKNOWN_DEPENDENCY",
            Self::Cycle { .. } => "CYCLE",
            Self::InvalidInput { .. } => "INVALID_INPUT",
        }
    }

    /// The field that is wrong, such as `tasks[3].dependsOn`.
    pub fn field(&self) -> String {
        match self {
            Self::EmptyTasks | Self::TooManyTasks { .. } => "tasks".to_owned(),
            Self::DuplicateTaskId { at, .. } => format!("tasks[{at}].taskId"),
            Self::SelfDependency { at, .. }
            | Self::DuplicateDependency { at, .. }
            | Self::UnknownDependency { at, .. }
            | Self::Cycle { at, .. } => format!("tasks[{at}].dependsOn"),
            Self::InvalidInput { at, .. } => format!("tasks[{at}].input"),
        }
    }
}

impl fmt::Display for DagViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyTasks => f.write_str("there is no task"),
            Self::TooManyTasks { count } => {
                write!(f, "the job has {count} tasks; the limit is {JOB_TASKS_MAX}")
            }
            Self::DuplicateTaskId { task, .. } => write!(f, "more than one task is called {task}"),
            Self::SelfDependency { task, .. } => write!(f, "task {task} depends on itself"),
            Self::DuplicateDependency { task, dependency, .. } => {
                write!(f, "task {task} names its dependency {dependency} more than once")
            }
            Self::UnknownDependency { task, dependency, .. } => {
                write!(f, "task {task} depends on {dependency}, which is not a task of the job")
            }
            Self::Cycle { path, .. } => {
                f.write_str("tasks depend on each other in a circle: ")?;
                for (place, task) in path.iter().take(CYCLE_SHOWN_MAX).enumerate() {
                    write!(f, "{}{task}", if place == 0 { "" } else { " > " })?;
                }
                match path.len().checked_sub(CYCLE_SHOWN_MAX) {
                    Some(more @ 1..) => write!(f, " and {more} more"),
                    _ => Ok(()),
                }
            }
            Self::InvalidInput { task, problem, .. } => {
                write!(f, "the input of task {task} {problem}")
            }
        }
    }
}

/// Everything that is wrong with a list of tasks; never empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.summary())]
pub struct DagViolations {
    /// The first ones, at most [`VIOLATIONS_MAX`].
    pub listed: Vec<DagViolation>,
    /// How many there are in all.
    pub total: usize,
}

impl DagViolations {
    pub(crate) fn add(&mut self, violation: impl FnOnce() -> DagViolation) {
        self.total += 1;
        if self.listed.len() < VIOLATIONS_MAX {
            self.listed.push(violation());
        }
    }

    fn summary(&self) -> String {
        let first = self.listed.first().map(ToString::to_string).unwrap_or_default();
        match self.total {
            0 | 1 => first,
            total => format!("{first} (the first of {total} violations)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(length: usize) -> Vec<TaskId> {
        (0..length).map(|number| TaskId::new(format!("t{number}")).unwrap()).collect()
    }

    #[test]
    fn a_long_cycle_is_shortened_in_its_message() {
        for (length, expected) in [
            (2, "tasks depend on each other in a circle: t0 > t1"),
            (10, "tasks depend on each other in a circle: t0 > t1 > t2 > t3 > t4 > t5 > t6 > t7 > t8 > t9"),
            (
                12,
                "tasks depend on each other in a circle: t0 > t1 > t2 > t3 > t4 > t5 > t6 > t7 > t8 > t9 and 2 more",
            ),
        ] {
            assert_eq!(DagViolation::Cycle { at: 0, path: path(length) }.to_string(), expected);
        }
    }

    #[test]
    fn violations_beyond_the_limit_are_counted() {
        let mut violations = DagViolations::default();
        for _ in 0..250 {
            violations.add(|| DagViolation::EmptyTasks);
        }
        assert_eq!((violations.listed.len(), violations.total), (VIOLATIONS_MAX, 250));
        assert_eq!(violations.to_string(), "there is no task (the first of 250 violations)");
    }
}
