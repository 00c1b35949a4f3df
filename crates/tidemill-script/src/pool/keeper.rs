//! The thread that starts hosts and waits for their ends.
//!
//! A host dies with the thread that started it, by the kernel's doing, so that thread must live as long as the pool.
//! Starting and reaping take a moment in which nothing else can be done, which is no work for async threads either.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;

use tokio::sync::{oneshot, watch};

use super::config::PoolConfig;

/// What the thread is asked for.
pub(super) enum Errand {
    /// Start a host: the process, and the socket to it.
    Start(oneshot::Sender<io::Result<(Child, UnixStream)>>),
    /// Wait for a host that was killed or has closed its socket.
    Reap(Child, Option<oneshot::Sender<io::Result<ExitStatus>>>),
}

/// Starts the thread. It ends when the last sender is gone; the second value closes then.
pub(super) fn start(config: &PoolConfig) -> io::Result<(mpsc::Sender<Errand>, watch::Receiver<()>)> {
    let (sender, errands) = mpsc::channel();
    let (open, closed) = watch::channel(());
    let config = config.clone();
    std::thread::Builder::new().name("script-hosts".to_owned()).spawn(move || {
        for errand in errands {
            match errand {
                Errand::Start(reply) => {
                    // The caller may be gone: then nobody needs the host.
                    if let Err(Ok((mut child, _))) = reply.send(spawn(&config)) {
                        // If it ended by itself there is nothing to kill, and it is reaped all the same.
                        let _ = child.kill();
                        let _ = child.wait();
                    }
                }
                Errand::Reap(mut child, reply) => {
                    // It may have closed its socket and live on.
                    let _ = child.kill();
                    let status = child.wait();
                    if let Some(reply) = reply {
                        // The caller may be gone.
                        let _ = reply.send(status);
                    }
                }
            }
        }
        drop(open);
    })?;
    Ok((sender, closed))
}

fn spawn(config: &PoolConfig) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = Command::new(&config.program)
        .args(&config.arguments)
        .env_clear()
        // Scripts see times in UTC wherever the server stands, and no file is read for it.
        .env("TZ", "UTC0")
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A Ctrl-C in the terminal is for the server, which lets its executions end.
        .process_group(0)
        .spawn()?;
    Ok((child, ours))
}
