//! Finish: the one recorded outcome of a run, and in the same commit whatever it makes ready.

use tidemill_model::events::properties::{
    FailureSource, JobCompleted, TaskCompleted, TaskFailed, TaskProcessingFailed, TaskTimeout,
};
use tidemill_model::{
    ArtifactFile, ErrorCategory, Fence, Json, KnownType, LastError, Outcome, PublicState, TaskHead,
    TaskState, Timestamp, WorkerId,
};

use crate::kernel::command::{Cause, Report, Spent};
use crate::kernel::commit::{Delivered, TaskChangeKind, TaskKey};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::{By, Draft, JobFacts, Subject, identity, job_name_of, spec_of};
use crate::kernel::reply::{Ended, Ending, Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::job::Job;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskPlace, TaskRef};
use crate::parking::park::{Defeat, Wait, is_parking};
use crate::triage::ingest;
use crate::usage::charge::{self, Charge};
use crate::work::rows::task_row;
use crate::work::running::give_up::{End, Exhausted, end_exhausted, report_failure};
use crate::work::statuses;

#[derive(Debug, Clone)]
pub struct Finish {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    pub report: Report,
    pub spent: Spent,
    /// Which error a failure is; worked out by the decision when it is left out.
    pub cause: Option<Box<Cause>>,
    /// Tells a report that is repeated from another one: of what was reported, before any of it moved to the blob store.
    pub digest: u64,
}

impl Decision for Finish {
    fn touches(&self, state: &State, now: Timestamp) -> Vec<RowKey> {
        let mut keys = vec![task_row(&self.task)];
        keys.extend(error_rows(state, self));
        if self.spent.usage.is_some() {
            keys.extend(charge::rows(state, &self.task, now));
        }
        keys
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::Of(&self.task.tenant)
    }

    fn log_bytes(&self) -> u64 {
        300_000
    }

