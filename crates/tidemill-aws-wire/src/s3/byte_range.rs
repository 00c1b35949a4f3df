//! One range of an object's bytes.

use std::ops::Range;

use super::fault::{S3Fault, S3FaultCode};

/// What a `Range` header asks for, before the size of the object is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From the first byte to the last one, both included; to the end if there is no last one.
    From { first: u64, last: Option<u64> },
    /// So many bytes at the end.
    Suffix { length: u64 },
}

impl ByteRange {
    /// Reads a header. As S3 does, what is no single range of bytes is passed over, and the whole object is meant.
    pub fn read(header: &str) -> Option<Self> {
        let (first, last) = header.strip_prefix("bytes=")?.trim().split_once('-')?;
        let number = |text: &str| -> Option<u64> {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        if first.is_empty() {
            return number(last).map(|length| Self::Suffix { length });
        }
        let first = number(first)?;
        let last = if last.is_empty() { None } else { Some(number(last)?) };
        last.is_none_or(|last| first <= last).then_some(Self::From { first, last })
    }

    /// The bytes of an object of this size, or `InvalidRange` if there are none.
    pub fn within(self, size_bytes: u64) -> Result<Range<u64>, S3Fault> {
        let range = match self {
            Self::From { first, last } => {
                first..last.map_or(size_bytes, |last| last.saturating_add(1).min(size_bytes))
            }
            Self::Suffix { length } => size_bytes.saturating_sub(length)..size_bytes,
        };
        if range.is_empty() {
            return Err(S3Fault::new(S3FaultCode::InvalidRange, "The requested range is not satisfiable"));
        }
        Ok(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_the_end_of_the_object() {
        for (header, size_bytes, expected) in [
            ("bytes=0-4", 10, Some(Ok(0..5))),
            ("bytes=5-", 10, Some(Ok(5..10))),
            ("bytes=5-99", 10, Some(Ok(5..10))),
            ("bytes=9-9", 10, Some(Ok(9..10))),
            ("bytes=0-99999999999999999999", 10, Some(Ok(0..10))),
            ("bytes=-3", 10, Some(Ok(7..10))),
            ("bytes=-30", 10, Some(Ok(0..10))),
            ("bytes=-0", 10, Some(Err(()))),
            ("bytes=10-", 10, Some(Err(()))),
            ("bytes=0-", 0, Some(Err(()))),
            ("bytes=-1", 0, Some(Err(()))),
            ("bytes=4-2", 10, None),
            ("bytes=0-1,3-4", 10, None),
            ("bytes=+1-2", 10, None),
            ("bytes=-", 10, None),
            ("lines=1-2", 10, None),
        ] {
            let read = ByteRange::read(header).map(|range| range.within(size_bytes).map_err(|_| ()));
            assert_eq!(read, expected, "{header} of {size_bytes}");
        }
    }
}
