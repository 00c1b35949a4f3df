//! Parked tasks: a task that failed for good waits for a person, and goes on when the person says how.
//!
//! The task's own failed attempt says that it is parked, so its state folds from its own events. The workflow event
//! beside it is for the people who handle errors, and holds no token that anybody could use.

use std::sync::Arc;

use serde::Serialize;
use tidemill_model::events::properties::{
    CompletionSource, FailureSource, TaskCompleted, TaskFailed, TaskProcessingFailed,
};
use tidemill_model::security::sanitize::REDACTED;
use tidemill_model::workflow::{
    ErrorCode, ErrorFingerprint, Family, NO_COUNTY, WorkflowRunId, WorkflowStatus,
};
use tidemill_model::{ErrorCategory, EventType, Fence, Json, KnownType, OnFailure, Outcome, TaskHead};

use crate::kernel::command::Cause;
use crate::kernel::commit::{TaskChangeKind, TaskKey};
use crate::kernel::draft::{By, Draft, Subject, identity, spec_of};
use crate::kernel::reply::Refusal;
use crate::kernel::site::Origin;
use crate::kernel::state::{State, TaskPlace, TaskRef};
use crate::parking::unpark::How;
use crate::triage::ingest::{self, TaskError};
use crate::triage::{BulkAction, Cell, NewToken, Unparked};
use crate::work::resume::{reopen, reopen_job};
use crate::work::running::finish::{advance_after, cut};
use crate::work::running::give_up::report_failure;

/// The code of a task that waited too long.
pub(crate) const PARK_EXPIRED: &str = "PARK_EXPIRED";

/// Whether a task waits for somebody when it has failed for good.
pub(crate) fn is_parking(task: &TaskRef<'_>) -> bool {
    spec_of(task).options.on_failure == OnFailure::Park
}

/// A failure that no further attempt helps against.
pub(crate) struct Defeat<'a> {
    pub(crate) key: &'a TaskKey,
    pub(crate) task: &'a TaskRef<'a>,
    pub(crate) category: ErrorCategory,
    pub(crate) error: &'a str,
    /// What was worked out before the decision.
    pub(crate) cause: Option<&'a Cause>,
}

impl Defeat<'_> {
    /// Notes the error where errors are counted. The event that was appended last tells it.
    pub(crate) fn note(&self, state: &State, draft: &mut Draft<'_, '_>) -> Option<ErrorCode> {
        let (event, at) = draft.last_event()?;
        let made;
        let (code, title) = if let Some(cause) = self.cause {
            (&cause.code, cause.title.as_str())
        } else {
            made = ErrorFingerprint::of(self.category, spec_of(self.task).kind_of_work(), self.error, None);
            (&made.code, made.message.as_str())
        };
        let cell = cell_of(self.task);
        // A sender that parked an execution of this name from outside did not mean this task.
        ingest::unpark_task(state, draft, self.key, Unparked::WentOn { at });
        let error = TaskError { task: self.key, code, title: Some(title), cell: &cell, event, at };
        ingest::task_failed(state, draft, &error);
        Some(code.clone())
    }

    /// Parks the task. Its last event says that the attempt failed and that it is parked.
    pub(crate) fn park(&self, state: &State, wait: &Wait, subject: &mut Subject, draft: &mut Draft<'_, '_>) {
        let Wait { fence, attempts } = *wait;
        draft.change(self.key, TaskChangeKind::Park { fence, attempts, error: self.category });
        draft.settle(self.task.entry.message);
        let Some(code) = self.note(state, draft) else { return };
        let spec = spec_of(self.task);
        let cell = cell_of(self.task);
        let told = Told {
            execution_id: WorkflowRunId::from(&self.key.request),
            county: &cell.county,
            status: WorkflowStatus::Failed,
            phase: &cell.phase,
            step: &cell.step,
            task_token: REDACTED,
            errors: [ToldError {
                code: &code,
                details: Details {
                    error: self.error,
                    error_category: self.category,
                    name: spec.name.as_str(),
                    attempts,
                    run: identity(&self.key.request, self.task).run,
                },
            }],
        };
        let event_type = EventType::trusted(&Family::default().status_type);
        draft.event_of(subject, event_type, By::component(Origin::Dispatcher), Json::of(&told));
        let given = self.cause.and_then(|cause| cause.token.clone());
        let token = given.unwrap_or_else(|| unseen_token(draft));
        ingest::park_task(state, draft, self.key, &token, spec.options.park_timeout_ms, &code);
    }

    /// Parks a task that nobody holds, or notes its failure. Says whether it is parked.
    pub(crate) fn park_unheld(&self, state: &State, head: &TaskHead, draft: &mut Draft<'_, '_>) -> bool {
        if !is_parking(self.task) {
            return false;
        }
        let wait = Wait { fence: head.fence.next(), attempts: head.attempts };
        let mut subject = draft.task_subject(self.key, self.task);
        let attempt = TaskProcessingFailed {
            task: identity(&self.key.request, self.task),
            attempt_number: head.attempts,
            counted: false,
            parked: true,
            error: self.error.to_owned(),
            error_category: self.category,
            code: None,
            duration_ms: None,
            usage: None,
            session_id: None,
            fence: wait.fence,
        };
        let by = By::component(Origin::DlqProcessor);
        draft.event(&mut subject, KnownType::TaskProcessingFailed, by, Json::of(&attempt));
        self.park(state, &wait, &mut subject, draft);
        true
    }
}

