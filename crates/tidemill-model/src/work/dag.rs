//! A job's tasks as a directed graph without cycles.
//!
//! A task is known by its index, which never changes: tasks that are added later get the next ones. What is in a
//! graph cannot come to depend on what is added, so an addition is checked and joined in time that depends on its own
//! size only. Nothing here recurses; a chain as long as the limit allows is as good as any other graph.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::ops::Range;

use crate::authored::job_file::TaskEntry;
use crate::values::id::TaskId;
use crate::work::dag_violation::{DagViolation, DagViolations};
use crate::work::task_input::input_problem;
use crate::work::task_spec::TaskSpec;

/// The most tasks that one job holds.
pub const JOB_TASKS_MAX: usize = 100_000;

/// The tasks of a job and which task waits for which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dag {
    specs: Vec<TaskSpec>,
    index: HashMap<TaskId, u32>,
    parents: Vec<Box<[u32]>>,
    children: Vec<Vec<u32>>,
}

impl Dag {
    /// The graph of these tasks, or everything that is wrong with them.
    pub fn new(tasks: Vec<TaskSpec>) -> Result<Self, DagViolations> {
        let mut dag = Self::default();
        dag.extend(tasks)?;
        Ok(dag)
    }

    /// Adds tasks, which may depend on those already here and on each other, and gives their indices.
    ///
    /// When anything is wrong with them the graph stays as it is.
    pub fn extend(&mut self, added: Vec<TaskSpec>) -> Result<Range<u32>, DagViolations> {
        let checked = self.checked(&added)?;
        let first = self.next_index();
        self.index.extend(checked.names);
        // An added task may wait for one further down the list, so all of them get their place first.
        self.children.resize(self.specs.len() + added.len(), Vec::new());
        for (child, parents) in (first..).zip(checked.parents) {
            for parent in &parents {
                self.children[*parent as usize].push(child);
            }
            self.parents.push(parents);
        }
        self.specs.extend(added);
        Ok(first..self.next_index())
    }

    /// What [`extend`](Self::extend) would say to these tasks.
    pub fn check(&self, added: &[TaskSpec]) -> Result<(), DagViolations> {
        self.checked(added).map(|_| ())
    }

    fn checked(&self, added: &[TaskSpec]) -> Result<Checked, DagViolations> {
        let base = Base { len: self.len(), index_of: &|task| self.index_of(task) };
        let mut violations = DagViolations::default();
        let nodes: Vec<Node<'_>> = added.iter().map(Node::from).collect();
        let checked = Checked::graph(&base, &nodes, &mut violations);
        for (at, spec) in added.iter().enumerate() {
            if let Some(problem) = input_problem(&spec.input) {
                violations.add(|| DagViolation::InvalidInput { at, task: spec.task_id.clone(), problem });
            }
        }
        if violations.total > 0 { Err(violations) } else { Ok(checked) }
    }

    pub fn len(&self) -> usize {
        self.specs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// The index of the task of this name.
    pub fn index_of(&self, task: &str) -> Option<u32> {
        self.index.get(task).copied()
    }

    /// All tasks by index.
    pub fn specs(&self) -> &[TaskSpec] {
        &self.specs
    }

    /// # Panics
    /// When there is no such task, as in `parents` and `children`.
    pub fn spec(&self, task: u32) -> &TaskSpec {
        &self.specs[task as usize]
    }

    /// What the task waits for, in the order of its `dependsOn`; no task twice.
    pub fn parents(&self, task: u32) -> &[u32] {
        &self.parents[task as usize]
    }

    /// What waits for the task, by index.
    pub fn children(&self, task: u32) -> &[u32] {
        &self.children[task as usize]
    }

    /// The tasks that wait for nothing.
    pub fn roots(&self) -> impl Iterator<Item = u32> {
        (0..self.next_index()).filter(|task| self.parents(*task).is_empty())
    }

    /// All indices.
    pub fn tasks(&self) -> Range<u32> {
        0..self.next_index()
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.specs.len()).expect("a job holds at most JOB_TASKS_MAX tasks")
    }
}

