//! Change tasks: what did not complete gets other work, and failed tasks may run again with it in the same commit.
//!
//! The graph stays as it is. A task that runs now keeps what it was claimed with; its next attempt has the new.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidemill_model::{
    JobId, JobStatus, Json, KnownType, PublicState, RequestId, TaskSpec, TenantId, Timestamp,
};

use crate::kernel::command::{Resume, ResumeTarget};
use crate::kernel::commit::{RecordWrite, TaskChangeKind, TaskKey};
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::State;
use crate::kernel::state::job::{KeptTask, spec_bytes};
use crate::kernel::state::row::RowKey;
use crate::work::resume;
use crate::work::rows::{job_rows, steered_rows, tasks_bytes};
use crate::work::submitting::tenant_limit;

/// Gives tasks that did not complete other work.
#[derive(Debug, Clone)]
pub struct ChangeTasks {
    pub tenant: TenantId,
    pub target: ChangeTarget,
    /// What runs again in the same commit, with its new work.
    pub resume: Option<ResumeTarget>,
}

impl Decision for ChangeTasks {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        match &self.target {
            ChangeTarget::Job { job, .. } => job_rows(state, &self.tenant, *job),
            ChangeTarget::Alone { request, .. } => {
                let key = TaskKey { tenant: self.tenant.clone(), request: request.clone() };
                steered_rows(state, &key)
            }
        }
    }

    fn log_bytes(&self) -> u64 {
        match &self.target {
            ChangeTarget::Job { specs, told, .. } => tasks_bytes(specs) + told.len() as u64,
            ChangeTarget::Alone { spec, .. } => spec.input.len() as u64 + 4_000,
        }
    }

    fn large_field(&self) -> &'static str {
        "tasks"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

#[derive(Debug, Clone)]
pub enum ChangeTarget {
    /// Tasks of a job, as they are to be, and what `Job Tasks Changed` tells.
    Job { job: JobId, specs: Arc<Vec<Arc<TaskSpec>>>, told: Json },
    /// A task without a job.
    Alone { request: RequestId, spec: Arc<TaskSpec> },
}

pub(crate) fn decide(
    state: &State,
    command: &ChangeTasks,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    match &command.target {
        ChangeTarget::Job { .. } => in_job(state, command, draft)?,
        ChangeTarget::Alone { .. } => alone(state, command, draft)?,
    }
    match &command.resume {
        Some(target) => {
            let resume = Resume { tenant: command.tenant.clone(), target: target.clone() };
            resume::decide(state, &resume, draft)
        }
        None => Ok(Reply::TasksChanged),
    }
}

fn in_job(state: &State, command: &ChangeTasks, draft: &mut Draft<'_, '_>) -> Result<(), Refusal> {
    let ChangeTarget::Job { job: id, specs, told } = &command.target else { return Ok(()) };
    let Some(job) = state.job(&command.tenant, *id) else {
        return Err(Refusal::NotFound { what: "job", id: id.to_string() });
    };
    if job.head.status() == JobStatus::Completed {
        return Err(Refusal::JobCompleted(*id));
    }
    if specs.is_empty() {
        return Ok(());
    }
    let (mut before, mut after) = (0, 0);
    let mut reworked = Vec::new();
    for spec in specs.iter() {
        let index = job.index_of(spec.task_id.as_str());
        let index = index.ok_or_else(|| Refusal::NotFound { what: "task", id: spec.task_id.to_string() })?;
        let node = job.node(index);
        if node.entry.public_state() == Some(PublicState::Completed) {
            return Err(Refusal::TaskCompleted(spec.task_id.to_string()));
        }
        if parents(&node.spec) != parents(spec) {
            return Err(Refusal::GraphChanged(spec.task_id.to_string()));
        }
        before += spec_bytes(&node.spec);
        after += spec_bytes(spec);
        let request = job.request_of(index);
        reworked.extend(rework(TaskKey { tenant: command.tenant.clone(), request }, &node.entry));
    }
    let (size_bytes, limit_bytes) = (job.spec_bytes - before + after, draft.policy().job_bytes_max);
    if size_bytes > limit_bytes {
        return Err(Refusal::TooLarge { field: "tasks", size_bytes, limit_bytes });
    }
    tenant_limit::check_growth(state, &command.tenant, after.saturating_sub(before), draft)?;
    #[cfg(feature = "faults")]
    let is_forgotten = draft.policy().faults.forget_changes;
    #[cfg(not(feature = "faults"))]
    let is_forgotten = false;
    if !is_forgotten {
        draft.record(RecordWrite::JobSpecs {
            tenant: command.tenant.clone(),
            job: *id,
            specs: std::sync::Arc::clone(specs),
        });
        #[cfg(feature = "faults")]
        if draft.policy().faults.forget_rework {
            reworked.clear();
        }
        for (key, kind) in reworked {
            draft.change(&key, kind);
        }
    }
    let mut subject = draft.job_subject(job);
    draft.event(&mut subject, KnownType::JobTasksChanged, By::component(Origin::ProducerApi), told.clone());
    draft.note_job_event(&subject);
    Ok(())
}