    fn large_field(&self) -> &'static str {
        "output"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

pub(crate) fn decide(state: &State, command: &Finish, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let key = &command.task;
    let known = state.task(key).and_then(|task| task.entry.head.as_ref().map(|head| (task, head)));
    let Some((task, head)) = known else {
        return Err(Refusal::NotFound { what: "task", id: key.request.to_string() });
    };
    if !may_finish(head, command.fence, draft) {
        let lost = || Refusal::LeaseLost {
            request: key.request.clone(),
            given: command.fence.0,
            newest: head.fence.0,
        };
        if head.fence == command.fence && differs(head, command, draft) {
            return Err(Refusal::OutcomeDiffers { request: key.request.clone(), fence: command.fence.0 });
        }
        return repeat(state, &task, head, command).ok_or_else(lost);
    }
    draft.change(key, TaskChangeKind::Reported { fence: command.fence, digest: command.digest });
    let ending = match &command.report {
        Report::Completed { .. } => complete(state, command, &task, head, draft),
        Report::TimedOut { .. } => time_out(state, command, &task, head, draft),
        Report::Failed { error, category, retry_after_millis } => {
            let failure = Failure { error, category: *category, retry_after_millis: *retry_after_millis };
            fail(state, command, &task, head, &failure, draft)
        }
    };
    let ended =
        Ended { spec: spec_of(&task), job_name: job_name_of(&task), held_millis: held_for(head, draft) };
    Ok(Reply::Finished { ending, ended: Some(ended) })
}

#[cfg(not(feature = "faults"))]
fn may_finish(head: &TaskHead, fence: Fence, _: &Draft<'_, '_>) -> bool {
    head.lease_of(fence).is_some()
}

#[cfg(feature = "faults")]
fn may_finish(head: &TaskHead, fence: Fence, draft: &Draft<'_, '_>) -> bool {
    let faults = draft.policy().faults;
    head.lease_of(fence).is_some()
        || (faults.skip_fence_check && head.outcome().is_none())
        || (faults.allow_second_outcome && head.outcome().is_some())
}

/// Whether another report than this one was taken under the right that it names.
#[cfg(not(feature = "faults"))]
fn differs(head: &TaskHead, command: &Finish, _: &Draft<'_, '_>) -> bool {
    head.reported.is_some_and(|known| known != command.digest)
}

#[cfg(feature = "faults")]
fn differs(head: &TaskHead, command: &Finish, draft: &Draft<'_, '_>) -> bool {
    head.reported.is_some_and(|known| known != command.digest) && !draft.policy().faults.drop_other_reports
}

/// The answer to a report that was taken before: a worker may not have heard it.
fn repeat(state: &State, task: &TaskRef<'_>, head: &TaskHead, command: &Finish) -> Option<Reply> {
    if head.fence != command.fence {
        return None;
    }
    let reported = match &command.report {
        Report::Completed { .. } => None,
        Report::TimedOut { .. } => Some(ErrorCategory::Timeout),
        Report::Failed { category, .. } => Some(*category),
    };
    if head.state == TaskState::Queued
        && reported.is_some()
        && head.last_error == reported
        && head.failed_fence == Some(command.fence)
    {
        let at = state.queue().get(task.entry.message?)?.visible_at;
        return Some(Reply::Finished { ending: Ending::Retrying { at }, ended: None });
    }
    if head.is_parked() && head.failed_fence == Some(command.fence) {
        let is_known = reported.is_some() && reported == head.last_error;
        return is_known.then_some(Reply::Finished { ending: Ending::Parked, ended: None });
    }
    let same = match (&command.report, head.outcome()) {
        (Report::Completed { .. }, Some(Outcome::Completed))
        | (Report::TimedOut { .. }, Some(Outcome::TimedOut)) => head.outcome(),
        (Report::Failed { category, .. }, Some(Outcome::Failed)) if head.last_error == Some(*category) => {
            head.outcome()
        }
        _ => None,
    };
    same.map(|outcome| Reply::Finished { ending: Ending::Done(outcome), ended: None })
}

fn complete(
    state: &State,
    command: &Finish,
    task: &TaskRef<'_>,
    head: &TaskHead,
    draft: &mut Draft<'_, '_>,
) -> Ending {
    let Report::Completed { output, overflow, duration_millis, exit_code, artifacts } = &command.report
    else {
        unreachable!("only called with a completion")
    };
    let key = &command.task;
    let finish = TaskChangeKind::Finish {
        fence: head.fence,
        outcome: Outcome::Completed,
        attempts: head.attempts.saturating_add(1),
        error: None,
    };
    draft.change(key, finish);
    draft.settle(task.entry.message);
    let mut subject = draft.task_subject(key, task);
    let completed = TaskCompleted {
        task: identity(&key.request, task),
        output: output.clone(),
        duration_ms: *duration_millis,
        exit_code: *exit_code,
        artifacts: left(artifacts, draft),
        source: None,
        usage: command.spent.usage,
        session_id: command.spent.session_id.clone(),
        fence: command.fence,
        overflow: overflow.as_ref().map(|(_, at)| at.clone()),
    };
    let by = By { id: overflow.as_ref().map(|(id, _)| *id), ..By::worker(&command.worker) };
    draft.event(&mut subject, KnownType::TaskCompleted, by, Json::of(&completed));
    charge_for(state, command, task, *duration_millis, true, &subject, draft);
    if may_have_failed(head) {
        ingest::task_completed(state, draft, key);
    }
    if let TaskPlace::InJob { job, index } = task.place {
        advance_after(job, index, draft);
    }
    Ending::Done(Outcome::Completed)
}

#[cfg(not(feature = "faults"))]
fn left(artifacts: &[ArtifactFile], _: &Draft<'_, '_>) -> Vec<ArtifactFile> {
    artifacts.to_vec()
}

#[cfg(feature = "faults")]
fn left(artifacts: &[ArtifactFile], draft: &Draft<'_, '_>) -> Vec<ArtifactFile> {
    if draft.policy().faults.forget_artifacts { Vec::new() } else { artifacts.to_vec() }
}

/// Whether errors of the task may be on record: those of an earlier run.
pub(crate) fn may_have_failed(head: &TaskHead) -> bool {
    head.run > 1
}

/// Dispatches the children that waited for this task alone, and ends the job when it was the last.
pub(crate) fn advance_after(job: &Job, index: u32, draft: &mut Draft<'_, '_>) {
    if !job.head.cancelled {
        for child in job.ready_after(index) {
            draft.dispatch(&JobFacts::of(job), &job.node(child).spec, Origin::Dispatcher);
        }
    }
    if job.head.counts.completed + 1 == job.head.counts.total() {
        let mut subject = draft.job_subject(job);
        subject.not_before(last_event_time(job, index, draft));
        let completed = JobCompleted {
            job_id: job.head.job,
            total_tasks: job.head.counts.total(),
            statuses: statuses::of(job, (index, PublicState::Completed), draft.policy()),
        };
        let by = By::component(Origin::Dispatcher);
        draft.event(&mut subject, KnownType::JobCompleted, by, Json::of(&completed));
    }
}

/// The latest time of any event of the job's tasks, with the end of this one. Their clocks may run ahead of the job's: events of a
/// task that happen in the same millisecond are stamped one after another.
fn last_event_time(job: &Job, index: u32, draft: &Draft<'_, '_>) -> Option<Timestamp> {
    #[cfg(feature = "faults")]
    if draft.policy().faults.stamp_jobs_early {
        return None;
    }
    job.told_at.max(draft.last_time_of(&job.request_of(index)))
}

fn time_out(
    state: &State,
    command: &Finish,
    task: &TaskRef<'_>,
    head: &TaskHead,
    draft: &mut Draft<'_, '_>,
) -> Ending {
    let Report::TimedOut { timeout_millis, elapsed_millis, signal } = &command.report else {
        unreachable!("only called with a timeout")
    };
    let key = &command.task;
    let error = format!("timed out after {timeout_millis} ms");
    let failure = Failure { error: &error, category: ErrorCategory::Timeout, retry_after_millis: None };
    if let Some(delay) = delay_after_timeout(task, head, draft) {
        return try_again(state, command, task, head, &failure, (*elapsed_millis, delay), draft);
    }
    let defeat = Defeat {
        key,
        task,
        category: ErrorCategory::Timeout,
        error: &error,
        cause: command.cause.as_deref(),
    };
    if is_parking(task) {
        return park(state, command, &defeat, head, &failure, *elapsed_millis, draft);
    }
    let finish = TaskChangeKind::Finish {
        fence: head.fence,
        outcome: Outcome::TimedOut,
        attempts: head.attempts.saturating_add(1),
        error: Some(ErrorCategory::Timeout),
    };
    draft.change(key, finish);
    draft.settle(task.entry.message);
    let mut subject = draft.task_subject(key, task);
    let timeout = TaskTimeout {
        task: identity(&key.request, task),
        timeout_ms: *timeout_millis,
        elapsed_ms: *elapsed_millis,
        signal: (*signal).to_owned(),
        usage: command.spent.usage,
        session_id: command.spent.session_id.clone(),
        fence: command.fence,
    };
    draft.event(&mut subject, KnownType::TaskTimeout, By::worker(&command.worker), Json::of(&timeout));
    defeat.note(state, draft);
    charge_for(state, command, task, *elapsed_millis, true, &subject, draft);
    report_failure(task, draft);
    Ending::Done(Outcome::TimedOut)
}

struct Failure<'a> {
    error: &'a str,
    category: ErrorCategory,
    retry_after_millis: Option<u64>,
}

