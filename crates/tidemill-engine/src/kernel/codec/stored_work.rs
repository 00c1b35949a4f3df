//! What is stored of jobs, tasks, messages, records and rows. The rules are those of `stored`: add, never reorder, never reuse.

use crate::kernel::commit::{
    Delivered, Message, NewJob, NewTask, RecordWrite, TaskChange, TaskChangeKind, TaskKey, Visibility,
};
use crate::kernel::record::{
    DeadLetter, DeadLetterState, Effect, Idempotency, Record, RecordKey, RecordKind, RecordValue,
};
use crate::kernel::state::job::{JobHead, KeptTask};
use crate::kernel::state::queue::Queued;
use crate::kernel::state::row::{Row, RowKey, StoredTask};
use crate::kernel::state::stream::{Late, Stream};
use crate::kernel::state::trail::{History, Seq, Trail};
use crate::outbound::{Delivery, DeliveryLetter, FailedJob, FailedJobs, Target};
use crate::scripts::execution::{ExecutionStatus, RunError, ScriptExecution, ScriptLetter, SourceEvent};
use tidemill_model::{
    Allowance, Budget, Entity, ErrorCategory, JobCounts, LastError, Lease, OnFailure, Outcome, Owner, Period,
    Position, RetryPolicy, Spending, TaskHead, TaskOptions, TaskSpec, TaskState, TenantBudget, UsageSum,
};

use crate::kernel::codec::bytes::{BadBytes, Reader, put_varint};
use crate::kernel::codec::stored::{Stored, stored_choice, stored_struct, stored_word};
use crate::kernel::codec::version_1;
use crate::kernel::codec::wire::{
    BYTES, CHOICE, END, NUMBER, STRUCT, next_field, present, put_field, put_sized, skip, take_field,
};

