//! How the engine's values are written as bytes in control entries and rows.
//!
//! Field order and tags are a promise to every data directory that exists: append, never reorder. Each entry and row
//! starts with a version byte, written by the caller.

use std::sync::Arc;

use crate::commit::{
    Delivered, Message, MessageId, NewJob, NewTask, RecordWrite, TaskChange, TaskChangeKind, TaskKey,
    Visibility,
};
use crate::execution::{ExecutionId, ExecutionStatus, RunError, ScriptExecution, ScriptLetter, SourceEvent};
use crate::outbound::{Delivery, DeliveryId, DeliveryLetter, Target};
use crate::record::{
    DeadLetter, DeadLetterState, Effect, Idempotency, Record, RecordKey, RecordKind, RecordValue,
};
use crate::state::job::{Entry, JobHead};
use crate::state::queue::Queued;
use crate::state::row::{Row, RowKey, TaskRow};
use crate::state::stream::{Late, Stream};
use crate::state::trail::{History, Seq, Trail};
use tidemill_model::{
    Allowance, AppName, Budget, Entity, EntityId, EntityType, ErrorCategory, EventId, EventType, Fence,
    JobCounts, JobId, Json, Lease, MicroUsd, OnFailure, Outcome, Owner, Period, Position, RequestId,
    RetryPolicy, ScriptId, SessionId, Spending, SubscriptionId, TaskHead, TaskId, TaskName, TaskOptions,
    TaskSpec, TaskState, TenantBudget, TenantId, Timestamp, UsageSum,
};

use super::bytes::{BadBytes, Reader, put_varint, unzigzag, zigzag};

/// A value that can be written and read back.
pub trait Stored: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes>;
}

/// Reads one value that fills `bytes`.
pub fn read_all<T: Stored>(bytes: &[u8]) -> Result<T, BadBytes> {
    let mut reader = Reader::new(bytes);
    let value = T::take(&mut reader)?;
    if reader.is_at_end() { Ok(value) } else { Err(BadBytes("goes on after its end")) }
}

macro_rules! stored_struct {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl Stored for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                $(let $field = Stored::take(from)?;)+
                Ok(Self { $($field),+ })
            }
        }
    };
}

/// An enum whose variants are told apart by a byte.
macro_rules! stored_enum {
    ($name:ident { $($tag:literal => $variant:ident $( { $($field:ident),+ $(,)? } )? $( ( $($part:ident),+ ) )? ),+ $(,)? }) => {
        impl Stored for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $( { $($field),+ } )? $( ( $($part),+ ) )? => {
                        out.push($tag);
                        $( $($field.put(out);)+ )?
                        $( $($part.put(out);)+ )?
                    })+
                }
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                Ok(match from.byte()? {
                    $($tag => {
                        $( $(let $field = Stored::take(from)?;)+ )?
                        $( $(let $part = Stored::take(from)?;)+ )?
                        Self::$variant $( { $($field),+ } )? $( ( $($part),+ ) )?
                    })+
                    _ => return Err(BadBytes(concat!("holds an unknown kind of ", stringify!($name)))),
                })
            }
        }
    };
}

macro_rules! stored_text {
    ($($name:ident),+ $(,)?) => {
        $(impl Stored for $name {
            fn put(&self, out: &mut Vec<u8>) {
                put_str(out, self.as_str());
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
                from.text().map($name::trusted)
            }
        })+
    };
}

pub(super) fn put_str(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub(super) use {stored_enum, stored_struct, stored_text};

stored_text!(
    TenantId,
    AppName,
    RequestId,
    TaskId,
    TaskName,
    EntityId,
    EntityType,
    EventType,
    SessionId,
    ScriptId,
    SubscriptionId,
);

impl Stored for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.varint()
    }
}

impl Stored for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(*self));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Self::try_from(from.varint()?).map_err(|_| BadBytes("holds a number of more than 32 bits"))
    }
}

impl Stored for i32 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, zigzag(i64::from(*self)));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Self::try_from(unzigzag(from.varint()?)).map_err(|_| BadBytes("holds a number of more than 32 bits"))
    }
}

impl Stored for u128 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.array().map(Self::from_le_bytes)
    }
}

