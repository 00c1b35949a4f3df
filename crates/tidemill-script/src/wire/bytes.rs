//! Frames, and the messages in them.

use std::fmt;
use std::marker::PhantomData;

use postcard::ser_flavors::Size;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

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

/// A message as a frame. It is measured first: a large one has its room at once and is copied once.
pub(super) fn frame(message: &impl Serialize) -> Vec<u8> {
    let size = postcard::serialize_with_flavor(message, Size::default()).expect("it has a size");
    let length = u32::try_from(size).expect("frames are far shorter");
    let mut frame = vec![0; LENGTH_BYTES + size];
    let (head, body) = frame.split_at_mut(LENGTH_BYTES);
    head.copy_from_slice(&length.to_le_bytes());
    postcard::to_slice(message, body).expect("it has the size that it was found to have");
    frame
}

/// The message in a frame's body, which ends with it.
pub(super) fn message<'a, M: Deserialize<'a>>(body: &'a [u8]) -> Result<M, BadFrame> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(BadFrame("bytes after its end")),
        Err(_) => Err(BadFrame("something else")),
    }
}

/// A list of up to `MAX` elements. A longer one is refused at the first that is too much: in memory they are far larger than
/// in the frame.
pub(crate) fn short_list<'de, const MAX: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct ShortList<const MAX: usize, T>(PhantomData<T>);
    impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for ShortList<MAX, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "up to {MAX} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = elements.next_element()? {
                if list.len() == MAX {
                    return Err(A::Error::invalid_length(MAX, &self));
                }
                list.push(element);
            }
            Ok(list)
        }
    }
    deserializer.deserialize_seq(ShortList::<MAX, T>(PhantomData))
}
