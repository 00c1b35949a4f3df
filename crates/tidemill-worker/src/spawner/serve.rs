//! The spawner process itself: one thread, one loop, no output of its children passes through it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper};

use super::alarm::Alarm;
use super::frame::{Inbox, Outbox, Received};
use super::message::{Answer, Request};
use super::signals::{Reaped, ignore_nothing, reap, watch_children};
use super::start::start;
use super::trees::{Trees, kill_all};
use crate::moment::Moment;

/// How long processes that were killed may take to go before this one ends all the same.
const LAST_KILLS: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long the news that a child started may wait for that of its end. Most small children end sooner, and the server
/// then wakes once.
const PATIENCE: Duration = Duration::from_millis(5);

/// Runs the spawner in this process until its socket, which it has as standard input, closes.
///
/// The process must be of its own, single-threaded, and started for this by `Spawner::start`.
pub fn serve() -> io::Result<()> {
    // Moved away from 0, so that no child can ever get it.
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(fs::File::open("/dev/null")?)?;
    hide_descriptors()?;
    ignore_nothing();
    let children = watch_children()?;
    set_child_subreaper(Some(getpid()))?;
    let mut server = Server {
        socket,
        children,
        inbox: Inbox::default(),
        out: Outbox::default(),
        trees: Trees::new(),
        held: Vec::new(),
        say_at: None,
        alarm: Alarm::new()?,
    };
    let ended = server.run();
    kill_everything();
    match ended {
        // The server was killed while something was on its way.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            Ok(())
        }
        ended => ended,
    }
}

/// Keeps descriptors that this process was started with from its children.
fn hide_descriptors() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if fd > 2 {
            hide(fd);
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "the number is of this process's own list, and only a flag is set")]
fn hide(fd: i32) {
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    // The descriptor of the list itself is closed by now.
    let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC);
}

struct Server {
    socket: OwnedFd,
    children: OwnedFd,
    inbox: Inbox,
    out: Outbox,
    trees: Trees,
    /// Answers that are not sent yet, and when they must be.
    held: Vec<u8>,
    say_at: Option<Instant>,
    /// Rings at the next deadline of a child.
    alarm: Alarm,
}

/// What woke this process.
#[derive(Debug, Clone, Copy)]
struct Woken {
    by_socket: bool,
    by_child: bool,
}

impl Server {
    /// Serves until the other side closes.
    fn run(&mut self) -> io::Result<()> {
        loop {
            let woken = self.wait()?;
            let mut answers = Vec::new();
            let alone =
                (woken.by_child || self.trees.need_look()) && self.reap_all(woken.by_child, &mut answers)?;
            if woken.by_socket && !self.receive(&mut answers)? {
                return Ok(());
            }
            // After what was asked: a deadline that was put off in time is no longer over.
            self.trees.expire();
            self.trees.tend(alone, &mut answers);
            self.say(&answers)?;
        }
    }

    fn wait(&mut self) -> io::Result<Woken> {
        let wake_at = self.trees.next_look().into_iter().chain(self.say_at).min();
        let timeout = wake_at.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let mut interest = PollFlags::IN;
        if !self.out.is_empty() {
            interest |= PollFlags::OUT;
        }
        self.alarm.set(self.trees.next_deadline())?;
        let mut fds = [
            PollFd::new(&self.socket, interest),
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.alarm, PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {
                let came = |fd: &PollFd<'_>| !fd.revents().difference(PollFlags::OUT).is_empty();
                Ok(Woken { by_socket: came(&fds[0]), by_child: came(&fds[1]) })
            }
            Err(Errno::INTR) => Ok(Woken { by_socket: false, by_child: false }),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes all children that ended. True when no child is left at all.
    fn reap_all(&mut self, is_told: bool, answers: &mut Vec<Answer>) -> io::Result<bool> {
        if is_told {
            // The signal is taken first: one that comes while we look is seen in the next round.
            match rustix::io::read(&self.children, &mut [0; 128]) {
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        loop {
            match reap() {
                Reaped::Child(pid, exit) => self.trees.reaped(pid, exit, answers),
                Reaped::NoneEnded => return Ok(false),
                Reaped::NoChildren => return Ok(true),
            }
        }
    }

    /// Does what is asked. False when the other side closed.
    fn receive(&mut self, answers: &mut Vec<Answer>) -> io::Result<bool> {
        match self.inbox.receive(&self.socket)? {
            Received::End => return Ok(false),
            Received::Nothing => return Ok(true),
            Received::Something | Received::Full => {}
        }
        while let Some(body) = self.inbox.frame().map_err(io::Error::other)? {
            let request = Request::decode(body).map_err(io::Error::other)?;
            answers.extend(self.answer(request)?);
        }
        Ok(true)
    }

    /// Sends answers. What came together leaves together: the other side wakes once.
    fn say(&mut self, answers: &[Answer]) -> io::Result<()> {
        for answer in answers {
            self.held.extend(answer.encode());
            let is_patient = matches!(answer, Answer::Started { .. });
            let at = Instant::now() + if is_patient { PATIENCE } else { Duration::ZERO };
            self.say_at = Some(self.say_at.map_or(at, |before| before.min(at)));
        }
        if self.say_at.is_some_and(|at| at <= Instant::now()) {
            self.say_at = None;
            self.out.push(std::mem::take(&mut self.held), Vec::new());
        }
        Ok(self.out.flush(&self.socket)?)
    }

    fn answer(&mut self, request: Request) -> io::Result<Option<Answer>> {
        Ok(match request {
            Request::Spawn { id, line, mark, run_as, deadline } => {
                let (Some(stdout), Some(stderr)) = (self.inbox.fd(), self.inbox.fd()) else {
                    // The kernel leaves out what a process without free descriptors is sent.
                    return Ok(Some(Answer::Failed { id, errno: Errno::MFILE.raw_os_error() }));
                };
                if deadline.is_some_and(Moment::is_over) {
                    return Ok(Some(Answer::TooLate { id }));
                }
                let mark_bytes = mark.clone().into_vec();
                match start(line, mark, run_as, stdout, stderr) {
                    Ok(pid) => {
                        self.trees.add(id, pid, mark_bytes, deadline);
                        Some(Answer::Started { id, pid })
                    }
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
                        Some(Answer::Failed { id, errno })
                    }
                }
            }
            Request::End { id, grace_millis } => {
                self.trees.end(id, Duration::from_millis(grace_millis));
                None
            }
            Request::Extend { id, deadline } => {
                self.trees.extend(id, deadline);
                None
            }
            Request::Measure { id } => Some(Answer::Measured { id, rss: self.trees.rss(id) }),
        })
    }
}

/// Kills and reaps until nothing is left below this process.
fn kill_everything() {
    let give_up = Instant::now() + LAST_KILLS;
    while !kill_all() && Instant::now() < give_up {
        while matches!(reap(), Reaped::Child(..)) {}
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "processes deeper in a tree end without a signal to this one")]
fn pause() {
    std::thread::sleep(LOOK_AGAIN);
}