impl Stored for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        match from.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadBytes("holds neither yes nor no")),
        }
    }
}

impl Stored for [u8; 32] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.array()
    }
}

impl Stored for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.millis());
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Self::new("timestamp", from.varint()?).map_err(|_| BadBytes("holds a time without 13 digits"))
    }
}

impl Stored for JobId {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_u128().put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        u128::take(from).map(Self::from_u128)
    }
}

impl Stored for ExecutionId {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_u128().put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        u128::take(from).map(Self::from_u128)
    }
}

impl Stored for DeliveryId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Stored::take(from).map(Self)
    }
}

impl Stored for MessageId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        u128::take(from).map(Self)
    }
}

impl Stored for Fence {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        u64::take(from).map(Self)
    }
}

impl Stored for MicroUsd {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        u64::take(from).map(Self)
    }
}

impl Stored for Seq {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        u64::take(from).map(Self)
    }
}

impl Stored for Json {
    fn put(&self, out: &mut Vec<u8>) {
        put_str(out, self.as_str());
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.text().map(Self::trusted)
    }
}

impl Stored for Arc<str> {
    fn put(&self, out: &mut Vec<u8>) {
        put_str(out, self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        from.text().map(Arc::from)
    }
}

impl Stored for Arc<[u8]> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        out.extend_from_slice(self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let length = usize::try_from(from.varint()?).map_err(|_| BadBytes("holds bytes without end"))?;
        from.take(length).map(Arc::from)
    }
}

impl<T: Stored> Stored for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        T::take(from).map(Self::new)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for value in self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let length = from.varint()?;
        // A value takes at least a byte, so a damaged length cannot ask for more memory than there are bytes.
        if length > from.rest().len() as u64 {
            return Err(BadBytes("holds a list without end"));
        }
        (0..length).map(|_| T::take(from)).collect()
    }
}

impl Stored for Trail {
    fn put(&self, out: &mut Vec<u8>) {
        self.count().put(out);
        put_varint(out, self.stops().len() as u64);
        let mut last = 0;
        for stop in self.stops() {
            put_varint(out, stop.0 - last);
            last = stop.0;
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let count = from.varint()?;
        let length = from.varint()?;
        if length > from.rest().len() as u64 {
            return Err(BadBytes("holds a list without end"));
        }
        let mut last = 0u64;
        let mut stops = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        for _ in 0..length {
            last = last.checked_add(from.varint()?).ok_or(BadBytes("holds a place without end"))?;
            stops.push(Seq(last));
        }
        Self::from_parts(count, stops).ok_or(BadBytes("holds a trail that cannot be"))
    }
}

impl Stored for Queued {
    fn put(&self, out: &mut Vec<u8>) {
        self.message.put(out);
        self.visible_at.put(out);
        self.deliveries.put(out);
        self.receives.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let (message, visible_at, deliveries) =
            (Stored::take(from)?, Stored::take(from)?, Stored::take(from)?);
        // It stands at the end of its row, which once ended before the last number.
        let receives = if from.is_at_end() { 0 } else { Stored::take(from)? };
        Ok(Self { message, visible_at, deliveries, receives })
    }
}

impl Stored for TaskRow {
    fn put(&self, out: &mut Vec<u8>) {
        self.alone.put(out);
        self.entry.put(out);
        self.index.put(out);
        let Some(head) = &self.entry.head else { return };
        // Each stands only if it or one behind it is there.
        let has_crashes = head.crashes > 0 || head.reported.is_some();
        if head.session.is_some() || has_crashes {
            // No session has an empty name.
            put_str(out, head.session.as_ref().map_or("", SessionId::as_str));
        }
        if has_crashes {
            head.crashes.put(out);
        }
        if let Some(digest) = &head.reported {
            digest.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let (alone, mut entry): (_, Entry) = (Stored::take(from)?, Stored::take(from)?);
        // It stands at the end of its row, which once ended before the place in the list.
        let index = if from.is_at_end() { None } else { Stored::take(from)? };
        if let Some(head) = entry.head.as_mut().filter(|_| !from.is_at_end()) {
            head.session = Some(from.text()?).filter(|name| !name.is_empty()).map(SessionId::trusted);
            head.crashes = if from.is_at_end() { 0 } else { Stored::take(from)? };
            head.reported = if from.is_at_end() { None } else { Some(Stored::take(from)?) };
        }
        Ok(Self { alone, entry, index })
    }
}

stored_struct!(History { main, aside });
impl Stored for EventId {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_u128().put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        u128::take(from).map(Self::from_u128)
    }
}

impl<T: Stored> Stored for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        T::take(from).map(Self::new)
    }
}

