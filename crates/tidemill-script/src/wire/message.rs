//! Orders to a host, and its answers.

use std::time::Duration;

use tidemill_model::{EventId, Timestamp};

use super::bytes::{BadFrame, Reader, Writer};
use crate::call::{CallKind, Grants, RawCall};
use crate::engine::machine::{Broken, Ended, Finished};
use crate::execution::{LogLevel, LogLine, Stats};
use crate::failure::ErrorClass;
use crate::limits::{CALLS_BYTES_MAX, CALLS_MAX, Limits};
use crate::script::{CompileError, Version};

/// What a host is asked for. The first order is `Setup`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Order<'a> {
    Setup(Setup),
    Compile { name: &'a str, source: &'a str },
    Execute(Execute<'a>),
}

/// The measure of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The most that one of its executions may be given.
    pub(crate) memory_bytes: u64,
    /// CPU time after which the host asks to be replaced.
    pub(crate) cpu_secs: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Execute<'a> {
    pub(crate) version: Version,
    /// Name and source, unless the host was given them before.
    pub(crate) script: Option<(&'a str, &'a str)>,
    pub(crate) execution: EventId,
    pub(crate) now: Timestamp,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    pub(crate) context: &'a str,
}

/// What a host answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It has confined itself. The note says what this machine could not do.
    Ready {
        note: Option<String>,
    },
    Compiled,
    /// The script does not compile, be it to be compiled or to be run.
    Refused(CompileError),
    /// It no longer has the script.
    ScriptWanted,
    /// `worn`: it wants to be replaced.
    Ended {
        ended: Ended,
        worn: bool,
    },
}

impl Order<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Setup(setup) => {
                let mut out = Writer::new(0, 16);
                out.number(setup.memory_bytes);
                out.number(setup.cpu_secs);
                out.finish()
            }
            Self::Compile { name, source } => {
                let mut out = Writer::new(1, name.len() + source.len() + 8);
                out.text(name);
                out.text(source);
                out.finish()
            }
            Self::Execute(execute) => execute.encode(),
        }
    }
}

impl Execute<'_> {
    fn encode(&self) -> Vec<u8> {
        let script = self.script.map_or(0, |(name, source)| name.len() + source.len() + 8);
        let mut out = Writer::new(2, self.context.len() + script + 160);
        out.raw(&self.version.0);
        out.bool(self.script.is_some());
        if let Some((name, source)) = self.script {
            out.text(name);
            out.text(source);
        }
        out.raw(&self.execution.as_u128().to_le_bytes());
        out.number(self.now.millis());
        out.byte(self.grants.bits());
        let Limits { wall, memory_bytes, input_bytes, result_bytes, log_lines, log_bytes } = self.limits;
        out.number(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX));
        for size in [memory_bytes, input_bytes, result_bytes, log_lines, log_bytes] {
            out.number(size as u64);
        }
        out.text(self.context);
        out.finish()
    }
}

impl<'a> Order<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, BadFrame> {
        let mut body = Reader::new(body);
        let order = match body.byte()? {
            0 => Self::Setup(Setup { memory_bytes: body.number()?, cpu_secs: body.number()? }),
            1 => Self::Compile { name: body.text()?, source: body.text()? },
            2 => {
                let version = Version(body.array()?);
                let script = if body.bool()? { Some((body.text()?, body.text()?)) } else { None };
                let execution = EventId::from_u128(u128::from_le_bytes(body.array()?));
                let now = Timestamp::clamped(body.number()?);
                let grants = Grants::from_bits(body.byte()?);
                let limits = Limits {
                    wall: Duration::from_micros(body.number()?),
                    memory_bytes: size(&mut body)?,
                    input_bytes: size(&mut body)?,
                    result_bytes: size(&mut body)?,
                    log_lines: size(&mut body)?,
                    log_bytes: size(&mut body)?,
                };
                let context = body.text()?;
                Self::Execute(Execute { version, script, execution, now, grants, limits, context })
            }
            _ => return Err(BadFrame("an unknown order")),
        };
        body.end()?;
        Ok(order)
    }
}

