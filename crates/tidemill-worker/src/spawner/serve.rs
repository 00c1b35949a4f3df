//! The spawner process itself: one thread, one loop, no output of its children passes through it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_child_subreaper, set_parent_process_death_signal};

use super::frame::{Inbox, Outbox, Received};
use super::message::{Answer, CommandLine, Request, RunAs};
use super::signals::{Reaped, ignore_nothing, reap, unblock_all, watch_children};
use super::trees::{Trees, kill_all};
use crate::process_table::MARK_NAME;

/// How long processes that were killed may take to go before this one ends all the same.
const LAST_KILLS: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

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
    let mut server =
        Server { socket, children, inbox: Inbox::default(), out: Outbox::default(), trees: Trees::default() };
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
}

impl Server {
    /// Serves until the other side closes.
    fn run(&mut self) -> io::Result<()> {
        loop {
            let mut answers = Vec::new();
            let alone = self.reap_all(&mut answers)?;
            self.trees.tend(alone, &mut answers);
            self.say(&answers)?;
            self.wait()?;
            match self.inbox.receive(&self.socket)? {
                Received::End => return Ok(()),
                Received::Nothing => continue,
                Received::Something => {}
            }
            while let Some(body) = self.inbox.frame().map_err(io::Error::other)? {
                let request = Request::decode(body).map_err(io::Error::other)?;
                self.answer(request)?;
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let timeout = self.trees.next_look().map(|at| {
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
        let mut fds = [PollFd::new(&self.socket, interest), PollFd::new(&self.children, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes all children that ended. True when no child is left at all.
    fn reap_all(&mut self, answers: &mut Vec<Answer>) -> io::Result<bool> {
        // The signal is taken first: one that comes while we look is seen in the next round.
        let mut info = [0; 1024];
        loop {
            match rustix::io::read(&self.children, &mut info) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
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

    fn say(&mut self, answers: &[Answer]) -> io::Result<()> {
        // What came together leaves together: the other side wakes once.
        let frames: Vec<u8> = answers.iter().flat_map(Answer::encode).collect();
        if !frames.is_empty() {
            self.out.push(frames, Vec::new());
        }
        Ok(self.out.flush(&self.socket)?)
    }

    fn answer(&mut self, request: Request) -> io::Result<()> {
        let answer = match request {
            Request::Spawn { id, line, mark, run_as } => {
                let (Some(stdout), Some(stderr)) = (self.inbox.fd(), self.inbox.fd()) else {
                    return Err(io::Error::other("a spawn came without its pipes"));
                };
                let mark_bytes = mark.clone().into_vec();
                match start(line, mark, run_as, stdout, stderr) {
                    Ok(pid) => {
                        self.trees.add(id, pid, mark_bytes);
                        Answer::Started { id, pid }
                    }
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
                        Answer::Failed { id, errno }
                    }
                }
            }
            Request::End { id, grace_millis } => {
                self.trees.end(id, Duration::from_millis(grace_millis));
                return Ok(());
            }
            Request::Measure { id } => Answer::Measured { id, rss: self.trees.rss(id) },
        };
        self.say(&[answer])
    }
}

/// Starts a child in a process group of its own, with nothing on its standard input.
#[expect(
    unsafe_code,
    reason = "code between fork and exec; this process has one thread, and only system calls are made"
)]
fn start(
    line: CommandLine,
    mark: std::ffi::OsString,
    run_as: Option<RunAs>,
    stdout: OwnedFd,
    stderr: OwnedFd,
) -> io::Result<u32> {
    let mut argv = line.argv.into_iter();
    let program = argv.next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(argv).env_clear().envs(line.env).env(MARK_NAME, mark);
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
    if let Some(RunAs { uid, gid }) = run_as {
        command.uid(uid).gid(gid);
    }
    let spawner = getpid();
    let prepare = move || {
        // It runs after the change of user, which would clear the signal.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(spawner) {
            // The spawner died before the signal was set.
            return Err(Errno::SRCH.into());
        }
        unblock_all()
    };
    unsafe {
        command.pre_exec(prepare);
    }
    Ok(command.spawn()?.id())
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
