//! Other processes as `/proc` shows them, and the bare way to start one.

use std::collections::HashMap;
use std::ffi::CString;
use std::time::Duration;

/// What a process and all below it use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system time, ended children included. Counted in ticks of 10 ms.
    pub cpu: Duration,
    pub resident_bytes: u64,
    /// Resident memory; shared pages are divided among the processes that share them.
    pub proportional_bytes: u64,
    /// What was sent to the disk.
    pub written_bytes: u64,
    pub processes: usize,
}

const TICKS_PER_SECOND: u64 = 100;

/// The process and its descendants.
pub fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(parent) = stat(pid).and_then(|fields| fields.get(1)?.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let below = children.remove(pid).unwrap_or_default();
        found.extend(below);
        next += 1;
    }
    found
}

pub fn usage(root: u32) -> Usage {
    let mut sum = Usage::default();
    for pid in tree(root) {
        let Some(fields) = stat(pid) else { continue };
        let ticks: u64 = fields.iter().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
        sum.cpu += Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND);
        sum.resident_bytes += kib_field(pid, "smaps_rollup", "Rss:");
        sum.proportional_bytes += kib_field(pid, "smaps_rollup", "Pss:");
        sum.written_bytes += field(pid, "io", "write_bytes:");
        sum.processes += 1;
    }
    sum
}

/// CPU time of the threads of a process that have this name.
pub fn thread_cpu(pid: u32, name: &str) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let read = |file: &str| std::fs::read_to_string(thread.path().join(file)).ok();
        let is_meant = read("comm")?.trim_end() == name;
        read("schedstat")?.split(' ').next()?.parse::<u64>().ok().filter(|_| is_meant)
    });
    Duration::from_nanos(nanos.sum())
}

/// The fields of `/proc/PID/stat` after the name in brackets.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

fn field(pid: u32, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn kib_field(pid: u32, file: &str, name: &str) -> u64 {
    field(pid, file, name) << 10
}

/// Starts a program by posix_spawn with the environment of this process, and waits for its end.
pub fn spawn_and_wait(program: &str) {
    unsafe extern "C" {
        static environ: *const *mut libc::c_char;
    }
    let path = CString::new(program).expect("no zero byte");
    let arguments = [path.as_ptr().cast_mut(), std::ptr::null_mut()];
    let mut pid = 0;
    // SAFETY: the strings and lists live until the call returns, and both lists end with a null.
    let failed = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path.as_ptr(),
            std::ptr::null(),
            std::ptr::null(),
            arguments.as_ptr(),
            environ,
        )
    };
    assert_eq!(failed, 0, "{program} starts");
    let mut status = 0;
    // SAFETY: the child is ours and nobody else waits for it.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, 0), "{program} ends well");
}

/// CPU time of this process and of its ended children.
pub fn own_cpu() -> Duration {
    let of = |who| {
        // SAFETY: `usage` is a plain struct that the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// A process by more than its number, which may be given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    started: u64,
}

impl Identity {
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: stat(pid)?.get(19)?.parse().ok()? })
    }

    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// Sends a signal to a process that this bench started, directly or through its server.
pub fn signal(pid: u32, signal: i32) {
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: a call without memory.
        unsafe { libc::kill(pid, signal) };
    }
}
