//! Executions of scripts and their dead letters, as callers see them.

use std::sync::Arc;

use tidemill_model::{EventType, ScriptId, SubscriptionId, TenantId, Timestamp};

use crate::engine::limits::{LIST_MAX, MANY_LETTERS_MAX};
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::{Command, DiscardLetter, ReplayLetter};
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{DeadLetterState, RecordKey, RecordKind, RecordValue, SCRIPT_LETTER};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::Room;
use crate::scripts::ScriptMetrics;
use crate::scripts::execution::{ExecutionId, ExecutionKey, ExecutionStatus, ScriptExecution, ScriptLetter};

/// Where an execution stands, as far as this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownStatus {
    Queued,
    Processing,
    Retrying,
    Success,
    DeadLetter,
}

impl ShownStatus {
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Processing, Self::Retrying, Self::Success, Self::DeadLetter];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Retrying => "retrying",
            Self::Success => "success",
            Self::DeadLetter => "dead_letter",
        }
    }

    /// The status of this name, if it is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// An execution with what only this process knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownExecution {
    pub status: ShownStatus,
    pub execution: ScriptExecution,
}

/// Which executions. Without anything, all.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    pub script: Option<ScriptId>,
    pub subscription: Option<SubscriptionId>,
    pub status: Option<ShownStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionPage {
    pub executions: Vec<ShownExecution>,
    /// Where to go on; `None` when nothing follows.
    pub next: Option<ExecutionId>,
}

/// Which of the scripts' dead letters. Without anything, all.
#[derive(Debug, Clone, Default)]
pub struct LetterFilter {
    pub script: Option<ScriptId>,
    pub event_type: Option<EventType>,
    /// Failed at this moment or later, and before that one.
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub state: Option<DeadLetterState>,
}

impl LetterFilter {
    fn wants(&self, letter: &ScriptLetter) -> bool {
        self.script.as_ref().is_none_or(|script| letter.script_id == *script)
            && self.event_type.as_ref().is_none_or(|wanted| letter.event.event_type == *wanted)
            && self.from.is_none_or(|from| letter.failed_at >= from)
            && self.until.is_none_or(|until| letter.failed_at < until)
            && self.state.is_none_or(|state| letter.state == state)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterPage {
    pub letters: Vec<ScriptLetter>,
    /// Where to go on; `None` when nothing follows.
    pub next: Option<ExecutionId>,
}

/// What one call did with many letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManyLetters {
    pub letters: Vec<ExecutionId>,
    /// Whether others fit too; the same call goes on with them.
    pub more: bool,
}

impl<B: Backend> Engine<B> {
    /// A tenant's executions, newest event first, those after `after`.
    pub async fn executions(
        &self,
        tenant: &TenantId,
        filter: &ExecutionFilter,
        after: Option<ExecutionId>,
        limit: usize,
    ) -> Result<ExecutionPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut executions: Vec<ShownExecution> = Vec::new();
        let mut from = after.map(|id| RecordKey::execution(tenant, id).id);
        loop {
            let page = (RecordKind::Execution, Some(tenant.clone()), from.take(), LIST_MAX);
            let records = self.inner.backend.records(page.0, page.1, page.2, page.3).await?;
            let is_last = records.len() < LIST_MAX;
            for (key, record) in records {
                if executions.len() == limit {
                    let next = executions.last().map(|shown| shown.execution.id);
                    return Ok(ExecutionPage { executions, next });
                }
                from = Some(Arc::clone(&key.id));
                let RecordValue::Execution(execution) = record.value else { continue };
                let shown = self.shown(tenant, *execution);
                let fits = filter.script.as_ref().is_none_or(|script| shown.execution.script_id == *script)
                    && filter.subscription.as_ref().is_none_or(|id| shown.execution.subscription_id == *id)
                    && filter.status.is_none_or(|status| shown.status == status);
                executions.extend(Some(shown).filter(|_| fits));
            }
            if is_last {
                return Ok(ExecutionPage { executions, next: None });
            }
        }
    }

    pub async fn execution(
        &self,
        tenant: &TenantId,
        id: ExecutionId,
    ) -> Result<Option<ShownExecution>, EngineError> {
        let record = self.inner.backend.record(RecordKey::execution(tenant, id)).await?;
        Ok(match record.map(|record| record.value) {
            Some(RecordValue::Execution(execution)) => Some(self.shown(tenant, *execution)),
            _ => None,
        })
    }

    fn shown(&self, tenant: &TenantId, execution: ScriptExecution) -> ShownExecution {
        let key = ExecutionKey { tenant: tenant.clone(), id: execution.id };
        let status = match execution.status {
            ExecutionStatus::Success => ShownStatus::Success,
            ExecutionStatus::DeadLetter => ShownStatus::DeadLetter,
            _ if self.inner.board.is_running(&key) => ShownStatus::Processing,
            ExecutionStatus::Queued => ShownStatus::Queued,
            ExecutionStatus::Retrying => ShownStatus::Retrying,
        };
        ShownExecution { status, execution }
    }