fn fail(
    state: &State,
    command: &Finish,
    task: &TaskRef<'_>,
    head: &TaskHead,
    failure: &Failure<'_>,
    draft: &mut Draft<'_, '_>,
) -> Ending {
    let key = &command.task;
    let attempts = head.attempts.saturating_add(1);
    let error = cut(failure.error, draft.policy().error_chars_max);
    let held_millis = held_for(head, draft);
    let duration_ms = command.spent.usage.map(|_| held_millis);
    let cause = command.cause.as_deref();
    let defeat = Defeat { key, task, category: failure.category, error: &error, cause };
    let delay = if failure.category.is_retryable() {
        let policy = spec_of(task).options.retry.unwrap_or(draft.policy().retry);
        let jitter = draft.random();
        policy.delay_after(attempts, jitter, failure.retry_after_millis)
    } else {
        None
    };
    if let Some(delay) = delay {
        return try_again(state, command, task, head, failure, (held_millis, delay), draft);
    }
    if is_parking(task) {
        return park(state, command, &defeat, head, failure, held_millis, draft);
    }
    let mut subject = draft.task_subject(key, task);
    if !failure.category.is_retryable() {
        let finish = TaskChangeKind::Finish {
            fence: head.fence,
            outcome: Outcome::Failed,
            attempts,
            error: Some(failure.category),
        };
        draft.change(key, finish);
        draft.settle(task.entry.message);
        let failed = TaskFailed {
            task: identity(&key.request, task),
            error: error.clone(),
            error_category: failure.category,
            retry_count: attempts,
            source: FailureSource::Worker,
            code: code_of(command),
            duration_ms,
            usage: command.spent.usage,
            session_id: command.spent.session_id.clone(),
            fence: Some(command.fence),
        };
        draft.event(&mut subject, KnownType::TaskFailed, By::worker(&command.worker), Json::of(&failed));
        defeat.note(state, draft);
        charge_for(state, command, task, held_millis, true, &subject, draft);
        report_failure(task, draft);
        return Ending::Done(Outcome::Failed);
    }
    attempt_failed(command, task, failure, (attempts, held_millis), &mut subject, draft);
    // The event of the attempt says what went wrong; the one that ends the task only that it was the last.
    defeat.note(state, draft);
    charge_for(state, command, task, held_millis, true, &subject, draft);
    let ended = TaskHead { attempts, last_error: Some(failure.category), ..head.clone() };
    let said = LastError { code: code_of(command), ..LastError::new(error, failure.category) };
    let end = End { fence: head.fence, why: Exhausted::Attempts, said };
    end_exhausted(key, task, &ended, end, subject, draft);
    report_failure(task, draft);
    Ending::Done(Outcome::Failed)
}

