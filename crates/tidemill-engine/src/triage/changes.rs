//! Triage, as callers change it: workflow events in, marks on errors, and the ends of waits.

use std::sync::Arc;

use serde::Serialize;
use tidemill_model::workflow::{
    ErrorCode, ErrorScope, Families, IN_AN_ID, MessageKind, TaskToken, TokenCleaner, WorkflowBody,
    WorkflowMessage, WorkflowRunId,
};
use tidemill_model::{
    AppName, Context, Entity, EntityId, EntityType, EventId, EventType, Json, KnownType, TenantId, Timestamp,
};

use crate::engine::limits::{RESUME_BYTES_MAX, TEXT_CHARS_MAX};
use crate::engine::{Engine, EngineError, NewEvent, check, digest};
use crate::kernel::backend::Backend;
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::reply::Refusal;
use crate::triage::{
    BulkAction, Cell, ERROR_ENTITY, ErrorMark, MarkItem, NewToken, StatusItem, TokenState, TokenTaken,
    TriageExecution, Unparked, WORKFLOW_ENTITY, WorkflowItem,
};

/// Workflow events, each read and checked.
#[derive(Debug, Clone)]
pub struct IngestRequest {
    pub tenant: TenantId,
    pub app: AppName,
    /// The component that brings them, such as `producer-api`.
    pub origin: String,
    pub messages: Vec<WorkflowMessage>,
}

/// A workflow event that was taken in, now or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ingested {
    pub event: EventId,
    pub timestamp: Timestamp,
    /// It was there already.
    pub repeated: bool,
    /// What became of its token, if it brought one and was not there already.
    pub token: Option<TokenTaken>,
}

/// What a mark did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marked {
    pub event: EventId,
    /// How many (execution, code) errors have another state now.
    pub changed: u64,
}

/// What became of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenOutcome {
    /// Its execution waits.
    Waiting,
    Ended(Unparked),
    /// The execution went on without it, or got another one.
    Replaced,
}

impl<B: Backend> Engine<B> {
    /// The families of workflow events that are accepted.
    pub fn families(&self) -> &Families {
        &self.inner.families
    }

    /// Takes workflow events in, in order, all or none. What was taken in before changes nothing.
    pub async fn ingest(&self, request: IngestRequest) -> Result<Vec<Ingested>, EngineError> {
        let IngestRequest { tenant, app, origin, messages } = request;
        check::name("origin", &origin)?;
        check::count("events", messages.len(), self.policy().publish_max)?;
        let now = self.inner.clock.now();
        let limit_millis = self.policy().ahead_millis_max;
        let mut events = Vec::with_capacity(messages.len());
        let mut tokens = Vec::new();
        for message in messages {
            let ahead_millis = message.time.map_or(0, |time| time.since(now));
            if ahead_millis > limit_millis {
                return Err(Refusal::TooFarAhead { ahead_millis, limit_millis }.into());
            }
            tokens.extend(token_of(&message).cloned());
            let (event, item) = self.workflow_event(&tenant, message)?;
            events.push((event, Some(item)));
        }
        cut_tokens(&tokens, "", ".detail", events.iter_mut().map(|(event, item)| (event, item.as_mut())))?;
        let context = self.context_of(&origin);
        let stored = self.publish_all(tenant, app, context, events).await?;
        let ingested = |(event, timestamp, repeated)| Ingested { event, timestamp, repeated, token: None };
        let mut all: Vec<_> = stored.events.into_iter().map(ingested).collect();
        for (at, token) in stored.tokens {
            if let Some(one) = all.get_mut(at) {
                one.token = Some(token);
            }
        }
        Ok(all)
    }

    pub(crate) fn context_of(&self, origin: &str) -> Context {
        Context { environment: self.inner.site.environment(), origin: Arc::from(origin), worker_id: None }
    }

