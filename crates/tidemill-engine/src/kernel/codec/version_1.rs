//! What version 1 wrote in a way of its own: fields at the end of a row that were only there when they said something.
//!
//! Nothing writes this any more. Whatever else version 1 wrote has its fields in the order of their numbers.

use std::sync::Arc;

use crate::kernel::state::job::{JobHead, KeptTask};
use crate::kernel::state::queue::Queued;
use crate::kernel::state::row::StoredTask;
use crate::kernel::state::trail::{Seq, Trail};
use crate::triage::{ErrorGroup, Sample};
use tidemill_model::workflow::WorkflowRunId;
use tidemill_model::{Fence, JobCounts, SessionId, TaskHead, TaskOptions};

use crate::kernel::codec::bytes::{BadBytes, Reader};
use crate::kernel::codec::stored::{Stored, take_count};

pub(super) fn trail(from: &mut Reader<'_>) -> Result<Trail, BadBytes> {
    let count = from.varint()?;
    let length = take_count(from)?;
    let mut last = 0u64;
    let mut stops = Vec::with_capacity(length);
    for _ in 0..length {
        last = last.checked_add(from.varint()?).ok_or(BadBytes("holds a place without end"))?;
        stops.push(Seq(last));
    }
    Trail::from_parts(count, stops).ok_or(BadBytes("holds a trail that cannot be"))
}

pub(super) fn queued(from: &mut Reader<'_>) -> Result<Queued, BadBytes> {
    let (message, visible_at, deliveries) =
        (Stored::take_v1(from)?, Stored::take_v1(from)?, Stored::take_v1(from)?);
    // It stood at the end of its row, which once ended before the last number.
    let receives = if from.is_at_end() { 0 } else { Stored::take_v1(from)? };
    Ok(Queued { message, visible_at, deliveries, receives, wait_millis: 0 })
}

pub(super) fn task_row(from: &mut Reader<'_>) -> Result<StoredTask, BadBytes> {
    let (alone, mut entry): (_, KeptTask) = (Stored::take_v1(from)?, Stored::take_v1(from)?);
    // It stood at the end of its row, which once ended before the place in the list.
    let index = if from.is_at_end() { None } else { Stored::take_v1(from)? };
    if let Some(head) = entry.head.as_mut().filter(|_| !from.is_at_end()) {
        // Each stood only if it or one behind it was there. No session has an empty name.
        head.session = Some(from.text()?).filter(|name| !name.is_empty()).map(SessionId::trusted);
        head.crashes = if from.is_at_end() { 0 } else { Stored::take_v1(from)? };
        head.reported = if from.is_at_end() { None } else { Some(Stored::take_v1(from)?) };
    }
    Ok(StoredTask { alone, entry, index })
}

/// Whether an agent carries a task out, and whether more follows, stood in the byte that says whether an execution follows.
const HAS_EXECUTION: u8 = 1;
const IS_AGENT: u8 = 2;
/// What becomes of the task when it fails, and its county, followed the execution.
const HAS_PARKING: u8 = 4;

pub(super) fn task_options(from: &mut Reader<'_>) -> Result<TaskOptions, BadBytes> {
    let (retry, timeout_ms) = (Stored::take_v1(from)?, Stored::take_v1(from)?);
    let what = from.byte()?;
    if what & !(HAS_EXECUTION | IS_AGENT | HAS_PARKING) != 0 {
        return Err(BadBytes("holds options that are none"));
    }
    let execution = if what & HAS_EXECUTION != 0 { Some(Stored::take_v1(from)?) } else { None };
    let mut options =
        TaskOptions { retry, timeout_ms, execution, agent: what & IS_AGENT != 0, ..TaskOptions::default() };
    if what & HAS_PARKING != 0 {
        options.on_failure = Stored::take_v1(from)?;
        options.park_timeout_ms = Stored::take_v1(from)?;
        options.county = <Option<Arc<str>> as Stored>::take_v1(from)?.map(|county| county.to_string());
    }
    Ok(options)
}