/// What went wrong, for programs, if the runner for agents says so.
fn code_of(command: &Finish) -> Option<String> {
    command.cause.as_ref()?.agent_code.clone()
}

/// How long to wait before the next attempt, if one follows an attempt that took too long.
fn delay_after_timeout(task: &TaskRef<'_>, head: &TaskHead, draft: &mut Draft<'_, '_>) -> Option<u64> {
    let policy = spec_of(task).options.retry.unwrap_or(draft.policy().retry);
    #[cfg(feature = "faults")]
    if draft.policy().faults.end_with_timeout {
        return None;
    }
    if !policy.on_timeout {
        return None;
    }
    let jitter = draft.random();
    policy.delay_after(head.attempts.saturating_add(1), jitter, None)
}

/// An attempt failed and another one follows after `delay` milliseconds.
fn try_again(
    state: &State,
    command: &Finish,
    task: &TaskRef<'_>,
    head: &TaskHead,
    failure: &Failure<'_>,
    (took_millis, delay): (u64, u64),
    draft: &mut Draft<'_, '_>,
) -> Ending {
    let key = &command.task;
    let mut subject = draft.task_subject(key, task);
    let attempts = head.attempts.saturating_add(1);
    attempt_failed(command, task, failure, (attempts, took_millis), &mut subject, draft);
    charge_for(state, command, task, took_millis, false, &subject, draft);
    let at = draft.now().plus(delay);
    draft.change(key, TaskChangeKind::Release { fence: head.fence, failed: Some(failure.category) });
    keep_session(key, head.fence, &command.spent, draft);
    match task.entry.message {
        Some(message) => draft.show_at(message, at, Delivered::No),
        None => {
            draft.enqueue(key, head.run, at);
        }
    }
    Ending::Retrying { at }
}

