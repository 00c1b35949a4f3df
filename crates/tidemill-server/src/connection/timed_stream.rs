//! A TCP stream that gives up on clients that are too slow.
//!
//! Between requests a connection may rest for a while; once a head has begun it must end soon; and a client must read
//! what waits for it. The reader of a body judges how fast it comes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// How long a connection may take for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) idle: Duration,
    pub(super) head: Duration,
    pub(super) write: Duration,
}

/// Counts the beginnings and ends of requests; shared with their handlers.
///
/// A count and not a flag: a request may begin and end between two looks, and its head is over then.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<AtomicU64>);

impl Busy {
    /// A request begins or ends.
    pub(super) fn turn(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether there was any request yet.
    pub(super) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    pub(super) fn is_busy(&self) -> bool {
        self.0.load(Ordering::Acquire) % 2 == 1
    }
}

pub(super) struct TimedStream {
    stream: Arc<TcpStream>,
    busy: Busy,
    /// The count at the last look.
    seen: u64,
    patience: Patience,
    reading: Reading,
    read_timer: Pin<Box<Sleep>>,
    /// Set while a write makes no progress.
    write_timer: Option<Pin<Box<Sleep>>>,
}

/// What the bytes that are waited for belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The next head, of which nothing has come. The timer runs.
    Nothing,
    /// A head. The timer runs.
    Head,
    /// A body, or nothing that matters yet.
    Busy,
}

impl TimedStream {
    pub(super) fn new(stream: Arc<TcpStream>, busy: Busy, patience: Patience) -> Self {
        Self {
            stream,
            busy,
            seen: 0,
            patience,
            reading: Reading::Nothing,
            read_timer: Box::pin(tokio::time::sleep(patience.idle)),
            write_timer: None,
        }
    }

    fn turn_to(&mut self, reading: Reading) {
        self.reading = reading;
        let patience = match reading {
            Reading::Nothing => self.patience.idle,
            Reading::Head => self.patience.head,
            Reading::Busy => return,
        };
        self.read_timer.as_mut().reset(Instant::now() + patience);
    }

    /// Looks whether a request began or ended since the last time.
    fn notice(&mut self) {
        let turns = self.busy.0.load(Ordering::Acquire);
        if turns != self.seen {
            self.seen = turns;
            self.turn_to(if turns % 2 == 1 { Reading::Busy } else { Reading::Nothing });
        }
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.stream.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    let patience = self.patience.write;
                    let timer =
                        self.write_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
                    ready!(timer.as_mut().poll(cx));
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.write_timer = None;
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.notice();
        loop {
            match this.stream.poll_read_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending if this.reading == Reading::Busy => return Poll::Pending,
                Poll::Pending => {
                    ready!(this.read_timer.as_mut().poll(cx));
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
            match this.stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    if count > 0 && this.reading == Reading::Nothing {
                        this.turn_to(Reading::Head);
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_with(cx, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write).map_err(Into::into))
    }
}