/// Whether tasks can be added to a job of `len` tasks whose names `index_of` finds.
///
/// Inputs are not looked at: the code that takes them from outside does that (see `task_input`).
pub fn check_addition<S: Borrow<TaskSpec>>(
    added: &[S],
    len: usize,
    index_of: &dyn Fn(&str) -> Option<u32>,
) -> Result<(), DagViolations> {
    let mut violations = DagViolations::default();
    let nodes: Vec<Node<'_>> = added.iter().map(|spec| Node::from(spec.borrow())).collect();
    Checked::graph(&Base { len, index_of }, &nodes, &mut violations);
    if violations.total > 0 { Err(violations) } else { Ok(()) }
}

/// Whether the tasks of a file form the graph of a new job.
///
/// Inputs are not looked at: those of a file were checked when it was read.
pub fn check_entries(tasks: &[TaskEntry]) -> Result<(), DagViolations> {
    let mut violations = DagViolations::default();
    let nodes: Vec<Node<'_>> = tasks.iter().map(Node::from).collect();
    Checked::graph(&Base { len: 0, index_of: &|_| None }, &nodes, &mut violations);
    if violations.total > 0 { Err(violations) } else { Ok(()) }
}

/// A task as far as the graph needs to know it.
#[derive(Clone, Copy)]
struct Node<'t> {
    task_id: &'t TaskId,
    depends_on: &'t [TaskId],
}

impl<'t> From<&'t TaskSpec> for Node<'t> {
    fn from(spec: &'t TaskSpec) -> Self {
        Self { task_id: &spec.task_id, depends_on: &spec.depends_on }
    }
}

impl<'t> From<&'t TaskEntry> for Node<'t> {
    fn from(entry: &'t TaskEntry) -> Self {
        Self { task_id: &entry.task_id, depends_on: &entry.depends_on }
    }
}

/// The tasks that were there before, as far as an addition needs to know them.
struct Base<'a> {
    len: usize,
    index_of: &'a dyn Fn(&str) -> Option<u32>,
}

/// What is known of added tasks; of use once nothing is wrong with them.
struct Checked {
    names: HashMap<TaskId, u32>,
    /// By place in the list.
    parents: Vec<Box<[u32]>>,
}

impl Checked {
    fn graph(base: &Base<'_>, added: &[Node<'_>], violations: &mut DagViolations) -> Self {
        let count = base.len + added.len();
        if added.is_empty() {
            violations.add(|| DagViolation::EmptyTasks);
        }
        // The list goes through the other checks even then: they take linear time, and all that is wrong shall be said.
        if count > JOB_TASKS_MAX {
            violations.add(|| DagViolation::TooManyTasks { count });
        }
        let mut names = HashMap::with_capacity(added.len());
        for (at, node) in added.iter().enumerate() {
            if (base.index_of)(node.task_id.as_str()).is_some() || names.contains_key(node.task_id) {
                violations.add(|| DagViolation::DuplicateTaskId { at, task: node.task_id.clone() });
            } else {
                names.insert(node.task_id.clone(), to_index(base.len + at));
            }
        }
        let parents = check_dependencies(base, added, &names, violations);
        check_cycles(base.len, added, &parents, violations);
        Self { names, parents }
    }
}

