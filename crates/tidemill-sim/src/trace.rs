//! The trace: the last steps of a run in words, for people who must explain a failure.

use std::collections::VecDeque;
use std::fmt::Write;

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{
    Advance, CancelBulk, ChangeVisibility, Command, Delete, Discard, DiscardDelivery, DiscardLetter, Forget,
    KeepLetter, LookAfterParked, Recover, Replay, ReplayDelivery, ReplayLetter, Report, ResumeTarget,
    StepBulk,
};
use tidemill_engine::reply::Reply;
use tidemill_model::Timestamp;

/// How many steps are kept unless somebody wants more.
pub(crate) const STEPS_MAX: usize = 40;

#[derive(Debug)]
pub(crate) struct Trace {
    steps: VecDeque<String>,
    count: u64,
    max: usize,
}

impl Trace {
    pub(crate) fn new(max: usize) -> Self {
        Self { steps: VecDeque::new(), count: 0, max }
    }

    pub(crate) fn note(&mut self, now: Timestamp, text: impl AsRef<str>) {
        self.count += 1;
        if self.steps.len() == self.max {
            self.steps.pop_front();
        }
        // The world begins at a round number; the rest of the time is what changes.
        self.steps.push_back(format!(
            "{:>5} +{} {}",
            self.count,
            now.millis() - 1_799_000_000_000,
            text.as_ref()
        ));
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.steps.into()
    }
}

/// A group and what became of it.
pub(crate) fn group(commands: &[Command], answers: Option<&[Answer]>) -> String {
    let mut text = String::new();
    for (at, command) in commands.iter().enumerate() {
        if at > 0 {
            text.push_str(" | ");
        }
        describe(&mut text, command);
        match answers.and_then(|answers| answers.get(at)) {
            None => {}
            Some(Ok(reply)) => describe_reply(&mut text, reply),
            Some(Err(refusal)) => write!(text, " -> refused: {refusal}").expect("text can be written"),
        }
    }
    text
}

