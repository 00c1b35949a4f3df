//! Dead letters: kept, listed, and open until somebody says otherwise.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{Command, Discard, Replay};
use tidemill_engine::commit::{MessageId, TaskKey};
use tidemill_engine::record::{DeadLetter, DeadLetterState};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_model::{RequestId, TenantId};

use crate::violation::{Violation, demand};

/// Whether a run ended in this letter. Others hold a message that was one too many; their task goes on.
fn ends_a_run(letter: &DeadLetter) -> bool {
    letter.last_error.is_some()
}

#[derive(Debug, Default)]
pub(super) struct Letters {
    seen: BTreeMap<(TenantId, MessageId), DeadLetter>,
    /// Runs that ended for want of attempts; each has a letter.
    expected: BTreeSet<(TaskKey, u32)>,
}

impl Letters {
    pub(super) fn expect(&mut self, task: TaskKey, run: u32) {
        self.expected.insert((task, run));
    }

    /// The task that a dead letter is about.
    pub(super) fn task_of(&self, tenant: &TenantId, message: MessageId) -> Option<TaskKey> {
        let letter = self.seen.get(&(tenant.clone(), message))?;
        Some(TaskKey { tenant: tenant.clone(), request: letter.request.clone() })
    }

    /// The tasks run again, so their dead letters are closed.
    pub(super) fn run_again(&mut self, tenant: &TenantId, tasks: &[RequestId]) {
        for ((of, _), letter) in &mut self.seen {
            let is_open = letter.state == DeadLetterState::Open && ends_a_run(letter);
            if of == tenant && is_open && tasks.contains(&letter.request) {
                letter.state = DeadLetterState::Replayed;
            }
        }
    }

    /// Judges an answer; `is_known` tells which tasks there are.
    pub(super) fn hear(
        &mut self,
        command: &Command,
        answer: &Answer,
        is_known: impl Fn(&TaskKey) -> bool,
    ) -> Result<(), Violation> {
        let (tenant, message, new) = match command {
            Command::Replay(Replay { tenant, message }) => (tenant, message, DeadLetterState::Replayed),
            Command::Discard(Discard { tenant, message }) => (tenant, message, DeadLetterState::Discarded),
            _ => return Ok(()),
        };
        let letter = self.seen.get_mut(&(tenant.clone(), *message));
        let fits = match (&letter, answer) {
            (Some(letter), Ok(_) | Err(Refusal::TenantFull { .. })) => letter.state == DeadLetterState::Open,
            (Some(letter), Err(Refusal::NotOpen(_))) => letter.state != DeadLetterState::Open,
            // The task may be completed by now; then there is nothing to replay.
            (Some(_), Err(Refusal::NotResumable(_))) | (None, Err(Refusal::NotFound { .. })) => true,
            // A raw message may have been for a task that never was.
            (Some(letter), Err(Refusal::NotFound { what: "task", .. })) => {
                !is_known(&TaskKey { tenant: tenant.clone(), request: letter.request.clone() })
            }
            _ => false,
        };
        demand(fits, "a dead letter is open once", || format!("{command:?}: {answer:?}"))?;
        if let (Some(letter), Ok(_)) = (letter, answer) {
            letter.state = new;
        }
        if let Ok(Reply::Replayed { request }) = answer {
            self.run_again(&tenant.clone(), std::slice::from_ref(request));
        }
        Ok(())
    }

    /// Compares what is listed with what was: nothing may be gone or changed by itself.
    ///
    /// `doubtful` tells whether a command that nobody heard the answer of may have moved one, and `run_of` which run of a task is
    /// its newest.
    pub(super) fn compare(
        &mut self,
        listed: Vec<(TenantId, DeadLetter)>,
        doubtful: bool,
        run_of: impl Fn(&TaskKey) -> u32,
    ) -> Result<(), Violation> {
        let listed: BTreeMap<_, _> =
            listed.into_iter().map(|(tenant, letter)| ((tenant, letter.message), letter)).collect();
        for (key, letter) in &self.seen {
            let same = listed
                .get(key)
                .is_some_and(|now| now == letter || (doubtful && now.request == letter.request));
            demand(same, "dead letters are kept", || format!("{letter:?} is {:?}", listed.get(key)))?;
        }
        for ((tenant, _), letter) in &listed {
            let task = TaskKey { tenant: tenant.clone(), request: letter.request.clone() };
            let stands =
                letter.state != DeadLetterState::Open || !ends_a_run(letter) || run_of(&task) == letter.run;
            demand(stands, "a letter whose task runs again is closed", || format!("{letter:?}"))?;
        }
        for (task, run) in &self.expected {
            let found = listed.iter().any(|((tenant, _), letter)| {
                *tenant == task.tenant && letter.request == task.request && letter.run == *run
            });
            demand(found, "whoever is given up has a dead letter", || format!("{} run {run}", task.request))?;
        }
        self.seen = listed;
        Ok(())
    }
}
