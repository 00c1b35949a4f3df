//! The fold of a job: its graph, the state of each of its tasks, and where it stands as a whole.

use super::task::{Fact, FoldedTask};
use super::{BadHistory, in_order, read};
use crate::events::event::{Event, Position};
use crate::events::known_type::KnownType;
use crate::events::properties::{JobCreated, JobTasksAdded};
use crate::values::id::{EventId, JobId, RequestId};
use crate::work::dag::Dag;
use crate::work::head::{JobCounts, JobStatus, PublicState};
use crate::work::task_spec::TaskSpec;

/// What the events of a job and of its tasks say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedJob {
    pub job: JobId,
    /// The client's request that created it.
    pub request: RequestId,
    pub created: Position,
    /// `Job Created` and every `Job Tasks Added`, in order.
    pub dag: Dag,
    /// By index in the graph; `None` for a task that was not dispatched.
    pub tasks: Vec<Option<FoldedTask>>,
    pub counts: JobCounts,
    pub status: JobStatus,
}

impl FoldedJob {
    /// The public state of a task.
    pub fn state(&self, task: u32) -> Option<PublicState> {
        self.tasks[task as usize].map(|view| view.state)
    }

    /// Tasks that wait for nothing any more and were not dispatched.
    pub fn ready(&self) -> impl Iterator<Item = u32> {
        self.dag.tasks().filter(|task| self.state(*task).is_none() && self.parents_completed(*task))
    }

    fn parents_completed(&self, task: u32) -> bool {
        self.dag.parents(task).iter().all(|parent| self.state(*parent) == Some(PublicState::Completed))
    }
}

/// What these events say about the one job they belong to. Moved task lists must have been put back.
///
/// Events of other entities, and of tasks that are not in the graph, are passed over.
pub fn fold_job<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<FoldedJob, BadHistory> {
    let events = in_order(events);
    let mut created: Option<(Position, JobCreated)> = None;
    let mut dag = Dag::default();
    let mut cancelled: Option<EventId> = None;
    for event in events.iter().filter(|event| event.entity.kind.as_str() == "JOB") {
        match KnownType::from_name(event.event_type.as_str()) {
            Some(KnownType::JobCreated) => {
                if created.is_some() {
                    return Err(BadHistory::CreatedTwice { id: event.id });
                }
                let mut properties: JobCreated = read(event, KnownType::JobCreated)?;
                extend(&mut dag, event.id, properties.tasks.take(), properties.total_tasks)?;
                created = Some((event.position(), properties));
            }
            Some(KnownType::JobTasksAdded) => {
                let properties: JobTasksAdded = read(event, KnownType::JobTasksAdded)?;
                if created.is_none() {
                    return Err(BadHistory::NotCreated);
                }
                count(&dag, event.id, properties.previous_total_tasks)?;
                extend(&mut dag, event.id, properties.new_tasks, properties.total_tasks_now)?;
            }
            Some(KnownType::JobCancelled) => cancelled = cancelled.max(Some(event.id)),
            _ => {}
        }
    }
    let (created, properties) = created.ok_or(BadHistory::NotCreated)?;
    let tasks = fold_tasks(&dag, properties.job_id, &events)?;
    let mut counts = JobCounts::default();
    for task in &tasks {
        *counts.of(task.map(|view| view.state)) += 1;
        counts.parked += u32::from(task.is_some_and(|view| view.parked));
    }
    let status = counts.status();
    let mut view = FoldedJob {
        job: properties.job_id,
        request: properties.request_id,
        created,
        dag,
        tasks,
        counts,
        status,
    };
    let stopped = cancelled.is_some_and(|cancelled| !is_reopened(&view.tasks, cancelled));
    if stopped && view.status != JobStatus::Completed {
        view.status = JobStatus::Cancelled;
    } else if view.status == JobStatus::Failed && view.ready().next().is_some() {
        // Something is about to be dispatched, so the job has not come to rest.
        view.status = JobStatus::Failing;
    }
    Ok(view)
}

