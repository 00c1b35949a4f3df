//! A state to decide on, for the tables in this folder: one tenant, one worker, a clock that stands.

use std::sync::Arc;

use tidemill_model::{
    AppName, ErrorCategory, Fence, JobId, Json, Owner, RequestId, TaskId, TaskName, TaskOptions, TaskSpec,
    TenantId, Timestamp, WorkerId,
};

use crate::kernel::command::{
    Claim, Command, Finish, Heartbeat, Prepared, Report, Spent, SubmitJob, SubmitTask,
};
use crate::kernel::commit::{Commit, Delivered, MessageId, NewJob, NewTask, TaskKey, Visibility};
use crate::kernel::decision::{Circumstances, decide};
use crate::kernel::id_source::IdSource;
use crate::kernel::policy::Policy;
use crate::kernel::reply::{Assignment, Refusal, Reply};
use crate::kernel::site::Site;
use crate::kernel::state::State;
use crate::kernel::state::trail::Seq;

pub(crate) struct Fixture {
    pub(crate) state: State,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
    ids: IdSource,
    site: Site,
    events: u64,
    /// All that was decided, for a state that is made again from it.
    commits: Vec<(Commit, Seq)>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            state: State::default(),
            policy: Policy::default(),
            now: Timestamp::clamped(1_800_000_000_000),
            ids: IdSource::new(1),
            site: Site::default(),
            events: 0,
            commits: Vec::new(),
        }
    }

    /// The process starts anew: the state is made again from what was committed.
    pub(crate) fn restart(&mut self) {
        self.state = State::default();
        for (commit, first) in &self.commits {
            self.state.apply(commit, *first);
        }
    }

    /// Decides and makes the commit true.
    pub(crate) fn run(&mut self, command: &Command) -> Result<(Commit, Reply), Refusal> {
        self.state.show_due_messages(self.now);
        let mut circumstances =
            Circumstances { now: self.now, ids: &mut self.ids, policy: &self.policy, site: &self.site };
        let (commit, reply) = decide(&self.state, command, &mut circumstances)?;
        let first = Seq(self.events + 1);
        self.state.apply(&commit, first);
        self.commits.push((commit.clone(), first));
        self.events += commit.events.len() as u64;
        Ok((commit, reply))
    }

    pub(crate) fn submit_task(&mut self, id: &str) {
        self.run(&Command::SubmitTask(SubmitTask { task: alone(id), once: Vec::new() })).unwrap();
    }

    pub(crate) fn submit_job(&mut self, tasks: Vec<TaskSpec>) -> JobId {
        let command = submit_job(JobId::from_u128(7), tasks);
        self.run(&Command::SubmitJob(command)).unwrap();
        JobId::from_u128(7)
    }

    pub(crate) fn claim(&mut self, max: usize) -> Vec<Assignment> {
        match self.run(&claim(max)).unwrap().1 {
            Reply::Claimed { tasks, .. } => tasks,
            reply => panic!("{reply:?}"),
        }
    }

    /// Hides a message from all for a while.
    pub(crate) fn hide(&mut self, message: MessageId, millis: u64) {
        let visible_at = self.now.plus(millis);
        let change = Visibility { message, visible_at, delivered: Delivered::No, wait_millis: millis };
        self.state.apply_visibility(&change);
    }

    pub(crate) fn heartbeat(&mut self, task: &TaskKey, fence: Fence) {
        let (task, worker) = (task.clone(), worker());
        let beat = Heartbeat { task, fence, worker, process_id: 1, rss: 0, last_activity: None };
        self.run(&Command::Heartbeat(beat)).unwrap();
    }

    pub(crate) fn finish(&mut self, task: &TaskKey, fence: Fence, report: Report) -> Result<Reply, Refusal> {
        let finish = Finish {
            task: task.clone(),
            fence,
            worker: worker(),
            digest: report.digest(),
            report,
            spent: Spent::default(),
            cause: None,
        };
        self.run(&Command::Finish(finish)).map(|(_, reply)| reply)
    }
}

pub(crate) fn tenant() -> TenantId {
    TenantId::trusted("acme")
}

pub(crate) fn worker() -> WorkerId {
    WorkerId::trusted("worker-1")
}

pub(crate) fn key(id: &str) -> TaskKey {
    TaskKey { tenant: tenant(), request: RequestId::trusted(id) }
}

pub(crate) fn spec(name: &str, parents: &[&str]) -> TaskSpec {
    TaskSpec {
        task_id: TaskId::trusted(name),
        name: TaskName::trusted("work"),
        depends_on: parents.iter().map(|parent| TaskId::trusted(parent)).collect(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    }
}

pub(crate) fn alone(id: &str) -> NewTask {
    NewTask {
        tenant: tenant(),
        app: AppName::trusted("orders"),
        request: RequestId::trusted(id),
        spec: Arc::new(spec("task", &[])),
    }
}

pub(crate) fn submit_job(job: JobId, tasks: Vec<TaskSpec>) -> SubmitJob {
    let job = NewJob {
        tenant: tenant(),
        app: AppName::trusted("orders"),
        job,
        request: RequestId::trusted("req-1"),
        name: None,
        created_at: Timestamp::MIN,
        tasks: tasks.into_iter().map(Arc::new).collect(),
    };
    let created = Prepared { id: None, properties: Json::empty_object() };
    SubmitJob { job, created, once: Vec::new(), budget: None, callback: None }
}

pub(crate) fn claim(max: usize) -> Command {
    let owner = Owner { worker: Arc::from("worker-1"), generation: Some(1) };
    Command::Claim(Claim { owner, worker: worker(), max, tenants: None, begin: Some(1) })
}

pub(crate) fn completed() -> Report {
    Report::Completed {
        output: Some(Json::empty_object()),
        overflow: None,
        duration_millis: 1,
        exit_code: 0,
        artifacts: Vec::new(),
    }
}

pub(crate) fn failed(category: ErrorCategory) -> Report {
    Report::Failed { error: "it broke".to_owned(), category, retry_after_millis: None }
}

pub(crate) fn timed_out() -> Report {
    Report::TimedOut { timeout_millis: 1, elapsed_millis: 2, signal: "SIGTERM" }
}