/// The event of an attempt that failed.
fn attempt_failed(
    command: &Finish,
    task: &TaskRef<'_>,
    failure: &Failure<'_>,
    (attempt_number, took_millis): (u32, u64),
    subject: &mut Subject,
    draft: &mut Draft<'_, '_>,
) {
    let attempt = TaskProcessingFailed {
        task: identity(&command.task.request, task),
        attempt_number,
        counted: true,
        parked: false,
        error: cut(failure.error, draft.policy().error_chars_max),
        error_category: failure.category,
        code: code_of(command),
        duration_ms: command.spent.usage.map(|_| took_millis),
        usage: command.spent.usage,
        session_id: command.spent.session_id.clone(),
        fence: command.fence,
    };
    draft.event(subject, KnownType::TaskProcessingFailed, By::worker(&command.worker), Json::of(&attempt));
}

/// The last attempt failed, and the task waits for somebody.
fn park(
    state: &State,
    command: &Finish,
    defeat: &Defeat<'_>,
    head: &TaskHead,
    failure: &Failure<'_>,
    took_millis: u64,
    draft: &mut Draft<'_, '_>,
) -> Ending {
    let (key, task) = (defeat.key, defeat.task);
    let wait = Wait { fence: head.fence, attempts: head.attempts.saturating_add(1) };
    let attempt = TaskProcessingFailed {
        task: identity(&key.request, task),
        attempt_number: wait.attempts,
        counted: true,
        parked: true,
        error: defeat.error.to_owned(),
        error_category: failure.category,
        code: code_of(command),
        duration_ms: command.spent.usage.map(|_| took_millis),
        usage: command.spent.usage,
        session_id: command.spent.session_id.clone(),
        fence: command.fence,
    };
    let mut subject = draft.task_subject(key, task);
    let by = By::worker(&command.worker);
    draft.event(&mut subject, KnownType::TaskProcessingFailed, by, Json::of(&attempt));
    let told = subject.clone();
    defeat.park(state, &wait, &mut subject, draft);
    charge_for(state, command, task, took_millis, true, &told, draft);
    Ending::Parked
}

/// Adds what an attempt used to the sums, if it says so. The event that tells it is the subject's last.
fn charge_for(
    state: &State,
    command: &Finish,
    task: &TaskRef<'_>,
    duration_millis: u64,
    is_end: bool,
    subject: &Subject,
    draft: &mut Draft<'_, '_>,
) {
    if let (Some(usage), Some(at)) = (&command.spent.usage, subject.last) {
        let charge = Charge { usage, duration_millis, is_end, at };
        charge::charge(state, &command.task, task, &charge, draft);
    }
}

/// Keeps the session of an attempt that another follows.
pub(crate) fn keep_session(key: &TaskKey, fence: Fence, spent: &Spent, draft: &mut Draft<'_, '_>) {
    if let Some(session) = &spent.session_id {
        draft.change(key, TaskChangeKind::Session { fence, session: session.clone() });
    }
}

/// How long the worker has had the task, in milliseconds.
pub(crate) fn held_for(head: &TaskHead, draft: &Draft<'_, '_>) -> u64 {
    head.lease().map_or(0, |lease| draft.now().since(lease.claimed_at))
}

/// At most `max` characters of an error text.
pub(crate) fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}