/// The right under which a task is parked, and the attempts it had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) fence: Fence,
    pub(crate) attempts: u32,
}

/// Where a task's errors are counted.
fn cell_of(task: &TaskRef<'_>) -> Cell {
    let spec = spec_of(task);
    let (phase, step) = match task.place {
        TaskPlace::InJob { job, .. } => (job.head.name.as_deref(), spec.task_id.as_str()),
        TaskPlace::Alone(_) => (None, spec.name.as_str()),
    };
    Cell {
        county: Arc::from(spec.options.county.as_deref().unwrap_or(NO_COUNTY)),
        data_group_label: None,
        phase: Arc::from(phase.unwrap_or(spec.name.as_str())),
        step: Arc::from(step),
    }
}

/// A token that nobody ever sees: people end the wait by the name of the task.
fn unseen_token(draft: &mut Draft<'_, '_>) -> NewToken {
    // No token has this digest: finding one would mean to invert the hash.
    let mut part = || format!("{:016x}", draft.random());
    let digest = [part(), part(), part(), part()].concat();
    NewToken { digest: Arc::from(digest), sealed: Arc::from([]) }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    execution_id: WorkflowRunId,
    county: &'a str,
    status: WorkflowStatus,
    phase: &'a str,
    step: &'a str,
    task_token: &'static str,
    errors: [ToldError<'a>; 1],
}

#[derive(Serialize)]
struct ToldError<'a> {
    code: &'a ErrorCode,
    details: Details<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    error: &'a str,
    error_category: ErrorCategory,
    name: &'a str,
    attempts: u32,
    run: u32,
}

/// The task goes on, in this commit. What is known of its errors is changed by the caller.
pub(crate) fn go_on(
    state: &State,
    draft: &mut Draft<'_, '_>,
    key: &TaskKey,
    how: How<'_>,
) -> Result<(), Refusal> {
    let not_parked = || Refusal::NotParked(WorkflowRunId::from(&key.request));
    let task = state.task(key).ok_or_else(not_parked)?;
    let head = task.entry.head.as_ref().filter(|head| head.is_parked()).ok_or_else(not_parked)?;
    match how {
        How::Act(BulkAction::Resume { rerun: true, .. }) => {
            if let TaskPlace::InJob { job, .. } = task.place {
                reopen_job(job, draft);
            }
            reopen(key, &task, draft)
        }
        How::Act(BulkAction::Resume { output, rerun: false }) => {
            complete(key, &task, head, output, draft);
            ingest::task_completed(state, draft, key);
            Ok(())
        }
        How::Act(BulkAction::Fail { error, cause }) => {
            let text = if cause.is_empty() { error.to_string() } else { format!("{error}: {cause}") };
            fail(key, &task, head, &text, (FailureSource::Api, error), draft);
            Ok(())
        }
        How::Expire => {
            let text = "was parked, and nobody came in time";
            fail(key, &task, head, text, (FailureSource::Expired, PARK_EXPIRED), draft);
            Ok(())
        }
    }
}

fn complete(key: &TaskKey, task: &TaskRef<'_>, head: &TaskHead, output: &Json, draft: &mut Draft<'_, '_>) {
    // No worker holds it, so the fence is raised: what an old one says is not taken for this.
    let fence = head.fence.next();
    let finish =
        TaskChangeKind::Finish { fence, outcome: Outcome::Completed, attempts: head.attempts, error: None };
    draft.change(key, finish);
    draft.settle(task.entry.message);
    let completed = TaskCompleted {
        task: identity(&key.request, task),
        output: Some(output.clone()),
        duration_ms: 0,
        exit_code: 0,
        artifacts: Vec::new(),
        source: Some(CompletionSource::Resume),
        usage: None,
        session_id: None,
        fence,
        overflow: None,
    };
    let mut subject = draft.task_subject(key, task);
    let by = By::component(Origin::ProducerApi);
    draft.event(&mut subject, KnownType::TaskCompleted, by, Json::of(&completed));
    if let TaskPlace::InJob { job, index } = task.place {
        advance_after(job, index, draft);
    }
}

