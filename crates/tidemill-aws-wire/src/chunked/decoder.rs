//! The frame taken off: sizes, chunks, the end, the trailer.

use ring::digest::{Context, SHA256};

use super::signatures::ChunkSignatures;
use super::size_line::{SIZE_LINE_BYTES_MAX, SizeLine};
use super::{ChunkedError, ChunkedHead};
use crate::checksum::{ChecksumHasher, ExpectedChecksum};
use crate::hex;

/// How long a line of the trailer may be, without its end.
pub const TRAILER_LINE_BYTES_MAX: usize = 256;

const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// A body without its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedBody {
    pub bytes: Vec<u8>,
    /// The checksum of the trailer, which was compared.
    pub checksum: Option<ExpectedChecksum>,
}

/// Takes a body as it comes, in pieces of any size.
pub struct ChunkDecoder {
    head: ChunkedHead,
    /// Nothing if signatures are not checked.
    signatures: Option<ChunkSignatures>,
    state: State,
    /// The line that is being read.
    line: Vec<u8>,
    /// How many bytes are still to come in all chunks.
    left: u64,
    hasher: Option<ChecksumHasher>,
    checksum: Option<ExpectedChecksum>,
    /// The trailer as it is signed.
    trailer_lines: String,
    trailer_checked: bool,
}

enum State {
    Size,
    Data {
        chunk: OpenChunk,
        left: u64,
    },
    /// The end of line after the bytes of a chunk.
    DataEnd {
        chunk: OpenChunk,
    },
    Trailer,
    Done,
    /// What was pushed was refused, and so is all that follows.
    Failed,
}

/// What is compared when all bytes of a chunk were seen.
struct OpenChunk {
    signature: Option<[u8; 32]>,
    sha256: Option<Context>,
}

impl ChunkDecoder {
    /// Checks the signatures of chunks, if the headers say that there are any.
    pub fn new(head: ChunkedHead, signatures: ChunkSignatures) -> Self {
        let signatures = head.chunks_signed.then_some(signatures);
        Self::with(head, signatures)
    }

    /// Takes any signatures of chunks, for a server without keys.
    pub fn unverified(head: ChunkedHead) -> Self {
        Self::with(head, None)
    }

    fn with(head: ChunkedHead, signatures: Option<ChunkSignatures>) -> Self {
        Self {
            head,
            signatures,
            state: State::Size,
            line: Vec::new(),
            left: head.decoded_length,
            hasher: head.trailer.map(ChecksumHasher::new),
            checksum: None,
            trailer_lines: String::new(),
            trailer_checked: false,
        }
    }

    /// Decodes a body that is there as a whole.
    pub fn decode(mut self, body: &[u8]) -> Result<DecodedBody, ChunkedError> {
        let mut bytes = Vec::new();
        self.push(body, &mut bytes)?;
        Ok(DecodedBody { bytes, checksum: self.finish()? })
    }