fn alone(state: &State, command: &ChangeTasks, draft: &mut Draft<'_, '_>) -> Result<(), Refusal> {
    let ChangeTarget::Alone { request, spec } = &command.target else { return Ok(()) };
    let key = TaskKey { tenant: command.tenant.clone(), request: request.clone() };
    let Some(task) = state.task(&key) else {
        return Err(Refusal::NotFound { what: "task", id: request.to_string() });
    };
    if task.entry.public_state() == Some(PublicState::Completed) {
        return Err(Refusal::TaskCompleted(request.to_string()));
    }
    let before = crate::kernel::draft::spec_of(&task);
    tenant_limit::check_growth(
        state,
        &command.tenant,
        spec_bytes(spec).saturating_sub(spec_bytes(&before)),
        draft,
    )?;
    if let Some((key, kind)) = rework(key.clone(), task.entry) {
        draft.change(&key, kind);
    }
    draft.record(RecordWrite::AloneSpec { task: key, spec: std::sync::Arc::clone(spec) });
    Ok(())
}

/// What tells afterwards that the attempts of a task so far had other work; nothing if there was none.
fn rework(key: TaskKey, entry: &KeptTask) -> Option<(TaskKey, TaskChangeKind)> {
    let fence = entry.head.as_ref().map(|head| head.fence).filter(|fence| fence.0 > 0)?;
    Some((key, TaskChangeKind::Rework { fence }))
}

