//! Joins: a child starts after all of its parents, and once.

use std::collections::{BTreeSet, HashMap};

use tidemill_model::{JobStatus, KnownType, TaskSpec};

use super::lab::{claim_request, completed, finish_request};
use super::shape::{acme, graph, job_of, names, property, spec, task_id};
use super::{Lab, TestWorld, side_by_side};
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Command, Finish, Report, Spent};
use tidemill_engine::reply::Assignment;

fn finish(task: &Assignment) -> Command {
    let report = Report::Completed {
        output: Some(super::shape::json("{}")),
        overflow: None,
        duration_millis: 1,
        exit_code: 0,
        artifacts: Vec::new(),
    };
    let worker = super::shape::worker("worker-1");
    Command::Finish(Finish {
        task: task.task.clone(),
        fence: task.fence,
        worker,
        report,
        spent: Spent::default(),
        cause: None,
        digest: 0,
    })
}

/// Roots at once and side by side; the others one by one as their last parent completes.
pub async fn children_start_only_after_all_parents<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a d<a+b e<c+d f<a+b+c+d+e").await;
    lab.run(&["a", "b"]).await;
    let tasks = lab.claim(9).await;
    assert_eq!(names(&tasks), ["c", "d"]);
    lab.complete(&tasks[1], "{}").await;
    assert!(lab.claim(9).await.is_empty(), "e waits for c");
    lab.complete(&tasks[0], "{}").await;
    lab.run(&["e"]).await;
    lab.run(&["f"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    lab.check_job(job).await;
}

/// One message and one `Task Pending` for a join, however its parents end.
pub async fn a_join_is_dispatched_once<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c join<a+b+c").await;
    for task in lab.claim(3).await {
        lab.complete(&task, "{}").await;
        // Telling it again must not count the parent twice.
        lab.report(&task, completed("{}")).await.expect("the outcome is known");
    }
    assert_eq!(lab.engine.advance(acme(), job).await.expect("the job is there"), 0);
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 0);
    assert_eq!(lab.count(KnownType::TaskPending).await, 4);
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 1);
    lab.run(&["join"]).await;
    assert_eq!(lab.count(KnownType::JobCompleted).await, 1);
    lab.check_job(job).await;
}

/// Both parents of a diamond end in one group of commands.
pub async fn parents_that_end_in_one_group_dispatch_their_join_once<W: TestWorld>(lab: Lab<W>) {
    for _ in 0..20 {
        let job = lab.submit("a b<a c<a d<b+c").await;
        lab.run(&["a"]).await;
        let tasks = lab.claim(2).await;
        let group = tasks.iter().map(finish).collect();
        let answers = lab.world.backend().execute(group).await.expect("the backend works");
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        lab.run(&["d"]).await;
        assert_eq!(lab.status(job).await, JobStatus::Completed);
        lab.check_job(job).await;
    }
}

/// Both parents of a diamond end at the same time, reported by two workers.
pub async fn parents_that_end_together_dispatch_their_join_once<W: TestWorld>(lab: Lab<W>) {
    for round in 0..40 {
        let job = lab.submit("a b<a c<a d<b+c").await;
        lab.run(&["a"]).await;
        let tasks = lab.claim(2).await;
        if round % 2 == 0 {
            let ends = tasks.iter().map(|task| lab.engine.finish(finish_request(task, completed("{}"))));
            assert!(side_by_side(ends).await.iter().all(Result::is_ok));
        } else {
            let ends = tasks.iter().map(|task| {
                let claim = claim_request("worker-1", 1);
                lab.engine.finish_and_claim(finish_request(task, completed("{}")), claim)
            });
            let answers = side_by_side(ends).await;
            let claimed: Vec<_> =
                answers.into_iter().flat_map(|answer| answer.expect("the backend works").1.tasks).collect();
            assert_eq!(names(&claimed), ["d"], "one of the two claims it");
            lab.complete(&claimed[0], "{}").await;
            assert_eq!(lab.status(job).await, JobStatus::Completed);
            continue;
        }
        lab.run(&["d"]).await;
        lab.check_job(job).await;
    }
}

