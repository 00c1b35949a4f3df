//! Decisions: state and command in, commit and reply out.
//!
//! Nothing here reads a clock, a disk, a network or randomness, or changes the state; time and ids come in through the
//! `Circumstances`. One file per command.

mod add_tasks;
mod advance;
mod callback;
mod cancel;
mod cancel_task;
mod change_tasks;
mod claim;
mod dead_letter;
mod delivery;
mod draft;
mod finish;
#[cfg(test)]
mod fixture;
mod forget;
mod health;
mod heartbeat;
mod park;
mod publish;
mod put_record;
mod raw_queue;
mod recover;
mod release;
mod resume;
mod scripts;
mod statuses;
mod submit_job;
mod submit_task;
mod sweep;
mod tenant_limit;
mod touches;
mod triage;
mod triage_bulk;
mod triage_errors;
mod triage_notes;
#[cfg(test)]
mod triage_property;
mod triage_rows;
mod triage_tasks;
mod triage_unpark;
mod triage_waits;
mod usage;

pub(crate) use triage_bulk::fitting;

use tidemill_model::Timestamp;

use crate::command::{
    Advance, CancelBulk, ChangeVisibility, Command, Delete, Discard, DiscardDelivery, DiscardLetter, Forget,
    KeepLetter, LookAfterParked, Recover, Replay, ReplayDelivery, ReplayLetter, StepBulk,
};
use crate::commit::Commit;
use crate::id_source::IdSource;
use crate::policy::Policy;
use crate::reply::{Refusal, Reply};
use crate::site::Site;
use crate::state::State;

/// What a decision may not find out by itself.
#[derive(Debug)]
pub struct Circumstances<'a> {
    pub now: Timestamp,
    pub ids: &'a mut IdSource,
    pub policy: &'a Policy,
    pub site: &'a Site,
}

/// Decides one command. A refusal changes nothing.
pub fn decide(
    state: &State,
    command: &Command,
    circumstances: &mut Circumstances<'_>,
) -> Result<(Commit, Reply), Refusal> {
    let mut draft = draft::Draft::new(circumstances, state.deliveries());
    let reply = match command {
        Command::SubmitJob(command) => submit_job::decide(state, command, &mut draft)?,
        Command::AddTasks(command) => add_tasks::decide(state, command, &mut draft)?,
        Command::ChangeTasks(command) => change_tasks::decide(state, command, &mut draft)?,
        Command::SubmitTask(command) => submit_task::decide(state, command, &mut draft)?,
        Command::Claim(command) => claim::decide(state, command, &mut draft),
        Command::Begin(command) => heartbeat::begin(state, command, &mut draft)?,
        Command::Heartbeat(command) => heartbeat::decide(state, command, &mut draft)?,
        Command::Finish(command) => finish::decide(state, command, &mut draft)?,
        Command::Release(command) => release::decide(state, command, &mut draft)?,
        Command::Resume(command) => resume::decide(state, command, &mut draft)?,
        Command::Cancel(command) => cancel::decide(state, command, &mut draft)?,
        Command::CancelTask(command) => cancel_task::decide(state, command, &mut draft)?,
        Command::Advance(Advance { tenant, job }) => advance::decide(state, tenant, *job, &mut draft)?,
        Command::Sweep(command) => sweep::decide(state, command, &mut draft),
        Command::Recover(Recover { generation }) => recover::decide(state, *generation, &mut draft),
        Command::Publish(command) => publish::decide(state, command, &mut draft)?,
        Command::Send(command) => raw_queue::send(state, command, &mut draft)?,
        Command::Receive(command) => raw_queue::receive(state, command, &mut draft),
        Command::Delete(Delete { tenant, receipt }) => {
            raw_queue::delete(state, tenant.as_ref(), *receipt, &mut draft)
        }
        Command::ChangeVisibility(ChangeVisibility { tenant, receipt, visible_in_millis }) => {
            raw_queue::change_visibility(state, tenant.as_ref(), *receipt, *visible_in_millis, &mut draft)
        }
        Command::Replay(Replay { tenant, message }) => {
            dead_letter::replay(state, tenant, *message, &mut draft)?
        }
        Command::Discard(Discard { tenant, message }) => {
            dead_letter::discard(state, tenant, *message, &mut draft)?
        }
        Command::Forget(Forget { keys }) => forget::decide(state, keys, &mut draft),
        Command::PutRecord(command) => put_record::decide(state, command, &mut draft)?,
        Command::PutRecords(command) => put_record::decide_all(state, command, &mut draft)?,
        Command::Match(command) => scripts::matched(state, command, &mut draft)?,
        Command::EndExecution(command) => scripts::end(state, command, &mut draft)?,
        Command::ReplayLetter(ReplayLetter { tenant, letter }) => {
            scripts::replay(state, tenant, *letter, &mut draft)?
        }
        Command::DiscardLetter(DiscardLetter { tenant, letter }) => {
            scripts::discard(state, tenant, *letter, &mut draft)?
        }
        Command::Alert(command) => scripts::alert(state, command, &mut draft),
        Command::RecordHealth(command) => health::record(state, command, &mut draft)?,
        Command::EndDelivery(command) => delivery::end(state, command, &mut draft)?,
        Command::KeepLetter(KeepLetter { tenant, letter }) => {
            delivery::keep(state, tenant, letter, &mut draft)?
        }
        Command::ReplayDelivery(ReplayDelivery { tenant, letter }) => {
            delivery::replay(state, tenant, *letter, &mut draft)?
        }
        Command::DiscardDelivery(DiscardDelivery { tenant, letter }) => {
            delivery::discard(state, tenant, *letter, &mut draft)?
        }
        Command::Unpark(command) => triage_unpark::decide(state, command, &mut draft)?,
        Command::LookAfterParked(LookAfterParked { keys }) => {
            triage_unpark::look_after(state, keys, &mut draft)?
        }
        Command::StartBulk(command) => triage_bulk::start(state, command, &mut draft)?,
        Command::StepBulk(StepBulk { tenant, bulk }) => triage_bulk::step(state, tenant, *bulk, &mut draft)?,
        Command::CancelBulk(CancelBulk { tenant, bulk }) => {
            triage_bulk::cancel(state, tenant, *bulk, &mut draft)?
        }
        Command::SetBudget(command) => usage::set(state, command, &mut draft)?,
    };
    callback::tell(state, &mut draft);
    Ok((draft.into_commit(), reply))
}
