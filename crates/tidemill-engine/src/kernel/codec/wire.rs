//! Fields on the wire: each behind its number and the way its value ends, so that a reader passes over fields it does not know.
//!
//! A field begins with a varint: its number times eight, plus one of the forms below. Numbers count from 1, so that 0 ends a
//! list of fields. A number is never used twice, and a field never changes its form: a field that is no longer written
//! leaves a gap.

use crate::kernel::codec::bytes::{BadBytes, Reader, put_varint};
use crate::kernel::codec::stored::Stored;

/// A varint.
pub(super) const NUMBER: u8 = 0;
/// A varint of length, and that many bytes.
pub(super) const BYTES: u8 = 1;
/// 16 bytes.
pub(super) const SIXTEEN: u8 = 2;
/// Fields, up to a 0.
pub(super) const STRUCT: u8 = 3;
/// A varint of how many, a byte that tells the form of all, and the values.
pub(super) const LIST: u8 = 4;
/// A varint that tells which of several, then fields up to a 0.
pub(super) const CHOICE: u8 = 5;

/// Ends the fields of a struct or a choice.
pub(super) const END: u8 = 0;

/// Nothing that is written lies deeper. Bytes that do are damaged.
const DEPTH_MAX: u32 = 32;

/// Writes a field, unless it says what its absence says.
#[inline]
pub(super) fn put_field<T: Stored>(out: &mut Vec<u8>, number: u64, value: &T) {
    if !value.is_absent() {
        put_varint(out, number << 3 | u64::from(T::FORM));
        value.put(out);
    }
}

/// The number and the form of the next field; `None` behind the last one.
#[inline]
pub(super) fn next_field(from: &mut Reader<'_>) -> Result<Option<(u64, u8)>, BadBytes> {
    let key = from.varint()?;
    match key >> 3 {
        0 if key == u64::from(END) => Ok(None),
        0 => Err(BadBytes("holds a field without a number")),
        number => Ok(Some((number, (key & 7) as u8))),
    }
}

/// The value of a field of this form.
#[inline]
pub(super) fn take_field<T: Stored>(from: &mut Reader<'_>, form: u8) -> Result<T, BadBytes> {
    if form == T::FORM { T::take(from) } else { Err(BadBytes("holds a field of another form")) }
}

/// What a field says that was read, or that is absent.
#[inline]
pub(super) fn present<T: Stored>(field: Option<T>, missing: &'static str) -> Result<T, BadBytes> {
    field.or_else(T::absent).ok_or(BadBytes(missing))
}

/// Passes over a value of a field that nobody here knows.
#[cold]
pub(super) fn skip(from: &mut Reader<'_>, form: u8) -> Result<(), BadBytes> {
    skip_within(from, form, 0)
}

fn skip_within(from: &mut Reader<'_>, form: u8, depth: u32) -> Result<(), BadBytes> {
    if depth > DEPTH_MAX {
        return Err(BadBytes("lies too deep"));
    }
    match form {
        NUMBER => from.varint().map(drop),
        BYTES => {
            let length = usize::try_from(from.varint()?).map_err(|_| BadBytes("holds bytes without end"))?;
            from.take(length).map(drop)
        }
        SIXTEEN => from.take(16).map(drop),
        STRUCT => skip_fields(from, depth),
        LIST => {
            let (count, form) = (from.varint()?, from.byte()?);
            (0..count).try_for_each(|_| skip_within(from, form, depth + 1))
        }
        CHOICE => {
            from.varint()?;
            skip_fields(from, depth)
        }
        _ => Err(BadBytes("holds a field of an unknown form")),
    }
}

fn skip_fields(from: &mut Reader<'_>, depth: u32) -> Result<(), BadBytes> {
    while let Some((_, form)) = next_field(from)? {
        skip_within(from, form, depth + 1)?;
    }
    Ok(())
}

/// Appends bytes behind their length. What `put` appends is mostly short.
pub(super) fn put_sized(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.push(0);
    put(out);
    let length = out.len() - start - 1;
    if let Ok(short @ 0..0x80) = u8::try_from(length) {
        out[start] = short;
        return;
    }
    let mut prefix = Vec::with_capacity(10);
    put_varint(&mut prefix, length as u64);
    out.splice(start..=start, prefix);
}
