//! What the server and the spawner say to each other, and its form on the socket.
//!
//! Both ends are the same program, so the form carries no version. A frame is a length of four bytes, little-endian, and a
//! message in postcard's form.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::moment::Moment;

/// The bytes of one frame; the kernel takes no more than 2 MiB of arguments and environment by default.
pub(super) const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Another user that child processes run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildExit {
    /// The exit status, or the signal that ended it.
    pub end: tidemill_model::Exit,
    /// The largest resident size of the process or of one that it waited for, in bytes.
    pub peak_rss: u64,
    /// CPU time of the process and of those it waited for, in microseconds.
    pub cpu_micros: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// Starts a child. Two descriptors come along: its stdout and its stderr.
    Spawn { id: u64, line: CommandLine, mark: OsString, run_as: Option<RunAs>, deadline: Option<Moment> },
    /// Ends a child and everything it started: SIGTERM, and SIGKILL after `grace_millis`.
    End { id: u64, grace_millis: u64 },
    /// Asks for the memory of a child and everything it started.
    Measure { id: u64 },
    /// Moves the moment at which a child is killed.
    Extend { id: u64, deadline: Moment },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
        frame(self)
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, BadMessage> {
        message(body)
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        frame(self)
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, BadMessage> {
        message(body)
    }
}

const LENGTH_BYTES: usize = 4;

fn frame(message: &impl Serialize) -> Vec<u8> {
    let mut frame = postcard::to_extend(message, vec![0; LENGTH_BYTES]).expect("a `Vec` takes any message");
    let length = u32::try_from(frame.len() - LENGTH_BYTES).unwrap_or(u32::MAX);
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    frame
}

fn message<'a, M: Deserialize<'a>>(body: &'a [u8]) -> Result<M, BadMessage> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(BadMessage),
    }
}

/// A text of the operating system as plain bytes: the form that serde gives it goes byte by byte.
struct OsBytes<'a>(&'a OsStr);

impl Serialize for OsBytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_bytes())
    }
}

impl<'de> Deserialize<'de> for OsBytes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(|bytes| Self(OsStr::from_bytes(bytes)))
    }
}

impl Serialize for CommandLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let argv: Vec<_> = self.argv.iter().map(|text| OsBytes(text)).collect();
        let env: Vec<_> = self.env.iter().map(|(name, value)| (OsBytes(name), OsBytes(value))).collect();
        (argv, env).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (argv, env) = <(Vec<OsBytes<'_>>, Vec<(OsBytes<'_>, OsBytes<'_>)>)>::deserialize(deserializer)?;
        Ok(Self {
            argv: argv.into_iter().map(|text| text.0.to_owned()).collect(),
            env: env.into_iter().map(|(name, value)| (name.0.to_owned(), value.0.to_owned())).collect(),
        })
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
                deadline: Some(Moment::now()),
            },
            Request::End { id: 7, grace_millis: 5_000 },
            Request::Measure { id: 8 },
            Request::Extend { id: 9, deadline: Moment::now() },
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
