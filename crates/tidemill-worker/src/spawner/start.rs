//! The start of a child.
//!
//! A fork copies the tables of this process's memory and is followed by a fault for each page that either side touches.
//! So the child runs in this process's memory, on a stack of its own, until it has become another program; this process
//! stands still meanwhile. It has one thread and no signal handlers, so nothing else runs in there.

use std::ffi::{OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{mem, ptr};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::message::{CommandLine, RunAs};
use super::signals::{default_pipe, unblock_all};
use crate::process_table::MARK_NAME;

/// What looking for the program in `PATH` needs of a stack: a path, and a second list of arguments for a script without
/// a first line that names its shell.
const STACK_BYTES: usize = 64 * 1024;

/// Starts a child in a process group of its own, with what this process has on its standard input: nothing.
pub(super) fn start(
    line: CommandLine,
    mark: OsString,
    run_as: Option<RunAs>,
    stdout: OwnedFd,
    stderr: OwnedFd,
) -> io::Result<u32> {
    match run_as {
        None => start_within(&line, &mark, &stdout, &stderr),
        // A process of another user must not be in this one's memory, not even for a moment.
        Some(user) => start_by_fork(line, mark, user, stdout, stderr),
    }
}

/// What a child needs to become its program, and where it leaves the reason if it cannot.
struct Plan {
    argv: *const *const c_char,
    env: *const *const c_char,
    stdout: c_int,
    stderr: c_int,
    spawner: Option<rustix::process::Pid>,
    errno: c_int,
}

#[expect(
    unsafe_code,
    reason = "the child shares this memory until its exec, during which this process stands still and all it reads lives on"
)]
fn start_within(line: &CommandLine, mark: &OsStr, stdout: &OwnedFd, stderr: &OwnedFd) -> io::Result<u32> {
    unsafe extern "C" {
        static mut environ: *const *const c_char;
    }
    if line.argv.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let mut argv = Strings::default();
    for argument in &line.argv {
        argv.push([argument.as_bytes()])?;
    }
    let mut env = Strings::default();
    for (name, value) in line.env.iter().filter(|(name, _)| name != MARK_NAME) {
        env.push([name.as_bytes(), b"=", value.as_bytes()])?;
    }
    env.push([MARK_NAME.as_bytes(), b"=", mark.as_bytes()])?;
    let (argv, env) = (argv.pointers(), env.pointers());
    let mut plan = Plan {
        argv: argv.list.as_ptr(),
        env: env.list.as_ptr(),
        stdout: stdout.as_raw_fd(),
        stderr: stderr.as_raw_fd(),
        spawner: Some(getpid()),
        errno: 0,
    };
    let words = (STACK_BYTES + (line.argv.len() + 2) * mem::size_of::<usize>()).div_ceil(16);
    // Aligned as stacks are, and not touched before the child does.
    let mut stack: Vec<u128> = Vec::with_capacity(words);
    let (pid, errno) = unsafe {
        // The program is looked for in the child's `PATH`.
        let own = environ;
        environ = plan.env;
        let top = stack.as_mut_ptr().add(words).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(become_program, top, flags, (&raw mut plan).cast());
        let error = io::Error::last_os_error();
        environ = own;
        if pid < 0 {
            return Err(error);
        }
        (pid, ptr::read_volatile(&raw const plan.errno))
    };
    if errno != 0 {
        // It has ended, or is about to.
        unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        return Err(io::Error::from_raw_os_error(errno));
    }
    Ok(pid.cast_unsigned())
}

/// The child between its birth and its program. It makes system calls and nothing else.
#[expect(unsafe_code, reason = "the plan outlives the child's stay in this memory")]
extern "C" fn become_program(plan: *mut c_void) -> c_int {
    let plan = plan.cast::<Plan>();
    unsafe {
        let error = match prepare(&*plan) {
            Ok(()) => {
                libc::execvp((*plan).argv.read(), (*plan).argv);
                io::Error::last_os_error()
            }
            Err(error) => error,
        };
        ptr::write_volatile(&raw mut (*plan).errno, error.raw_os_error().unwrap_or(libc::EINVAL));
        libc::_exit(127);
    }
}

#[expect(unsafe_code, reason = "plain system calls on numbers")]
fn prepare(plan: &Plan) -> io::Result<()> {
    // All that comes over the socket is closed by an exec; these copies are not. Standard input is this process's own.
    for (from, to) in [(plan.stdout, 1), (plan.stderr, 2)] {
        if unsafe { libc::dup2(from, to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if unsafe { libc::setpgid(0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    default_pipe();
    die_with(plan.spawner)?;
    unblock_all()
}

/// Ends the child if the spawner does.
fn die_with(spawner: Option<rustix::process::Pid>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != spawner {
        // It died before the signal was set.
        return Err(Errno::SRCH.into());
    }
    Ok(())
}

#[expect(
    unsafe_code,
    reason = "code between fork and exec; this process has one thread, and only system calls are made"
)]
fn start_by_fork(
    line: CommandLine,
    mark: OsString,
    user: RunAs,
    stdout: OwnedFd,
    stderr: OwnedFd,
) -> io::Result<u32> {
    let mut argv = line.argv.into_iter();
    let program = argv.next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(argv).env_clear().envs(line.env).env(MARK_NAME, mark);
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
    command.uid(user.uid).gid(user.gid);
    let spawner = Some(getpid());
    let prepare = move || {
        // It runs after the change of user, which would clear the signal.
        die_with(spawner)?;
        unblock_all()
    };
    unsafe {
        command.pre_exec(prepare);
    }
    Ok(command.spawn()?.id())
}

/// Texts that end with a zero byte, as programs are given them.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

/// A list of such texts, with a null at its end.
struct Pointers {
    list: Vec<*const c_char>,
    /// What the list points into.
    _bytes: Vec<u8>,
}

impl Strings {
    /// Adds one text that is made of several parts. A zero byte would cut it short, so it is refused.
    fn push<const N: usize>(&mut self, parts: [&[u8]; N]) -> Result<(), Errno> {
        self.starts.push(self.bytes.len());
        for part in parts {
            if part.contains(&0) {
                return Err(Errno::INVAL);
            }
            self.bytes.extend_from_slice(part);
        }
        self.bytes.push(0);
        Ok(())
    }

    fn pointers(self) -> Pointers {
        let Self { bytes, starts } = self;
        let mut list: Vec<_> = starts.iter().map(|start| bytes[*start..].as_ptr().cast()).collect();
        list.push(ptr::null());
        Pointers { list, _bytes: bytes }
    }
}
