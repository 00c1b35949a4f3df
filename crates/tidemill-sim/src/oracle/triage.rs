//! Triage: what is kept of errors and of those that wait equals a plain fold of the events.
//!
//! The fold counts one by one what the engine moves by marks: it goes through all errors of a code at every mark of
//! the code.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_engine::backend::Answer;
use tidemill_engine::command::Command;
use tidemill_engine::record::{RecordKey, RecordValue};
use tidemill_engine::reply::Reply;
use tidemill_engine::triage::{ErrorCounts, ErrorState, WORKFLOW_ENTITY};
use tidemill_model::workflow::contract::Standing;
use tidemill_model::workflow::{ErrorCode, WorkflowRunId, WorkflowStatus};
use tidemill_model::{Event, EventId, KnownType, TenantId, Timestamp};

use super::unreadable;
use crate::actors::triager::{self, Said};
use crate::ledger::Ledger;
use crate::violation::{Violation, demand};

#[derive(Debug, Default)]
pub(super) struct Triage {
    /// Events that an answer promised.
    promised: BTreeSet<EventId>,
}

/// All that a tenant's events say.
#[derive(Debug, Default)]
struct Fold {
    codes: BTreeMap<String, Code>,
    errors: BTreeMap<(String, String), ErrorState>,
    executions: BTreeMap<String, Execution>,
    tokens: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Code {
    occurrences: u64,
    is_unrecoverable: bool,
    ignored: Option<(Option<Timestamp>, Option<u64>)>,
}

#[derive(Debug)]
struct Execution {
    at: Timestamp,
    whole_second: bool,
    status: WorkflowStatus,
    step: String,
    /// The token that it waits with, or waited with last.
    token: Option<String>,
    waits: bool,
    /// It went on while it waited, so nobody used its token.
    went_on: bool,
}

impl Triage {
    pub(super) fn hear(&mut self, command: &Command, answer: &Answer) {
        if let (Command::Publish(_), Ok(Reply::Noted { events, .. })) = (command, answer) {
            self.promised.extend(events.iter().map(|(id, ..)| *id));
        }
    }

    /// Holds what the ledger keeps against what the events say.
    pub(super) fn compare(&self, log: &[Event], ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let mut folds: BTreeMap<TenantId, Fold> = BTreeMap::new();
        let mut ids = BTreeSet::new();
        for event in log.iter().filter(|event| event.entity.kind.as_str() == WORKFLOW_ENTITY) {
            ids.insert(event.id);
            folds.entry(event.tenant.clone()).or_default().take(event)?;
        }
        let lost = self.promised.iter().find(|id| !ids.contains(id));
        demand(lost.is_none(), "a workflow event that was taken in is there", || format!("{lost:?}"))?;
        for (tenant, fold) in &folds {
            fold.compare(tenant, ledger)?;
        }
        Ok(())
    }
}

impl Fold {
    fn take(&mut self, event: &Event) -> Result<(), Violation> {
        let now = event.received_at;
        let id = event.entity.id.as_str().to_owned();
        let ends = [KnownType::ExecutionResumed, KnownType::ExecutionFailed, KnownType::ExecutionExpired];
        if ends.iter().any(|known| known.as_str() == event.event_type.as_str()) {
            if !triager::is_elsewhere(&id) {
                // A task of this world: its own history tells whether it waited.
                return Ok(());
            }
            let execution = self.executions.get_mut(&id).filter(|execution| execution.waits);
            demand(execution.is_some(), "each wait ends once", || format!("{} of {id}", event.event_type))?;
            if let Some(execution) = execution {
                execution.waits = false;
            }
            return Ok(());
        }
        let Ok(said) = event.properties.read::<Said>() else {
            return Err(Violation::new("a workflow event says what was said", format!("{event:?}")));
        };
        if let Some(kind) = &said.mark {
            self.mark(kind, &said, now);
        } else {
            self.status(&id, &said, event.timestamp, now);
        }
        Ok(())
    }

    /// Ends an ignoring whose time is over.
    fn lapse(&mut self, code: &str, now: Timestamp) {
        let Some(known) = self.codes.get_mut(code) else { return };
        let is_over = known.ignored.is_some_and(|(until, count)| {
            until.is_some_and(|until| until <= now) || count.is_some_and(|count| count <= known.occurrences)
        });
        if is_over {
            known.ignored = None;
            self.turn(code, |state| if state == ErrorState::Ignored { ErrorState::Open } else { state });
        }
    }

    /// Changes all errors of a code.
    fn turn(&mut self, code: &str, to: impl Fn(ErrorState) -> ErrorState) {
        let errors = self.errors.iter_mut().filter(|((of, _), _)| of == code);
        errors.for_each(|(_, state)| *state = to(*state));
    }

    fn mark(&mut self, kind: &str, said: &Said, now: Timestamp) {
        let to = |state: ErrorState| match (kind, state) {
            ("resolve", _) => ErrorState::Resolved,
            ("reopen", _) => ErrorState::Open,
            ("unrecoverable", ErrorState::Open | ErrorState::Ignored) => ErrorState::Unrecoverable,
            ("ignore", ErrorState::Open) => ErrorState::Ignored,
            (_, state) => state,
        };
        let Some(execution) = &said.execution else {
            let code = said.code.clone().unwrap_or_default();
            self.lapse(&code, now);
            let Some(known) = self.codes.get_mut(&code) else { return };
            match kind {
                "resolve" | "reopen" => (known.is_unrecoverable, known.ignored) = (false, None),
                "unrecoverable" => (known.is_unrecoverable, known.ignored) = (true, None),
                _ => {
                    let count = said.occurrences.map(|more| known.occurrences + more);
                    known.ignored = Some((said.until, count));
                }
            }
            self.turn(&code, to);
            return;
        };
        let codes: Vec<String> = self.codes.keys().cloned().collect();
        for code in codes.into_iter().filter(|code| said.code.as_ref().is_none_or(|of| of == code)) {
            if self.errors.contains_key(&(code.clone(), execution.clone())) {
                self.lapse(&code, now);
                let state = self.errors.get_mut(&(code, execution.clone())).expect("it was just there");
                *state = to(*state);
            }
        }
    }