    /// Reads an event of a family that came by the way of other events. `None` if it is of none. It returns the token
    /// too, for [`cut_tokens`].
    pub(crate) fn as_workflow(
        &self,
        tenant: &TenantId,
        place: &str,
        event: &NewEvent,
        tokens: &mut Vec<TaskToken>,
    ) -> Result<Option<(NewEvent, WorkflowItem)>, EngineError> {
        let name = event.event_type.as_str();
        let families = &self.inner.families;
        let Some(family) = families.iter().find(|family| family.kind(name).is_some()) else {
            return Ok(None);
        };
        let time = event.timestamp.map(Timestamp::millis);
        let detail = &event.properties;
        let envelope = Envelope { source: &family.source, detail_type: name, time, detail };
        let message =
            WorkflowMessage::read(place, &Json::of(&envelope), families).map_err(|mut problems| {
                for problem in &mut problems.listed {
                    problem.path = problem.path.replacen(".detail", ".properties", 1);
                }
                problems
            })?;
        tokens.extend(token_of(&message).cloned());
        let (mut made, item) = self.workflow_event(tenant, message)?;
        made.ttl = event.ttl;
        Ok(Some((made, item)))
    }

    /// A message as an event, and what it says.
    fn workflow_event(
        &self,
        tenant: &TenantId,
        message: WorkflowMessage,
    ) -> Result<(NewEvent, WorkflowItem), EngineError> {
        let once = message.identity().map(|identity| digest::of(&[identity.as_bytes()]));
        let WorkflowMessage { event_type, time, whole_second, detail, body, .. } = message;
        let (entity, item) = match body {
            WorkflowBody::Status(status) => {
                let token = status.token.as_ref().map(|token| self.seal(tenant, token)).transpose()?;
                let cell = Cell {
                    county: Arc::from(status.county),
                    data_group_label: status.data_group_label.map(Arc::from),
                    phase: Arc::from(status.place.phase),
                    step: Arc::from(status.place.step),
                };
                let entity = entity(WORKFLOW_ENTITY, status.execution.as_str());
                let item = StatusItem {
                    once,
                    execution: status.execution,
                    cell,
                    status: status.status,
                    whole_second,
                    token,
                    errors: status.errors.into_iter().map(|error| error.code).collect(),
                };
                (entity, WorkflowItem::Status(Box::new(item)))
            }
            WorkflowBody::Resolved(scope) => of_scope(&scope, ErrorMark::Resolve, once),
            WorkflowBody::FailedToResolve(scope) => of_scope(&scope, ErrorMark::Unrecoverable, once),
        };
        let event = NewEvent { entity, event_type, timestamp: time, properties: detail, ttl: None };
        Ok((event, item))
    }

    fn seal(&self, tenant: &TenantId, token: &TaskToken) -> Result<NewToken, EngineError> {
        Ok(self.inner.tokens.seal(tenant, token)?)
    }

    /// A token for a task that is parked here. Nobody gets it.
    pub fn mint_park_token(&self, tenant: &TenantId) -> Result<NewToken, EngineError> {
        let token = self.inner.tokens.mint()?;
        self.seal(tenant, &token)
    }

    /// Changes the state of errors: of a code, of an execution, or of a code in an execution.
    pub async fn mark_errors(
        &self,
        tenant: TenantId,
        scope: ErrorScope,
        mark: ErrorMark,
        by: Option<String>,
        reason: Option<String>,
    ) -> Result<Marked, EngineError> {
        self.check_marked(&tenant, &scope).await?;
        let (event, item) = self.mark_event(&scope, mark, by, reason)?;
        let app = AppName::trusted("tidemill");
        let context = self.context_of("producer-api");
        let stored = self.publish_all(tenant, app, context, vec![(event, Some(item))]).await?;
        let event = stored.events.first().map(|(event, ..)| *event);
        let event = event.ok_or_else(|| EngineError::invalid("events", "are none"))?;
        Ok(Marked { event, changed: stored.changed })
    }

    async fn check_marked(&self, tenant: &TenantId, scope: &ErrorScope) -> Result<(), EngineError> {
        if let Some(execution) = scope.execution() {
            let key = RecordKey::triage_execution(tenant, execution);
            if self.inner.backend.record(key).await?.is_none() {
                return Err(Refusal::NotFound { what: "execution", id: execution.to_string() }.into());
            }
        }
        if let Some(code) = scope.code() {
            let is_known =
                self.inner.backend.look(|state| state.triage().group(tenant, code).is_some()).await?;
            if !is_known {
                return Err(Refusal::NotFound { what: "error code", id: code.to_string() }.into());
            }
        }
        Ok(())
    }

