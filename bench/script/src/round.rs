//! What one round of a row gave, and the CPU it took.

use std::time::{Duration, Instant};

use crate::machine::cpu;

#[derive(Debug, Clone, Copy)]
pub struct Round {
    pub per_second: f64,
    /// Of all processes that took part.
    pub cpu_micros: f64,
}

impl Round {
    pub fn of(executions: u64, wall: Duration, cpu: Duration) -> Self {
        let executions = executions.max(1) as f64;
        Self { per_second: executions / wall.as_secs_f64(), cpu_micros: cpu.as_secs_f64() * 1e6 / executions }
    }
}

/// Runs `work` on this many threads until the span is over: how often, and how long it took.
pub fn on_threads(threads: usize, span: Duration, work: impl Fn() + Sync) -> (u64, Duration) {
    let started = Instant::now();
    let total = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while started.elapsed() < span {
                        work();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("no panic")).sum()
    });
    (total, started.elapsed())
}

/// CPU time of this process and all it started.
pub fn all_cpu() -> Duration {
    cpu() + children_cpu()
}

/// CPU time of the hosts, those that are gone included.
pub fn children_cpu() -> Duration {
    let nanos = |pid: &str| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    // A child is listed by the thread that started it.
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let live = threads
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default())
        .map(|pids| pids.split_whitespace().map(nanos).sum::<u64>())
        .sum();
    // SAFETY: `usage` is a plain struct that the call fills.
    let reaped = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    Duration::from_nanos(live) + time(reaped.ru_utime) + time(reaped.ru_stime)
}
