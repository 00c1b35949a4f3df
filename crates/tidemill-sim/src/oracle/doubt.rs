//! Doubt: a group of commands whose answer nobody heard. All of its effects are there, or none.

use tidemill_engine::command::{ChangeTarget, Command, ResumeTarget};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::policy::Policy;
use tidemill_engine::record::RecordKey;
use tidemill_model::{JobId, Json, Timestamp};

use super::requests::Requests;

/// A group that was handed in when the store died.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) commands: Vec<Command>,
    pub(super) now: Timestamp,
    /// What is certainly there if the group is.
    pub(super) witnesses: Vec<Witness>,
}

/// A trace that a command leaves whatever the others in its group do.
#[derive(Debug, Clone)]
pub(super) enum Witness {
    /// An event with these properties; published ones have a number that no other has.
    Event(Json),
    Job(JobId),
    Record {
        key: RecordKey,
        version: u64,
    },
}

impl Doubt {
    /// Jobs are no witnesses where a tenant may have too much unfinished to get another.
    pub(super) fn new(commands: &[Command], now: Timestamp, requests: &Requests, policy: &Policy) -> Self {
        let has_room = policy.tenant_tasks_max >= Policy::default().tenant_tasks_max;
        let is_sure = |witness: &Witness| has_room || !matches!(witness, Witness::Job(_));
        let witnesses = (0..commands.len()).filter_map(|at| witness(commands, at, requests));
        let witnesses = witnesses.filter(is_sure).collect();
        Self { commands: commands.to_vec(), now, witnesses }
    }

    /// Whether the group may have changed this task's lease without an event to show for it.
    pub(super) fn may_touch(&self, key: &TaskKey) -> bool {
        let in_job = |job: JobId| key.request.job_part() == Some(job);
        self.commands.iter().any(|command| match command {
            // A sweep shortens leases that a clock made too long.
            Command::Claim(_)
            | Command::Receive(_)
            | Command::Recover(_)
            | Command::Replay(_)
            | Command::Sweep(_) => true,
            Command::Begin(begin) => begin.task == *key,
            Command::Heartbeat(beat) => beat.task == *key,
            Command::Finish(finish) => finish.task == *key,
            Command::Release(release) => release.task == *key,
            Command::ChangeTasks(change) => match &change.target {
                ChangeTarget::Job { job, .. } => in_job(*job),
                ChangeTarget::Alone { request, .. } => *request == key.request,
            },
            Command::Cancel(cancel) => in_job(cancel.job),
            Command::CancelTask(cancel) => cancel.request == key.request,
            Command::Resume(resume) => match &resume.target {
                ResumeTarget::Job { job, .. } => in_job(*job),
                ResumeTarget::Task(request) => *request == key.request,
            },
            _ => false,
        })
    }
}

fn witness(commands: &[Command], at: usize, requests: &Requests) -> Option<Witness> {
    match &commands[at] {
        Command::Publish(publish) => {
            // A workflow event that came before is not written again.
            let first = publish.events.first().filter(|event| event.workflow.is_none());
            first.map(|event| Witness::Event(event.properties.properties.clone()))
        }
        Command::SubmitJob(submit) => {
            let alone = |other: &Command| match (other, submit.once.first()) {
                (Command::SubmitJob(other), Some(once)) => {
                    other.once.first().is_none_or(|other| other.key != once.key)
                }
                _ => true,
            };
            let certain = requests.is_unused(submit.once.first()) && commands[..at].iter().all(alone);
            certain.then_some(Witness::Job(submit.job.job))
        }
        Command::PutRecord(put) if put.expected.is_none() && put.value.is_some() => {
            let version = requests.version(&put.key) + 1;
            let alone = |other: &Command| !matches!(other, Command::PutRecord(other) if other.key == put.key);
            let certain = commands[..at].iter().chain(&commands[at + 1..]).all(alone);
            certain.then(|| Witness::Record { key: put.key.clone(), version })
        }
        _ => None,
    }
}