stored_struct!(Position { timestamp, id });
stored_struct!(Late { last, lag_millis });
stored_struct!(Stream { history, last, late });
stored_struct!(RetryPolicy { max_attempts, first_delay, max_delay });

/// Whether an agent carries a task out, and whether more follows, stands in the byte that says whether an execution follows.
const HAS_EXECUTION: u8 = 1;
const IS_AGENT: u8 = 2;
/// What becomes of the task when it fails, and its county, follow the execution.
const HAS_PARKING: u8 = 4;

impl Stored for TaskOptions {
    fn put(&self, out: &mut Vec<u8>) {
        self.retry.put(out);
        self.timeout_ms.put(out);
        let has_execution = if self.execution.is_some() { HAS_EXECUTION } else { 0 };
        let parking = (self.on_failure, self.park_timeout_ms, self.county.as_deref());
        let has_parking = parking != (OnFailure::Fail, None, None);
        let agent = if self.agent { IS_AGENT } else { 0 };
        out.push(has_execution | agent | if has_parking { HAS_PARKING } else { 0 });
        if let Some(execution) = &self.execution {
            execution.put(out);
        }
        if has_parking {
            self.on_failure.put(out);
            self.park_timeout_ms.put(out);
            self.county.as_deref().map(Arc::<str>::from).put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let (retry, timeout_ms) = (Stored::take(from)?, Stored::take(from)?);
        let what = from.byte()?;
        if what & !(HAS_EXECUTION | IS_AGENT | HAS_PARKING) != 0 {
            return Err(BadBytes("holds options that are none"));
        }
        let execution = if what & HAS_EXECUTION != 0 { Some(Stored::take(from)?) } else { None };
        let mut options =
            Self { retry, timeout_ms, execution, agent: what & IS_AGENT != 0, ..Self::default() };
        if what & HAS_PARKING != 0 {
            options.on_failure = Stored::take(from)?;
            options.park_timeout_ms = Stored::take(from)?;
            options.county = <Option<Arc<str>> as Stored>::take(from)?.map(|county| county.to_string());
        }
        Ok(options)
    }
}

stored_struct!(TaskSpec { task_id, name, depends_on, input, options });
stored_struct!(TaskKey { tenant, request });
stored_struct!(NewJob { tenant, app, job, request, name, created_at, tasks });
stored_struct!(NewTask { tenant, app, request, spec });
stored_struct!(Message { id, task, run, not_before, priority, key });
stored_struct!(Visibility { message, visible_at, delivered });
stored_struct!(TaskChange { task, kind });
stored_struct!(Owner { worker, generation });
stored_struct!(Lease { owner, until, claimed_at, heartbeats });

/// What is missing here stands at the end of the task's row, where it does not change the shape of what was there before.
impl Stored for TaskHead {
    fn put(&self, out: &mut Vec<u8>) {
        self.run.put(out);
        self.attempts.put(out);
        self.takeovers.put(out);
        self.fence.put(out);
        self.begun.put(out);
        self.last_error.put(out);
        self.state.put(out);
        self.failed_fence.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            run: Stored::take(from)?,
            attempts: Stored::take(from)?,
            takeovers: Stored::take(from)?,
            fence: Stored::take(from)?,
            begun: Stored::take(from)?,
            last_error: Stored::take(from)?,
            state: Stored::take(from)?,
            failed_fence: Stored::take(from)?,
            session: None,
            crashes: 0,
            reported: None,
        })
    }
}

stored_struct!(Entry { head, stream, message });

/// How many are parked stands at the end of the job's row, where it does not change the shape of what was there before.
impl Stored for JobCounts {
    fn put(&self, out: &mut Vec<u8>) {
        self.waiting.put(out);
        self.pending.put(out);
        self.processing.put(out);
        self.completed.put(out);
        self.failed.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            waiting: Stored::take(from)?,
            pending: Stored::take(from)?,
            processing: Stored::take(from)?,
            completed: Stored::take(from)?,
            failed: Stored::take(from)?,
            parked: 0,
        })
    }
}

