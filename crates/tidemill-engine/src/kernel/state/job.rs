//! A job in memory: its graph, each task's head, and counters, so that a completion costs its children and no more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidemill_model::{
    Allowance, AppName, JobCounts, JobId, JobStatus, PublicState, RequestId, TaskHead, TaskId, TaskSpec,
    TenantId, Timestamp,
};

use crate::kernel::commit::MessageId;
use crate::kernel::state::stream::Stream;

/// The part of a job that changes, apart from its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobHead {
    pub tenant: TenantId,
    pub app: AppName,
    pub job: JobId,
    pub request: RequestId,
    pub name: Option<Arc<str>>,
    pub created_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    pub cancelled: bool,
    pub counts: JobCounts,
    pub stream: Stream,
    /// Grows with every change of the job or of one of its tasks.
    pub version: u64,
    /// What its agents may use, and what they used of it.
    pub allowance: Option<Box<Allowance>>,
    /// How many scripts stand between it and what came from outside; 0 unless a script submitted it.
    pub hops: u32,
    /// The URL that is called once it is at rest.
    pub callback: Option<Arc<str>>,
}

impl JobHead {
    pub fn status(&self) -> JobStatus {
        match self.counts.status() {
            JobStatus::Completed => JobStatus::Completed,
            _ if self.cancelled => JobStatus::Cancelled,
            status => status,
        }
    }

    /// Whether nothing happens before somebody does something: it is at rest, or all that is left is parked.
    pub fn has_stopped(&self) -> bool {
        self.is_at_rest() || (self.counts.is_parked() && self.status() == JobStatus::Failing)
    }

    /// Whether nothing is left to happen by itself.
    pub fn is_at_rest(&self) -> bool {
        self.counts.pending + self.counts.processing == 0 && self.status() != JobStatus::Running
    }
}

/// A task within its job.
#[derive(Debug, Clone)]
pub struct Node {
    pub spec: Arc<TaskSpec>,
    pub children: Vec<u32>,
    /// Parents that are not completed.
    pub missing: u32,
    pub entry: KeptTask,
}

/// What is kept of any task, in a job or on its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptTask {
    /// `None` until it is dispatched.
    pub head: Option<TaskHead>,
    pub stream: Stream,
    /// The message that stands for it in the queue.
    pub message: Option<MessageId>,
}

impl KeptTask {
    /// Whether a message of this run can stand for the task. None can once it is done: such a task may leave memory, and
    /// its messages are dropped unseen.
    pub fn is_open_in(&self, run: u32) -> bool {
        self.head.as_ref().is_some_and(|head| head.run == run && head.outcome().is_none())
    }

    pub fn public_state(&self) -> Option<PublicState> {
        self.head.as_ref().map(TaskHead::public_state)
    }

    /// Whether it is dispatched and not done.
    pub fn is_live(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.outcome().is_none())
    }
}

#[derive(Debug, Clone)]
pub struct Job {
    pub head: JobHead,
    pub nodes: Vec<Node>,
    by_id: HashMap<TaskId, u32, foldhash::fast::RandomState>,
    /// Tasks that users see as processing.
    pub processing: BTreeSet<u32>,
    /// Tasks that users see as failed.
    pub failed: BTreeSet<u32>,
    /// Tasks that wait for somebody; they are among those in `processing`.
    pub parked: BTreeSet<u32>,
    /// Tasks that may run and were not dispatched. Empty between commits, unless something went wrong.
    pub ready: BTreeSet<u32>,
    /// Tasks whose parent is not here yet. Empty, but while a job is put together from parts of its list.
    awaited: HashMap<TaskId, Vec<u32>, foldhash::fast::RandomState>,
    /// The latest time of any event of its tasks: no event about the job's end has an earlier time.
    pub told_at: Option<Timestamp>,
    /// About how many bytes the specs of all its tasks have.
    pub spec_bytes: usize,
    /// The part of it that belongs to tasks that are neither completed nor failed.
    pub open_bytes: usize,
}

/// What the fixed parts of a stored task take, at most.
const SPEC_BYTES: usize = 64;

/// How many bytes a task takes where it is stored, at most.
pub fn spec_bytes(spec: &TaskSpec) -> usize {
    let execution = spec.options.execution.as_ref().map_or(0, tidemill_model::Json::len);
    let parents: usize = spec.depends_on.iter().map(|parent| parent.as_str().len() + 2).sum();
    let county = spec.options.county.as_ref().map_or(0, String::len);
    let names = spec.task_id.as_str().len() + spec.name.as_str().len() + county;
    spec.input.len() + execution + parents + names + SPEC_BYTES
}

impl Job {
    pub fn new(head: JobHead) -> Self {
        Self {
            head,
            nodes: Vec::new(),
            by_id: HashMap::default(),
            processing: BTreeSet::new(),
            failed: BTreeSet::new(),
            parked: BTreeSet::new(),
            ready: BTreeSet::new(),
            awaited: HashMap::default(),
            told_at: None,
            spec_bytes: 0,
            open_bytes: 0,
        }
    }