fn fail(
    key: &TaskKey,
    task: &TaskRef<'_>,
    head: &TaskHead,
    error: &str,
    (source, code): (FailureSource, &str),
    draft: &mut Draft<'_, '_>,
) {
    let fence = head.fence.next();
    let category = head.last_error.unwrap_or(ErrorCategory::Unknown);
    let finish = TaskChangeKind::Finish {
        fence,
        outcome: Outcome::Failed,
        attempts: head.attempts,
        error: Some(category),
    };
    draft.change(key, finish);
    draft.settle(task.entry.message);
    let limit = draft.policy().error_chars_max;
    let failed = TaskFailed {
        task: identity(&key.request, task),
        error: cut(error, limit),
        error_category: category,
        retry_count: head.attempts,
        source,
        code: Some(cut(code, limit)),
        duration_ms: None,
        usage: None,
        session_id: None,
        fence: Some(fence),
    };
    let mut subject = draft.task_subject(key, task);
    let by = By::component(Origin::ProducerApi);
    draft.event(&mut subject, KnownType::TaskFailed, by, Json::of(&failed));
    report_failure(task, draft);
}

#[cfg(test)]
mod tests {
    use tidemill_model::TaskSpec;
    use tidemill_model::workflow::WorkflowRunId;

    use super::*;
    use crate::kernel::command::{Cancel, Command, LookAfterParked, Report, Resume, ResumeTarget, Unpark};
    use crate::kernel::commit::{Commit, RecordWrite};
    use crate::kernel::fixture::{Fixture, completed, failed, key, spec, tenant, timed_out};
    use crate::kernel::record::{RecordKey, RecordKind};
    use crate::kernel::reply::{Ending, Reply};
    use crate::kernel::state::row::RowKey;

    fn parking(name: &str, parents: &[&str]) -> TaskSpec {
        let mut spec = spec(name, parents);
        spec.options.on_failure = OnFailure::Park;
        spec.options.county = Some("Cook".to_owned());
        spec
    }

    /// A job `a -> b` whose first task is parked, and the task.
    fn parked() -> (Fixture, TaskKey) {
        let mut fixture = Fixture::new();
        let job = fixture.submit_job(vec![parking("a", &[]), spec("b", &["a"])]);
        let task = fixture.claim(1).remove(0);
        let reply = fixture.finish(&task.task, task.fence, failed(ErrorCategory::Auth)).unwrap();
        assert!(matches!(reply, Reply::Finished { ending: Ending::Parked, ended: Some(_) }));
        (fixture, key(job.request_id(&tidemill_model::TaskId::trusted("a")).as_str()))
    }

    fn head(fixture: &Fixture, key: &TaskKey) -> TaskHead {
        fixture.state.task(key).unwrap().entry.head.clone().unwrap()
    }

    fn unpark(fixture: &mut Fixture, key: &TaskKey, how: BulkAction) -> Result<Commit, Refusal> {
        let execution = WorkflowRunId::from(&key.request);
        let command = Unpark { tenant: tenant(), execution, how, by: None, reason: None };
        fixture.run(&Command::Unpark(command)).map(|(commit, _)| commit)
    }

