//! The system calls that a host may make once it is ready: reading and writing its socket, memory, clocks, and ending.
//! Any other one kills it.

use std::io;

/// What the loop of a host, the engine and the allocators use.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Memory may be mapped and protected, but never so that it could hold code.
const ALLOWED_WITHOUT_CODE: &[libc::c_long] = &[libc::SYS_mmap, libc::SYS_mprotect];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

// Where the kernel puts what a filter looks at.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
/// The low half of the third argument, on a little-endian machine.
const PROTECTION_AT: u32 = 16 + 2 * 8;

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Installs the filter, or says why it cannot be.
pub(super) fn install() -> Result<(), String> {
    if ARCHITECTURE == 0 {
        return Err("system calls are not filtered: there is no filter for this processor".to_owned());
    }
    rustix::thread::set_no_new_privs(true).map_err(|error| format!("new rights are not refused: {error}"))?;
    apply(&mut program()).map_err(|error| format!("system calls are not filtered: {error}"))
}

fn program() -> Vec<libc::sock_filter> {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let answer = |value| step(RETURN, 0, 0, value);
    let number = |call: libc::c_long| u32::try_from(call).expect("numbers of calls are small");
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE_AT),
        step(JUMP_IF_EQUAL, 1, 0, ARCHITECTURE),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        step(LOAD, 0, 0, NUMBER_AT),
    ];
    for call in ALLOWED {
        program.push(step(JUMP_IF_EQUAL, 0, 1, number(*call)));
        program.push(answer(libc::SECCOMP_RET_ALLOW));
    }
    for call in ALLOWED_WITHOUT_CODE {
        // To the next call, or look at the protection.
        program.push(step(JUMP_IF_EQUAL, 0, 4, number(*call)));
        program.push(step(LOAD, 0, 0, PROTECTION_AT));
        program.push(step(JUMP_IF_ANY_BIT, 1, 0, libc::PROT_EXEC.cast_unsigned()));
        program.push(answer(libc::SECCOMP_RET_ALLOW));
        program.push(answer(libc::SECCOMP_RET_KILL_PROCESS));
    }
    program.push(answer(libc::SECCOMP_RET_KILL_PROCESS));
    program
}

#[expect(unsafe_code, reason = "the kernel copies the program before the call returns")]
fn apply(program: &mut [libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    let done =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn verdict(architecture: u32, call: libc::c_long, protection: u32) -> u32 {
        let program = program();
        let (mut at, mut held) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                LOAD => {
                    held = match step.k {
                        NUMBER_AT => u32::try_from(call).unwrap(),
                        ARCHITECTURE_AT => architecture,
                        PROTECTION_AT => protection,
                        other => panic!("loads from {other}"),
                    };
                }
                JUMP_IF_EQUAL => at += usize::from(if held == step.k { step.jt } else { step.jf }),
                JUMP_IF_ANY_BIT => at += usize::from(if held & step.k != 0 { step.jt } else { step.jf }),
                RETURN => return step.k,
                other => panic!("unknown step {other}"),
            }
        }
    }

    #[test]
    fn only_what_is_listed_is_let_through() {
        let (allow, kill) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS);
        for call in ALLOWED {
            assert_eq!(verdict(ARCHITECTURE, *call, 0), allow, "{call}");
            assert_eq!(verdict(ARCHITECTURE + 1, *call, 0), kill, "{call} of another processor");
        }
        let read_write = (libc::PROT_READ | libc::PROT_WRITE).cast_unsigned();
        for call in ALLOWED_WITHOUT_CODE {
            assert_eq!(verdict(ARCHITECTURE, *call, read_write), allow, "{call}");
            assert_eq!(
                verdict(ARCHITECTURE, *call, read_write | libc::PROT_EXEC.cast_unsigned()),
                kill,
                "{call}"
            );
        }
        for call in [
            libc::SYS_openat,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_clone,
            libc::SYS_execve,
            libc::SYS_kill,
            libc::SYS_ptrace,
            libc::SYS_prctl,
            libc::SYS_ioctl,
            libc::SYS_sendmsg,
            libc::SYS_process_vm_readv,
        ] {
            assert_eq!(verdict(ARCHITECTURE, call, 0), kill, "{call}");
        }
    }
}
