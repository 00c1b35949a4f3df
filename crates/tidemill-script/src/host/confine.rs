//! What a host takes away from itself.

use std::io;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior, set_parent_process_death_signal,
    setrlimit,
};
use rustix::time::{ClockId, clock_gettime};

use super::filter;
use crate::wire::Setup;

/// Address space beside the engine's memory: the program, its libraries and stack, frames, the compiler.
const BASE_BYTES: u64 = 384 * 1024 * 1024;
/// CPU time that a host may use beyond the point where it asks to be replaced. One execution ends within this.
const CPU_SLACK_SECS: u64 = 2 * 3_600;

/// Dies with the process that started it, and loses every descriptor but its socket and the two empty outputs.
pub(super) fn follow_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    close_others();
    crash_plainly();
    Ok(())
}

/// Takes back the library's handlers of broken memory accesses: they could say nothing here, and would make calls that
/// the filter forbids.
#[expect(unsafe_code, reason = "a plain system call before anything else happens in this process")]
fn crash_plainly() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[expect(unsafe_code, reason = "nothing in this process has opened a descriptor yet")]
fn close_others() {
    // An old kernel does not know the call. The pool marks its own descriptors anyway; this is for others' mistakes.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Limits that the kernel keeps, whatever the engine does.
pub(super) fn limit(setup: &Setup) -> io::Result<()> {
    // The region of the engine is reserved whole, and large blocks lie outside it.
    let memory = setup.memory_bytes.saturating_mul(2).saturating_add(BASE_BYTES);
    for (resource, most) in [
        (Resource::As, memory),
        (Resource::Core, 0),
        (Resource::Cpu, setup.cpu_secs.saturating_add(CPU_SLACK_SECS)),
        (Resource::Fsize, 0),
        (Resource::Nproc, 0),
    ] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// The last step: no new descriptors, no new rights, and only the few system calls that running scripts takes. What
/// this machine cannot do is reported and not fatal: the limits above hold, and scripts have no function that would
/// need it.
pub(super) fn seal() -> Option<String> {
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: Some(0) }) {
        return Some(format!("descriptors are not limited: {error}"));
    }
    filter::install().err()
}

/// CPU time of this process so far.
pub(super) fn cpu_secs() -> u64 {
    u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0)
}
