//! Decisions: state and command in, commit and reply out.
//!
//! Nothing here reads a clock, a disk, a network or randomness, or changes the state; time and ids come in through the
//! `Circumstances`. One file per command.

use tidemill_model::Timestamp;

use crate::events::publish;
use crate::health::record;
use crate::kernel::{draft, forget, put_record};
use crate::outbound::{callback, outbox};
use crate::parking::unpark;
use crate::queue::{dead_letter, raw};
use crate::scripts::end;
use crate::triage::bulk_steps;
use crate::usage::charge;
use crate::work::{
    add_tasks, advance, cancel, cancel_task, change_tasks, claim, finish, heartbeat, recover, release,
    resume, submit_job, submit_task, sweep,
};

use crate::kernel::command::{
    Advance, CancelBulk, ChangeVisibility, Command, Delete, Discard, DiscardDelivery, DiscardLetter, Forget,
    KeepLetter, LookAfterParked, Recover, Replay, ReplayDelivery, ReplayLetter, StepBulk,
};
use crate::kernel::commit::Commit;
use crate::kernel::id_source::IdSource;
use crate::kernel::policy::Policy;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Site;
use crate::kernel::state::State;

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
        Command::Send(command) => raw::send(state, command, &mut draft)?,
        Command::Receive(command) => raw::receive(state, command, &mut draft),
        Command::Delete(Delete { tenant, receipt }) => {
            raw::delete(state, tenant.as_ref(), *receipt, &mut draft)
        }
        Command::ChangeVisibility(ChangeVisibility { tenant, receipt, visible_in_millis }) => {
            raw::change_visibility(state, tenant.as_ref(), *receipt, *visible_in_millis, &mut draft)
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
        Command::Match(command) => end::matched(state, command, &mut draft)?,
        Command::EndExecution(command) => end::end(state, command, &mut draft)?,
        Command::ReplayLetter(ReplayLetter { tenant, letter }) => {
            end::replay(state, tenant, *letter, &mut draft)?
        }
        Command::DiscardLetter(DiscardLetter { tenant, letter }) => {
            end::discard(state, tenant, *letter, &mut draft)?
        }
        Command::Alert(command) => end::alert(state, command, &mut draft),
        Command::RecordHealth(command) => record::record(state, command, &mut draft)?,
        Command::EndDelivery(command) => outbox::end(state, command, &mut draft)?,
        Command::KeepLetter(KeepLetter { tenant, letter }) => {
            outbox::keep(state, tenant, letter, &mut draft)?
        }
        Command::ReplayDelivery(ReplayDelivery { tenant, letter }) => {
            outbox::replay(state, tenant, *letter, &mut draft)?
        }
        Command::DiscardDelivery(DiscardDelivery { tenant, letter }) => {
            outbox::discard(state, tenant, *letter, &mut draft)?
        }
        Command::Unpark(command) => unpark::decide(state, command, &mut draft)?,
        Command::LookAfterParked(LookAfterParked { keys }) => unpark::look_after(state, keys, &mut draft)?,
        Command::StartBulk(command) => bulk_steps::start(state, command, &mut draft)?,
        Command::StepBulk(StepBulk { tenant, bulk }) => bulk_steps::step(state, tenant, *bulk, &mut draft)?,
        Command::CancelBulk(CancelBulk { tenant, bulk }) => {
            bulk_steps::cancel(state, tenant, *bulk, &mut draft)?
        }
        Command::SetBudget(command) => charge::set(state, command, &mut draft)?,
    };
    callback::tell(state, &mut draft);
    Ok((draft.into_commit(), reply))
}
