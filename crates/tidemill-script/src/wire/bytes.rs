//! Frames, and the values in them.

/// A frame that breaks the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} is broken")]
pub(crate) struct BadFrame(pub(crate) &'static str);

const LENGTH_BYTES: usize = 4;

/// Bytes as they come, until they are a frame.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    bytes: Vec<u8>,
    /// How many of them are read.
    filled: usize,
}

/// What is asked of the reader in one go, at least.
const READ_BYTES: usize = 16 * 1024;
/// Room beyond this is given back after a large frame.
const KEPT_BYTES: usize = 256 * 1024;

impl FrameBuffer {
    /// Whether nothing of a next frame has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Room for more bytes. After writing into it, call `filled`.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let wanted = self.length().map_or(0, |length| length + LENGTH_BYTES).saturating_sub(self.filled);
        let size = self.filled + wanted.max(READ_BYTES);
        if self.bytes.len() < size {
            self.bytes.resize(size, 0);
        }
        &mut self.bytes[self.filled..]
    }

    pub(crate) fn filled(&mut self, count: usize) {
        self.filled += count;
    }

    /// The body of the frame, once it is there as a whole. One longer than `bytes_max` is refused by its length.
    pub(crate) fn frame(&self, bytes_max: usize) -> Result<Option<&[u8]>, BadFrame> {
        let Some(length) = self.length() else { return Ok(None) };
        if length > bytes_max {
            return Err(BadFrame("more bytes than expected"));
        }
        let end = LENGTH_BYTES + length;
        Ok((self.filled >= end).then(|| &self.bytes[LENGTH_BYTES..end]))
    }

    /// Forgets the frame. What came after it stays.
    pub(crate) fn next(&mut self) {
        let end = LENGTH_BYTES + self.length().unwrap_or(0);
        self.bytes.copy_within(end.min(self.filled)..self.filled, 0);
        self.filled = self.filled.saturating_sub(end);
        if self.bytes.len() > KEPT_BYTES && self.filled < KEPT_BYTES {
            self.bytes.truncate(KEPT_BYTES);
            self.bytes.shrink_to_fit();
        }
    }

    fn length(&self) -> Option<usize> {
        let bytes = self.bytes[..self.filled].first_chunk::<LENGTH_BYTES>()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    }
}

/// A frame being written.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(tag: u8, room: usize) -> Self {
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + 1 + room);
        bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        bytes.push(tag);
        Self(bytes)
    }

    pub(super) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    pub(super) fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        let length = u32::try_from(text.len()).expect("texts are far shorter");
        self.raw(&length.to_le_bytes());
        self.raw(text.as_bytes());
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - LENGTH_BYTES).expect("frames are far shorter");
        self.0[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

/// A body being read.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    pub(super) fn raw(&mut self, count: usize) -> Result<&'a [u8], BadFrame> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BadFrame("too few bytes"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], BadFrame> {
        Ok(*self.raw(N)?.first_chunk().expect("it has N bytes"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, BadFrame> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn bool(&mut self) -> Result<bool, BadFrame> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadFrame("a flag that is none")),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, BadFrame> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn small(&mut self) -> Result<u32, BadFrame> {
        u32::try_from(self.number()?).map_err(|_| BadFrame("a number that is too large"))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, BadFrame> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        std::str::from_utf8(self.raw(length)?).map_err(|_| BadFrame("a text that is none"))
    }

    pub(super) fn end(self) -> Result<(), BadFrame> {
        if self.0.is_empty() { Ok(()) } else { Err(BadFrame("bytes after its end")) }
    }
}