    pub fn index_of(&self, task: &str) -> Option<u32> {
        self.by_id.get(task).copied()
    }

    pub fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub fn request_of(&self, index: u32) -> RequestId {
        self.head.job.request_id(&self.node(index).spec.task_id)
    }

    /// Adds tasks whose dependencies are here already or among them.
    pub fn grow(&mut self, tasks: &[Arc<TaskSpec>]) {
        let first = self.nodes.len();
        self.nodes.reserve(tasks.len());
        self.by_id.reserve(tasks.len());
        for spec in tasks {
            let index = u32::try_from(self.nodes.len()).expect("a job has at most 100,000 tasks");
            self.by_id.insert(spec.task_id.clone(), index);
            self.spec_bytes += spec_bytes(spec);
            self.open_bytes += spec_bytes(spec);
            self.nodes.push(Node {
                spec: Arc::clone(spec),
                children: Vec::new(),
                missing: 0,
                entry: KeptTask::default(),
            });
        }
        for index in first..self.nodes.len() {
            let spec = Arc::clone(&self.nodes[index].spec);
            let own = u32::try_from(index).expect("a job has at most 100,000 tasks");
            let mut missing = 0;
            for parent in &spec.depends_on {
                let Some(parent) = self.index_of(parent.as_str()) else {
                    // A list may name a child before its parent, and comes in parts when it is long.
                    self.awaited.entry(parent.clone()).or_default().push(own);
                    missing += 1;
                    continue;
                };
                let parent = &mut self.nodes[parent as usize];
                parent.children.push(own);
                missing += u32::from(parent.entry.public_state() != Some(PublicState::Completed));
            }
            if let Some(children) = self.awaited.remove(&spec.task_id) {
                self.nodes[index].children.extend(children);
            }
            self.nodes[index].missing = missing;
            if missing == 0 {
                self.ready.insert(own);
            }
        }
        self.head.counts.waiting += u32::try_from(tasks.len()).expect("a job has at most 100,000 tasks");
    }

    /// Gives a task other work, and says which it is. Its dependencies are those it had.
    pub(super) fn change(&mut self, spec: &Arc<TaskSpec>) -> Option<u32> {
        let index = self.index_of(spec.task_id.as_str())?;
        let node = &mut self.nodes[index as usize];
        let (before, after) = (spec_bytes(&node.spec), spec_bytes(spec));
        self.spec_bytes = self.spec_bytes - before + after;
        if !matches!(node.entry.public_state(), Some(PublicState::Completed | PublicState::Failed)) {
            self.open_bytes = self.open_bytes - before + after;
        }
        node.spec = Arc::clone(spec);
        Some(index)
    }

    /// The children that wait for this task alone.
    pub fn ready_after(&self, index: u32) -> impl Iterator<Item = u32> {
        self.node(index)
            .children
            .iter()
            .copied()
            .filter(|child| self.node(*child).missing == 1 && self.node(*child).entry.head.is_none())
    }

    /// A deliberate mistake: undoes the count of one child.
    #[cfg(feature = "faults")]
    pub(super) fn forget_a_completion(&mut self, index: u32) {
        let completed = self.node(index).entry.public_state() == Some(PublicState::Completed);
        if let Some(child) = self.node(index).children.first().copied().filter(|_| completed) {
            self.nodes[child as usize].missing += 1;
            self.ready.remove(&child);
        }
    }

    /// Books a task's move from the state it had to the one it has now.
    pub(super) fn book(&mut self, index: u32, before: Option<PublicState>) {
        let entry = &self.node(index).entry;
        let (after, is_parked) = (entry.public_state(), entry.head.as_ref().is_some_and(TaskHead::is_parked));
        if is_parked && self.parked.insert(index) {
            self.head.counts.parked += 1;
        } else if !is_parked && self.parked.remove(&index) {
            self.head.counts.parked -= 1;
        }
        if before == after {
            return;
        }
        *self.head.counts.of(before) -= 1;
        *self.head.counts.of(after) += 1;
        let is_over = |state| matches!(state, Some(PublicState::Completed | PublicState::Failed));
        match (is_over(before), is_over(after)) {
            (false, true) => self.open_bytes -= spec_bytes(&self.node(index).spec),
            (true, false) => self.open_bytes += spec_bytes(&self.node(index).spec),
            _ => {}
        }
        self.processing.remove(&index);
        self.failed.remove(&index);
        match after {
            Some(PublicState::Processing) => {
                self.processing.insert(index);
            }
            Some(PublicState::Failed) => {
                self.failed.insert(index);
            }
            _ => {}
        }
        if after == Some(PublicState::Completed) {
            for position in 0..self.node(index).children.len() {
                let child = self.node(index).children[position];
                let node = &mut self.nodes[child as usize];
                node.missing = node.missing.saturating_sub(1);
                if node.missing == 0 && node.entry.head.is_none() {
                    self.ready.insert(child);
                }
            }
        }
    }
}