/// What is known of a task's errors, where the end of an attempt changes it. A task that comes to a good end in its first
/// run has none.
fn error_rows(state: &State, command: &Finish) -> Vec<RowKey> {
    let task = state.task(&command.task);
    let head = task.as_ref().and_then(|task| task.entry.head.as_ref());
    let changes = match &command.report {
        Report::Completed { .. } => head.is_some_and(may_have_failed),
        Report::Failed { .. } | Report::TimedOut { .. } => true,
    };
    if changes { ingest::task_rows(state, &command.task.tenant, &command.task.request) } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::fixture::{Fixture, completed, failed, key, timed_out};

    /// What a report gets: taken, known, or refused.
    #[derive(Debug, PartialEq)]
    enum Taken {
        Now,
        Before,
        Not,
        Another,
    }

    #[test]
    fn a_report_is_taken_once_and_known_afterwards() {
        use ErrorCategory::{Auth, Network, RateLimit};
        use Taken::{Another, Before, Not, Now};
        let report = |name: &str| match name {
            "completed" => completed(),
            "other output" => {
                let output = Some(Json::trusted(r#"{"other":1}"#));
                Report::Completed {
                    output,
                    overflow: None,
                    duration_millis: 1,
                    exit_code: 0,
                    artifacts: Vec::new(),
                }
            }
            "timeout" => timed_out(),
            "auth" => failed(Auth),
            "network" => failed(Network),
            "rate-limit" => failed(RateLimit),
            other => panic!("{other}"),
        };
        for (first, second, fence, expected) in [
            ("completed", "completed", 1, Before),
            ("completed", "auth", 1, Another),
            ("completed", "network", 1, Another),
            ("completed", "other output", 1, Another),
            ("completed", "timeout", 1, Another),
            ("completed", "completed", 0, Not),
            ("completed", "completed", 2, Not),
            ("timeout", "timeout", 1, Before),
            ("timeout", "completed", 1, Another),
            ("auth", "auth", 1, Before),
            ("auth", "network", 1, Another),
            ("auth", "completed", 1, Another),
            // Between attempts nobody holds the task; only the report that put it there is known.
            ("network", "network", 1, Before),
            ("network", "rate-limit", 1, Another),
            ("network", "auth", 1, Another),
            ("network", "completed", 1, Another),
            ("network", "network", 0, Not),
        ] {
            let mut fixture = Fixture::new();
            fixture.submit_task("t-1");
            let task = fixture.claim(1).remove(0);
            let taken = |reply: Result<Reply, Refusal>| match reply {
                Ok(Reply::Finished { ended: Some(_), .. }) => Now,
                Ok(Reply::Finished { ended: None, .. }) => Before,
                Err(Refusal::LeaseLost { .. }) => Not,
                Err(Refusal::OutcomeDiffers { .. }) => Another,
                other => panic!("{other:?}"),
            };
            assert_eq!(taken(fixture.finish(&key("t-1"), task.fence, report(first))), Now);
            let found = taken(fixture.finish(&key("t-1"), Fence(fence), report(second)));
            assert_eq!(found, expected, "{second} with fence {fence} after {first}");
        }
    }

    #[test]
    fn a_report_of_the_run_before_is_not_known_after_a_resume() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        let task = fixture.claim(1).remove(0);
        fixture.finish(&key("t-1"), task.fence, failed(ErrorCategory::Auth)).unwrap();
        let target = crate::kernel::command::ResumeTarget::Task(key("t-1").request);
        let resume = crate::kernel::command::Resume { tenant: key("t-1").tenant, target };
        fixture.run(&crate::kernel::command::Command::Resume(resume)).unwrap();
        let answer = fixture.finish(&key("t-1"), task.fence, failed(ErrorCategory::Auth));
        assert!(matches!(answer, Err(Refusal::LeaseLost { .. })), "{answer:?}");
    }

    #[test]
    fn a_report_after_a_release_is_not_known() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        let first = fixture.claim(1).remove(0);
        fixture.finish(&key("t-1"), first.fence, failed(ErrorCategory::Network)).unwrap();
        fixture.now = fixture.now.plus(60_000);
        let second = fixture.claim(1).remove(0);
        let release = crate::kernel::command::Release {
            task: key("t-1"),
            fence: second.fence,
            worker: crate::kernel::fixture::worker(),
            reason: None,
            spent: crate::kernel::command::Spent::default(),
        };
        fixture.run(&crate::kernel::command::Command::Release(release)).unwrap();
        // It never reported this failure, though the one before it was of the same kind.
        for fence in [first.fence, second.fence] {
            let answer = fixture.finish(&key("t-1"), fence, failed(ErrorCategory::Network));
            assert!(matches!(answer, Err(Refusal::LeaseLost { .. })), "{answer:?}");
        }
    }

    #[test]
    fn an_error_is_cut_between_characters() {
        for (text, max, expected) in
            [("", 3, ""), ("abc", 3, "abc"), ("abcd", 3, "abc"), ("éàü!", 3, "éàü"), ("abc", 0, "")]
        {
            assert_eq!(cut(text, max), expected);
        }
    }
}
