//! What is stored of triage. The rules are those of `stored`: add, never reorder, never reuse.

use crate::triage::{
    Bulk, BulkAction, BulkFilter, BulkId, BulkState, Cell, ErrorCounts, ErrorGroup, ErrorState, GroupCell,
    GroupKind, Ignored, Mark, Occurrence, Parked, Sample, Seen, Settled, StoredToken, TokenState,
    TriageError, TriageExecution, Unparked,
};
use tidemill_model::EventId;
use tidemill_model::workflow::{ErrorCode, ErrorType, WorkflowRunId, WorkflowStatus};

use crate::kernel::codec::bytes::{BadBytes, Reader, put_text, put_varint};
use crate::kernel::codec::stored::{
    Stored, stored_choice, stored_number, stored_struct, stored_text, stored_word, take_count,
};
use crate::kernel::codec::version_1;
use crate::kernel::codec::wire::{
    BYTES, CHOICE, END, LIST, NUMBER, STRUCT, next_field, present, put_field, skip, take_field,
};

stored_text!(ErrorCode, WorkflowRunId);
stored_number! {
    BulkId: EventId, |bulk| bulk.as_event_id(), Self::mint;
}

impl Stored for ErrorType {
    const FORM: u8 = BYTES;
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, self.as_str());
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Self::parse(from.text()?).ok_or(BadBytes("holds a type of errors that is none"))
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let digits = from.array::<2>()?;
        let found = std::str::from_utf8(&digits).ok().and_then(Self::parse);
        found.ok_or(BadBytes("holds a type of errors that is none"))
    }
}

stored_word!(ErrorState { 1 => Open, 2 => Resolved, 3 => Unrecoverable, 4 => Ignored });
stored_word!(GroupKind { 1 => Workflow, 2 => Task });
stored_word!(WorkflowStatus { 1 => Scheduled, 2 => InProgress, 3 => Succeeded, 4 => Failed });
stored_word!(TokenState { 1 => None, 2 => Unused, 3 => Used, 4 => Expired, 5 => Replaced });
stored_word!(BulkState { 1 => Running, 2 => Done, 3 => Cancelled });
stored_choice!(BulkAction { 1 => Resume { 1 = output, 2 = rerun }, 2 => Fail { 1 = error, 2 = cause } });
stored_choice!(Unparked {
    1 => Resumed { 1 = output, 2 = at, 3 = by, 4 = reason },
    2 => Failed { 1 = error, 2 = cause, 3 = at, 4 = by, 5 = reason },
    3 => Expired { 1 = at },
    4 => WentOn { 1 = at },
});
stored_struct!(Cell { 1 = county, 2 = data_group_label, 3 = phase, 4 = step });
stored_struct!(ErrorCounts { 1 = occurrences, 2 = open, 3 = resolved, 4 = unrecoverable, 5 = ignored });
stored_struct!(GroupCell { 1 = cell, 2 = counts });
stored_struct!(Mark { 1 = clock, 2 = since, 3 = by, 4 = reason });
stored_struct!(Settled { 1 = state, 2 = mark });
stored_struct!(Ignored { 1 = mark, 2 = until, 3 = until_occurrences, 4 = ended });
stored_struct!(Occurrence { 1 = event, 2 = index, 3 = at });
stored_struct!(TriageError {
    1 = code,
    2 = execution,
    3 = count,
    4 = first_seen,
    5 = last_seen,
    6 = state,
    7 = clock,
    8 = cell,
    9 = occurrences,
    10 = by,
    11 = reason,
});
stored_struct!(Seen { 1 = once, 2 = event });
stored_struct!(TriageExecution {
    1 = id,
    2 = cell,
    3 = status,
    4 = status_at,
    5 = whole_second,
    6 = last_event_at,
    7 = first_event_at,
    8 = parked,
    9 = codes,
    10 = token,
    11 = token_digest,
    12 = outcome,
    13 = task,
    14 = seen,
    15 = has_spilled,
});
stored_struct!(Parked {
    1 = execution,
    2 = since,
    3 = deadline,
    4 = alarm_at,
    5 = is_told,
    6 = codes,
    7 = cell,
    8 = task,
});
stored_struct!(StoredToken { 1 = execution, 2 = state, 3 = since, 4 = sealed, 5 = outcome });
stored_struct!(BulkFilter {
    1 = code,
    2 = error_type,
    3 = county,
    4 = phase,
    5 = step,
    6 = executions,
    7 = settled,
});
stored_struct!(Bulk {
    1 = id,
    2 = action,
    3 = filter,
    4 = cutoff,
    5 = rate_per_second,
    6 = total,
    7 = done,
    8 = failed,
    9 = skipped,
    10 = state,
    11 = after,
    12 = created_at,
    13 = stepped_at,
    14 = ended_at,
    15 = by,
    16 = reason,
});

