//! Executions of scripts: queued once for an event and a subscription, each run ended once, what a script asked for done
//! with its success and never otherwise, and a cursor that passes nothing by.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{
    Command, DiscardLetter, EndExecution, ExecutionEnd, Match, NewExecution, ReplayLetter, ScriptEffect,
};
use tidemill_engine::execution::{ExecutionId, ExecutionKey, ExecutionStatus};
use tidemill_engine::record::{DeadLetterState, Record, RecordKey, RecordValue};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_model::{Event, EventId, SubscriptionId, TenantId};

use super::unreadable;
use crate::ledger::Ledger;
use crate::violation::{Violation, demand};

#[derive(Debug, Default, Clone)]
pub(crate) struct Executions {
    cursor: u64,
    cursor_version: u64,
    known: BTreeMap<ExecutionKey, Known>,
    letters: BTreeMap<ExecutionKey, DeadLetterState>,
    /// Events that scripts asked for, and whether they are to be there.
    effects: BTreeMap<EventId, bool>,
    /// The event and the subscription of each execution that was matched.
    matched: BTreeSet<(EventId, SubscriptionId)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    status: ExecutionStatus,
    attempts: u32,
}

impl Executions {
    /// The last event that was matched, and the version of the cursor.
    pub(crate) fn cursor(&self) -> (u64, u64) {
        (self.cursor, self.cursor_version)
    }

    /// Executions that are to run, with the number of their next run.
    pub(crate) fn pending(&self) -> Vec<(ExecutionKey, u32)> {
        let pending = self.known.iter().filter(|(_, known)| known.status.is_pending());
        pending.map(|(key, known)| (key.clone(), known.attempts + 1)).collect()
    }

    /// All executions, with the number of their last run.
    pub(crate) fn all(&self) -> Vec<(ExecutionKey, u32)> {
        self.known.iter().map(|(key, known)| (key.clone(), known.attempts)).collect()
    }

    pub(crate) fn letters(&self) -> Vec<ExecutionKey> {
        self.letters.keys().cloned().collect()
    }

