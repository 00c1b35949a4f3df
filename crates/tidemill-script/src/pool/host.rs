//! One host as the pool sees it.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tidemill_model::TenantId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::config::PoolConfig;
use super::keeper::Errand;
use crate::failure::ErrorClass;
use crate::script_source::Version;
use crate::wire::{Answer, FrameBuffer, Order, Setup};

/// How many scripts are remembered to be known to a host. Beyond, all are forgotten and sent once more.
const KNOWN_MAX: usize = 256;
/// The longest answer that is no end of an execution.
const SHORT_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The processes of a pool that were not killed yet.
#[derive(Debug, Clone, Default)]
pub(super) struct LivePids(Arc<Mutex<BTreeSet<u32>>>);

impl LivePids {
    pub(super) fn all(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn put(&self, pid: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
    }

    fn remove(&self, pid: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }
}

/// A process that is ready for an order. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Host {
    socket: UnixStream,
    buffer: FrameBuffer,
    known: HashSet<Version>,
    /// Whose scripts it has seen. It sees no other's.
    pub(super) tenant: Option<TenantId>,
    process: Process,
    /// What it could not take away from itself.
    pub(super) note: Option<String>,
    pub(super) idle_since: Instant,
}

impl Host {
    /// Starts a process and waits until it has confined itself.
    pub(super) async fn start(
        config: &PoolConfig,
        errands: &mpsc::Sender<Errand>,
        live: &LivePids,
    ) -> io::Result<Self> {
        let gone = || io::Error::other("the pool is closed");
        let (reply, started) = oneshot::channel();
        errands.send(Errand::Start(reply)).map_err(|_| gone())?;
        let (child, socket) = started.await.map_err(|_| gone())??;
        live.put(child.id());
        let process = Process { child: Some(child), errands: errands.clone(), live: live.clone() };
        let mut host = Self {
            socket: UnixStream::from_std(socket)?,
            buffer: FrameBuffer::default(),
            known: HashSet::new(),
            tenant: None,
            process,
            note: None,
            idle_since: Instant::now(),
        };
        let setup = Setup { memory_bytes: config.memory_bytes as u64, cpu_secs: config.host_cpu.as_secs() };
        let order = Order::Setup(setup);
        match timeout(config.start_wait, host.ask(&order, SHORT_ANSWER_BYTES_MAX)).await {
            Ok(Ok(Answer::Ready { note })) => host.note = note,
            Ok(Ok(_)) => {
                return Err(io::Error::other("a new script host said something else than that it is ready"));
            }
            Ok(Err(error)) => {
                let end =
                    host.end().await.map_or_else(|error| error.to_string(), |status| status.to_string());
                return Err(io::Error::other(format!("a script host did not start ({end}): {error}")));
            }
            Err(_) => return Err(io::Error::other("a script host took too long to start")),
        }
        Ok(host)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.child.as_ref().map(Child::id)
    }

    pub(super) fn knows(&self, version: Version) -> bool {
        self.known.contains(&version)
    }

    pub(super) fn remember(&mut self, version: Version) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(version);
    }

    /// Whether it is still there and silent, as a host without an order is. Asked of the socket itself: the runtime may
    /// not have noticed yet.
    pub(super) fn is_sound(&self) -> bool {
        let mut byte = [0_u8];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(recv(&self.socket, &mut byte, flags), Err(Errno::AGAIN)) && self.buffer.is_empty()
    }

    /// Sends an order and waits for the answer. Given up halfway, the host is of no more use.
    pub(super) async fn ask(&mut self, order: &Order<'_>, bytes_max: usize) -> io::Result<Answer> {
        self.socket.write_all(&order.encode()).await?;
        loop {
            if let Some(body) = self.buffer.frame(bytes_max).map_err(io::Error::other)? {
                let answer = Answer::decode(body).map_err(io::Error::other)?;
                self.buffer.next();
                return Ok(answer);
            }
            let count = self.socket.read(self.buffer.room()).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer.filled(count);
        }
    }

    pub(super) async fn compile(&mut self, name: &str, source: &str) -> io::Result<Answer> {
        self.ask(&Order::Compile { name, source }, SHORT_ANSWER_BYTES_MAX).await
    }

    /// Kills it, and tells how it ended: by itself, if it was gone before.
    pub(super) async fn end(mut self) -> io::Result<ExitStatus> {
        let (reply, ended) = oneshot::channel();
        self.process.give_up(Some(reply));
        drop(self);
        ended.await.map_err(|_| io::Error::other("the pool is closed"))?
    }
}

/// What it says about an execution that its host ended in the middle of it.
pub(super) fn verdict(status: &io::Result<ExitStatus>) -> (ErrorClass, String) {
    let Ok(status) = status else {
        return (ErrorClass::Internal, "the script host is gone".to_owned());
    };
    match status.signal() {
        Some(libc::SIGXCPU) => (ErrorClass::Timeout, "the script used too much CPU time".to_owned()),
        // Not ours: that is told apart before.
        Some(libc::SIGKILL) => {
            (ErrorClass::Memory, "the script host was killed, most likely for lack of memory".to_owned())
        }
        Some(libc::SIGSYS) => {
            (ErrorClass::Internal, "the script host made a forbidden system call".to_owned())
        }
        _ => (ErrorClass::Internal, format!("the script host broke down ({status})")),
    }
}

/// The process behind a host. Killed and reaped when dropped.
#[derive(Debug)]
struct Process {
    child: Option<Child>,
    errands: mpsc::Sender<Errand>,
    live: LivePids,
}

impl Process {
    fn give_up(&mut self, reply: Option<oneshot::Sender<io::Result<ExitStatus>>>) {
        if let Some(mut child) = self.child.take() {
            self.live.remove(child.id());
            if reply.is_none() {
                // At once, not when the thread comes to it. Where the end is asked for, that end comes first.
                let _ = child.kill();
            }
            // The thread ends after the last sender, so it gets this one.
            let _ = self.errands.send(Errand::Reap(child, reply));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.give_up(None);
    }
}
