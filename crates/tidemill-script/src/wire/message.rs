//! Orders to a host, and its answers.

use serde::{Deserialize, Serialize};
use tidemill_model::{EventId, Timestamp};

use super::bytes::{BadFrame, frame, message};
use crate::call::Grants;
use crate::engine::machine::Ended;
use crate::limits::{CALLS_BYTES_MAX, CALLS_MAX, Limits};
use crate::script_source::{CompileError, Version};

/// What a host is asked for. The first order is `Setup`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order<'a> {
    Setup(Setup),
    Compile {
        name: &'a str,
        source: &'a str,
    },
    #[serde(borrow)]
    Execute(Execute<'a>),
}

/// The measure of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The most that one of its executions may be given.
    pub(crate) memory_bytes: u64,
    /// CPU time after which the host asks to be replaced.
    pub(crate) cpu_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Execute<'a> {
    pub(crate) version: Version,
    /// Name and source, unless the host was given them before.
    #[serde(borrow)]
    pub(crate) script: Option<(&'a str, &'a str)>,
    pub(crate) execution: EventId,
    pub(crate) now: Timestamp,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    pub(crate) context: &'a str,
}

/// What a host answers.
#[derive(Debug, Serialize, Deserialize)]
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

impl<'a> Order<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        frame(self)
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, BadFrame> {
        message(body)
    }
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
        frame(self)
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, BadFrame> {
        message(body)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bytes::FrameBuffer;
    use super::*;
    use crate::call::{CallKind, RawCall};
    use crate::engine::machine::{Broken, Finished};
    use crate::execution::{ScriptLogLevel, ScriptLogLine, Stats};
    use crate::failure::ErrorClass;
    use crate::limits::LOG_LINES_CEILING;

    fn body(frame: &[u8]) -> &[u8] {
        &frame[4..]
    }

    fn sample_answers() -> Vec<Answer> {
        let logs = vec![ScriptLogLine { level: ScriptLogLevel::Warn, text: "é".to_owned() }];
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

    #[test]
    fn an_answer_with_too_long_a_list_is_refused() {
        let call = RawCall { kind: CallKind::Publish, subject: String::new(), json: String::new() };
        let line = ScriptLogLine { level: ScriptLogLevel::Info, text: String::new() };
        let answer = |calls, lines| {
            let finished = Finished { result: String::new(), calls: vec![call.clone(); calls] };
            let (logs, stats) = (vec![line.clone(); lines], Stats::default());
            Answer::Ended {
                ended: Ended { outcome: Ok(finished), logs, logs_truncated: false, stats },
                worn: false,
            }
        };
        for (calls, lines, is_read) in [
            (CALLS_MAX, LOG_LINES_CEILING, true),
            (CALLS_MAX + 1, 0, false),
            (0, LOG_LINES_CEILING + 1, false),
        ] {
            let frame = answer(calls, lines).encode();
            assert_eq!(Answer::decode(body(&frame)).is_ok(), is_read, "{calls} calls, {lines} lines");
        }
        // Announced and not there.
        let mut frame = answer(0, 0).encode();
        frame.truncate(frame.len() - 6);
        frame.extend([0xff; 9]);
        frame.push(1);
        assert!(Answer::decode(body(&frame)).is_err());
    }

    #[test]
    fn bytes_after_a_message_are_refused() {
        let mut frame = Answer::Compiled.encode();
        frame.push(0);
        assert_eq!(Answer::decode(body(&frame)).unwrap_err(), BadFrame("bytes after its end"));
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Answer::decode(&bytes);
        }

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