    /// Judges an answer and takes note of what it says.
    pub(super) fn hear(&mut self, command: &Command, answer: &Answer) -> Result<(), Violation> {
        match command {
            Command::Match(matched) => self.hear_match(matched, answer),
            Command::EndExecution(end) => self.hear_end(end, answer),
            Command::ReplayLetter(ReplayLetter { tenant, letter })
            | Command::DiscardLetter(DiscardLetter { tenant, letter }) => {
                let key = ExecutionKey { tenant: tenant.clone(), id: *letter };
                let fits = match (self.letters.get(&key), answer) {
                    (Some(DeadLetterState::Open), Ok(_)) | (None, Err(Refusal::NotFound { .. })) => true,
                    (Some(state), Err(Refusal::NotOpen(_))) => *state != DeadLetterState::Open,
                    _ => false,
                };
                demand(fits, "a script's dead letter is open once", || format!("{command:?}: {answer:?}"))?;
                if let Ok(reply) = answer {
                    self.answer_letter(key, reply);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn answer_letter(&mut self, key: ExecutionKey, reply: &Reply) {
        let Reply::LetterReplayed { execution } = reply else {
            self.letters.insert(key, DeadLetterState::Discarded);
            return;
        };
        self.known.insert(ExecutionKey { tenant: key.tenant.clone(), id: *execution }, Known::NEW);
        self.letters.insert(key, DeadLetterState::Replayed);
    }

    fn hear_match(&mut self, command: &Match, answer: &Answer) -> Result<(), Violation> {
        let told = || format!("{command:?}: {answer:?}");
        if command.cursor_version != self.cursor_version {
            let refused = matches!(answer, Err(Refusal::RecordConflict { .. }));
            return demand(refused, "a cursor moves from where it is", told);
        }
        let created = self.apply_match(command);
        let version = self.cursor_version;
        let fits = matches!(answer, Ok(Reply::Matched { created: told, cursor_version })
            if *told as usize == created && *cursor_version == version);
        demand(fits, "an event and a subscription have one execution", told)
    }

    fn apply_match(&mut self, command: &Match) -> usize {
        if command.cursor_version != self.cursor_version {
            return 0;
        }
        let before = self.known.len();
        for new in &command.executions {
            self.matched.insert((new.event.id, new.subscription.clone()));
            self.known.entry(key_of(new)).or_insert(Known::NEW);
        }
        let to = command.to.unwrap_or(0);
        if self.cursor_version == 0 || to != self.cursor {
            self.cursor_version += 1;
        }
        self.cursor = to;
        self.known.len() - before
    }

    fn hear_end(&mut self, command: &EndExecution, answer: &Answer) -> Result<(), Violation> {
        let expected = self.apply_end(command);
        let fits = match (expected, answer) {
            (Some(expected), Ok(Reply::ExecutionEnded { status, .. })) => *status == expected,
            (None, Err(Refusal::NotUnderWay { .. })) => true,
            _ => false,
        };
        demand(fits, "each run of a script ends once", || {
            format!("run {} of {}: {answer:?}, not {expected:?}", command.attempt, command.execution)
        })
    }

    /// What becomes of an execution; `None` when the end must be refused.
    fn apply_end(&mut self, command: &EndExecution) -> Option<ExecutionStatus> {
        let key = ExecutionKey { tenant: command.tenant.clone(), id: command.execution };
        for event in published(command) {
            self.effects.entry(event).or_insert(false);
        }
        let known = self.known.get_mut(&key)?;
        if !known.status.is_pending() || known.attempts + 1 != command.attempt {
            return None;
        }
        known.attempts = command.attempt;
        known.status = match &command.end {
            ExecutionEnd::Succeeded { .. } => ExecutionStatus::Success,
            ExecutionEnd::Failed { retry_in_millis: Some(_), .. } => ExecutionStatus::Retrying,
            ExecutionEnd::Failed { .. } => ExecutionStatus::DeadLetter,
        };
        let status = known.status;
        if status == ExecutionStatus::Success {
            for event in published(command) {
                self.effects.insert(event, true);
            }
        }
        if status == ExecutionStatus::DeadLetter {
            self.letters.insert(key, DeadLetterState::Open);
        }
        Some(status)
    }

    /// A group whose answer nobody heard is there whole or not at all.
    pub(super) fn resync(
        &mut self,
        commands: &[Command],
        log: &[Event],
        ledger: &mut dyn Ledger,
    ) -> Result<(), Violation> {
        let mut after = self.clone();
        for command in commands {
            match command {
                Command::Match(matched) => {
                    after.apply_match(matched);
                }
                Command::EndExecution(end) => {
                    after.apply_end(end);
                    // It may be refused, and its effects are not there then; they are known all the same.
                    for event in published(end) {
                        self.effects.entry(event).or_insert(false);
                    }
                }
                Command::ReplayLetter(ReplayLetter { tenant, letter })
                | Command::DiscardLetter(DiscardLetter { tenant, letter }) => {
                    let key = ExecutionKey { tenant: tenant.clone(), id: *letter };
                    if after.letters.get(&key) == Some(&DeadLetterState::Open) {
                        let reply = match command {
                            Command::DiscardLetter(_) => Reply::Discarded,
                            _ => match replayed_by(tenant, *letter, ledger)? {
                                Some(execution) => Reply::LetterReplayed { execution },
                                None => continue,
                            },
                        };
                        after.answer_letter(key, &reply);
                    }
                }
                _ => {}
            }
        }
        if self.compare(log, ledger).is_ok() {
            return Ok(());
        }
        after.compare(log, ledger)?;
        *self = after;
        Ok(())
    }

    /// Everything is as it must be.
    pub(super) fn compare(&self, log: &[Event], ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let cursor = ledger.record(&RecordKey::scripts_cursor()).map_err(unreadable)?;
        let shown = cursor.as_ref().map_or((0, 0), |record| (record.version, cursor_of(record)));
        demand(shown == (self.cursor_version, self.cursor), "a cursor stays where it is", || {
            format!("{shown:?}, not {:?}", (self.cursor_version, self.cursor))
        })?;
        for (key, known) in &self.known {
            let record = ledger.record(&RecordKey::execution(&key.tenant, key.id)).map_err(unreadable)?;
            let shown = record.and_then(|record| match record.value {
                RecordValue::Execution(execution) => {
                    Some(Known { status: execution.status, attempts: execution.attempts })
                }
                _ => None,
            });
            demand(shown.as_ref() == Some(known), "an execution is what became of it", || {
                format!("{key:?} is {shown:?}, not {known:?}")
            })?;
        }
        for (key, state) in &self.letters {
            let record = ledger.record(&RecordKey::script_letter(&key.tenant, key.id)).map_err(unreadable)?;
            let shown = record.and_then(|record| match record.value {
                RecordValue::ScriptLetter(letter) => Some(letter.state),
                _ => None,
            });
            demand(shown == Some(*state), "dead letters of scripts are kept", || {
                format!("{key:?} is {shown:?}, not {state:?}")
            })?;
        }
        let mut times: BTreeMap<EventId, usize> = BTreeMap::new();
        for event in log.iter().filter(|event| self.effects.contains_key(&event.id)) {
            *times.entry(event.id).or_default() += 1;
        }
        for (event, is_due) in &self.effects {
            let found = times.get(event).copied().unwrap_or(0);
            demand(
                found == usize::from(*is_due),
                "what a script asks for happens once, with its success",
                || format!("{event} was written {found} times; due: {is_due}"),
            )?;
        }
        let passed = usize::try_from(self.cursor).unwrap_or(usize::MAX).min(log.len());
        for event in &log[..passed] {
            for subscription in subscriptions_of(event) {
                let is_matched = self.matched.contains(&(event.id, subscription.clone()));
                demand(is_matched, "the cursor passes no event by", || {
                    format!("{} of {subscription}", event.id)
                })?;
            }
        }
        Ok(())
    }
}

impl Known {
    const NEW: Self = Self { status: ExecutionStatus::Queued, attempts: 0 };
}

/// Which subscriptions of this world want an event.
pub(crate) fn subscriptions_of(event: &Event) -> Vec<SubscriptionId> {
    let names: &[&str] = match event.event_type.as_str() {
        "store.opened" => &["all", "opened"],
        "store.closed" | "store.echoed" => &["all"],
        _ => &[],
    };
    names.iter().map(|name| SubscriptionId::trusted(name)).collect()
}

fn key_of(new: &NewExecution) -> ExecutionKey {
    ExecutionKey { tenant: new.tenant.clone(), id: ExecutionId::of(new.event.id, &new.subscription) }
}

fn published(command: &EndExecution) -> Vec<EventId> {
    let ExecutionEnd::Succeeded { effects, .. } = &command.end else { return Vec::new() };
    let events = effects.iter().flat_map(|effect| match effect {
        ScriptEffect::Publish(publish) => publish.events.as_slice(),
        ScriptEffect::SubmitJob(_) => &[],
    });
    events.filter_map(|event| event.properties.id).collect()
}

fn cursor_of(record: &Record) -> u64 {
    match &record.value {
        RecordValue::Bytes(bytes) => bytes.as_ref().try_into().map_or(0, u64::from_le_bytes),
        _ => 0,
    }
}

fn replayed_by(
    tenant: &TenantId,
    letter: ExecutionId,
    ledger: &mut dyn Ledger,
) -> Result<Option<ExecutionId>, Violation> {
    let record = ledger.record(&RecordKey::script_letter(tenant, letter)).map_err(unreadable)?;
    Ok(record.and_then(|record| match record.value {
        RecordValue::ScriptLetter(letter) => letter.replayed_by,
        _ => None,
    }))
}
