//! Shapes of jobs: chains, fans, diamonds and graphs without a plan.

use std::sync::Arc;

use tidemill_model::{Json, OnFailure, RetryPolicy, TaskId, TaskName, TaskOptions, TaskSpec};

use crate::rng::Rng;

/// The most attempts a task asks for by itself.
pub(crate) const ATTEMPTS_MAX: u32 = 4;

#[derive(Debug, Clone, Copy)]
enum Shape {
    Chain,
    /// One, many, one.
    Fan,
    /// Layers of two between single tasks.
    Diamonds,
    /// Each task waits for some of those before it.
    Random,
    /// Nothing waits for anything.
    Flat,
}

/// Draws the tasks of a job, or of an addition to one that has the tasks `known`. Names count on from there.
pub(crate) fn draw(rng: &mut Rng, known: &[TaskId], count: usize) -> Vec<Arc<TaskSpec>> {
    let shapes =
        [(2, Shape::Chain), (2, Shape::Fan), (2, Shape::Diamonds), (4, Shape::Random), (1, Shape::Flat)];
    let shape = rng.weighted(&shapes);
    let names: Vec<TaskId> =
        (0..count).map(|index| TaskId::trusted(&format!("t{}", known.len() + index))).collect();
    let mut tasks: Vec<Arc<TaskSpec>> = (0..count)
        .map(|index| {
            let mut depends_on: Vec<TaskId> =
                parents(shape, index, count, rng).into_iter().map(|at| names[at].clone()).collect();
            // Tasks that are added may wait for any that were there before.
            for _ in 0..rng.below(3) {
                depends_on.extend(rng.pick(known).cloned());
            }
            depends_on.sort();
            depends_on.dedup();
            Arc::new(spec(rng, names[index].clone(), depends_on))
        })
        .collect();
    // A list may name children before their parents.
    if rng.chance(300) {
        tasks.reverse();
    }
    tasks
}

/// How many tasks a job has: usually few.
pub(crate) fn draw_size(rng: &mut Rng) -> usize {
    let most = rng.weighted(&[(12, 3), (16, 8), (8, 20), (4, 40), (1, 160)]);
    1 + rng.index(most)
}

/// One task, with options of its own now and then.
pub(crate) fn spec(rng: &mut Rng, task_id: TaskId, depends_on: Vec<TaskId>) -> TaskSpec {
    let retry = rng.chance(300).then(|| RetryPolicy {
        max_attempts: u32::try_from(rng.within(1..=u64::from(ATTEMPTS_MAX))).unwrap_or(1),
        first_delay: rng.within(0..=3_000),
        max_delay: 20_000,
        on_timeout: rng.chance(500),
    });
    let on_failure = if rng.chance(150) { OnFailure::Park } else { OnFailure::Fail };
    let name = ["resize", "fetch", "load", "report"][rng.index(4)];
    let input = if rng.chance(200) {
        Json::trusted(&format!(r#"{{"n":{}}}"#, rng.below(100)))
    } else {
        Json::empty_object()
    };
    TaskSpec {
        task_id,
        name: TaskName::trusted(name),
        depends_on,
        input,
        options: TaskOptions { retry, agent: rng.chance(300), on_failure, ..TaskOptions::default() },
    }
}

/// Which earlier tasks the task at `index` waits for.
fn parents(shape: Shape, index: usize, count: usize, rng: &mut Rng) -> Vec<usize> {
    match shape {
        _ if index == 0 => Vec::new(),
        Shape::Flat => Vec::new(),
        Shape::Chain => vec![index - 1],
        Shape::Fan if index == count - 1 => (usize::from(count > 2)..index).collect(),
        Shape::Fan => vec![0],
        Shape::Diamonds => match index % 3 {
            0 => vec![index - 2, index - 1],
            1 => vec![index - 1],
            _ => vec![index - 2],
        },
        Shape::Random => {
            let mut parents: Vec<usize> = (0..rng.below(4)).map(|_| rng.index(index)).collect();
            parents.sort_unstable();
            parents.dedup();
            parents
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::work::dag::Dag;

    use super::*;

    fn plain(tasks: &[Arc<TaskSpec>]) -> Vec<TaskSpec> {
        tasks.iter().map(|task| (**task).clone()).collect()
    }

    #[test]
    fn every_drawn_job_and_addition_is_a_graph() {
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            let size = draw_size(&mut rng);
            let tasks = draw(&mut rng, &[], size);
            let names: Vec<TaskId> = tasks.iter().map(|task| task.task_id.clone()).collect();
            let mut dag = Dag::new(plain(&tasks)).unwrap();
            let added = draw(&mut rng, &names, 3);
            dag.extend(plain(&added)).unwrap();
        }
    }
}
