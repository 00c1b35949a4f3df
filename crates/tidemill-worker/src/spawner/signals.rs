//! The few system calls that no safe crate offers: a descriptor for signals, and what a dead child used.

use std::os::fd::{FromRawFd, OwnedFd};
use std::{io, mem, ptr};

use tidemill_model::Exit;

use super::message::ChildExit;

/// Blocks the signals that would end this process and gives a descriptor that becomes readable when a child ends.
///
/// Blocked, not ignored: what is ignored stays so in every program that is started, a mask is set back before.
#[expect(unsafe_code, reason = "plain system calls on values that live here")]
pub(super) fn watch_children() -> io::Result<OwnedFd> {
    let set = signal_set(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT]);
    let children = signal_set(&[libc::SIGCHLD]);
    unsafe {
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const children, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Gives every signal its default meaning. What is ignored, as `nohup` does with one, would stay so in every child.
#[expect(unsafe_code, reason = "plain system calls before there is a second thread")]
pub(super) fn ignore_nothing() {
    // A closed pipe is an error here; the library gives this one back to children by itself.
    for signal in (1..32).filter(|signal| *signal != libc::SIGPIPE) {
        // Two of them cannot be changed, and need not.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Takes back what `watch_children` blocked. It may be called between fork and exec.
#[expect(unsafe_code, reason = "a plain system call on a value that lives here")]
pub(super) fn unblock_all() -> io::Result<()> {
    let none = signal_set(&[]);
    let done = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives SIGPIPE, which the library ignores, its meaning back. It may be called between fork and exec.
#[expect(unsafe_code, reason = "a plain system call")]
pub(super) fn default_pipe() {
    // It cannot fail for this signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[expect(unsafe_code, reason = "a set of bits, for which all zeroes is a value")]
fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// One reaping of children.
pub(super) enum Reaped {
    /// This child, or this orphan, ended.
    Child(u32, ChildExit),
    /// All that there are go on.
    NoneEnded,
    /// There are no children at all.
    NoChildren,
}

/// Takes one child that ended, if there is one.
#[expect(unsafe_code, reason = "a plain system call that fills two values that live here")]
pub(super) fn reap() -> Reaped {
    let mut status = 0;
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        (libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage), usage)
    };
    let pid = match u32::try_from(pid) {
        Ok(0) => return Reaped::NoneEnded,
        Ok(pid) => pid,
        Err(_) => return Reaped::NoChildren,
    };
    let end = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    let exit = ChildExit {
        end,
        // The kernel counts it in KiB.
        peak_rss: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
    };
    Reaped::Child(pid, exit)
}

/// Whether there is a child of this process with such an id that has not ended. It stays as it is.
#[expect(unsafe_code, reason = "a plain system call that fills a value that lives here")]
pub(super) fn is_living_child(pid: u32) -> bool {
    let (found, info) = unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        (libc::waitid(libc::P_PID, pid, &raw mut info, options), info)
    };
    // The call gives the id of a process that ended, and none for one that lives.
    found == 0 && unsafe { info.si_pid() } == 0
}