    fn output() -> BulkAction {
        BulkAction::Resume { output: Json::trusted(r#"{"n":1}"#), rerun: false }
    }

    fn types(commit: &Commit) -> Vec<&str> {
        commit.events.iter().map(|event| event.event_type.as_str()).collect()
    }

    fn is_waiting(fixture: &Fixture, key: &TaskKey) -> bool {
        fixture.state.triage().parked(&tenant(), &WorkflowRunId::from(&key.request)).is_some()
    }

    #[test]
    fn an_output_dispatches_the_children_in_the_same_commit() {
        let (mut fixture, key) = parked();
        assert!(head(&fixture, &key).is_parked() && is_waiting(&fixture, &key));
        let commit = unpark(&mut fixture, &key, output()).unwrap();
        assert_eq!(types(&commit), ["Task Completed", "Task Pending", "Execution Resumed"]);
        assert!(matches!(
            commit.tasks.iter().map(|change| &change.kind).collect::<Vec<_>>()[..],
            [TaskChangeKind::Finish { outcome: Outcome::Completed, .. }, TaskChangeKind::Dispatch]
        ));
        assert_eq!(commit.enqueue.len(), 1);
        assert!(!is_waiting(&fixture, &key));
        assert_eq!(unpark(&mut fixture, &key, output()).unwrap_err().to_string(), {
            format!("the execution {} is not parked", key.request)
        });
    }

    #[test]
    fn a_wait_ends_once_however_it_ends() {
        let fail = BulkAction::Fail { error: "E".into(), cause: String::new().into() };
        let rerun = BulkAction::Resume { output: Json::empty_object(), rerun: true };
        for first in [output(), rerun.clone(), fail.clone()] {
            let (mut fixture, key) = parked();
            unpark(&mut fixture, &key, first.clone()).unwrap();
            let fence = head(&fixture, &key).fence;
            for second in [output(), rerun.clone(), fail.clone()] {
                let refused = unpark(&mut fixture, &key, second);
                assert!(matches!(refused, Err(Refusal::NotParked(_))), "{refused:?} after {first:?}");
            }
            assert_eq!(head(&fixture, &key).fence, fence);
        }
    }

    #[test]
    fn the_worker_of_a_parked_task_writes_nothing_more() {
        let (mut fixture, key) = parked();
        let fence = head(&fixture, &key).fence;
        let parked_again = Ok(Reply::Finished { ending: Ending::Parked, ended: None });
        assert_eq!(fixture.finish(&key, fence, failed(ErrorCategory::Auth)), parked_again);
        for report in [completed(), timed_out(), failed(ErrorCategory::Network)] {
            let lost = fixture.finish(&key, fence, report);
            assert!(
                matches!(lost, Err(Refusal::LeaseLost { .. } | Refusal::OutcomeDiffers { .. })),
                "{lost:?}"
            );
        }
        unpark(&mut fixture, &key, output()).unwrap();
        for report in [completed(), failed(ErrorCategory::Auth)] {
            let lost = fixture.finish(&key, fence, report);
            assert!(
                matches!(lost, Err(Refusal::LeaseLost { .. } | Refusal::OutcomeDiffers { .. })),
                "{lost:?}"
            );
        }
    }

    #[test]
    fn whatever_ends_a_parked_task_ends_its_wait() {
        let resume_job = |job| {
            Command::Resume(Resume { tenant: tenant(), target: ResumeTarget::Job { job, tasks: None } })
        };
        let cancel =
            |job| Command::Cancel(Cancel { tenant: tenant(), job, by: "ann".to_owned(), reason: None });
        for command in [resume_job as fn(_) -> Command, cancel] {
            let (mut fixture, key) = parked();
            let job = key.request.job_part().unwrap();
            fixture.run(&command(job)).unwrap();
            assert!(!head(&fixture, &key).is_parked() && !is_waiting(&fixture, &key));
            assert!(unpark(&mut fixture, &key, output()).is_err());
            let job = fixture.state.job(&tenant(), job).unwrap();
            assert_eq!((job.head.counts.parked, job.parked.len()), (0, 0));
        }
    }

    /// Ends the wait of a task.
    type Way = Box<dyn FnOnce(&TaskKey) -> Command>;

    #[test]
    fn the_webhook_hears_how_each_wait_of_a_task_ended() {
        let act = |how| {
            move |key: &TaskKey| {
                let execution = WorkflowRunId::from(&key.request);
                Command::Unpark(Unpark { tenant: tenant(), execution, how, by: None, reason: None })
            }
        };
        let of_job = |key: &TaskKey| {
            let target = ResumeTarget::Job { job: key.request.job_part().unwrap(), tasks: None };
            Command::Resume(Resume { tenant: tenant(), target })
        };
        let of_task = |key: &TaskKey| {
            Command::Resume(Resume { tenant: tenant(), target: ResumeTarget::Task(key.request.clone()) })
        };
        let cancel = |key: &TaskKey| {
            let job = key.request.job_part().unwrap();
            Command::Cancel(Cancel { tenant: tenant(), job, by: "ann".to_owned(), reason: None })
        };
        let look = |key: &TaskKey| {
            let execution = WorkflowRunId::from(&key.request);
            Command::LookAfterParked(LookAfterParked {
                keys: vec![crate::triage::ParkedKey { tenant: tenant(), execution }],
            })
        };
        let rerun = BulkAction::Resume { output: Json::empty_object(), rerun: true };
        let fail = BulkAction::Fail { error: "E".into(), cause: "why".into() };
        let ways: [(Way, u64, &str); 7] = [
            (Box::new(act(output())), 0, "resumed"),
            (Box::new(act(rerun)), 0, "resumed"),
            (Box::new(act(fail)), 0, "failed"),
            (Box::new(look), u64::MAX >> 20, "expired"),
            (Box::new(of_job), 0, "went_on"),
            (Box::new(of_task), 0, "went_on"),
            (Box::new(cancel), 0, "went_on"),
        ];
        for (at, (way, later, outcome)) in ways.into_iter().enumerate() {
            let (mut fixture, key) = parked();
            fixture.policy.workflow_webhook = true;
            fixture.now = fixture.now.plus(later);
            fixture.run(&way(&key)).unwrap();
            assert!(!is_waiting(&fixture, &key));
            let told = crate::triage::property::webhook(&fixture);
            assert_eq!(told, [(key.request.to_string(), outcome.to_owned())], "way {at}");
        }
    }

    #[test]
    fn commands_name_what_they_need_to_know_of_errors() {
        let (mut fixture, key) = parked();
        let execution =
            RowKey::Record(RecordKey::triage_execution(&tenant(), &WorkflowRunId::from(&key.request)));
        let job = key.request.job_part().unwrap();
        let kept = |fixture: &Fixture| {
            // A state that has the task and has let the records of its errors go.
            let mut rest = crate::kernel::state::State::keeping_rows();
            let found = fixture.state.job(&tenant(), job).unwrap();
            let tasks = found.nodes.iter().map(|node| std::sync::Arc::clone(&node.spec)).collect();
            let entries = found.nodes.iter().zip(0..).map(|(node, index)| {
                let key = TaskKey { tenant: tenant(), request: found.request_of(index) };
                (key, node.entry.clone())
            });
            rest.load_job(found.head.clone(), [(0, tasks)], entries);
            rest
        };
        let target = ResumeTarget::Task(key.request.clone());
        let resume = Command::Resume(Resume { tenant: tenant(), target });
        assert!(resume.touches(&kept(&fixture), fixture.now).contains(&execution));
        unpark(&mut fixture, &key, BulkAction::Resume { output: Json::empty_object(), rerun: true }).unwrap();
        let task = fixture.claim(1).remove(0);
        let finish = |report: Report| {
            Command::Finish(crate::kernel::command::Finish {
                task: key.clone(),
                fence: task.fence,
                worker: crate::kernel::fixture::worker(),
                report,
                spent: crate::kernel::command::Spent::default(),
                cause: None,
                digest: 0,
            })
        };
        for report in [completed(), failed(ErrorCategory::Auth)] {
            let command = finish(report);
            assert!(command.touches(&kept(&fixture), fixture.now).contains(&execution), "its second run");
        }
    }

    #[test]
    fn an_error_is_counted_where_its_task_stands() {
        let (fixture, key) = parked();
        let record = RecordKey::parked(&tenant(), &WorkflowRunId::from(&key.request));
        assert_eq!(record.kind, RecordKind::Parked);
        let waiting = fixture.state.triage().parked(&tenant(), &WorkflowRunId::from(&key.request)).unwrap();
        let cell = &waiting.cell;
        assert_eq!((&*cell.county, &*cell.phase, &*cell.step), ("Cook", "work", "a"));
        assert_eq!(waiting.task.as_ref(), Some(&key.request));
        let code = ErrorFingerprint::of(ErrorCategory::Auth, "work", "it broke", None).code;
        assert_eq!(waiting.codes, [code]);
    }

    #[test]
    fn no_two_unseen_tokens_are_alike() {
        let mut fixture = Fixture::new();
        let mut job = Vec::new();
        for number in 0..20 {
            job.push(parking(&format!("t{number}"), &[]));
        }
        fixture.submit_job(job);
        let mut digests = std::collections::BTreeSet::new();
        for task in fixture.claim(20) {
            let finish = crate::kernel::command::Finish {
                task: task.task.clone(),
                fence: task.fence,
                worker: crate::kernel::fixture::worker(),
                report: failed(ErrorCategory::Auth),
                spent: crate::kernel::command::Spent::default(),
                cause: None,
                digest: 0,
            };
            let (commit, _) = fixture.run(&Command::Finish(finish)).unwrap();
            let tokens = commit.records.iter().filter_map(|write| match write {
                RecordWrite::Put { key, .. } if key.kind == RecordKind::Token => Some(format!("{key:?}")),
                _ => None,
            });
            digests.extend(tokens);
        }
        assert_eq!(digests.len(), 20);
    }
}
