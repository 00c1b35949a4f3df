//! How triage records are written as bytes. The same promise as in `stored`: append, never reorder.

use crate::triage::{
    Bulk, BulkAction, BulkFilter, BulkId, BulkState, Cell, Counts, ErrorGroup, ErrorState, GroupCell,
    GroupKind, Ignored, Mark, Occurrence, Parked, Sample, Seen, Settled, StoredToken, TokenState,
    TriageError, TriageExecution, Unparked,
};
use tidemill_model::EventId;
use tidemill_model::workflow::{ErrorCode, ErrorType, ExecutionId, WorkflowStatus};

use super::bytes::{BadBytes, Reader, put_varint};
use super::stored::{Stored, put_str, stored_enum, stored_struct, stored_text};

stored_text!(ErrorCode, ExecutionId);

impl Stored for ErrorType {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_str().as_bytes());
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let digits = [from.byte()?, from.byte()?];
        let found = std::str::from_utf8(&digits).ok().and_then(Self::parse);
        found.ok_or(BadBytes("holds a type of errors that is none"))
    }
}

impl Stored for BulkId {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_event_id().put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        EventId::take(from).map(Self::mint)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok((Stored::take(from)?, Stored::take(from)?))
    }
}

stored_enum!(ErrorState { 1 => Open, 2 => Resolved, 3 => Unrecoverable, 4 => Ignored });
stored_enum!(GroupKind { 1 => Workflow, 2 => Task });
stored_enum!(WorkflowStatus { 1 => Scheduled, 2 => InProgress, 3 => Succeeded, 4 => Failed });
stored_enum!(TokenState { 1 => None, 2 => Unused, 3 => Used, 4 => Expired, 5 => Replaced });
stored_enum!(BulkState { 1 => Running, 2 => Done, 3 => Cancelled });
stored_enum!(BulkAction { 1 => Resume { output, rerun }, 2 => Fail { error, cause } });
stored_enum!(Unparked {
    1 => Resumed { output, at, by, reason },
    2 => Failed { error, cause, at, by, reason },
    3 => Expired { at },
    4 => WentOn { at },
});

stored_struct!(Cell { county, data_group_label, phase, step });
stored_struct!(Counts { occurrences, open, resolved, unrecoverable, ignored });
stored_struct!(GroupCell { cell, counts });
stored_struct!(Mark { clock, since, by, reason });
stored_struct!(Settled { state, mark });
stored_struct!(Ignored { mark, until, until_occurrences, ended });
impl Stored for ErrorGroup {
    fn put(&self, out: &mut Vec<u8>) {
        self.code.put(out);
        self.kind.put(out);
        self.title.put(out);
        self.cells.put(out);
        self.first_seen.put(out);
        self.last_seen.put(out);
        self.hours.put(out);
        put_samples(&self.samples, out);
        self.clock.put(out);
        self.settled.put(out);
        self.unrecoverable.put(out);
        self.ignored.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            code: Stored::take(from)?,
            kind: Stored::take(from)?,
            title: Stored::take(from)?,
            cells: Stored::take(from)?,
            first_seen: Stored::take(from)?,
            last_seen: Stored::take(from)?,
            hours: Stored::take(from)?,
            samples: take_samples(from)?,
            clock: Stored::take(from)?,
            settled: Stored::take(from)?,
            unrecoverable: Stored::take(from)?,
            ignored: Stored::take(from)?,
        })
    }
}

/// A group is written with every occurrence, and its samples are most of it. Names of executions mostly begin alike: of
/// each only what differs from the one before is written.
fn put_samples(samples: &[Sample], out: &mut Vec<u8>) {
    put_varint(out, samples.len() as u64);
    let mut before = "";
    for Sample { execution, event, index, at, of_task } in samples {
        let name = execution.as_str();
        let mut shared = before.bytes().zip(name.bytes()).take_while(|(one, other)| one == other).count();
        while !name.is_char_boundary(shared) {
            shared -= 1;
        }
        put_varint(out, shared as u64);
        put_str(out, &name[shared..]);
        event.put(out);
        index.put(out);
        at.put(out);
        of_task.put(out);
        before = name;
    }
}

