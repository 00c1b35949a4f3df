//! Server-sent events: the live stream, message by message.

use http_body_util::BodyExt as _;
use hyper::body::Bytes;

use super::{Body, ClientError};

/// One message may be this large.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// A message of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseMessage {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: String,
}

/// Reads a stream to its end.
pub struct SseReader {
    body: Body,
    parser: Parser,
}

impl SseReader {
    pub fn new(body: Body) -> Self {
        Self { body, parser: Parser::default() }
    }

    /// The next message; `None` when the stream has ended.
    pub async fn next(&mut self) -> Result<Option<SseMessage>, ClientError> {
        loop {
            if let Some(message) = self.parser.message() {
                return Ok(Some(message));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| ClientError::Unreachable {
                url: "the stream".to_owned(),
                cause: error.to_string(),
            })?;
            if let Ok(bytes) = frame.into_data() {
                self.parser.take(&bytes)?;
            }
        }
    }
}

#[derive(Default)]
struct Parser {
    buffer: Vec<u8>,
    /// Up to here there is no line end.
    searched: usize,
    open: SseMessage,
    has_data: bool,
    ready: std::collections::VecDeque<SseMessage>,
}

impl Parser {
    fn take(&mut self, bytes: &Bytes) -> Result<(), ClientError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() + self.open.data.len() > MESSAGE_BYTES_MAX {
            return Err(ClientError::Strange(format!("a message of more than {MESSAGE_BYTES_MAX} bytes")));
        }
        let mut start = 0;
        while let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + end;
            let line = String::from_utf8_lossy(&self.buffer[start..end]).trim_end_matches('\r').to_owned();
            self.line(&line);
            start = end + 1;
            self.searched = start;
        }
        self.buffer.drain(..start);
        self.searched = self.buffer.len();
        Ok(())
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            let message = std::mem::take(&mut self.open);
            if std::mem::take(&mut self.has_data) {
                self.ready.push_back(message);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.open.id = Some(value.to_owned()),
            "event" => self.open.event = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.open.data.push('\n');
                }
                self.open.data.push_str(value);
                self.has_data = true;
            }
            // Comments keep the connection alive; other fields are for browsers.
            _ => {}
        }
    }

    fn message(&mut self) -> Option<SseMessage> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let text = ": hello\r\n\r\nid: 7\nevent: log-event\ndata: {\"a\":\ndata: 1}\n\ndata:x\n\nid: 8\n\n";
        let expected = [
            SseMessage { id: Some("7".into()), event: Some("log-event".into()), data: "{\"a\":\n1}".into() },
            SseMessage { data: "x".into(), ..SseMessage::default() },
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            for part in text.as_bytes().chunks(size) {
                parser.take(&Bytes::copy_from_slice(part)).unwrap();
            }
            let found: Vec<_> = std::iter::from_fn(|| parser.message()).collect();
            assert_eq!(found, expected, "in parts of {size}");
        }
    }
}
