//! What the server and the spawner say to each other, and its form on the socket.
//!
//! Both ends are the same program, so the form carries no version. A frame is a length and a body; a body is a tag and
//! its fields, numbers little-endian, texts with their length in front.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::moment::Moment;

/// The bytes of one frame; the kernel takes no more than 2 MiB of arguments and environment by default.
pub(super) const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Another user whom child processes run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    pub uid: u32,
    pub gid: u32,
}

/// What is to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The program, found by the child's own `PATH`, and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment but for the spawner's own mark.
    pub env: Vec<(OsString, OsString)>,
}

/// Why nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// The operating system refused, with this error number.
    #[error("{}", std::io::Error::from_raw_os_error(*errno))]
    Refused { errno: i32 },
    /// There is no spawner now. It is worth trying again.
    #[error("the spawner is gone: {0}")]
    Gone(String),
    /// The spawner ended, or hung and was killed, while it was at this child. The child may be why.
    #[error("the spawner is gone: {0}")]
    Died(&'static str),
    /// It was to be over before it began.
    #[error("its time was over before it was started")]
    TooLate,
}

/// How a child process ended and what it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildExit {
    /// The exit status, or the signal that ended it.
    pub end: tidemill_model::Exit,
    /// The largest resident size of the process or of one that it waited for, in bytes.
    pub peak_rss: u64,
    /// CPU time of the process and of those it waited for, in microseconds.
    pub cpu_micros: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Starts a child. Two descriptors come along: its stdout and its stderr.
    Spawn { id: u64, line: CommandLine, mark: OsString, run_as: Option<RunAs>, deadline: Option<Moment> },
    /// Ends a child and everything it started: SIGTERM, and SIGKILL after so long.
    End { id: u64, grace_millis: u64 },
    /// Asks for the memory of a child and everything it started.
    Measure { id: u64 },
    /// Moves the moment at which a child is killed.
    Extend { id: u64, deadline: Moment },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Started {
        id: u64,
        pid: u32,
    },
    Failed {
        id: u64,
        errno: i32,
    },
    /// The child itself ended; what it started may live on.
    Exited {
        id: u64,
        exit: ChildExit,
    },
    /// Nothing is left of the child. `survivors` could not be killed. `expired`: it was killed at its deadline.
    Gone {
        id: u64,
        forced: bool,
        expired: bool,
        survivors: Vec<u32>,
    },
    /// It was not started: its deadline was over.
    TooLate {
        id: u64,
    },
    Measured {
        id: u64,
        rss: u64,
    },
}

impl Answer {
    pub(super) fn id(&self) -> u64 {
        match self {
            Self::Started { id, .. }
            | Self::Failed { id, .. }
            | Self::Exited { id, .. }
            | Self::Gone { id, .. }
            | Self::Measured { id, .. }
            | Self::TooLate { id } => *id,
        }
    }
}

/// Bytes that are no message: the other side is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message on the spawner's socket cannot be read")]
pub(super) struct BadMessage;

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Body::new();
        match self {
            Self::Spawn { id, line, mark, run_as, deadline } => {
                body.tag(1).u64(*id).list(line.argv.iter());
                body.list(line.env.iter().flat_map(|(name, value)| [name, value])).bytes(mark.as_bytes());
                match run_as {
                    Some(RunAs { uid, gid }) => body.tag(1).u32(*uid).u32(*gid),
                    None => body.tag(0),
                };
                match deadline {
                    Some(deadline) => body.tag(1).u64(deadline.millis()),
                    None => body.tag(0),
                };
            }
            Self::End { id, grace_millis } => drop(body.tag(2).u64(*id).u64(*grace_millis)),
            Self::Measure { id } => drop(body.tag(3).u64(*id)),
            Self::Extend { id, deadline } => drop(body.tag(4).u64(*id).u64(deadline.millis())),
        }
        body.frame()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, BadMessage> {
        let mut fields = Fields(body);
        let request = match fields.tag()? {
            1 => {
                let id = fields.u64()?;
                let argv = fields.list()?;
                let mut names = fields.list()?.into_iter();
                let mut env = Vec::with_capacity(names.len() / 2);
                while let Some(name) = names.next() {
                    env.push((name, names.next().ok_or(BadMessage)?));
                }
                let mark = OsStr::from_bytes(fields.bytes()?).to_owned();
                let run_as = match fields.tag()? {
                    0 => None,
                    _ => Some(RunAs { uid: fields.u32()?, gid: fields.u32()? }),
                };
                let deadline = match fields.tag()? {
                    0 => None,
                    _ => Some(Moment::from_millis(fields.u64()?)),
                };
                Self::Spawn { id, line: CommandLine { argv, env }, mark, run_as, deadline }
            }
            2 => Self::End { id: fields.u64()?, grace_millis: fields.u64()? },
            3 => Self::Measure { id: fields.u64()? },
            4 => Self::Extend { id: fields.u64()?, deadline: Moment::from_millis(fields.u64()?) },
            _ => return Err(BadMessage),
        };
        fields.end().map(|()| request)
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Body::new();
        match self {
            Self::Started { id, pid } => drop(body.tag(1).u64(*id).u32(*pid)),
            Self::Failed { id, errno } => drop(body.tag(2).u64(*id).u32(errno.cast_unsigned())),
            Self::Exited { id, exit } => {
                let (kind, number) = match exit.end {
                    tidemill_model::Exit::Code(code) => (0, code),
                    tidemill_model::Exit::Signal(signal) => (1, signal),
                };
                body.tag(3).u64(*id).tag(kind).u32(number.cast_unsigned());
                body.u64(exit.peak_rss).u64(exit.cpu_micros);
            }
            Self::Gone { id, forced, expired, survivors } => {
                body.tag(4).u64(*id).tag(u8::from(*forced)).tag(u8::from(*expired));
                body.u32(u32::try_from(survivors.len()).unwrap_or(u32::MAX));
                for pid in survivors {
                    body.u32(*pid);
                }
            }
            Self::Measured { id, rss } => drop(body.tag(5).u64(*id).u64(*rss)),
            Self::TooLate { id } => drop(body.tag(6).u64(*id)),
        }
        body.frame()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, BadMessage> {
        let mut fields = Fields(body);
        let tag = fields.tag()?;
        let id = fields.u64()?;
        let answer = match tag {
            1 => Self::Started { id, pid: fields.u32()? },
            2 => Self::Failed { id, errno: fields.u32()?.cast_signed() },
            3 => {
                let kind = fields.tag()?;
                let number = fields.u32()?.cast_signed();
                let end = match kind {
                    0 => tidemill_model::Exit::Code(number),
                    _ => tidemill_model::Exit::Signal(number),
                };
                Self::Exited {
                    id,
                    exit: ChildExit { end, peak_rss: fields.u64()?, cpu_micros: fields.u64()? },
                }
            }
            4 => {
                let forced = fields.tag()? == 1;
                let expired = fields.tag()? == 1;
                let count = fields.u32()?;
                let survivors = (0..count).map(|_| fields.u32()).collect::<Result<_, _>>()?;
                Self::Gone { id, forced, expired, survivors }
            }
            5 => Self::Measured { id, rss: fields.u64()? },
            6 => Self::TooLate { id },
            _ => return Err(BadMessage),
        };
        fields.end().map(|()| answer)
    }
}