    /// The event that tells a mark.
    pub(crate) fn mark_event(
        &self,
        scope: &ErrorScope,
        mark: ErrorMark,
        by: Option<String>,
        reason: Option<String>,
    ) -> Result<(NewEvent, WorkflowItem), EngineError> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Told<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            execution_id: Option<&'a WorkflowRunId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error_code: Option<&'a ErrorCode>,
            #[serde(skip_serializing_if = "Option::is_none")]
            by: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            until: Option<Timestamp>,
            #[serde(skip_serializing_if = "Option::is_none")]
            until_occurrences: Option<u64>,
        }
        check_words(by.as_deref(), reason.as_deref())?;
        let own = self.inner.families.own();
        let mut until = crate::triage::Until::default();
        let event_type = match mark {
            ErrorMark::Resolve => EventType::trusted(own.name(MessageKind::Resolved)),
            ErrorMark::Unrecoverable => EventType::trusted(own.name(MessageKind::FailedToResolve)),
            ErrorMark::Reopen => KnownType::ErrorReopened.event_type(),
            ErrorMark::Ignore(given) => {
                if scope.execution().is_some() {
                    return Err(EngineError::invalid("executionId", "cannot be ignored: name a code only"));
                }
                if given.occurrences == Some(0) {
                    return Err(EngineError::invalid("untilCount", "must be at least 1"));
                }
                if given.time.is_some_and(|time| time <= self.inner.clock.now()) {
                    return Err(EngineError::invalid("until", "is not in the future"));
                }
                until = given;
                KnownType::ErrorIgnored.event_type()
            }
        };
        let told = Told {
            execution_id: scope.execution(),
            error_code: scope.code(),
            by: by.as_deref(),
            reason: reason.as_deref(),
            until: until.time,
            until_occurrences: until.occurrences,
        };
        let properties = Json::of(&told);
        let (entity, mut item) = of_scope(scope, mark, None);
        if let WorkflowItem::Mark(item) = &mut item {
            (item.by, item.reason) = (by.map(Arc::from), reason.map(Arc::from));
        }
        Ok((NewEvent { entity, event_type, timestamp: None, properties, ttl: None }, item))
    }

    /// The token with this digest, for the sender that notifies its owner. `None` if there is none.
    pub async fn token(
        &self,
        tenant: &TenantId,
        digest: &Arc<str>,
    ) -> Result<Option<TaskToken>, EngineError> {
        let stored = self.inner.backend.record(RecordKey::token(tenant, digest)).await?;
        match stored.map(|record| record.value) {
            Some(RecordValue::Token(stored)) => Ok(Some(self.inner.tokens.open(tenant, &stored.sealed)?)),
            _ => Ok(None),
        }
    }

    /// What became of a token, for its holder.
    pub async fn token_outcome(
        &self,
        tenant: &TenantId,
        token: &TaskToken,
    ) -> Result<TokenOutcome, EngineError> {
        let digest: Arc<str> = Arc::from(token.digest());
        let unknown = || Refusal::NotFound { what: "token", id: "given".to_owned() };
        let stored = self.inner.backend.record(RecordKey::token(tenant, &digest)).await?;
        let Some(RecordValue::Token(stored)) = stored.map(|record| record.value) else {
            return Err(unknown().into());
        };
        match stored.state {
            TokenState::Unused => return Ok(TokenOutcome::Waiting),
            TokenState::Replaced | TokenState::None => return Ok(TokenOutcome::Replaced),
            TokenState::Used | TokenState::Expired => {}
        }
        if let Some(outcome) = stored.outcome {
            return Ok(TokenOutcome::Ended(outcome));
        }
        let known = self.known_execution(tenant, &stored.execution).await?;
        let known = known.filter(|known| known.token_digest.as_ref() == Some(&digest));
        Ok(known.and_then(|known| known.outcome).map_or(TokenOutcome::Replaced, TokenOutcome::Ended))
    }

    /// The same, once it does not wait any more.
    pub async fn wait_for_outcome(
        &self,
        tenant: &TenantId,
        token: &TaskToken,
    ) -> Result<TokenOutcome, EngineError> {
        let ended = self.inner.backend.notices().triage_ended;
        loop {
            let heard = ended.listen();
            match self.token_outcome(tenant, token).await? {
                TokenOutcome::Waiting => heard.await,
                outcome => return Ok(outcome),
            }
        }
    }

    pub(crate) async fn known_execution(
        &self,
        tenant: &TenantId,
        id: &WorkflowRunId,
    ) -> Result<Option<TriageExecution>, EngineError> {
        let record = self.inner.backend.record(RecordKey::triage_execution(tenant, id)).await?;
        Ok(match record.map(|record| record.value) {
            Some(RecordValue::TriageExecution(known)) => Some(Arc::unwrap_or_clone(known)),
            _ => None,
        })
    }
}