fn describe(text: &mut String, command: &Command) {
    let written = match command {
        Command::SubmitJob(submit) => {
            let once = submit.once.first().map(|once| &once.key.id);
            write!(
                text,
                "submit {} of {} tasks for {} {once:?}",
                submit.job.job,
                submit.job.tasks.len(),
                submit.job.tenant
            )
        }
        Command::AddTasks(add) => write!(text, "add {} tasks to {}", add.tasks.len(), add.job),
        Command::ChangeTasks(change) => write!(text, "change {:?}", change.target),
        Command::SubmitTask(submit) => write!(text, "submit {}/{}", submit.task.tenant, submit.task.request),
        Command::Claim(claim) => {
            let begin = if claim.begin.is_some() { " and begin" } else { "" };
            write!(text, "{} ({:?}) claims {}{begin}", claim.worker, claim.owner.generation, claim.max)
        }
        Command::Begin(begin) => write!(text, "begin {} f{}", begin.task.request, begin.fence.0),
        Command::Heartbeat(beat) => write!(text, "heartbeat {} f{}", beat.task.request, beat.fence.0),
        Command::Finish(finish) => {
            let report = match &finish.report {
                Report::Completed { .. } => "completed",
                Report::Failed { category, .. } => category.as_str(),
                Report::TimedOut { .. } => "timed out",
            };
            write!(text, "finish {} f{} {report}", finish.task.request, finish.fence.0)
        }
        Command::Release(release) => write!(text, "release {} f{}", release.task.request, release.fence.0),
        Command::Resume(resume) => match &resume.target {
            ResumeTarget::Job { job, tasks } => write!(text, "resume {job} {tasks:?}"),
            ResumeTarget::Task(request) => write!(text, "resume task {request}"),
        },
        Command::Cancel(cancel) => write!(text, "cancel {} as {}", cancel.job, cancel.tenant),
        Command::CancelTask(cancel) => write!(text, "cancel task {} as {}", cancel.request, cancel.tenant),
        Command::Advance(Advance { job, .. }) => write!(text, "advance {job}"),
        Command::Sweep(sweep) => {
            write!(text, "sweep after {:?}", sweep.after.as_ref().map(|key| &key.request))
        }
        Command::Recover(Recover { generation }) => write!(text, "recover {generation}"),
        Command::Publish(publish) => write!(text, "publish {} for {}", publish.events.len(), publish.tenant),
        Command::TakeIn(taken) => {
            write!(text, "take in {} of {}", taken.event.event_type, taken.event.entity.id)
        }
        Command::Send(send) => {
            write!(text, "send {} run {} in {} ms", send.task.request, send.run, send.delay_millis)
        }
        Command::Receive(receive) => write!(text, "receive {} of {:?}", receive.max, receive.tenants),
        Command::Delete(Delete { receipt, .. }) => write!(text, "delete {:x}", receipt.message.0),
        Command::ChangeVisibility(ChangeVisibility { receipt, visible_in_millis, .. }) => {
            write!(text, "hide {:x} for {visible_in_millis} ms", receipt.message.0)
        }
        Command::Replay(Replay { message, .. }) => write!(text, "replay {:x}", message.0),
        Command::Discard(Discard { message, .. }) => write!(text, "discard {:x}", message.0),
        Command::Match(matched) => {
            write!(text, "match up to {:?} with {} executions", matched.to, matched.executions.len())
        }
        Command::EndExecution(end) => write!(text, "end run {} of {}", end.attempt, end.execution),
        Command::ReplayLetter(ReplayLetter { letter, .. }) => write!(text, "replay letter {letter}"),
        Command::DiscardLetter(DiscardLetter { letter, .. }) => write!(text, "discard letter {letter}"),
        Command::Unpark(unpark) => write!(text, "unpark {} of {}", unpark.execution, unpark.tenant),
        Command::LookAfterParked(LookAfterParked { keys }) => {
            write!(text, "look after {} parked", keys.len())
        }
        Command::StartBulk(start) => write!(text, "start bulk {} of {}", start.id, start.tenant),
        Command::StepBulk(StepBulk { tenant, bulk }) => write!(text, "step bulk {bulk} of {tenant}"),
        Command::CancelBulk(CancelBulk { tenant, bulk }) => write!(text, "cancel bulk {bulk} of {tenant}"),
        Command::Alert(alert) => write!(text, "alert {} for {}", alert.is_raised, alert.tenant),
        Command::RecordHealth(checked) => {
            write!(text, "health of {} with {} alerts", checked.tenant, checked.alerts.len())
        }
        Command::EndDelivery(end) => write!(text, "end try {} of delivery {}", end.attempt, end.delivery),
        Command::KeepLetter(KeepLetter { letter, .. }) => write!(text, "keep letter {}", letter.id),
        Command::ReplayDelivery(ReplayDelivery { letter, .. }) => write!(text, "replay delivery {letter}"),
        Command::DiscardDelivery(DiscardDelivery { letter, .. }) => write!(text, "discard delivery {letter}"),
        Command::Forget(Forget { keys }) => write!(text, "forget {} records", keys.len()),
        Command::PutRecords(put) => write!(text, "put {} records", put.records.len()),
        Command::SetBudget(set) => write!(text, "set budget {:?} of {:?}", set.budget, set.target),
        Command::PutRecord(put) => write!(text, "put {} expecting {:?}", put.key.id, put.expected),
    };
    written.expect("text can be written");
}

fn describe_reply(text: &mut String, reply: &Reply) {
    let written = match reply {
        Reply::Claimed { tasks, next } => {
            let given = tasks.iter().try_for_each(|task| {
                write!(
                    text,
                    " -> {} r{} f{} until +{}",
                    task.task.request,
                    task.run,
                    task.fence.0,
                    task.lease_until.millis() - 1_799_000_000_000
                )
            });
            if tasks.is_empty() { write!(text, " -> nothing, next {next:?}") } else { given }
        }
        Reply::Finished { ending, ended } => {
            write!(text, " -> {ending:?}{}", if ended.is_none() { " again" } else { "" })
        }
        Reply::JobSubmitted { job, repeated: true, .. } => write!(text, " -> is {job}"),
        Reply::Resumed { tasks } | Reply::Cancelled { tasks } => write!(text, " -> {tasks:?}"),
        Reply::TasksAdded { dispatched, .. } => write!(text, " -> dispatched {dispatched:?}"),
        Reply::Swept { repaired, .. } => write!(text, " -> repaired {repaired}"),
        Reply::Recovered { released } => write!(text, " -> released {released}"),
        Reply::Sent { message } => write!(text, " -> {:x}", message.0),
        Reply::Received { messages, .. } => messages.iter().try_for_each(|(message, receipt, _)| {
            write!(
                text,
                " -> {:x} of {} r{} #{}",
                message.id.0, message.task.request, message.run, receipt.delivery
            )
        }),
        Reply::Deleted { existed } | Reply::VisibilityChanged { existed } => write!(text, " -> {existed}"),
        _ => write!(text, " -> ok"),
    };
    written.expect("text can be written");
}