impl Stored for JobHead {
    fn put(&self, out: &mut Vec<u8>) {
        self.tenant.put(out);
        self.app.put(out);
        self.job.put(out);
        self.request.put(out);
        self.name.put(out);
        self.created_at.put(out);
        self.completed_at.put(out);
        self.cancelled.put(out);
        self.counts.put(out);
        self.stream.put(out);
        self.version.put(out);
        if let Some(allowance) = &self.allowance {
            allowance.put(out);
        }
        let has_callback = self.callback.is_some();
        let has_parked = self.counts.parked > 0 || has_callback;
        if self.hops > 0 || has_parked {
            if self.allowance.is_none() {
                out.push(NO_ALLOWANCE);
            }
            self.hops.put(out);
        }
        if has_parked {
            self.counts.parked.put(out);
        }
        if let Some(callback) = &self.callback {
            callback.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let mut head = Self {
            tenant: Stored::take(from)?,
            app: Stored::take(from)?,
            job: Stored::take(from)?,
            request: Stored::take(from)?,
            name: Stored::take(from)?,
            created_at: Stored::take(from)?,
            completed_at: Stored::take(from)?,
            cancelled: Stored::take(from)?,
            counts: Stored::take(from)?,
            stream: Stored::take(from)?,
            version: Stored::take(from)?,
            allowance: None,
            hops: 0,
            callback: None,
        };
        // These stand at the end of the row, which ends before them when there are none.
        match from.rest().first() {
            None => return Ok(head),
            Some(&NO_ALLOWANCE) => {
                from.byte()?;
            }
            Some(_) => head.allowance = Some(Stored::take(from)?),
        }
        if !from.is_at_end() {
            head.hops = Stored::take(from)?;
        }
        if !from.is_at_end() {
            head.counts.parked = Stored::take(from)?;
        }
        if !from.is_at_end() {
            head.callback = Some(Stored::take(from)?);
        }
        Ok(head)
    }
}

/// Stands where an allowance would. One begins with whether it has a limit in dollars, 0 or 1.
const NO_ALLOWANCE: u8 = 2;

stored_struct!(RecordKey { kind, tenant, id });
stored_struct!(Record { version, expires_at, value });
stored_struct!(Idempotency { body_hash, effect });
stored_struct!(DeadLetter { message, request, run, reason, since, state });
stored_struct!(Entity { kind, id });
stored_struct!(SourceEvent { id, event_type, timestamp, app_name, entity_type, entity_id, data, hop });
stored_struct!(RunError { class, message, stack });
stored_struct!(ScriptExecution {
    id,
    script_id,
    subscription_id,
    event,
    status,
    attempts,
    next_run_at,
    created_at,
    ended_at,
    duration_ms,
    error,
    result,
    logs,
    replay_of,
});
stored_struct!(ScriptLetter {
    id,
    script_id,
    subscription_id,
    event,
    error,
    retry_count,
    failed_at,
    created_at,
    state,
    replayed_by,
});
stored_struct!(Delivery { id, target, event, body, attempts, next_try_at, created_at, error, replay_of });
stored_struct!(DeliveryLetter {
    id,
    target,
    event,
    body,
    error,
    attempts,
    failed_at,
    created_at,
    state,
    replayed_by,
});
stored_struct!(UsageSum {
    attempts,
    tasks,
    input_tokens,
    output_tokens,
    cache_read_tokens,
    cache_write_tokens,
    turns,
    duration_ms,
    cost_micros,
});
stored_struct!(Budget { usd, tokens });
stored_struct!(Spending { cost_micros, tokens });
stored_struct!(Allowance { budget, spent });
stored_struct!(TenantBudget { period, current, allowance });

stored_enum!(ErrorCategory {
    1 => Timeout, 2 => Network, 3 => RateLimit, 4 => ServerError, 5 => Auth, 6 => Validation, 7 => Parse,
    8 => NotFound, 9 => Programming, 10 => Unknown, 11 => Cancelled,
});
stored_enum!(Delivered { 0 => No, 1 => Claimed, 2 => Received });
stored_enum!(Outcome { 1 => Completed, 2 => Failed, 3 => TimedOut, 4 => Cancelled });
stored_enum!(TaskState { 1 => Queued, 2 => Leased(lease), 3 => Parked, 4 => Done(outcome) });
stored_enum!(TaskChangeKind {
    1 => Dispatch,
    2 => Acquire { fence, owner, until, at, takeover },
    3 => Begin { fence },
    4 => Renew { fence, until },
    5 => Release { fence, failed },
    6 => Revoke { fence },
    7 => Finish { fence, outcome, attempts, error },
    8 => Reopen { run },
    9 => Shorten { fence, until },
    10 => Session { fence, session },
    11 => Park { fence, attempts, error },
    12 => Interrupt { fence },
    13 => Reported { fence, digest },
});
stored_enum!(OnFailure { 0 => Fail, 1 => Park });
stored_enum!(RecordWrite {
    1 => Job(job),
    2 => JobTasks { tenant, job, tasks },
    3 => JobCancelled { tenant, job, cancelled },
    4 => Task(task),
    5 => Put { key, record },
    6 => JobAllowance { tenant, job, allowance },
    7 => JobHops { tenant, job, hops },
    8 => JobCallback { tenant, job, url },
});
stored_enum!(RecordKind {
    1 => Idempotency, 2 => DeadLetter, 3 => Definition, 4 => Cursor, 5 => Script, 6 => Subscription,
    7 => Execution, 8 => ApiKey, 9 => Triage, 10 => Schedule, 11 => System,
    12 => Usage, 13 => Budget, 14 => ErrorGroup, 15 => Parked, 16 => Token, 17 => Bulk, 18 => Delivery,
});
stored_enum!(RecordValue {
    1 => Bytes(bytes),
    2 => Idempotency(idempotency),
    3 => DeadLetter(letter),
    4 => Usage(sum),
    5 => Budget(budget),
    6 => Execution(execution),
    7 => ScriptLetter(letter),
    8 => ErrorGroup(group),
    9 => TriageError(error),
    10 => TriageExecution(execution),
    11 => Parked(parked),
    12 => Token(token),
    13 => Bulk(bulk),
    14 => Delivery(delivery),
    15 => DeliveryLetter(letter),
});
stored_enum!(Target { 1 => Workflow, 2 => Callback(url), 3 => People, 4 => AlertWebhook, 5 => Bus, 6 => TaskToken });
stored_enum!(ExecutionStatus { 1 => Queued, 2 => Retrying, 3 => Success, 4 => DeadLetter });
stored_enum!(Period { 1 => Total, 2 => Day, 3 => Month });
stored_enum!(Effect { 1 => Job(job), 2 => Task(request), 3 => Event(event) });
stored_enum!(DeadLetterState { 1 => Open, 2 => Replayed, 3 => Discarded });
stored_enum!(RowKey {
    1 => Task(task),
    2 => Job(tenant, job),
    3 => JobTasks(tenant, job, first),
    4 => Message(message),
    5 => Record(record),
    6 => Entity(tenant, entity),
});
stored_enum!(Row {
    1 => Task(task),
    2 => Job(job),
    3 => JobTasks(tasks),
    4 => Message(message),
    5 => Record(record),
    6 => Entity(stream),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_its_last_number_is_read_as_never_received() {
        let task = TaskKey { tenant: TenantId::trusted("acme"), request: RequestId::trusted("t-1") };
        let not_before = Timestamp::MIN;
        let message = Message { id: MessageId(7), task, run: 1, not_before, priority: 0, key: None };
        let queued = Queued { message, visible_at: Timestamp::MAX, deliveries: 300, receives: 5 };
        let mut bytes = Vec::new();
        queued.put(&mut bytes);
        assert_eq!(read_all::<Queued>(&bytes), Ok(queued.clone()));
        bytes.pop();
        assert_eq!(read_all::<Queued>(&bytes), Ok(Queued { receives: 0, ..queued }));
        bytes.pop();
        assert!(read_all::<Queued>(&bytes).is_err(), "any less is damage");
    }

    #[test]
    fn options_without_an_agent_are_written_as_before() {
        let before = |execution: &Option<Json>| {
            let mut bytes = Vec::new();
            None::<RetryPolicy>.put(&mut bytes);
            Some(7_u64).put(&mut bytes);
            execution.put(&mut bytes);
            bytes
        };
        for execution in [None, Some(Json::empty_object())] {
            let plain =
                TaskOptions { timeout_ms: Some(7), execution: execution.clone(), ..TaskOptions::default() };
            let mut bytes = Vec::new();
            plain.put(&mut bytes);
            assert_eq!(bytes, before(&execution));
            assert_eq!(read_all::<TaskOptions>(&bytes), Ok(plain.clone()));
            let agent = TaskOptions { agent: true, ..plain };
            let mut bytes = Vec::new();
            agent.put(&mut bytes);
            assert_eq!(read_all::<TaskOptions>(&bytes), Ok(agent.clone()));
            let county = Some("Cook".to_owned());
            let park = (OnFailure::Park, Some(9), county.clone());
            for (on_failure, park_timeout_ms, county) in [park, (OnFailure::Fail, None, county)] {
                let parking = TaskOptions { on_failure, park_timeout_ms, county, ..agent.clone() };
                let mut bytes = Vec::new();
                parking.put(&mut bytes);
                assert_eq!(read_all::<TaskOptions>(&bytes), Ok(parking));
            }
        }
        assert!(read_all::<TaskOptions>(&[0, 0, 8]).is_err());
    }

    #[test]
    fn rows_without_a_session_or_an_allowance_end_where_they_ended() {
        let mut head = TaskHead { run: 2, ..TaskHead::dispatched() };
        let row = |head: &TaskHead| TaskRow {
            alone: None,
            entry: Entry { head: Some(head.clone()), ..Entry::default() },
            index: Some(3),
        };
        let bytes_of = |row: &TaskRow| {
            let mut bytes = Vec::new();
            row.put(&mut bytes);
            bytes
        };
        let plain = bytes_of(&row(&head));
        assert_eq!(read_all::<TaskRow>(&plain), Ok(row(&head)));
        head.session = Some(SessionId::trusted("s-1"));
        let longer = bytes_of(&row(&head));
        assert_eq!(&longer[..plain.len()], plain);
        assert_eq!(read_all::<TaskRow>(&longer), Ok(row(&head)));

        let mut job = JobHead {
            tenant: TenantId::trusted("acme"),
            app: AppName::trusted("shop"),
            job: JobId::from_u128(7),
            request: RequestId::trusted("r"),
            name: None,
            created_at: Timestamp::MIN,
            completed_at: None,
            cancelled: false,
            counts: JobCounts::default(),
            stream: Stream::default(),
            version: 300,
            allowance: None,
            hops: 0,
            callback: None,
        };
        let mut plain = Vec::new();
        job.put(&mut plain);
        assert_eq!(read_all::<JobHead>(&plain), Ok(job.clone()));
        let budget = Budget { usd: Some(MicroUsd(300)), tokens: None };
        let spent = Spending { cost_micros: 400, tokens: 5 };
        job.allowance = Some(Box::new(Allowance { budget, spent }));
        let mut longer = Vec::new();
        job.put(&mut longer);
        assert_eq!(&longer[..plain.len()], plain);
        assert_eq!(read_all::<JobHead>(&longer), Ok(job.clone()));
        for allowance in [job.allowance.clone(), None] {
            let hopped = JobHead { hops: 3, allowance, ..job.clone() };
            let mut bytes = Vec::new();
            hopped.put(&mut bytes);
            assert_eq!(read_all::<JobHead>(&bytes), Ok(hopped.clone()));
            for hops in [0, 3] {
                let mut parked = JobHead { hops, ..hopped.clone() };
                parked.counts.parked = 300;
                let mut bytes = Vec::new();
                parked.put(&mut bytes);
                assert_eq!(read_all::<JobHead>(&bytes), Ok(parked.clone()));
                for count in [0, 300] {
                    let mut told = JobHead { callback: Some(Arc::from("http://a/b")), ..parked.clone() };
                    told.counts.parked = count;
                    let mut bytes = Vec::new();
                    told.put(&mut bytes);
                    assert_eq!(read_all::<JobHead>(&bytes), Ok(told));
                }
            }
        }
    }
}