fn extend(dag: &mut Dag, id: EventId, tasks: Option<Vec<TaskSpec>>, total: u32) -> Result<(), BadHistory> {
    let tasks = tasks.ok_or(BadHistory::NotRehydrated { id })?;
    dag.extend(tasks).map_err(|source| BadHistory::Tasks { id, source })?;
    count(dag, id, total)
}

fn count(dag: &Dag, id: EventId, found: u32) -> Result<(), BadHistory> {
    let expected = dag.tasks().end;
    if found == expected { Ok(()) } else { Err(BadHistory::Totals { id, found, expected }) }
}

fn fold_tasks(dag: &Dag, job: JobId, events: &[&Event]) -> Result<Vec<Option<FoldedTask>>, BadHistory> {
    let job = format!("{job}_");
    let mut facts = vec![Vec::new(); dag.len()];
    for event in events.iter().filter(|event| event.entity.kind.as_str() == "TASK") {
        let entity = event.entity.id.as_str();
        if let Some(task) = entity.strip_prefix(&job).and_then(|task| dag.index_of(task)) {
            facts[task as usize].extend(Fact::of(event)?);
        }
    }
    Ok(facts.iter().map(|facts| FoldedTask::of(facts)).collect())
}

/// Whether a resume has opened a new run since the job was cancelled.
///
/// The two events belong to different entities, whose timestamps may each run ahead of the clock by a few milliseconds.
/// Their ids are minted in the order of commits, so ids tell which one came later.
fn is_reopened(tasks: &[Option<FoldedTask>], cancelled: EventId) -> bool {
    let resumed = tasks.iter().flatten().filter(|view| view.run > 1);
    resumed.filter_map(|view| view.opened).any(|opened| opened.id > cancelled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::events::event::Entity;
    use crate::sample;
    use crate::values::json::Json;

    /// The entity, what happened to it, and with which properties.
    type Step<'a> = (&'a str, &'a str, &'a str);

    /// A story of a job: each step is an event in a millisecond of its own.
    fn story(steps: &[Step<'_>]) -> Vec<Event> {
        (1..)
            .zip(steps)
            .map(|(number, (who, event_type, properties))| {
                let job = JobId::from_u128(7);
                let properties = properties.replace("$job", &job.to_string());
                if *who == "JOB" {
                    let event = sample::task_event("x", number, event_type, &properties);
                    Event { entity: Entity::job(job), ..event }
                } else {
                    sample::task_event(&format!("{job}_{who}"), number, event_type, &properties)
                }
            })
            .collect()
    }

    const CREATED: Step<'static> = (
        "JOB",
        "Job Created",
        r#"{"jobId":"$job","requestId":"req-789","totalTasks":5,"tasks":[
            {"taskId":"A","name":"scrape-store","dependsOn":[],"input":{"storeId":"store-123"}},
            {"taskId":"B","name":"analyze-competitors"},
            {"taskId":"C","name":"color-tags","dependsOn":["A"]},
            {"taskId":"D","name":"font-pairing","dependsOn":["A"]},
            {"taskId":"E","name":"compile-result","dependsOn":["C","D"]}]}"#,
    );
    const ADDED: Step<'static> = (
        "JOB",
        "Job Tasks Added",
        r#"{"jobId":"$job","previousTotalTasks":5,"totalTasksNow":6,"newTasks":[
            {"taskId":"F","name":"market-analysis","dependsOn":["A"],"input":{"depth":"detailed"}}]}"#,
    );
    const CANCELLED: Step<'static> = ("JOB", "Job Cancelled", r#"{"jobId":"$job","by":"me"}"#);

    fn pending(task: &str) -> Step<'_> {
        (task, "Task Pending", "{}")
    }

    fn started(task: &str) -> Step<'_> {
        (task, "Task Processing Started", r#"{"fence":1}"#)
    }

    fn completed(task: &str) -> Step<'_> {
        (task, "Task Completed", "{}")
    }

    fn failed(task: &str) -> Step<'_> {
        (task, "Task Failed", r#"{"retryCount":1,"errorCategory":"auth"}"#)
    }

    fn stopped(task: &str) -> Step<'_> {
        (task, "Task Failed", r#"{"retryCount":0,"errorCategory":"cancelled"}"#)
    }

    fn parked(task: &str) -> Step<'_> {
        (task, "Task Processing Failed", r#"{"attemptNumber":1,"fence":1,"parked":true}"#)
    }

    fn resumed(task: &str) -> Step<'_> {
        (task, "Task Pending", r#"{"run":2}"#)
    }

    fn states(view: &FoldedJob) -> String {
        let letter = |task| match view.state(task) {
            None => '.',
            Some(PublicState::Pending) => 'p',
            Some(PublicState::Processing) => 'r',
            Some(PublicState::Completed) => 'c',
            Some(PublicState::Failed) => 'f',
        };
        view.dag.tasks().map(letter).collect()
    }

    #[test]
    fn a_job_goes_through_its_phases() {
        use JobStatus::{Cancelled, Completed, Failed, Failing, Running};
        let ab = [CREATED, pending("A"), pending("B")];
        let a_done = [&ab[..], &[started("A"), completed("A"), pending("C"), pending("D")]].concat();
        let c_failed = [&a_done[..], &[completed("B"), started("D"), failed("C")]].concat();
        let all_done =
            [&a_done[..], &[completed("B"), completed("C"), completed("D"), pending("E"), completed("E")]]
                .concat();
        let stopped_early = [&a_done[..], &[CANCELLED, stopped("B"), stopped("C"), stopped("D")]].concat();
        for (steps, expected, status) in [
            (vec![CREATED], ".....", Running),
            (ab.to_vec(), "pp...", Running),
            (a_done.clone(), "cppp.", Running),
            (c_failed.clone(), "ccfr.", Failing),
            ([&c_failed[..], &[completed("D")]].concat(), "ccfc.", Failed),
            ([&c_failed[..], &[completed("D"), resumed("C")]].concat(), "ccpc.", Running),
            (all_done, "ccccc", Completed),
            ([&a_done[..], &[ADDED, pending("F")]].concat(), "cppp.p", Running),
            // A task that waits for somebody is no outcome, and the job does not go well.
            ([&a_done[..], &[completed("B"), started("C"), parked("C")]].concat(), "ccrp.", Failing),
            ([&a_done[..], &[completed("B"), parked("C"), completed("D")]].concat(), "ccrc.", Failing),
            ([&a_done[..], &[parked("C"), completed("C")]].concat(), "cpcp.", Running),
            ([&a_done[..], &[parked("C"), resumed("C")]].concat(), "cppp.", Running),
            // A task that was added and can start keeps a failed job from being at rest.
            ([&c_failed[..], &[completed("D"), ADDED]].concat(), "ccfc..", Failing),
            (stopped_early.clone(), "cfff.", Cancelled),
            // What a cancelled task's worker still says changes nothing.
            ([&stopped_early[..], &[completed("C")]].concat(), "cfff.", Cancelled),
            ([&stopped_early[..], &[resumed("C")]].concat(), "cfpf.", Failing),
            (
                [&stopped_early[..], &[resumed("C"), CANCELLED, ("C", "Task Failed", r#"{"run":2}"#)]]
                    .concat(),
                "cfff.",
                Cancelled,
            ),
        ] {
            let view = fold_job(&story(&steps)).unwrap();
            assert_eq!((states(&view).as_str(), view.status), (expected, status));
            assert_eq!(view.counts.total() as usize, view.dag.len());
            assert_eq!(view.counts.waiting as usize, expected.matches('.').count());
            let is_parked = steps.contains(&parked("C")) && expected.chars().nth(2) == Some('r');
            assert_eq!(view.counts.parked, u32::from(is_parked));
        }
    }

    #[test]
    fn a_resume_is_told_from_a_cancel_by_the_order_of_ids() {
        // The job's events came so fast that its clock ran ahead; the resume is later all the same.
        let mut events = story(&[
            CREATED,
            pending("A"),
            pending("B"),
            CANCELLED,
            stopped("A"),
            stopped("B"),
            resumed("A"),
        ]);
        events[3].timestamp = events[6].timestamp.plus(50);
        assert_eq!(fold_job(&events).unwrap().status, JobStatus::Failing);
    }

    #[test]
    fn the_view_tells_who_asked_and_what_is_ready() {
        let view = fold_job(&story(&[CREATED, pending("B"), completed("A"), ADDED])).unwrap();
        assert_eq!((view.job, view.request.as_str()), (JobId::from_u128(7), "req-789"));
        assert_eq!(view.created.id, EventId::from_u128(1));
        assert_eq!(view.ready().collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!(view.dag.spec(0).input, Json::parse(r#"{"storeId":"store-123"}"#.to_owned()).unwrap());
    }

    #[test]
    fn a_history_that_cannot_be_is_refused() {
        let properties = |event_type, text| ("JOB", event_type, text);
        for (steps, expected) in [
            (vec![pending("A")], "there is no Job Created event"),
            (vec![ADDED], "there is no Job Created event"),
            (
                vec![CREATED, CREATED],
                "event 00000000-0000-0000-0000-000000000002 creates the job a second time",
            ),
            (
                vec![properties("Job Created", r#"{"jobId":"$job","requestId":"r","totalTasks":5}"#)],
                "the tasks of event 00000000-0000-0000-0000-000000000001 were moved to the blob store and not put back",
            ),
            (
                vec![properties(
                    "Job Created",
                    r#"{"jobId":"$job","requestId":"r","totalTasks":5,"tasks":[{"taskId":"A","name":"x"}]}"#,
                )],
                "event 00000000-0000-0000-0000-000000000001 counts 5 tasks where the job has 1",
            ),
            (
                vec![CREATED, ADDED, ADDED],
                "event 00000000-0000-0000-0000-000000000003 counts 5 tasks where the job has 6",
            ),
            (
                vec![properties(
                    "Job Created",
                    r#"{"jobId":"$job","requestId":"r","totalTasks":0,"tasks":[]}"#,
                )],
                "the tasks of event 00000000-0000-0000-0000-000000000001 do not fit the job",
            ),
            (
                vec![properties("Job Created", "{}")],
                "the properties of event 00000000-0000-0000-0000-000000000001 (Job Created) cannot be read: \
                 missing field `jobId` at line 1 column 2",
            ),
        ] {
            assert_eq!(fold_job(&story(&steps)).unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn the_order_of_events_makes_no_difference(
            (events, shuffled) in proptest::collection::vec((0..6_usize, 0..6_usize), 0..20)
                .prop_flat_map(|picks| {
                    let tasks = ["A", "B", "C", "D", "E", "stranger"];
                    let step = |(task, kind): (usize, usize)| match kind {
                        0 => pending(tasks[task]),
                        1 => started(tasks[task]),
                        2 => completed(tasks[task]),
                        3 => failed(tasks[task]),
                        4 => resumed(tasks[task]),
                        _ => CANCELLED,
                    };
                    let steps = [CREATED].into_iter().chain(picks.into_iter().map(step)).chain([ADDED]);
                    let events = story(&steps.collect::<Vec<_>>());
                    (Just(events.clone()), Just(events).prop_shuffle())
                }),
        ) {
            let view = fold_job(&events).unwrap();
            prop_assert_eq!(&view, &fold_job(&shuffled).unwrap());
            prop_assert_eq!(view.counts.total(), 6);
        }
    }
}