    /// A tenant's dead letters of scripts, oldest event first, those after `after`.
    pub async fn script_letters(
        &self,
        tenant: &TenantId,
        filter: &LetterFilter,
        after: Option<ExecutionId>,
        limit: usize,
    ) -> Result<LetterPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut letters: Vec<ScriptLetter> = Vec::new();
        let from = after.map(|id| RecordKey::script_letter(tenant, id).id);
        let mut from = Some(from.unwrap_or_else(|| Arc::from(SCRIPT_LETTER)));
        loop {
            let page = (RecordKind::DeadLetter, Some(tenant.clone()), from.take(), LIST_MAX);
            let records = self.inner.backend.records(page.0, page.1, page.2, page.3).await?;
            let is_last = records.len() < LIST_MAX;
            for (key, record) in records {
                if letters.len() == limit {
                    let next = letters.last().map(|letter| letter.id);
                    return Ok(LetterPage { letters, next });
                }
                from = Some(Arc::clone(&key.id));
                let RecordValue::ScriptLetter(letter) = record.value else { continue };
                letters.extend(Some(*letter).filter(|letter| filter.wants(letter)));
            }
            if is_last {
                return Ok(LetterPage { letters, next: None });
            }
        }
    }

    pub async fn script_letter(
        &self,
        tenant: &TenantId,
        id: ExecutionId,
    ) -> Result<Option<ScriptLetter>, EngineError> {
        let record = self.inner.backend.record(RecordKey::script_letter(tenant, id)).await?;
        Ok(match record.map(|record| record.value) {
            Some(RecordValue::ScriptLetter(letter)) => Some(*letter),
            _ => None,
        })
    }

    /// Runs what a dead letter holds once more: that script for that event and nothing else.
    pub async fn replay_letter(
        &self,
        tenant: TenantId,
        letter: ExecutionId,
    ) -> Result<ExecutionId, EngineError> {
        let reply = self.execute(Command::ReplayLetter(ReplayLetter { tenant, letter })).await?;
        let execution = take_reply!(reply, Reply::LetterReplayed { execution } => execution)?;
        self.inner.board.note_queued(1);
        Ok(execution)
    }

    /// Puts a dead letter aside. It stays on record.
    pub async fn discard_letter(&self, tenant: TenantId, letter: ExecutionId) -> Result<(), EngineError> {
        let reply = self.execute(Command::DiscardLetter(DiscardLetter { tenant, letter })).await?;
        take_reply!(reply, Reply::Discarded => ())
    }

    /// Replays the open letters that fit, the first of them if there are very many.
    pub async fn replay_letters(
        &self,
        tenant: &TenantId,
        filter: &LetterFilter,
    ) -> Result<ManyLetters, EngineError> {
        self.change_letters(tenant, filter, DeadLetterState::Replayed).await
    }

    /// Discards the open letters that fit, the first of them if there are very many.
    pub async fn discard_letters(
        &self,
        tenant: &TenantId,
        filter: &LetterFilter,
    ) -> Result<ManyLetters, EngineError> {
        self.change_letters(tenant, filter, DeadLetterState::Discarded).await
    }

    async fn change_letters(
        &self,
        tenant: &TenantId,
        filter: &LetterFilter,
        to: DeadLetterState,
    ) -> Result<ManyLetters, EngineError> {
        let (ids, more) = self.open_letters(tenant, filter).await?;
        let mut letters = Vec::new();
        for id in ids {
            let changed = match to {
                DeadLetterState::Replayed => self.replay_letter(tenant.clone(), id).await.map(|_| ()),
                _ => self.discard_letter(tenant.clone(), id).await,
            };
            match changed {
                Ok(()) => letters.push(id),
                // Somebody else was faster.
                Err(EngineError::Refused(Refusal::NotOpen(_))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ManyLetters { letters, more })
    }

    /// Those that one of the above would change.
    pub async fn letters_to_change(
        &self,
        tenant: &TenantId,
        filter: &LetterFilter,
    ) -> Result<ManyLetters, EngineError> {
        let (letters, more) = self.open_letters(tenant, filter).await?;
        Ok(ManyLetters { letters, more })
    }

    async fn open_letters(
        &self,
        tenant: &TenantId,
        filter: &LetterFilter,
    ) -> Result<(Vec<ExecutionId>, bool), EngineError> {
        if filter.state.is_some_and(|state| state != DeadLetterState::Open) {
            return Err(EngineError::invalid("state", "must be open: others are done with"));
        }
        let open = LetterFilter { state: Some(DeadLetterState::Open), ..filter.clone() };
        let page = self.script_letters(tenant, &open, None, MANY_LETTERS_MAX).await?;
        Ok((page.letters.iter().map(|letter| letter.id).collect(), page.next.is_some()))
    }

    /// What scripts did in this process.
    pub async fn script_metrics(&self) -> Result<ScriptMetrics, EngineError> {
        let found =
            self.backend().look(|state| state.pending().due(Timestamp::MIN, &Room::of(0), |_| true)).await?;
        Ok(self.inner.board.counters.read(found.pending as u64))
    }
}
