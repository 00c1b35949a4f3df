//! Fresh rows: rows on their way to the file, in memory as bytes.
//!
//! Rows change at scattered places, and the file is written by pages: the more rows a transaction has, the fewer pages each
//! of them costs. So what is taken from the state is kept here as runs, each sorted by key, until there is enough.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use tidemill_engine::state::row::{Row, RowKey, is_open};

use super::row_store::Checkpoint;
use super::row_value;
use crate::store::row_key;

/// The rows that the file does not have yet. What a newer run says hides what an older one or the file says.
#[derive(Default)]
pub(in crate::store) struct FreshRows {
    /// The oldest first.
    runs: Vec<Arc<Run>>,
    bytes: usize,
}

/// The changed rows of one moment, by key.
pub(in crate::store) struct Run {
    /// What these rows, and all before them, reflect.
    checkpoint: Checkpoint,
    bytes: Vec<u8>,
    /// Sorted by key.
    rows: Vec<FreshRow>,
    /// Places in `rows` by the hash of the key, with part of the hash; half of it or more is free.
    table: Vec<(u32, u32)>,
}

/// Where a row lies in the bytes of its run: the key, then the value, which is empty when the row is gone.
#[derive(Debug, Clone, Copy)]
struct FreshRow {
    start: usize,
    value: usize,
    end: usize,
    /// What the list of open rows is to say of it, if that list knows such rows.
    is_open: Option<bool>,
}

/// A row as it will be in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct RowBytes<'a> {
    pub(in crate::store) key: &'a [u8],
    /// `None` when the row is gone.
    pub(in crate::store) value: Option<&'a [u8]>,
    pub(in crate::store) is_open: Option<bool>,
}

const FREE: u32 = u32::MAX;

impl Run {
    pub(in crate::store) fn new(rows: &[(RowKey, Option<Row>)], checkpoint: Checkpoint) -> Self {
        // About what a row of the commonest kinds takes.
        let mut bytes = Vec::with_capacity(rows.len() * 192);
        let mut places = Vec::with_capacity(rows.len());
        for (key, row) in rows {
            let start = bytes.len();
            row_key::put_bytes(key, &mut bytes);
            let value = bytes.len();
            let is_open = match row {
                Some(row) => {
                    row_value::put(&mut bytes, start, row);
                    is_open(key, row)
                }
                None => matches!(key, RowKey::Record(key) if key.kind.may_be_open()).then_some(false),
            };
            places.push(FreshRow { start, value, end: bytes.len(), is_open });
        }
        bytes.shrink_to_fit();
        places.sort_unstable_by(|a, b| bytes[a.start..a.value].cmp(&bytes[b.start..b.value]));
        let mut run = Self { checkpoint, bytes, rows: places, table: Vec::new() };
        run.table = vec![(0, FREE); (run.rows.len() * 2).next_power_of_two()];
        for (index, row) in (0u32..).zip(&run.rows) {
            let hash = hash_of(&run.bytes[row.start..row.value]);
            let mut at = run.first_slot(hash);
            while run.table[at].1 != FREE {
                at = (at + 1) % run.table.len();
            }
            run.table[at] = (tag_of(hash), index);
        }
        run
    }

    fn first_slot(&self, hash: u64) -> usize {
        usize::try_from(hash & (self.table.len() as u64 - 1)).unwrap_or(0)
    }

    fn row(&self, index: usize) -> RowBytes<'_> {
        let FreshRow { start, value, end, is_open } = self.rows[index];
        let bytes = &self.bytes[value..end];
        RowBytes { key: &self.bytes[start..value], value: (!bytes.is_empty()).then_some(bytes), is_open }
    }

    fn find(&self, key: &[u8], hash: u64) -> Option<RowBytes<'_>> {
        let mut at = self.first_slot(hash);
        loop {
            let (tag, index) = self.table[at];
            if index == FREE {
                return None;
            }
            if tag == tag_of(hash) {
                let row = self.row(index as usize);
                if row.key == key {
                    return Some(row);
                }
            }
            at = (at + 1) % self.table.len();
        }
    }

    /// How many rows lie before a key.
    fn before(&self, key: &[u8]) -> usize {
        self.rows.partition_point(|row| &self.bytes[row.start..row.value] < key)
    }
}

