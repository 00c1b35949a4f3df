//! Numbers and texts as bytes, and a reader that never reads past the end.

/// Bytes that are not what they should be. The checksum around them was right or is not known to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadBytes(pub &'static str);

/// Appends `value`, seven bits to a byte.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

/// Appends a length and the text.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Maps small negative and positive numbers to small positive ones.
pub fn zigzag(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[expect(clippy::cast_possible_truncation, reason = "the low byte is what is wanted")]
fn low_byte(value: u64) -> u8 {
    value as u8
}

/// Takes values off the front of a slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], BadBytes> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(BadBytes("ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BadBytes> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(BadBytes("ends too early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn byte(&mut self) -> Result<u8, BadBytes> {
        let (first, rest) = self.rest.split_first().ok_or(BadBytes("ends too early"))?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn u32(&mut self) -> Result<u32, BadBytes> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, BadBytes> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn varint(&mut self) -> Result<u64, BadBytes> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(BadBytes("holds a number of more than 64 bits"))
    }

    pub fn text(&mut self) -> Result<&'a str, BadBytes> {
        let length = usize::try_from(self.varint()?).map_err(|_| BadBytes("holds a text without end"))?;
        std::str::from_utf8(self.take(length)?).map_err(|_| BadBytes("holds a text that is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_at_end());
        }
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!(zigzag(-1), 1);
    }

    #[test]
    fn endless_numbers_and_short_texts_are_errors() {
        assert!(Reader::new(&[0xff; 11]).varint().is_err());
        assert!(Reader::new(&[0x80]).varint().is_err());
        assert!(Reader::new(&[5, b'a']).text().is_err());
        assert!(Reader::new(&[1, 0xff]).text().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).text().is_err());
    }
}