fn size(body: &mut Reader<'_>) -> Result<usize, BadFrame> {
    usize::try_from(body.number()?).map_err(|_| BadFrame("a size that is too large"))
}

/// The longest answer to an execution with these limits.
pub(crate) fn answer_bytes_max(limits: &Limits) -> usize {
    let calls = CALLS_BYTES_MAX + CALLS_MAX * 16;
    let logs = limits.log_bytes + limits.log_lines * 8;
    // An error's texts, and the numbers.
    limits.result_bytes + calls + logs + 64 * 1024
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ready { note } => {
                let mut out = Writer::new(0, 64);
                out.bool(note.is_some());
                out.text(note.as_deref().unwrap_or_default());
                out.finish()
            }
            Self::Compiled => Writer::new(1, 0).finish(),
            Self::Refused(CompileError { message, line, column }) => {
                let mut out = Writer::new(2, message.len() + 24);
                out.text(message);
                out.number(u64::from(*line));
                out.number(u64::from(*column));
                out.finish()
            }
            Self::ScriptWanted => Writer::new(3, 0).finish(),
            Self::Ended { ended, worn } => encode_ended(ended, *worn),
        }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, BadFrame> {
        let mut body = Reader::new(body);
        let answer = match body.byte()? {
            0 => {
                let noted = body.bool()?;
                let note = body.text()?;
                Self::Ready { note: noted.then(|| note.to_owned()) }
            }
            1 => Self::Compiled,
            2 => Self::Refused(CompileError {
                message: body.text()?.to_owned(),
                line: body.small()?,
                column: body.small()?,
            }),
            3 => Self::ScriptWanted,
            4 => {
                let worn = body.bool()?;
                Self::Ended { ended: decode_ended(&mut body)?, worn }
            }
            _ => return Err(BadFrame("an unknown answer")),
        };
        body.end()?;
        Ok(answer)
    }
}

fn encode_ended(ended: &Ended, worn: bool) -> Vec<u8> {
    let room = match &ended.outcome {
        Ok(finished) => finished.result.len(),
        Err(broken) => broken.message.len() + broken.stack.len(),
    };
    let mut out = Writer::new(4, room + 128);
    out.bool(worn);
    let Stats { wall_micros, cpu_micros, peak_memory_bytes } = ended.stats;
    for number in [wall_micros, cpu_micros, peak_memory_bytes, ended.logs.len() as u64] {
        out.number(number);
    }
    for line in &ended.logs {
        out.byte(line.level as u8);
        out.text(&line.text);
    }
    out.bool(ended.logs_truncated);
    out.bool(ended.outcome.is_ok());
    match &ended.outcome {
        Ok(Finished { result, calls }) => {
            out.text(result);
            out.number(calls.len() as u64);
            for call in calls {
                out.byte(call.kind.number());
                out.text(&call.subject);
                out.text(&call.json);
            }
        }
        Err(Broken { class, message, stack, place }) => {
            out.text(class.as_str());
            out.text(message);
            out.text(stack);
            let (line, column) = place.unwrap_or_default();
            out.number(u64::from(line));
            out.number(u64::from(column));
        }
    }
    out.finish()
}

