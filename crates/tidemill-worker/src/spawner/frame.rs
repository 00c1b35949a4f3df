//! Frames and descriptors over a Unix socket, without waiting.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::message::{BadMessage, FRAME_BYTES_MAX};

/// Descriptors that come with one frame at most.
const FDS_MAX: usize = 2;
/// What is taken from the socket at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// What is to be sent: frames, and the descriptors that go with the first byte of some of them.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: VecDeque<(Vec<u8>, usize, Vec<OwnedFd>)>,
}

impl Outbox {
    pub(super) fn push(&mut self, frame: Vec<u8>, fds: Vec<OwnedFd>) {
        self.frames.push_back((frame, 0, fds));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Sends what the socket takes. What is left waits until it is writable.
    pub(super) fn flush(&mut self, socket: impl AsFd) -> Result<(), Errno> {
        while let Some((frame, sent, fds)) = self.frames.front_mut() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
                return Err(Errno::INVAL);
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&socket, &[IoSlice::new(&frame[*sent..])], &mut ancillary, flags) {
                Ok(count) => {
                    *sent += count;
                    // They went with the first byte.
                    fds.clear();
                    if *sent == frame.len() {
                        self.frames.pop_front();
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// What was received and is no whole frame yet, and descriptors whose frames are still to be read.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    start: usize,
    /// `None` where this process had no room for what came.
    fds: VecDeque<Option<OwnedFd>>,
    /// Where the socket's bytes arrive.
    chunk: Vec<u8>,
}

/// How a receive went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    Something,
    /// As much as is taken at a time: there may be more.
    Full,
    Nothing,
    /// The other side closed.
    End,
}

impl Inbox {
    pub(super) fn receive(&mut self, socket: impl AsFd) -> Result<Received, Errno> {
        self.chunk.resize(CHUNK_BYTES, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(socket, &mut [IoSliceMut::new(&mut self.chunk)], &mut ancillary, flags);
        let (count, is_cut) = match received {
            Ok(received) => (received.bytes, received.flags.contains(ReturnFlags::CTRUNC)),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
            Err(errno) => return Err(errno),
        };
        let mut came = 0;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    came += 1;
                    self.fds.push_back(Some(fd));
                }
            }
        }
        if is_cut {
            // The kernel leaves out what does not fit below the limit of open files.
            self.fds.extend((came..FDS_MAX).map(|_| None));
        }
        if count == 0 {
            return Ok(Received::End);
        }
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(&self.chunk[..count]);
        Ok(if count == CHUNK_BYTES { Received::Full } else { Received::Something })
    }

    /// The next whole frame's body.
    pub(super) fn frame(&mut self) -> Result<Option<&[u8]>, BadMessage> {
        let rest = &self.bytes[self.start..];
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(BadMessage);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let body = self.start + 4;
        self.start = body + length;
        Ok(Some(&self.bytes[body..self.start]))
    }

    /// The next descriptor that came.
    pub(super) fn fd(&mut self) -> Option<OwnedFd> {
        self.fds.pop_front().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::super::message::Request;
    use super::*;

    #[test]
    fn frames_and_descriptors_arrive_in_order() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut out, mut inbox) = (Outbox::default(), Inbox::default());
        let (reader, mut writer) = std::io::pipe().unwrap();
        // Larger than the socket's buffer: it takes several turns.
        let large = [vec![0; 4], vec![7; 3 << 20]].concat();
        let length = u32::try_from(large.len() - 4).unwrap().to_le_bytes();
        let large = [&length[..], &large[4..]].concat();
        out.push(Request::Measure { id: 1 }.encode(), Vec::new());
        out.push(large.clone(), vec![reader.into()]);
        out.push(Request::Measure { id: 2 }.encode(), Vec::new());
        let mut bodies = Vec::new();
        while bodies.len() < 3 {
            out.flush(&here).unwrap();
            while matches!(inbox.receive(&there).unwrap(), Received::Something | Received::Full) {
                while let Some(body) = inbox.frame().unwrap() {
                    bodies.push(body.to_vec());
                }
            }
        }
        assert!(out.is_empty());
        assert_eq!(Request::decode(&bodies[0]), Ok(Request::Measure { id: 1 }));
        assert_eq!(bodies[1], large[4..]);
        assert_eq!(Request::decode(&bodies[2]), Ok(Request::Measure { id: 2 }));
        writer.write_all(b"x").unwrap();
        drop(writer);
        let mut text = String::new();
        std::fs::File::from(inbox.fd().unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        drop(here);
        assert_eq!(inbox.receive(&there).unwrap(), Received::End);
    }
}
