//! A row as bytes: a version, the row, and a checksum of its key and both.

use tidemill_engine::backend::Fault;
use tidemill_engine::codec::BadBytes;
use tidemill_engine::state::row::Row;

use crate::store::stored::{Stored, read_all};

/// The form of rows that this release writes. Rows of another form are made again from the log.
const VERSION: u8 = 3;
const CHECKSUM_BYTES: usize = 4;

/// Appends a row behind its key, which begins at `start` and ends where `out` ends.
pub(in crate::store) fn put(out: &mut Vec<u8>, start: usize, row: &Row) {
    out.push(VERSION);
    row.put(out);
    let checksum = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Reads the row of a key.
pub(in crate::store) fn read(key: &[u8], bytes: &[u8], is_checked: bool) -> Result<Row, Fault> {
    let damaged = |BadBytes(problem)| Fault::Damaged(format!("a row {problem}"));
    let (row, checksum) =
        bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(|| damaged(BadBytes("is too short")))?;
    if is_checked && checksum_of(key, row) != u32::from_le_bytes(*checksum) {
        return Err(damaged(BadBytes("has a wrong checksum")));
    }
    match row.split_first() {
        Some((&VERSION, rest)) => read_all(rest).map_err(damaged),
        _ => Err(damaged(BadBytes("has a version this release does not know"))),
    }
}

/// Puts the right checksum behind what is to stand for a row, for tests that plant something.
#[doc(hidden)]
pub fn seal(key: &[u8], row: &[u8]) -> Vec<u8> {
    [row, &checksum_of(key, row).to_le_bytes()].concat()
}

fn checksum_of(key: &[u8], row: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(row);
    hasher.finalize()
}