    fn status(&mut self, id: &str, said: &Said, at: Timestamp, now: Timestamp) {
        let status = said.status.unwrap_or(WorkflowStatus::Scheduled);
        let step = said.step.clone().unwrap_or_default();
        let stands = Standing { at, whole_second: said.whole_second, status, step: &step };
        let is_newer = self.executions.get(id).is_none_or(|known| {
            let stood = Standing {
                at: known.at,
                whole_second: known.whole_second,
                status: known.status,
                step: &known.step,
            };
            let other_token = said.token.is_some() && said.token != known.token;
            stood.gives_way_to(&stands, other_token)
        });
        for code in &said.errors {
            self.lapse(code, now);
            let known = self.codes.entry(code.clone()).or_default();
            known.occurrences += 1;
            let error = (code.clone(), id.to_owned());
            let before = self.errors.get(&error).copied();
            let after = if known.is_unrecoverable || before == Some(ErrorState::Unrecoverable) {
                ErrorState::Unrecoverable
            } else if known.ignored.is_some() {
                ErrorState::Ignored
            } else {
                ErrorState::Open
            };
            self.errors.insert(error, after);
            self.lapse(code, now);
        }
        let execution = self.executions.entry(id.to_owned()).or_insert_with(|| Execution {
            at,
            whole_second: false,
            status,
            step: step.clone(),
            token: None,
            waits: false,
            went_on: false,
        });
        if !is_newer {
            if let Some(token) = said.token.as_ref().filter(|_| status == WorkflowStatus::Failed) {
                self.tokens.insert(token.clone());
            }
            return;
        }
        (execution.at, execution.whole_second) = (at, said.whole_second);
        (execution.status, execution.step) = (status, step);
        match (status, &said.token) {
            (WorkflowStatus::Failed, Some(token)) => {
                let is_newest = execution.token.as_ref() == Some(token);
                let stands = execution.waits && is_newest;
                let is_unused = self.tokens.insert(token.clone()) || (is_newest && execution.went_on);
                if !stands && is_unused {
                    (execution.waits, execution.went_on) = (true, false);
                    execution.token = Some(token.clone());
                }
            }
            (WorkflowStatus::Failed, None) => {}
            _ => {
                execution.went_on |= execution.waits;
                execution.waits = false;
            }
        }
    }

    fn compare(&self, tenant: &TenantId, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        for code in triager::codes() {
            let found = ledger.record(&RecordKey::error_group(tenant, &code)).map_err(unreadable)?;
            let group = match found.map(|record| record.value) {
                Some(RecordValue::ErrorGroup(group)) => Some(group),
                _ => None,
            };
            let known = self.codes.get(code.as_str());
            demand(group.is_some() == known.is_some(), "a code that occurred is known", || code.to_string())?;
            let (Some(group), Some(known)) = (group, known) else { continue };
            let mut expected = ErrorCounts { occurrences: known.occurrences, ..ErrorCounts::default() };
            for ((_, execution), state) in self.errors.iter().filter(|((of, _), _)| of == code.as_str()) {
                match state {
                    ErrorState::Open => expected.open += 1,
                    ErrorState::Resolved => expected.resolved += 1,
                    ErrorState::Unrecoverable => expected.unrecoverable += 1,
                    ErrorState::Ignored => expected.ignored += 1,
                }
                let found = Self::state_of(tenant, &code, execution, ledger, |error| {
                    group.state_of(error.state, error.clock)
                })?;
                demand(found == Some(*state), "an error stands where the events put it", || {
                    format!("{code} of {execution} is {found:?}, not {state:?}")
                })?;
            }
            demand(group.counts() == expected, "counts of errors are those of the events", || {
                format!("{code} of {tenant}: {:?}, not {expected:?}", group.counts())
            })?;
        }
        for execution in triager::executions() {
            let waits = self.executions.get(execution.as_str()).is_some_and(|known| known.waits);
            let found = ledger.record(&RecordKey::parked(tenant, &execution)).map_err(unreadable)?;
            demand(found.is_some() == waits, "whoever waits is parked, and nobody else", || {
                format!("{execution} of {tenant}: {found:?}, not {waits}")
            })?;
        }
        Ok(())
    }

    fn state_of(
        tenant: &TenantId,
        code: &ErrorCode,
        execution: &str,
        ledger: &mut dyn Ledger,
        state: impl Fn(&tidemill_engine::triage::TriageError) -> ErrorState,
    ) -> Result<Option<ErrorState>, Violation> {
        let key = RecordKey::triage_error(tenant, code, &WorkflowRunId::trusted(execution));
        let found = ledger.record(&key).map_err(unreadable)?;
        Ok(match found.map(|record| record.value) {
            Some(RecordValue::TriageError(error)) => Some(state(&error)),
            _ => None,
        })
    }
}