/// The parents of each added task. Those that are unknown, doubled or the task itself are reported and left out.
fn check_dependencies(
    base: &Base<'_>,
    added: &[Node<'_>],
    names: &HashMap<TaskId, u32>,
    violations: &mut DagViolations,
) -> Vec<Box<[u32]>> {
    // Names of other tasks, and of none, are numbered after the added ones, so that they too can be found twice in one
    // list. Tables over all tasks of the job would make small additions to large jobs slow.
    let mut others: HashMap<&TaskId, usize> = HashMap::new();
    let mut seen = vec![Seen::default(); added.len()];
    let mut parents = Vec::with_capacity(added.len());
    for (at, node) in added.iter().enumerate() {
        let mut own = Vec::with_capacity(node.depends_on.len());
        for dependency in node.depends_on {
            let known = (base.index_of)(dependency.as_str()).or_else(|| names.get(dependency).copied());
            let place = known.and_then(|index| (index as usize).checked_sub(base.len)).unwrap_or_else(|| {
                let next = seen.len();
                *others.entry(dependency).or_insert(next)
            });
            seen.resize(seen.len().max(place + 1), Seen::default());
            let task_id = || node.task_id.clone();
            match (seen[place].by(at), known) {
                (Times::Once, _) if dependency == node.task_id => {
                    violations.add(|| DagViolation::SelfDependency { at, task: task_id() });
                }
                (Times::Once, None) => violations.add(|| DagViolation::UnknownDependency {
                    at,
                    task: task_id(),
                    dependency: dependency.clone(),
                }),
                (Times::Once, Some(index)) => own.push(index),
                (Times::Twice, _) => violations.add(|| DagViolation::DuplicateDependency {
                    at,
                    task: task_id(),
                    dependency: dependency.clone(),
                }),
                (Times::More, _) => {}
            }
        }
        parents.push(own.into_boxed_slice());
    }
    parents
}

/// Which task named a task last, and how often in a row.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    by: Option<usize>,
    doubled: bool,
}

enum Times {
    Once,
    Twice,
    More,
}

impl Seen {
    fn by(&mut self, task: usize) -> Times {
        if self.by != Some(task) {
            *self = Self { by: Some(task), doubled: false };
            Times::Once
        } else if std::mem::replace(&mut self.doubled, true) {
            Times::More
        } else {
            Times::Twice
        }
    }
}