fn parents(spec: &TaskSpec) -> BTreeSet<&str> {
    spec.depends_on.iter().map(tidemill_model::TaskId::as_str).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_model::{ErrorCategory, JobId, Json, TaskId};

    use super::*;
    use crate::kernel::command::{Command, ResumeTarget};
    use crate::kernel::fixture::{Fixture, completed, failed, key, spec, tenant};

    fn changed(task: &TaskSpec, input: &str) -> Arc<TaskSpec> {
        Arc::new(TaskSpec { input: Json::trusted(input), ..task.clone() })
    }

    fn change(specs: Vec<Arc<TaskSpec>>, resume: bool) -> Command {
        let job = JobId::from_u128(7);
        let target = ChangeTarget::Job { job, specs: Arc::new(specs), told: Json::empty_object() };
        let resume = resume.then_some(ResumeTarget::Job { job, tasks: None });
        Command::ChangeTasks(ChangeTasks { tenant: tenant(), target, resume })
    }

    /// A job `a, b -> c` whose first task is completed and whose second failed.
    fn half_done() -> Fixture {
        let mut fixture = Fixture::new();
        let job = fixture.submit_job(vec![spec("a", &[]), spec("b", &[]), spec("c", &["b"])]);
        for (task, report) in [("a", completed()), ("b", failed(ErrorCategory::Auth))] {
            let own = fixture.claim(1).remove(0);
            assert_eq!(own.task.request, job.request_id(&TaskId::trusted(task)));
            fixture.finish(&own.task, own.fence, report).unwrap();
        }
        fixture
    }

    #[test]
    fn what_did_not_complete_changes_and_runs_again_in_one_commit() {
        let mut fixture = half_done();
        let load =
            |fixture: &Fixture| (fixture.state.load_of(&tenant()), fixture.state.count_load_of(&tenant()));
        let new = vec![changed(&spec("b", &[]), r#"{"n":12345}"#), changed(&spec("c", &["b"]), r#"{"n":3}"#)];
        let (commit, reply) = fixture.run(&change(new, true)).unwrap();
        let types: Vec<_> = commit.events.iter().map(|event| event.event_type.as_str()).collect();
        assert_eq!(types, ["Job Tasks Changed", "Task Pending"]);
        assert!(matches!(reply, Reply::Resumed { tasks } if tasks.len() == 1));
        fixture.restart();
        assert_eq!(load(&fixture).0, load(&fixture).1);
        for (name, input) in [("b", r#"{"n":12345}"#), ("c", r#"{"n":3}"#)] {
            let own = fixture.claim(1).remove(0);
            assert_eq!((own.spec.task_id.as_str(), own.spec.input.as_str()), (name, input));
            let head = fixture.state.task(&own.task).and_then(|task| task.entry.head.clone()).unwrap();
            assert_eq!((head.reworked.0, own.fence.0), if name == "b" { (1, 2) } else { (0, 1) }, "{name}");
            fixture.finish(&own.task, own.fence, completed()).unwrap();
        }
        assert_eq!(load(&fixture).0, load(&fixture).1);
        assert!(matches!(fixture.run(&change(Vec::new(), false)), Err(Refusal::JobCompleted(_))));
    }

    #[test]
    fn what_completed_and_the_graph_stay() {
        let mut fixture = half_done();
        let refused = |fixture: &mut Fixture, spec: TaskSpec| {
            fixture.run(&change(vec![changed(&spec, "{}")], true)).unwrap_err().to_string()
        };
        assert_eq!(refused(&mut fixture, spec("a", &[])), "task a is completed and cannot be changed");
        let other = "task c depends on other tasks than before, and the graph of a job stays";
        assert_eq!(refused(&mut fixture, spec("c", &[])), other);
        assert_eq!(refused(&mut fixture, spec("x", &[])), "task x does not exist");
        fixture.policy.job_bytes_max = 10;
        assert!(refused(&mut fixture, spec("b", &[])).starts_with("tasks is "));
        fixture.policy.job_bytes_max = usize::MAX;
        fixture.policy.tenant_bytes_max = 1;
        let large = TaskSpec { name: tidemill_model::TaskName::trusted(&"n".repeat(100)), ..spec("b", &[]) };
        assert!(refused(&mut fixture, large).starts_with("unfinished bytes of tasks"));
    }

    #[test]
    fn a_task_on_its_own_changes_too() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        let own = fixture.claim(1).remove(0);
        fixture.finish(&key("t-1"), own.fence, failed(ErrorCategory::Auth)).unwrap();
        let request = key("t-1").request;
        let change = |input: &str| {
            let target = ChangeTarget::Alone { request: request.clone(), spec: changed(&own.spec, input) };
            let resume = Some(ResumeTarget::Task(request.clone()));
            Command::ChangeTasks(ChangeTasks { tenant: tenant(), target, resume })
        };
        fixture.run(&change(r#"{"n":2}"#)).unwrap();
        fixture.restart();
        assert_eq!(fixture.state.load_of(&tenant()), fixture.state.count_load_of(&tenant()));
        let again = fixture.claim(1).remove(0);
        assert_eq!((again.spec.input.as_str(), again.run), (r#"{"n":2}"#, 2));
        fixture.finish(&key("t-1"), again.fence, completed()).unwrap();
        assert!(matches!(fixture.run(&change("{}")), Err(Refusal::TaskCompleted(_))));
    }
}
