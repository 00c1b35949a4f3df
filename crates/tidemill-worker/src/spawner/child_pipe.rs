//! The reading end of a child's output.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;

/// What a child writes to one of its streams. It costs the runtime nothing until somebody waits for it.
#[derive(Debug)]
pub struct ChildPipe {
    end: End,
}

#[derive(Debug)]
enum End {
    Plain(OwnedFd),
    Watched(pipe::Receiver),
    /// The runtime did not take it.
    Closed,
}

impl ChildPipe {
    /// A pipe, and the end that is for the child.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        // Each end has its own mode: the child's blocks, as programs expect.
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok((Self { end: End::Plain(reader.into()) }, writer.into()))
    }

    /// Reads what there is. `WouldBlock` when that is nothing, 0 when nothing will come any more.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.end {
            End::Plain(fd) => Ok(rustix::io::read(fd, buffer)?),
            End::Watched(pipe) => pipe.try_read(buffer),
            End::Closed => Ok(0),
        }
    }

    /// Returns when there is something to read, or an end.
    pub async fn readable(&mut self) -> io::Result<()> {
        if let End::Plain(_) = self.end
            && let End::Plain(fd) = std::mem::replace(&mut self.end, End::Closed)
        {
            self.end = End::Watched(pipe::Receiver::from_owned_fd_unchecked(fd)?);
        }
        match &self.end {
            End::Watched(pipe) => pipe.readable().await,
            End::Plain(_) | End::Closed => Ok(()),
        }
    }
}