/// Kahn's algorithm over the added tasks; a cycle cannot pass through tasks that were there before.
fn check_cycles(base: usize, added: &[Node<'_>], parents: &[Box<[u32]>], violations: &mut DagViolations) {
    let local = |parent: u32| (parent as usize).checked_sub(base);
    let mut missing: Vec<usize> =
        parents.iter().map(|own| own.iter().filter(|parent| local(**parent).is_some()).count()).collect();
    let mut children = vec![Vec::new(); added.len()];
    for (child, own) in parents.iter().enumerate() {
        for parent in own.iter().filter_map(|parent| local(*parent)) {
            children[parent].push(child);
        }
    }
    let mut ready: Vec<usize> = (0..added.len()).filter(|task| missing[*task] == 0).collect();
    while let Some(task) = ready.pop() {
        for child in &children[task] {
            missing[*child] -= 1;
            if missing[*child] == 0 {
                ready.push(*child);
            }
        }
    }
    let Some(start) = missing.iter().position(|missing| *missing > 0) else { return };
    // Every task that is left waits for another one that is left, so walking up must come back to where it was.
    let waits_for = |task: usize| {
        let mut own = parents[task].iter().filter_map(|parent| local(*parent));
        own.find(|parent| missing[*parent] > 0).expect("a task that is left waits for one that is left")
    };
    let mut met = vec![None; added.len()];
    let mut walk = Vec::new();
    let mut task = start;
    while met[task].is_none() {
        met[task] = Some(walk.len());
        walk.push(task);
        task = waits_for(task);
    }
    let first = met[task].unwrap_or_default();
    let cycle = walk[first..].iter().chain([&task]);
    violations.add(|| DagViolation::Cycle {
        at: task,
        path: cycle.map(|task| added[*task].task_id.clone()).collect(),
    });
}

fn to_index(place: usize) -> u32 {
    u32::try_from(place).expect("a request holds fewer than 2^32 names")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::sample::{self, task};
    use crate::values::json::Json;

    /// Two roots, two children of one of them, and a join.
    fn documented() -> Vec<TaskSpec> {
        vec![
            task("task-A", &[]),
            task("task-B", &[]),
            task("task-C", &["task-A"]),
            task("task-D", &["task-A"]),
            task("task-E", &["task-C", "task-D"]),
        ]
    }

    fn said(result: Result<Dag, DagViolations>) -> Vec<String> {
        let listed = result.unwrap_err().listed;
        listed.iter().map(|one| format!("{} {}: {one}", one.code(), one.field())).collect()
    }

    #[test]
    fn the_documented_job_has_its_edges_both_ways() {
        let dag = Dag::new(documented()).unwrap();
        assert_eq!(dag.roots().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(dag.index_of("task-E"), Some(4));
        assert_eq!(dag.index_of("task-F"), None);
        assert_eq!(dag.parents(4), [2, 3]);
        assert_eq!(dag.children(0), [2, 3]);
        assert!(dag.children(4).is_empty());
        assert_eq!(dag.spec(2).task_id.as_str(), "task-C");
        assert_eq!((dag.len(), dag.tasks()), (5, 0..5));
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        for (tasks, expected) in [
            (vec![], vec!["EMPTY_TASKS tasks: there is no task"]),
            (
                vec![task("a", &[]), task("b", &[]), task("a", &["b"])],
                vec!["DUPLICATE_TASK_ID tasks[2].taskId: more than one task is called a"],
            ),
            (
                vec![task("a", &["a", "a", "x", "x", "x", "b", "b"]), task("b", &[])],
                vec![
                    "SELF_DEPENDENCY tasks[0].dependsOn: task a depends on itself",
                    "DUPLICATE_DEPENDENCY tasks[0].dependsOn: task a names its dependency a more than once",
                    "UNKNOWN_DEPENDENCY tasks[0].dependsOn: task a depends on x, which is not a task of the job",
                    "DUPLICATE_DEPENDENCY tasks[0].dependsOn: task a names its dependency x more than once",
                    "DUPLICATE_DEPENDENCY tasks[0].dependsOn: task a names its dependency b more than once",
                ],
            ),
            (
                vec![task("a", &["b"]), task("b", &["a"])],
                vec!["CYCLE tasks[0].dependsOn: tasks depend on each other in a circle: a > b > a"],
            ),
            (
                vec![task("in", &["c"]), task("c", &["d"]), task("d", &["free", "c"]), task("free", &["x"])],
                vec![
                    "UNKNOWN_DEPENDENCY tasks[3].dependsOn: task free depends on x, which is not a task of the job",
                    "CYCLE tasks[1].dependsOn: tasks depend on each other in a circle: c > d > c",
                ],
            ),
        ] {
            assert_eq!(said(Dag::new(tasks)), expected);
        }
    }

    #[test]
    fn a_bad_input_is_said_beside_the_rest() {
        let list = Json::parse("[]".to_owned()).unwrap();
        let tasks = vec![task("a", &["x"]), TaskSpec { input: list, ..task("b", &[]) }];
        let expected = [
            "UNKNOWN_DEPENDENCY tasks[0].dependsOn: task a depends on x, which is not a task of the job",
            "INVALID_INPUT tasks[1].input: the input of task b is not a JSON object",
        ];
        assert_eq!(said(Dag::new(tasks)), expected);
    }

    #[test]
    fn added_tasks_join_under_the_next_indices() {
        let mut dag = Dag::new(documented()).unwrap();
        let added = dag.extend(vec![task("g", &["f", "task-E"]), task("f", &["task-A"])]).unwrap();
        assert_eq!(added, 5..7);
        assert_eq!(dag.parents(5), [6, 4]);
        assert_eq!(dag.children(0), [2, 3, 6]);

        let before = dag.clone();
        let bad = vec![task("task-A", &[]), task("h", &["i"]), task("i", &["h"]), task("j", &["stranger"])];
        let violations = dag.extend(bad.clone()).unwrap_err();
        let codes: Vec<&str> = violations.listed.iter().map(DagViolation::code).collect();
        assert_eq!(codes, ["DUPLICATE_TASK_ID", "UNKNOWN_DEPENDENCY", "CYCLE"]);
        assert_eq!(dag, before);
        assert_eq!(dag.check(&bad), Err(violations.clone()));
        let shared: Arc<Vec<Arc<TaskSpec>>> = Arc::new(bad.into_iter().map(Arc::new).collect());
        assert_eq!(check_addition(&shared, dag.len(), &|task| dag.index_of(task)), Err(violations));
        assert_eq!(dag.check(&[]).unwrap_err().listed, [DagViolation::EmptyTasks]);
        let doubled = dag.check(&[task("k", &["task-A", "x", "task-A", "x"])]).unwrap_err();
        let codes: Vec<&str> = doubled.listed.iter().map(DagViolation::code).collect();
        assert_eq!(codes, ["UNKNOWN_DEPENDENCY", "DUPLICATE_DEPENDENCY", "DUPLICATE_DEPENDENCY"]);
    }

    #[test]
    fn a_job_may_be_as_large_as_the_limit_and_no_larger() {
        let chain: Vec<TaskSpec> = (0..JOB_TASKS_MAX)
            .map(|at| match at {
                0 => task("t0", &[]),
                _ => task(&format!("t{at}"), &[&format!("t{}", at - 1)]),
            })
            .collect();
        let mut dag = Dag::new(chain.clone()).unwrap();
        assert_eq!(dag.parents(99_999), [99_998]);
        let over = dag.extend(vec![task("one-more", &[])]).unwrap_err();
        assert_eq!(over.listed, [DagViolation::TooManyTasks { count: 100_001 }]);
        assert_eq!(over.to_string(), "the job has 100001 tasks; the limit is 100000");

        let mut ring = chain;
        ring[0] = task("t0", &["t99999"]);
        let DagViolations { listed, total: 1 } = Dag::new(ring).unwrap_err() else { panic!("one cycle") };
        let [DagViolation::Cycle { path, .. }] = &listed[..] else { panic!("{listed:?}") };
        assert_eq!(path.len(), JOB_TASKS_MAX + 1);
    }

    proptest! {
        #[test]
        fn graphs_without_cycles_are_taken_in_any_order(tasks in sample::tasks().prop_shuffle()) {
            let dag = Dag::new(tasks.clone()).unwrap();
            for (at, spec) in (0..).zip(&tasks) {
                let parents = dag.parents(at).iter().map(|parent| &dag.spec(*parent).task_id);
                prop_assert!(parents.eq(&spec.depends_on));
                prop_assert!(dag.parents(at).iter().all(|parent| dag.children(*parent).contains(&at)));
                prop_assert!(dag.children(at).iter().all(|child| dag.parents(*child).contains(&at)));
            }
        }

        #[test]
        fn a_cycle_is_found_exactly_when_there_is_one(
            edges in proptest::collection::btree_set((0..7_usize, 0..7_usize), 0..12),
        ) {
            let edges: Vec<_> = edges.into_iter().filter(|(child, parent)| child != parent).collect();
            let waits_for = |from: usize, to: usize| edges.contains(&(from, to));
            // A task that can reach itself is on a cycle (Warshall).
            let mut reach = [[false; 7]; 7];
            for (child, parent) in &edges {
                reach[*child][*parent] = true;
            }
            for via in 0..7 {
                for from in 0..7 {
                    for to in 0..7 {
                        reach[from][to] |= reach[from][via] && reach[via][to];
                    }
                }
            }
            let tasks = (0..7).map(|child| {
                let parents: Vec<String> =
                    (0..7).filter(|parent| waits_for(child, *parent)).map(|parent| parent.to_string()).collect();
                task(&child.to_string(), &parents.iter().map(String::as_str).collect::<Vec<_>>())
            });
            match Dag::new(tasks.collect()) {
                Ok(_) => prop_assert!((0..7).all(|task| !reach[task][task])),
                Err(violations) => {
                    let [DagViolation::Cycle { path, .. }] = &violations.listed[..] else { panic!("{violations:?}") };
                    let path: Vec<usize> = path.iter().map(|task| task.as_str().parse().unwrap()).collect();
                    prop_assert!(path.len() > 2 && path.first() == path.last());
                    prop_assert!(path.windows(2).all(|pair| waits_for(pair[0], pair[1])), "{path:?}");
                }
            }
        }
    }
}