/// How many there are, then its stops, each as the distance to the one before.
impl Stored for Trail {
    const FORM: u8 = BYTES;
    fn put(&self, out: &mut Vec<u8>) {
        put_sized(out, |out| {
            put_varint(out, self.count());
            let mut last = 0;
            for stop in self.stops() {
                put_varint(out, stop.0 - last);
                last = stop.0;
            }
        });
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let length = usize::try_from(from.varint()?).map_err(|_| BadBytes("holds bytes without end"))?;
        let mut inner = Reader::new(from.take(length)?);
        let count = inner.varint()?;
        let (mut last, mut stops) = (0u64, Vec::with_capacity(inner.rest().len() / 2));
        while !inner.is_at_end() {
            last = last.checked_add(inner.varint()?).ok_or(BadBytes("holds a place without end"))?;
            stops.push(Seq(last));
        }
        Self::from_parts(count, stops).ok_or(BadBytes("holds a trail that cannot be"))
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        version_1::trail(from)
    }
    fn is_absent(&self) -> bool {
        self.count() == 0 && self.stops().is_empty()
    }
    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

stored_struct!(History { 1 = main, 2 = aside });
stored_struct!(Position { 1 = timestamp, 2 = id });
stored_struct!(Late { 1 = last, 2 = lag_millis });
stored_struct!(Stream { 1 = history, 2 = last, 3 = late });
stored_struct!(RetryPolicy { 1 = max_attempts, 2 = first_delay, 3 = max_delay } later { 4 = on_timeout });
stored_struct!(TaskSpec { 1 = task_id, 2 = name, 3 = depends_on, 4 = input, 5 = options });
stored_struct!(TaskKey { 1 = tenant, 2 = request });
stored_struct!(NewJob { 1 = tenant, 2 = app, 3 = job, 4 = request, 5 = name, 6 = created_at, 7 = tasks });
stored_struct!(NewTask { 1 = tenant, 2 = app, 3 = request, 4 = spec });
stored_struct!(Message { 1 = id, 2 = task, 3 = run, 4 = not_before, 5 = priority, 6 = key } later { 7 = wait_millis });
stored_struct!(Visibility { 1 = message, 2 = visible_at, 3 = delivered } later { 4 = wait_millis });
stored_struct!(TaskChange { 1 = task, 2 = kind });
stored_struct!(Owner { 1 = worker, 2 = generation });
stored_struct!(Lease { 1 = owner, 2 = until, 3 = claimed_at, 4 = heartbeats });
stored_struct!(KeptTask { 1 = head, 2 = stream, 3 = message });
stored_struct!(TaskOptions {
    1 = retry,
    2 = timeout_ms,
    3 = execution,
    4 = agent,
    5 = on_failure,
    6 = park_timeout_ms,
    7 = county,
} v1 version_1::task_options);
stored_struct!(TaskHead {
    1 = run,
    2 = attempts,
    3 = takeovers,
    4 = fence,
    5 = begun,
    6 = last_error,
    7 = state,
    8 = failed_fence,
    9 = session,
    10 = crashes,
    11 = reported,
    12 = letter,
    13 = reworked,
} v1 version_1::task_head);
stored_struct!(JobCounts {
    1 = waiting,
    2 = pending,
    3 = processing,
    4 = completed,
    5 = failed,
    6 = parked,
} v1 version_1::job_counts);
stored_struct!(JobHead {
    1 = tenant,
    2 = app,
    3 = job,
    4 = request,
    5 = name,
    6 = created_at,
    7 = completed_at,
    8 = cancelled,
    9 = counts,
    10 = stream,
    11 = version,
    12 = allowance,
    13 = hops,
    14 = callback,
} v1 version_1::job_head);
stored_struct!(StoredTask { 1 = alone, 2 = entry, 3 = index } v1 version_1::task_row);
stored_struct!(Queued { 1 = message, 2 = visible_at, 3 = deliveries, 4 = receives, 5 = wait_millis } v1 version_1::queued);
stored_struct!(RecordKey { 1 = kind, 2 = tenant, 3 = id });
stored_struct!(Record { 1 = version, 2 = expires_at, 3 = value });
stored_struct!(Idempotency { 1 = body_hash, 2 = effect });
stored_struct!(LastError { 1 = message, 2 = category, 3 = code });
stored_struct!(DeadLetter {
    1 = message,
    2 = request,
    3 = run,
    4 = reason,
    5 = since,
    6 = state,
} later { 7 = last_error });
stored_struct!(Entity { 1 = kind, 2 = id });
stored_struct!(SourceEvent {
    1 = id,
    2 = event_type,
    3 = timestamp,
    4 = app_name,
    5 = entity_type,
    6 = entity_id,
    7 = data,
    8 = hop,
});
stored_struct!(RunError { 1 = class, 2 = message, 3 = stack });
stored_struct!(ScriptExecution {
    1 = id,
    2 = script_id,
    3 = subscription_id,
    4 = event,
    5 = status,
    6 = attempts,
    7 = next_run_at,
    8 = created_at,
    9 = ended_at,
    10 = duration_ms,
    11 = error,
    12 = result,
    13 = logs,
    14 = replay_of,
});
stored_struct!(ScriptLetter {
    1 = id,
    2 = script_id,
    3 = subscription_id,
    4 = event,
    5 = error,
    6 = retry_count,
    7 = failed_at,
    8 = created_at,
    9 = state,
    10 = replayed_by,
});
stored_struct!(Delivery {
    1 = id,
    2 = target,
    3 = event,
    4 = body,
    5 = attempts,
    6 = next_try_at,
    7 = created_at,
    8 = error,
    9 = replay_of,
} later { 10 = failed_jobs });
stored_struct!(FailedJobs { 1 = count, 2 = named });
stored_struct!(FailedJob { 1 = job, 2 = name, 3 = task, 4 = tasks } later { 5 = run });
stored_struct!(DeliveryLetter {
    1 = id,
    2 = target,
    3 = event,
    4 = body,
    5 = error,
    6 = attempts,
    7 = failed_at,
    8 = created_at,
    9 = state,
    10 = replayed_by,
});
stored_struct!(UsageSum {
    1 = attempts,
    2 = tasks,
    3 = input_tokens,
    4 = output_tokens,
    5 = cache_read_tokens,
    6 = cache_write_tokens,
    7 = turns,
    8 = duration_ms,
    9 = cost_micros,
});
stored_struct!(Budget { 1 = usd, 2 = tokens });
stored_struct!(Spending { 1 = cost_micros, 2 = tokens });
stored_struct!(Allowance { 1 = budget, 2 = spent });
stored_struct!(TenantBudget { 1 = period, 2 = current, 3 = allowance });
stored_word!(ErrorCategory {
    1 => Timeout, 2 => Network, 3 => RateLimit, 4 => ServerError, 5 => Auth, 6 => Validation, 7 => Parse,
    8 => NotFound, 9 => Programming, 10 => Unknown, 11 => Cancelled,
});
stored_word!(Delivered { 0 => No, 1 => Claimed, 2 => Received });
stored_word!(Outcome { 1 => Completed, 2 => Failed, 3 => TimedOut, 4 => Cancelled });
stored_choice!(TaskState { 1 => Queued, 2 => Leased(1 = lease), 3 => Parked, 4 => Done(1 = outcome) });
stored_choice!(TaskChangeKind {
    1 => Dispatch,
    2 => Acquire { 1 = fence, 2 = owner, 3 = until, 4 = at, 5 = takeover },
    3 => Begin { 1 = fence },
    4 => Renew { 1 = fence, 2 = until },
    5 => Release { 1 = fence, 2 = failed },
    6 => Revoke { 1 = fence },
    7 => Finish { 1 = fence, 2 = outcome, 3 = attempts, 4 = error },
    8 => Reopen { 1 = run },
    9 => Shorten { 1 = fence, 2 = until },
    10 => Session { 1 = fence, 2 = session },
    11 => Park { 1 = fence, 2 = attempts, 3 = error },
    12 => Interrupt { 1 = fence },
    13 => Reported { 1 = fence, 2 = digest },
    14 => Bury { 1 = letter },
    15 => Rework { 1 = fence },
});
stored_word!(OnFailure { 0 => Fail, 1 => Park });
stored_choice!(RecordWrite {
    1 => Job(1 = job),
    2 => JobTasks { 1 = tenant, 2 = job, 3 = tasks },
    3 => JobCancelled { 1 = tenant, 2 = job, 3 = cancelled },
    4 => Task(1 = task),
    5 => Put { 1 = key, 2 = record },
    6 => JobAllowance { 1 = tenant, 2 = job, 3 = allowance },
    7 => JobHops { 1 = tenant, 2 = job, 3 = hops },
    8 => JobCallback { 1 = tenant, 2 = job, 3 = url },
    9 => JobSpecs { 1 = tenant, 2 = job, 3 = specs },
    10 => AloneSpec { 1 = task, 2 = spec },
});
stored_word!(RecordKind {
    1 => Idempotency, 2 => DeadLetter, 3 => Definition, 4 => Cursor, 5 => Script, 6 => Subscription,
    7 => Execution, 8 => ApiKey, 9 => Triage, 10 => Schedule, 11 => System, 12 => Usage, 13 => Budget,
    14 => ErrorGroup, 15 => Parked, 16 => Token, 17 => Bulk, 18 => Delivery,
});
stored_choice!(RecordValue {
    1 => Bytes(1 = bytes),
    2 => Idempotency(1 = idempotency),
    3 => DeadLetter(1 = letter),
    4 => Usage(1 = sum),
    5 => Budget(1 = budget),
    6 => Execution(1 = execution),
    7 => ScriptLetter(1 = letter),
    8 => ErrorGroup(1 = group),
    9 => TriageError(1 = error),
    10 => TriageExecution(1 = execution),
    11 => Parked(1 = parked),
    12 => Token(1 = token),
    13 => Bulk(1 = bulk),
    14 => Delivery(1 = delivery),
    15 => DeliveryLetter(1 = letter),
});
stored_choice!(Target {
    1 => Workflow,
    2 => Callback(1 = url),
    3 => People,
    4 => AlertWebhook,
    5 => Bus,
    6 => TaskToken,
});
stored_word!(ExecutionStatus { 1 => Queued, 2 => Retrying, 3 => Success, 4 => DeadLetter });
stored_word!(Period { 1 => Total, 2 => Day, 3 => Month });
stored_choice!(Effect { 1 => Job(1 = job), 2 => Task(1 = request), 3 => Event(1 = event) });
stored_word!(DeadLetterState { 1 => Open, 2 => Replayed, 3 => Discarded });
stored_choice!(RowKey {
    1 => Task(1 = task),
    2 => Job(1 = tenant, 2 = job),
    3 => JobTasks(1 = tenant, 2 = job, 3 = first),
    4 => Message(1 = message),
    5 => Record(1 = record),
    6 => Entity(1 = tenant, 2 = entity),
});
stored_choice!(Row {
    1 => Task(1 = task),
    2 => Job(1 = job),
    3 => JobTasks(1 = tasks),
    4 => Message(1 = message),
    5 => Record(1 = record),
    6 => Entity(1 = stream),
});

#[cfg(test)]
mod tests;