fn hash_of(key: &[u8]) -> u64 {
    FixedState::default().hash_one(key)
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl FreshRows {
    /// What they take in memory.
    pub(in crate::store) fn byte_count(&self) -> usize {
        self.bytes
    }

    pub(in crate::store) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// What the file and all runs together reflect; `None` if there are no runs.
    pub(in crate::store) fn checkpoint(&self) -> Option<Checkpoint> {
        self.runs.last().map(|run| run.checkpoint)
    }

    /// These and one run more.
    pub(in crate::store) fn with(&self, run: Run) -> Self {
        let runs = self.runs.iter().cloned().chain([Arc::new(run)]);
        Self::of(runs.collect())
    }

    /// These without the oldest runs.
    pub(in crate::store) fn without(&self, oldest: usize) -> Self {
        Self::of(self.runs[oldest..].to_vec())
    }

    /// These without the runs that a file has which reflects `checkpoint`.
    pub(in crate::store) fn behind(&self, checkpoint: Checkpoint) -> Self {
        let runs = self.runs.iter().filter(|run| run.checkpoint.position > checkpoint.position);
        Self::of(runs.cloned().collect())
    }

    fn of(runs: Vec<Arc<Run>>) -> Self {
        let bytes = |run: &Arc<Run>| {
            run.bytes.len()
                + run.rows.len() * size_of::<FreshRow>()
                + run.table.len() * size_of::<(u32, u32)>()
        };
        Self { bytes: runs.iter().map(bytes).sum(), runs }
    }

    /// The newest of a key; `None` if the file knows better.
    pub(in crate::store) fn find(&self, key: &[u8]) -> Option<RowBytes<'_>> {
        if self.runs.is_empty() {
            return None;
        }
        let hash = hash_of(key);
        self.runs.iter().rev().find_map(|run| run.find(key, hash))
    }

    /// The rows with the first key at or after `from`, in order.
    pub(in crate::store) fn from(&self, from: &[u8]) -> Ascending<'_> {
        Ascending { runs: self.runs.iter().map(|run| (&**run, run.before(from))).collect() }
    }

    /// The rows with the last key before `before`, newest key first.
    pub(in crate::store) fn back_from(&self, before: &[u8]) -> Descending<'_> {
        Descending { runs: self.runs.iter().map(|run| (&**run, run.before(before))).collect() }
    }
}

/// Rows of all runs by key, each key once and as the newest run has it.
pub(in crate::store) struct Ascending<'a> {
    /// Each run with its next row, the oldest run first.
    runs: Vec<(&'a Run, usize)>,
}

impl<'a> Iterator for Ascending<'a> {
    type Item = RowBytes<'a>;

    fn next(&mut self) -> Option<RowBytes<'a>> {
        let mut first: Option<RowBytes<'a>> = None;
        for (run, next) in &self.runs {
            if *next < run.rows.len() {
                let row = run.row(*next);
                if first.is_none_or(|first| row.key <= first.key) {
                    first = Some(row);
                }
            }
        }
        let first = first?;
        for (run, next) in &mut self.runs {
            if *next < run.rows.len() && run.row(*next).key == first.key {
                *next += 1;
            }
        }
        Some(first)
    }
}

/// Like `Ascending`, the other way.
pub(in crate::store) struct Descending<'a> {
    /// Each run with how many of its rows are still to come.
    runs: Vec<(&'a Run, usize)>,
}

impl<'a> Iterator for Descending<'a> {
    type Item = RowBytes<'a>;