fn take_samples(from: &mut Reader<'_>) -> Result<Vec<Sample>, BadBytes> {
    let length = from.varint()?;
    // A sample takes at least a byte, so a damaged length cannot ask for more memory than there are bytes.
    if length > from.rest().len() as u64 {
        return Err(BadBytes("holds a list without end"));
    }
    let mut name = String::new();
    (0..length)
        .map(|_| {
            let shared = usize::try_from(from.varint()?).ok().filter(|shared| name.is_char_boundary(*shared));
            name.truncate(shared.ok_or(BadBytes("holds a name that begins like none"))?);
            name.push_str(from.text()?);
            Ok(Sample {
                execution: ExecutionId::trusted(&name),
                event: Stored::take(from)?,
                index: Stored::take(from)?,
                at: Stored::take(from)?,
                of_task: Stored::take(from)?,
            })
        })
        .collect()
}

stored_struct!(Occurrence { event, index, at });
stored_struct!(TriageError {
    code,
    execution,
    count,
    first_seen,
    last_seen,
    state,
    clock,
    cell,
    occurrences,
    by,
    reason,
});
stored_struct!(Seen { once, event });
stored_struct!(TriageExecution {
    id,
    cell,
    status,
    status_at,
    whole_second,
    last_event_at,
    first_event_at,
    parked,
    codes,
    token,
    token_digest,
    outcome,
    task,
    seen,
    has_spilled,
});
stored_struct!(Parked { execution, since, deadline, alarm_at, is_told, codes, cell, task });
stored_struct!(StoredToken { execution, state, since, sealed, outcome });
stored_struct!(BulkFilter { code, error_type, county, phase, step, executions, settled });
stored_struct!(Bulk {
    id,
    action,
    filter,
    cutoff,
    rate_per_second,
    total,
    done,
    failed,
    skipped,
    state,
    after,
    created_at,
    stepped_at,
    ended_at,
    by,
    reason,
});

#[cfg(test)]
mod tests {
    use tidemill_model::Timestamp;

    use super::*;

    fn sample(execution: &str, index: u32) -> Sample {
        Sample {
            execution: ExecutionId::trusted(execution),
            event: EventId::from_u128(7 + u128::from(index)),
            index,
            at: Timestamp::clamped(1_800_000_000_000),
            of_task: index % 2 == 1,
        }
    }

    #[test]
    fn samples_come_back_whatever_their_names_share() {
        for names in [
            &[][..],
            &["arn:run-1"],
            &["arn:run-1", "arn:run-1", "arn:run-12", "arn:run-2", "a"],
            &["b", "arn:run-1", ""],
            // The first bytes of these letters are the same: a letter is not torn.
            &["run-\u{e4}", "run-\u{f6}", "run-\u{4e2d}", "run-\u{4e2e}"],
        ] {
            let samples: Vec<Sample> = (0..).zip(names).map(|(at, name)| sample(name, at)).collect();
            let mut out = Vec::new();
            put_samples(&samples, &mut out);
            let mut reader = Reader::new(&out);
            assert_eq!(take_samples(&mut reader), Ok(samples), "{names:?}");
            assert!(reader.is_at_end());
            for end in 0..out.len() {
                assert!(take_samples(&mut Reader::new(&out[..end])).is_err(), "{names:?} cut at {end}");
            }
        }
    }

    #[test]
    fn a_name_that_begins_like_none_is_refused() {
        let mut out = Vec::new();
        put_varint(&mut out, 1);
        put_varint(&mut out, 3);
        put_str(&mut out, "x");
        assert_eq!(
            take_samples(&mut Reader::new(&out)).unwrap_err(),
            BadBytes("holds a name that begins like none")
        );
    }
}