    /// Takes the next piece and appends to `decoded` what it holds of the body: never more than the headers say.
    pub fn push(&mut self, mut piece: &[u8], decoded: &mut Vec<u8>) -> Result<(), ChunkedError> {
        while !piece.is_empty() {
            match std::mem::replace(&mut self.state, State::Failed) {
                State::Size => match self.take_line(&mut piece, SIZE_LINE_BYTES_MAX)? {
                    Some(line) => self.open_chunk(&line)?,
                    None => self.state = State::Size,
                },
                State::Data { mut chunk, left } => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                    let (data, rest) = piece.split_at(count);
                    piece = rest;
                    if let Some(sha256) = &mut chunk.sha256 {
                        sha256.update(data);
                    }
                    if let Some(hasher) = &mut self.hasher {
                        hasher.update(data);
                    }
                    decoded.extend_from_slice(data);
                    let left = left - count as u64;
                    self.state =
                        if left == 0 { State::DataEnd { chunk } } else { State::Data { chunk, left } };
                }
                State::DataEnd { chunk } => match self.take_line(&mut piece, 0) {
                    Ok(Some(_)) => {
                        self.close_chunk(chunk)?;
                        self.state = State::Size;
                    }
                    Ok(None) => self.state = State::DataEnd { chunk },
                    Err(_) => return Err(ChunkedError::Malformed("a chunk is longer than its size")),
                },
                State::Trailer => {
                    let line = self.take_line(&mut piece, TRAILER_LINE_BYTES_MAX)?;
                    // An empty line is the end.
                    let is_end = line.as_ref().is_some_and(String::is_empty);
                    if let Some(line) = line.filter(|_| !is_end) {
                        self.take_trailer(&line)?;
                    }
                    self.state = if is_end { State::Done } else { State::Trailer };
                }
                State::Done => return Err(ChunkedError::Malformed("there are bytes after its end")),
                State::Failed => return Err(ChunkedError::Malformed("an earlier piece was")),
            }
        }
        Ok(())
    }

    /// Whether all came that was to come. The checksum is that of the trailer.
    pub fn finish(self) -> Result<Option<ExpectedChecksum>, ChunkedError> {
        if !matches!(self.state, State::Done) || self.left > 0 {
            return Err(ChunkedError::Length { declared: self.head.decoded_length });
        }
        if self.head.trailer_signed && !self.trailer_checked {
            return Err(ChunkedError::Trailer("its signature is missing"));
        }
        if let Some(hasher) = self.hasher {
            let missing = ChunkedError::Trailer("the checksum that `x-amz-trailer` announces is missing");
            let checksum = self.checksum.as_ref().ok_or(missing)?;
            checksum.check_sum(&hasher.finish()).map_err(ChunkedError::Checksum)?;
        }
        Ok(self.checksum)
    }

    /// The rest of a line, if the piece has its end, without `\r\n`.
    fn take_line(&mut self, piece: &mut &[u8], limit: usize) -> Result<Option<String>, ChunkedError> {
        let end = piece.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(piece.len(), |end| end + 1);
        // The end of the line has two bytes.
        if self.line.len() + count > limit + 2 {
            return Err(ChunkedError::LineTooLong { limit });
        }
        let (now, rest) = piece.split_at(count);
        self.line.extend_from_slice(now);
        *piece = rest;
        if end.is_none() {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.line);
        let text = line.strip_suffix(b"\r\n").and_then(|text| std::str::from_utf8(text).ok());
        let text = text.filter(|text| !text.contains('\r'));
        let problem = ChunkedError::Malformed("a line does not end as it should, or is no text");
        text.map(|text| Some(text.to_owned())).ok_or(problem)
    }

    fn open_chunk(&mut self, line: &str) -> Result<(), ChunkedError> {
        let SizeLine { size, signature } = SizeLine::parse(line, self.head.chunks_signed)?;
        let declared = self.head.decoded_length;
        self.left = self.left.checked_sub(size).ok_or(ChunkedError::Length { declared })?;
        let chunk = OpenChunk { signature, sha256: self.signatures.as_ref().map(|_| Context::new(&SHA256)) };
        if size > 0 {
            self.state = State::Data { chunk, left: size };
            return Ok(());
        }
        if self.left > 0 {
            return Err(ChunkedError::Length { declared });
        }
        self.close_chunk(chunk)?;
        self.state = State::Trailer;
        Ok(())
    }

    fn close_chunk(&mut self, chunk: OpenChunk) -> Result<(), ChunkedError> {
        let Some(signatures) = &mut self.signatures else { return Ok(()) };
        let (Some(sha256), Some(signature)) = (chunk.sha256, chunk.signature) else {
            return Err(ChunkedError::WrongSignature);
        };
        signatures.check_chunk(sha256.finish().as_ref(), &signature)
    }

    /// A line of the trailer.
    fn take_trailer(&mut self, line: &str) -> Result<(), ChunkedError> {
        let (name, value) = line.split_once(':').ok_or(ChunkedError::Trailer("a line has no colon"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        if self.trailer_checked {
            return Err(ChunkedError::Trailer("something follows its signature"));
        }
        if self.head.trailer_signed && name == TRAILER_SIGNATURE {
            let signature = hex::decode_32(value).ok_or(ChunkedError::WrongSignature)?;
            if let Some(signatures) = &mut self.signatures {
                signatures.check_trailer(&self.trailer_lines, &signature)?;
            }
            self.trailer_checked = true;
            return Ok(());
        }
        let announced = self.head.trailer.filter(|algorithm| algorithm.header() == name);
        let announced = announced.ok_or(ChunkedError::Trailer("`x-amz-trailer` does not announce it"))?;
        if self.checksum.is_some() {
            return Err(ChunkedError::Trailer("a checksum is there twice"));
        }
        let checksum = ExpectedChecksum::parse(announced, value.as_bytes());
        self.checksum = Some(checksum.map_err(ChunkedError::Checksum)?);
        for part in [&*name, ":", value, "\n"] {
            self.trailer_lines.push_str(part);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_after_what_was_refused() {
        for (refused, next) in [("x\r\n", "1\r\na\r\n0\r\n\r\n"), ("1\r\na\r\n0\r\nno colon\r\n", "\r\n")] {
            let head =
                ChunkedHead { decoded_length: 1, chunks_signed: false, trailer: None, trailer_signed: false };
            let mut decoder = ChunkDecoder::unverified(head);
            let mut bytes = Vec::new();
            assert!(decoder.push(refused.as_bytes(), &mut bytes).is_err(), "{refused:?}");
            assert!(decoder.push(next.as_bytes(), &mut bytes).is_err(), "{next:?}");
            assert!(decoder.finish().is_err(), "{refused:?}");
        }
    }
}