/// Random graphs, run in random order: each task once, after its parents, and the job completes once.
pub async fn random_graphs_run_each_task_once_after_its_parents<W: TestWorld>(lab: Lab<W>) {
    let mut dice = Dice(7);
    for _ in 0..12 {
        let tasks = random_graph(&mut dice);
        let parents: HashMap<String, Vec<String>> =
            tasks.iter().map(|task| (name(task), parents_of(task))).collect();
        let job = lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted").job;
        let (mut held, mut done, mut order) = (Vec::new(), BTreeSet::new(), Vec::new());
        loop {
            held.extend(lab.claim(dice.below(4) + 1).await);
            if held.is_empty() {
                break;
            }
            let task = held.swap_remove(dice.below(held.len()));
            let own = task.spec.task_id.to_string();
            assert!(parents[&own].iter().all(|parent| done.contains(parent)), "{own} waits for its parents");
            lab.complete(&task, "{}").await;
            assert!(done.insert(own.clone()), "{own} runs once");
            order.push(own);
        }
        assert_eq!(order.len(), parents.len(), "all have run");
        assert_eq!(lab.status(job).await, JobStatus::Completed);
        lab.check_job(job).await;
    }
    assert_eq!(lab.count(KnownType::JobCompleted).await, 12);
}

fn name(task: &TaskSpec) -> String {
    task.task_id.to_string()
}

fn parents_of(task: &TaskSpec) -> Vec<String> {
    task.depends_on.iter().map(ToString::to_string).collect()
}

fn random_graph(dice: &mut Dice) -> Vec<TaskSpec> {
    let (count, density) = (dice.below(14) + 2, dice.below(4) + 2);
    let mut tasks = Vec::new();
    for child in 0..count {
        let parents: Vec<String> =
            (0..child).filter(|_| dice.below(density) == 0).map(|parent| format!("t{parent}")).collect();
        tasks.push(spec(&format!("t{child}"), &parents.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    // A task may come before its parents in the list.
    tasks.rotate_left(dice.below(count));
    tasks
}

/// Random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}

/// A hundred children of one task, and one child of them all.
pub async fn wide_graphs_fan_out_and_in<W: TestWorld>(lab: Lab<W>) {
    let width = 100;
    let middle: Vec<String> = (0..width).map(|n| format!("m{n:03}")).collect();
    let mut tasks = graph("first");
    tasks.extend(middle.iter().map(|name| spec(name, &["first"])));
    tasks.push(spec("last", &middle.iter().map(String::as_str).collect::<Vec<_>>()));
    let job = lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted").job;
    lab.run(&["first"]).await;
    let tasks = lab.claim(200).await;
    assert_eq!(names(&tasks), middle.iter().map(String::as_str).collect::<Vec<_>>());
    for (n, task) in tasks.iter().enumerate() {
        assert_eq!(lab.state(job, "last").await, None, "after {n}");
        lab.complete(task, &format!(r#"{{"n":{n}}}"#)).await;
    }
    let last = lab.claim_one().await;
    let work = lab.engine.work_of(&last).await.expect("the outputs are there");
    assert_eq!(work.dependency_outputs.len(), width);
    assert_eq!(work.dependency_outputs[99], (task_id("m099"), super::shape::json(r#"{"n":99}"#)));
    lab.complete(&last, "{}").await;
    lab.check_job(job).await;
}

/// The event of a join of thousands stays small: it counts its parents instead of listing them.
pub async fn a_wide_join_counts_its_parents<W: TestWorld>(lab: Lab<W>) {
    let most = tidemill_model::events::properties::LISTED_PARENTS_MAX;
    for parents in [most, most + 1] {
        let names: Vec<String> = (0..parents).map(|n| format!("p{n}")).collect();
        let text = format!("{} join<{}", names.join(" "), names.join("+"));
        let job = lab.submit(&text).await;
        let mut left = parents;
        while left > 0 {
            let tasks = lab.claim(256).await;
            left -= tasks.len();
            let finished = lab.engine.backend().execute(tasks.iter().map(finish).collect()).await;
            assert!(finished.expect("the backend works").iter().all(Result::is_ok));
        }
        let join = lab.claim_one().await;
        let pending = &lab.history(&join.task.request).await[0];
        let listed = property(pending, "dependsOn").as_array().map(Vec::len);
        let counted = property(pending, "dependsOnCount").as_u64();
        assert!(pending.to_detail().len() < 200 * 1024);
        if parents == most {
            assert_eq!((listed, counted), (Some(parents), None));
        } else {
            assert_eq!((listed, counted), (None, Some(parents as u64)));
        }
        let work = lab.engine.work_of(&join).await.expect("the outputs are there");
        assert_eq!(work.dependency_outputs.len(), parents);
        lab.fail(&join, tidemill_model::ErrorCategory::Auth).await;
        lab.engine.resume_job(acme(), job, None).await.expect("the join failed");
        let again = lab.claim_one().await;
        lab.complete(&again, "{}").await;
        assert_eq!(lab.status(job).await, tidemill_model::JobStatus::Completed);
    }
}