fn token_of(message: &WorkflowMessage) -> Option<&TaskToken> {
    match &message.body {
        WorkflowBody::Status(status) => status.token.as_ref(),
        _ => None,
    }
}

/// Takes the tokens of all events of a call out of each of them. It is done after a repetition is known by its content,
/// which must not depend on what came beside it. An id with a token in it is refused, by the name that the field has
/// in its list.
pub(crate) fn cut_tokens<'e>(
    tokens: &[TaskToken],
    list: &str,
    within: &str,
    events: impl ExactSizeIterator<Item = (&'e mut NewEvent, Option<&'e mut WorkflowItem>)>,
) -> Result<(), EngineError> {
    // Its own token was taken out of each when it was read.
    if tokens.is_empty() || events.len() < 2 {
        return Ok(());
    }
    let cleaner = TokenCleaner::of(tokens);
    for (at, (event, item)) in events.enumerate() {
        event.properties = cleaner.clean(std::mem::take(&mut event.properties));
        let refused = |field: &str| EngineError::invalid(format!("{list}[{at}]{within}.{field}"), IN_AN_ID);
        let holds = |text: &str| cleaner.is_in(text);
        match item {
            Some(WorkflowItem::Status(item)) => {
                if holds(item.execution.as_str()) {
                    return Err(refused("executionId"));
                }
                if let Some(error) = item.errors.iter().position(|code| holds(code.as_str())) {
                    return Err(refused(&format!("errors[{error}].code")));
                }
                let clean = |text: &mut Arc<str>| *text = Arc::from(cleaner.clean_text(text.to_string()));
                let cell = &mut item.cell;
                [&mut cell.county, &mut cell.phase, &mut cell.step].into_iter().for_each(clean);
                cell.data_group_label.iter_mut().for_each(clean);
            }
            Some(WorkflowItem::Mark(item)) => {
                if item.execution.as_ref().is_some_and(|id| holds(id.as_str())) {
                    return Err(refused("executionId"));
                }
                if item.code.as_ref().is_some_and(|code| holds(code.as_str())) {
                    return Err(refused("errorCode"));
                }
            }
            None => {}
        }
    }
    Ok(())
}

/// A message as it would come from a bus.
#[derive(Serialize)]
struct Envelope<'a> {
    source: &'a str,
    #[serde(rename = "detail-type")]
    detail_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<u64>,
    detail: &'a Json,
}

fn entity(kind: &str, id: &str) -> Entity {
    Entity { kind: EntityType::trusted(kind), id: EntityId::trusted(id) }
}

fn of_scope(scope: &ErrorScope, mark: ErrorMark, once: Option<[u8; 32]>) -> (Entity, WorkflowItem) {
    let (execution, code) = (scope.execution().cloned(), scope.code().cloned());
    let entity = match (&execution, &code) {
        (Some(execution), _) => entity(WORKFLOW_ENTITY, execution.as_str()),
        (None, code) => entity(ERROR_ENTITY, code.as_ref().map_or("-", ErrorCode::as_str)),
    };
    let item = MarkItem { once, execution, code, mark, by: None, reason: None };
    (entity, WorkflowItem::Mark(Box::new(item)))
}

pub(crate) fn check_words(by: Option<&str>, reason: Option<&str>) -> Result<(), EngineError> {
    by.map_or(Ok(()), |by| check::name("by", by))?;
    reason.map_or(Ok(()), |reason| check::text("reason", reason))
}

pub(crate) fn check_action(action: &BulkAction) -> Result<(), EngineError> {
    match action {
        BulkAction::Resume { output, .. } => {
            check::size("output", output.len(), RESUME_BYTES_MAX)?;
            check::value("output", output)
        }
        BulkAction::Fail { error, cause } => {
            if error.is_empty() {
                return Err(EngineError::invalid("error", "is empty"));
            }
            check::text("error", error)?;
            let length = cause.chars().count();
            if length > TEXT_CHARS_MAX {
                let problem = format!("is {length} characters long; the limit is {TEXT_CHARS_MAX}");
                return Err(EngineError::invalid("cause", problem));
            }
            Ok(())
        }
    }
}