fn decode_ended(body: &mut Reader<'_>) -> Result<Ended, BadFrame> {
    let stats =
        Stats { wall_micros: body.number()?, cpu_micros: body.number()?, peak_memory_bytes: body.number()? };
    // No room is made ahead for as many as are announced: the body ends before memory does.
    let mut logs = Vec::new();
    for _ in 0..body.number()? {
        let level = LogLevel::from_number(i32::from(body.byte()?));
        logs.push(LogLine { level, text: body.text()?.to_owned() });
    }
    let logs_truncated = body.bool()?;
    let outcome = if body.bool()? {
        let result = body.text()?.to_owned();
        let mut calls = Vec::new();
        for _ in 0..body.number()? {
            let kind = CallKind::from_number(i32::from(body.byte()?)).ok_or(BadFrame("an unknown call"))?;
            calls.push(RawCall { kind, subject: body.text()?.to_owned(), json: body.text()?.to_owned() });
        }
        Ok(Finished { result, calls })
    } else {
        let class = ErrorClass::from_name(body.text()?).ok_or(BadFrame("an unknown class"))?;
        let (message, stack) = (body.text()?.to_owned(), body.text()?.to_owned());
        let place = (body.small()?, body.small()?);
        Err(Broken { class, message, stack, place: (place.0 > 0).then_some(place) })
    };
    Ok(Ended { outcome, logs, logs_truncated, stats })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bytes::FrameBuffer;
    use super::*;

    fn body(frame: &[u8]) -> &[u8] {
        &frame[4..]
    }

    fn sample_answers() -> Vec<Answer> {
        let logs = vec![LogLine { level: LogLevel::Warn, text: "é".to_owned() }];
        let stats = Stats { wall_micros: 1, cpu_micros: 2, peak_memory_bytes: 3 };
        let call = RawCall { kind: CallKind::Publish, subject: "a".to_owned(), json: "{}".to_owned() };
        let broken = Broken {
            class: ErrorClass::Script,
            message: "m".to_owned(),
            stack: "s".to_owned(),
            place: Some((3, 4)),
        };
        let finished = Finished { result: "null".to_owned(), calls: vec![call] };
        let ended = |outcome| Ended { outcome, logs: logs.clone(), logs_truncated: true, stats };
        vec![
            Answer::Ready { note: None },
            Answer::Ready { note: Some("n".to_owned()) },
            Answer::Compiled,
            Answer::Refused(CompileError { message: "m".to_owned(), line: 3, column: 4 }),
            Answer::ScriptWanted,
            Answer::Ended { ended: ended(Ok(finished)), worn: true },
            Answer::Ended { ended: ended(Err(broken)), worn: false },
        ]
    }

    #[test]
    fn messages_survive_the_socket() {
        let execute = Execute {
            version: Version([7; 32]),
            script: Some(("n", "return 1")),
            execution: EventId::from_u128(9),
            now: Timestamp::clamped(1_700_000_000_000),
            grants: Grants::ALL,
            limits: Limits::default(),
            context: "{}",
        };
        for order in [
            Order::Setup(Setup { memory_bytes: 1, cpu_secs: 2 }),
            Order::Compile { name: "n", source: "s" },
            Order::Execute(Execute { script: None, ..execute.clone() }),
            Order::Execute(execute),
        ] {
            assert_eq!(Order::decode(body(&order.encode())).unwrap(), order);
        }
        for answer in sample_answers() {
            let again = Answer::decode(body(&answer.encode())).unwrap();
            assert_eq!(format!("{again:?}"), format!("{answer:?}"));
        }
    }

    #[test]
    fn frames_come_in_pieces_and_in_pairs() {
        let frames = [Answer::Compiled.encode(), sample_answers().pop().unwrap().encode()].concat();
        for piece in 1..frames.len() {
            let mut buffer = FrameBuffer::default();
            let mut bodies = Vec::new();
            for chunk in frames.chunks(piece) {
                buffer.room()[..chunk.len()].copy_from_slice(chunk);
                buffer.filled(chunk.len());
                while let Some(body) = buffer.frame(1 << 20).unwrap() {
                    bodies.push(body.to_vec());
                    buffer.next();
                }
            }
            assert!(buffer.is_empty());
            assert_eq!(bodies.len(), 2, "pieces of {piece}");
        }
        let mut buffer = FrameBuffer::default();
        buffer.room()[..4].copy_from_slice(&100_u32.to_le_bytes());
        buffer.filled(4);
        assert!(buffer.frame(99).is_err(), "refused before it is read");
    }

    proptest! {
        #[test]
        fn broken_answers_are_refused_and_never_panic(which in 0..7_usize, at in any::<prop::sample::Index>(), byte: u8) {
            let frame = sample_answers()[which].encode();
            let mut broken = body(&frame).to_vec();
            let at = at.index(broken.len());
            broken[at] = byte;
            let _ = Answer::decode(&broken);
            prop_assert!(Answer::decode(&broken[..at]).is_err());
        }
    }
}