    fn next(&mut self) -> Option<RowBytes<'a>> {
        let mut last: Option<RowBytes<'a>> = None;
        for (run, rest) in &self.runs {
            if let Some(index) = rest.checked_sub(1) {
                let row = run.row(index);
                if last.is_none_or(|last| row.key >= last.key) {
                    last = Some(row);
                }
            }
        }
        let last = last?;
        for (run, rest) in &mut self.runs {
            if let Some(index) = rest.checked_sub(1)
                && run.row(index).key == last.key
            {
                *rest = index;
            }
        }
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidemill_engine::record::{Record, RecordKey, RecordKind, RecordValue};

    use super::*;
    use crate::log::{LogPosition, Seq};

    fn key(number: u64) -> RowKey {
        RowKey::Record(RecordKey {
            kind: RecordKind::Idempotency,
            tenant: None,
            id: format!("{number:03}").into(),
        })
    }

    fn row(text: &str) -> Row {
        let value = RecordValue::Bytes(text.as_bytes().into());
        Row::Record(Record { version: 1, expires_at: None, value })
    }

    fn at(next_seq: u64) -> Checkpoint {
        Checkpoint { position: LogPosition { segment: 1, offset: 0, next_seq: Seq(next_seq) } }
    }

    /// Runs of keys that lie between one another, with changes and removals, beside what a plain map makes of them.
    #[test]
    fn the_newest_run_wins_in_every_way_to_look() {
        let mut fresh = FreshRows::default();
        let mut model: BTreeMap<Vec<u8>, Option<Row>> = BTreeMap::new();
        assert!(fresh.find(&row_key::bytes_of(&key(1))).is_none() && fresh.checkpoint().is_none());
        for run in 0..6u64 {
            let numbers = (0..90).filter(|number| (number * 7 + run * 13) % 5 < 3);
            let is_gone = |number: u64| (number + run).is_multiple_of(4);
            let rows: Vec<(RowKey, Option<Row>)> = numbers
                .map(|number| (key(number), (!is_gone(number)).then(|| row(&format!("{run}-{number}")))))
                .rev()
                .collect();
            model.extend(rows.iter().map(|(key, row)| (row_key::bytes_of(key), row.clone())));
            fresh = fresh.with(Run::new(&rows, at(run + 2)));
            assert_eq!(fresh.checkpoint(), Some(at(run + 2)));
            let seen = |found: RowBytes<'_>| (found.key.to_vec(), found.value.map(<[u8]>::to_vec));
            let expected: Vec<(Vec<u8>, Option<Vec<u8>>)> = model
                .iter()
                .map(|(key, row)| {
                    let bytes = row.as_ref().map(|row| {
                        let mut bytes = key.clone();
                        row_value::put(&mut bytes, 0, row);
                        bytes.split_off(key.len())
                    });
                    (key.clone(), bytes)
                })
                .collect();
            for edge in 0..95 {
                let edge = row_key::bytes_of(&key(edge));
                let place = expected.partition_point(|(key, _)| *key < edge);
                assert!(fresh.from(&edge).map(seen).eq(expected[place..].iter().cloned()));
                assert!(fresh.back_from(&edge).map(seen).eq(expected[..place].iter().rev().cloned()));
                let found = expected.get(place).filter(|(key, _)| *key == edge);
                assert_eq!(fresh.find(&edge).map(seen).as_ref(), found);
            }
        }
        let bytes = fresh.byte_count();
        let rest = fresh.without(4);
        assert_eq!((rest.run_count(), rest.checkpoint()), (2, Some(at(7))));
        assert!(rest.byte_count() < bytes && fresh.without(6).byte_count() == 0);
    }

    #[test]
    fn the_list_of_open_rows_is_told_of_those_that_are_gone() {
        let of = |kind| RowKey::Record(RecordKey { kind, tenant: None, id: "x".into() });
        let rows = [(of(RecordKind::Delivery), None), (of(RecordKind::Idempotency), None)];
        let run = FreshRows::default().with(Run::new(&rows, at(2)));
        let is_open = |key| run.find(&row_key::bytes_of(&key)).unwrap().is_open;
        assert_eq!(is_open(of(RecordKind::Delivery)), Some(false));
        assert_eq!(is_open(of(RecordKind::Idempotency)), None);
    }
}