/// A frame in the making. The first four bytes are its length.
struct Body(Vec<u8>);

impl Body {
    fn new() -> Self {
        Self(vec![0; 4])
    }

    fn tag(&mut self, tag: u8) -> &mut Self {
        self.0.push(tag);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    fn list<'a>(&mut self, items: impl Iterator<Item = &'a OsString> + Clone) -> &mut Self {
        self.u32(u32::try_from(items.clone().count()).unwrap_or(u32::MAX));
        for item in items {
            self.bytes(item.as_bytes());
        }
        self
    }

    fn frame(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], BadMessage> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BadMessage)?;
        self.0 = rest;
        Ok(taken)
    }

    fn tag(&mut self) -> Result<u8, BadMessage> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, BadMessage> {
        let bytes = self.take(4)?.try_into().map_err(|_| BadMessage)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> Result<u64, BadMessage> {
        let bytes = self.take(8)?.try_into().map_err(|_| BadMessage)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn bytes(&mut self) -> Result<&'a [u8], BadMessage> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    fn list(&mut self) -> Result<Vec<OsString>, BadMessage> {
        let count = self.u32()?;
        (0..count).map(|_| self.bytes().map(|bytes| OsStr::from_bytes(bytes).to_owned())).collect()
    }

    fn end(&self) -> Result<(), BadMessage> {
        if self.0.is_empty() { Ok(()) } else { Err(BadMessage) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidemill_model::Exit;

    use super::*;

    fn requests() -> Vec<Request> {
        let line = CommandLine {
            argv: vec!["/bin/echo".into(), OsStr::from_bytes(b"\xff\xfe").to_owned(), "".into()],
            env: vec![("A".into(), "1".into()), ("B".into(), "".into())],
        };
        vec![
            Request::Spawn { id: 1, line, mark: "d.1.2".into(), run_as: None, deadline: None },
            Request::Spawn {
                id: u64::MAX,
                line: CommandLine::default(),
                mark: "".into(),
                run_as: Some(RunAs { uid: 1000, gid: u32::MAX }),
                deadline: Some(Moment::from_millis(4_711)),
            },
            Request::End { id: 7, grace_millis: 5_000 },
            Request::Measure { id: 8 },
            Request::Extend { id: 9, deadline: Moment::from_millis(1) },
        ]
    }

    fn answers() -> Vec<Answer> {
        let exit = |end| ChildExit { end, peak_rss: 4_096, cpu_micros: 17 };
        vec![
            Answer::Started { id: 1, pid: 4_711 },
            Answer::Failed { id: 2, errno: 2 },
            Answer::Exited { id: 3, exit: exit(Exit::Code(255)) },
            Answer::Exited { id: 3, exit: exit(Exit::Signal(9)) },
            Answer::Gone { id: 4, forced: true, expired: true, survivors: vec![1, 2, 3] },
            Answer::TooLate { id: 6 },
            Answer::Measured { id: 5, rss: 1 << 40 },
        ]
    }

    #[test]
    fn what_was_said_is_heard() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()[4..]), Ok(request));
        }
        for answer in answers() {
            assert_eq!(Answer::decode(&answer.encode()[4..]), Ok(answer));
        }
    }

    #[test]
    fn a_message_that_was_cut_is_refused() {
        for whole in requests().iter().map(Request::encode) {
            for end in 4..whole.len() {
                assert_eq!(Request::decode(&whole[4..end]), Err(BadMessage));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::decode(&bytes);
            let _ = Answer::decode(&bytes);
        }
    }
}