/// What is missing here stood at the end of the task's row.
pub(super) fn task_head(from: &mut Reader<'_>) -> Result<TaskHead, BadBytes> {
    Ok(TaskHead {
        run: Stored::take_v1(from)?,
        attempts: Stored::take_v1(from)?,
        takeovers: Stored::take_v1(from)?,
        fence: Stored::take_v1(from)?,
        begun: Stored::take_v1(from)?,
        last_error: Stored::take_v1(from)?,
        state: Stored::take_v1(from)?,
        failed_fence: Stored::take_v1(from)?,
        session: None,
        crashes: 0,
        reported: None,
        letter: None,
        reworked: Fence(0),
    })
}

/// How many are parked stood at the end of the job's row.
pub(super) fn job_counts(from: &mut Reader<'_>) -> Result<JobCounts, BadBytes> {
    Ok(JobCounts {
        waiting: Stored::take_v1(from)?,
        pending: Stored::take_v1(from)?,
        processing: Stored::take_v1(from)?,
        completed: Stored::take_v1(from)?,
        failed: Stored::take_v1(from)?,
        parked: 0,
    })
}

/// Stood where an allowance would. One begins with whether it has a limit in dollars, 0 or 1.
const NO_ALLOWANCE: u8 = 2;

pub(super) fn job_head(from: &mut Reader<'_>) -> Result<JobHead, BadBytes> {
    let mut head = JobHead {
        tenant: Stored::take_v1(from)?,
        app: Stored::take_v1(from)?,
        job: Stored::take_v1(from)?,
        request: Stored::take_v1(from)?,
        name: Stored::take_v1(from)?,
        created_at: Stored::take_v1(from)?,
        completed_at: Stored::take_v1(from)?,
        cancelled: Stored::take_v1(from)?,
        counts: Stored::take_v1(from)?,
        stream: Stored::take_v1(from)?,
        version: Stored::take_v1(from)?,
        allowance: None,
        hops: 0,
        callback: None,
    };
    // These stood at the end of the row, which ended before them when there were none.
    match from.rest().first() {
        None => return Ok(head),
        Some(&NO_ALLOWANCE) => {
            from.byte()?;
        }
        Some(_) => head.allowance = Some(Stored::take_v1(from)?),
    }
    if !from.is_at_end() {
        head.hops = Stored::take_v1(from)?;
    }
    if !from.is_at_end() {
        head.counts.parked = Stored::take_v1(from)?;
    }
    if !from.is_at_end() {
        head.callback = Some(Stored::take_v1(from)?);
    }
    Ok(head)
}

pub(super) fn error_group(from: &mut Reader<'_>) -> Result<ErrorGroup, BadBytes> {
    Ok(ErrorGroup {
        code: Stored::take_v1(from)?,
        kind: Stored::take_v1(from)?,
        title: Stored::take_v1(from)?,
        cells: Stored::take_v1(from)?,
        first_seen: Stored::take_v1(from)?,
        last_seen: Stored::take_v1(from)?,
        hours: Stored::take_v1(from)?,
        samples: samples(from)?,
        clock: Stored::take_v1(from)?,
        settled: Stored::take_v1(from)?,
        unrecoverable: Stored::take_v1(from)?,
        ignored: Stored::take_v1(from)?,
    })
}

fn samples(from: &mut Reader<'_>) -> Result<Vec<Sample>, BadBytes> {
    let mut name = String::new();
    (0..take_count(from)?)
        .map(|_| {
            let shared = usize::try_from(from.varint()?).ok().filter(|shared| name.is_char_boundary(*shared));
            name.truncate(shared.ok_or(BadBytes("holds a name that begins like none"))?);
            name.push_str(from.text()?);
            Ok(Sample {
                execution: WorkflowRunId::trusted(&name),
                event: Stored::take_v1(from)?,
                index: Stored::take_v1(from)?,
                at: Stored::take_v1(from)?,
                of_task: Stored::take_v1(from)?,
            })
        })
        .collect()
}
