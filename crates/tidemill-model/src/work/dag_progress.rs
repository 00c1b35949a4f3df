//! Progress through a graph: which tasks have nothing left to wait for.
//!
//! A counter per task makes the cost of a completion depend on the number of children, never on the size of the job.

use std::ops::Range;

use crate::work::dag::Dag;

/// How much each task of a graph still waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagProgress {
    /// By task: parents that are not completed.
    missing: Vec<u32>,
    completed: Vec<bool>,
}

impl DagProgress {
    /// The beginning: nothing is completed, and the roots are ready.
    pub fn new(dag: &Dag) -> Self {
        let mut progress = Self { missing: Vec::new(), completed: Vec::new() };
        progress.extend(dag, dag.tasks());
        progress
    }

    /// Counts `task` as completed and gives the children that have become ready by it. A repeat gives nothing.
    pub fn complete(&mut self, dag: &Dag, task: u32) -> Vec<u32> {
        if std::mem::replace(&mut self.completed[task as usize], true) {
            return Vec::new();
        }
        let mut ready = Vec::new();
        for child in dag.children(task) {
            let missing = &mut self.missing[*child as usize];
            *missing -= 1;
            if *missing == 0 {
                ready.push(*child);
            }
        }
        ready
    }

    /// Takes in tasks that were added to the graph and gives those that are ready at once: they wait for nothing, or
    /// only for what is completed.
    pub fn extend(&mut self, dag: &Dag, added: Range<u32>) -> Vec<u32> {
        debug_assert_eq!(added.start as usize, self.missing.len(), "tasks are added once and in order");
        self.completed.resize(added.end as usize, false);
        for task in added.clone() {
            let left = dag.parents(task).iter().filter(|parent| !self.completed[**parent as usize]);
            self.missing.push(u32::try_from(left.count()).expect("a task has fewer than 2^32 parents"));
        }
        added.filter(|task| self.missing(*task) == 0).collect()
    }

    /// How many parents of `task` are not completed.
    pub fn missing(&self, task: u32) -> u32 {
        self.missing[task as usize]
    }

    pub fn is_completed(&self, task: u32) -> bool {
        self.completed[task as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::{self, task};
    use crate::work::dag::JOB_TASKS_MAX;

    /// Runs ready tasks, picked by `picks`, until none is left or `stop` of them ran. Each must find its parents done.
    fn run(
        dag: &Dag,
        progress: &mut DagProgress,
        ready: &mut Vec<u32>,
        picks: &[prop::sample::Index],
        stop: usize,
    ) -> Vec<u32> {
        let mut ran = Vec::new();
        while !ready.is_empty() && ran.len() < stop {
            let task = ready.swap_remove(picks[ran.len() % picks.len()].index(ready.len()));
            assert!(dag.parents(task).iter().all(|parent| progress.is_completed(*parent)), "task {task}");
            ready.extend(progress.complete(dag, task));
            assert!(progress.complete(dag, task).is_empty(), "a repeat makes nothing ready");
            ran.push(task);
        }
        ran
    }

    #[test]
    fn a_long_chain_becomes_ready_one_by_one() {
        let tasks = (0..JOB_TASKS_MAX).map(|at| match at {
            0 => task("t0", &[]),
            _ => task(&format!("t{at}"), &[&format!("t{}", at - 1)]),
        });
        let dag = Dag::new(tasks.collect()).unwrap();
        let mut progress = DagProgress::new(&dag);
        for at in dag.tasks() {
            assert_eq!(progress.missing(at), 0);
            let next = at + 1;
            let expected = if next == dag.tasks().end { vec![] } else { vec![next] };
            assert_eq!(progress.complete(&dag, at), expected);
        }
    }

    proptest! {
        #[test]
        fn every_task_runs_once_and_after_its_parents(
            tasks in sample::tasks().prop_shuffle(),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..24),
        ) {
            let dag = Dag::new(tasks).unwrap();
            let mut progress = DagProgress::new(&dag);
            let mut ready: Vec<u32> = dag.roots().collect();
            let mut ran = run(&dag, &mut progress, &mut ready, &picks, usize::MAX);
            ran.sort_unstable();
            prop_assert!(ran.into_iter().eq(dag.tasks()));
        }

        #[test]
        fn tasks_added_under_way_run_once_too(
            tasks in sample::tasks(),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..24),
            [split, stop] in any::<[prop::sample::Index; 2]>(),
        ) {
            // Each task waits only for earlier ones, so any beginning of the list is a job of its own.
            let mut first = tasks.clone();
            let mut added = first.split_off(split.index(tasks.len()).max(1));
            added.reverse();
            let mut dag = Dag::new(first).unwrap();
            let mut progress = DagProgress::new(&dag);
            let mut ready: Vec<u32> = dag.roots().collect();
            let mut ran = run(&dag, &mut progress, &mut ready, &picks, stop.index(tasks.len() + 1));
            if !added.is_empty() {
                let range = dag.extend(added).unwrap();
                ready.extend(progress.extend(&dag, range));
            }
            ran.extend(run(&dag, &mut progress, &mut ready, &picks, usize::MAX));
            ran.sort_unstable();
            prop_assert!(ran.into_iter().eq(dag.tasks()));
        }
    }
}