/// The samples of a group. A group is written with every occurrence, and its samples are most of it. Names of executions
/// mostly begin alike: of each only what differs from the one before is written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Samples(Vec<Sample>);

impl Samples {
    /// Writes them as `Samples` would, without a copy.
    fn put_all(samples: &[Sample], out: &mut Vec<u8>) {
        put_varint(out, samples.len() as u64);
        out.push(STRUCT);
        let mut before = "";
        for Sample { execution, event, index, at, of_task } in samples {
            let name = execution.as_str();
            let mut shared = before.bytes().zip(name.bytes()).take_while(|(one, other)| one == other).count();
            while !name.is_char_boundary(shared) {
                shared -= 1;
            }
            put_field(out, 1, &(shared as u64));
            put_varint(out, 2 << 3 | u64::from(BYTES));
            put_text(out, &name[shared..]);
            put_field(out, 3, event);
            put_field(out, 4, index);
            put_field(out, 5, at);
            put_field(out, 6, of_task);
            out.push(END);
            before = name;
        }
    }
}

impl Stored for Samples {
    const FORM: u8 = LIST;
    fn put(&self, out: &mut Vec<u8>) {
        Self::put_all(&self.0, out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let count = take_count(from)?;
        if from.byte()? != STRUCT {
            return Err(BadBytes("holds a list of another form"));
        }
        let mut name = String::new();
        let samples = (0..count).map(|_| take_sample(from, &mut name)).collect::<Result<_, BadBytes>>()?;
        Ok(Self(samples))
    }
}

/// Reads a sample and changes the name of the one before into its own.
fn take_sample(from: &mut Reader<'_>, name: &mut String) -> Result<Sample, BadBytes> {
    let (mut shared, mut rest, mut event, mut index, mut at, mut of_task) =
        (0u64, None, None, None, None, None);
    while let Some((number, form)) = next_field(from)? {
        match number {
            1 => shared = take_field(from, form)?,
            2 if form == BYTES => rest = Some(from.text()?),
            3 => event = Some(take_field(from, form)?),
            4 => index = Some(take_field(from, form)?),
            5 => at = Some(take_field(from, form)?),
            6 => of_task = Some(take_field(from, form)?),
            _ => skip(from, form)?,
        }
    }
    let shared = usize::try_from(shared).ok().filter(|shared| name.is_char_boundary(*shared));
    name.truncate(shared.ok_or(BadBytes("holds a name that begins like none"))?);
    name.push_str(rest.ok_or(BadBytes("lacks Sample.execution"))?);
    Ok(Sample {
        execution: WorkflowRunId::trusted(name),
        event: present(event, "lacks Sample.event")?,
        index: present(index, "lacks Sample.index")?,
        at: present(at, "lacks Sample.at")?,
        of_task: present(of_task, "lacks Sample.of_task")?,
    })
}

impl Stored for ErrorGroup {
    const FORM: u8 = STRUCT;
    fn put(&self, out: &mut Vec<u8>) {
        put_field(out, 1, &self.code);
        put_field(out, 2, &self.kind);
        put_field(out, 3, &self.title);
        put_field(out, 4, &self.cells);
        put_field(out, 5, &self.first_seen);
        put_field(out, 6, &self.last_seen);
        put_field(out, 7, &self.hours);
        if !self.samples.is_empty() {
            put_varint(out, 8 << 3 | u64::from(LIST));
            Samples::put_all(&self.samples, out);
        }
        put_field(out, 9, &self.clock);
        put_field(out, 10, &self.settled);
        put_field(out, 11, &self.unrecoverable);
        put_field(out, 12, &self.ignored);
        out.push(END);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let mut samples = Samples(Vec::new());
        let mut code = None;
        let mut kind = None;
        let mut title = None;
        let mut cells = None;
        let mut first_seen = None;
        let mut last_seen = None;
        let mut hours = None;
        let mut clock = None;
        let mut settled = None;
        let mut unrecoverable = None;
        let mut ignored = None;
        while let Some((number, form)) = next_field(from)? {
            match number {
                1 => code = Some(take_field(from, form)?),
                2 => kind = Some(take_field(from, form)?),
                3 => title = Some(take_field(from, form)?),
                4 => cells = Some(take_field(from, form)?),
                5 => first_seen = Some(take_field(from, form)?),
                6 => last_seen = Some(take_field(from, form)?),
                7 => hours = Some(take_field(from, form)?),
                8 => samples = take_field(from, form)?,
                9 => clock = Some(take_field(from, form)?),
                10 => settled = Some(take_field(from, form)?),
                11 => unrecoverable = Some(take_field(from, form)?),
                12 => ignored = Some(take_field(from, form)?),
                _ => skip(from, form)?,
            }
        }
        Ok(Self {
            code: present(code, "lacks ErrorGroup.code")?,
            kind: present(kind, "lacks ErrorGroup.kind")?,
            title: present(title, "lacks ErrorGroup.title")?,
            cells: present(cells, "lacks ErrorGroup.cells")?,
            first_seen: present(first_seen, "lacks ErrorGroup.first_seen")?,
            last_seen: present(last_seen, "lacks ErrorGroup.last_seen")?,
            hours: present(hours, "lacks ErrorGroup.hours")?,
            samples: samples.0,
            clock: present(clock, "lacks ErrorGroup.clock")?,
            settled: present(settled, "lacks ErrorGroup.settled")?,
            unrecoverable: present(unrecoverable, "lacks ErrorGroup.unrecoverable")?,
            ignored: present(ignored, "lacks ErrorGroup.ignored")?,
        })
    }
    fn take_v1(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        version_1::error_group(from)
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::Timestamp;

    use super::*;

    fn sample(execution: &str, index: u32) -> Sample {
        Sample {
            execution: WorkflowRunId::trusted(execution),
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
            Samples::put_all(&samples, &mut out);
            let mut reader = Reader::new(&out);
            assert_eq!(Samples::take(&mut reader), Ok(Samples(samples)), "{names:?}");
            assert!(reader.is_at_end());
            for end in 0..out.len() {
                assert!(Samples::take(&mut Reader::new(&out[..end])).is_err(), "{names:?} cut at {end}");
            }
        }
    }

    #[test]
    fn a_name_that_begins_like_none_is_refused() {
        let mut out = Vec::new();
        Samples::put_all(&[sample("x", 1), sample("xy", 2)], &mut out);
        // Behind the count and the form: the first name shares nothing, so its rest is the first field.
        assert_eq!(out[2], 2 << 3 | BYTES);
        out.splice(2..2, [1 << 3 | NUMBER, 3]);
        assert_eq!(
            Samples::take(&mut Reader::new(&out)).unwrap_err(),
            BadBytes("holds a name that begins like none")
        );
    }
}
