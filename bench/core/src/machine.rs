//! What the machine did: CPU time, memory, and how much of it others took.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

/// CPU time of this process, all threads, user and system.
pub fn cpu() -> Duration {
    // SAFETY: `usage` is a plain struct that the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Wall and CPU time of a piece of work, and what the rest of the machine did meanwhile.
pub struct Watch {
    wall: Instant,
    cpu: Duration,
    stat: Stat,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    pub wall: Duration,
    pub cpu: Duration,
    /// The part of all CPU time that went to other processes or was stolen by the host, 0 to 1.
    pub others: f64,
}

impl Watch {
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu(), stat: Stat::read() }
    }

    pub fn stop(&self) -> Spent {
        let (wall, used) = (self.wall.elapsed(), cpu().saturating_sub(self.cpu));
        let now = Stat::read();
        let ticks = 100.0;
        let busy = (now.busy - self.stat.busy) as f64 / ticks - used.as_secs_f64();
        let total = (now.total - self.stat.total) as f64 / ticks;
        Spent { wall, cpu: used, others: if total > 0.05 { (busy / total).max(0.0) } else { 0.0 } }
    }
}

impl Spent {
    pub fn micros_each(&self, count: u64) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / count.max(1) as f64
    }

    pub fn rate(&self, count: u64) -> f64 {
        count as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// The first line of `/proc/stat`, in ticks.
struct Stat {
    total: u64,
    busy: u64,
}

impl Stat {
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
        let total: u64 = ticks.iter().sum();
        // idle and iowait are the fourth and fifth.
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self { total, busy: total - idle }
    }
}

/// Resident memory of this process.
#[derive(Debug, Clone, Copy, Default, Serialize, serde::Deserialize)]
pub struct Memory {
    pub resident_bytes: u64,
    pub anonymous_bytes: u64,
}

pub fn memory() -> Memory {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    Memory { resident_bytes: field("VmRSS:"), anonymous_bytes: field("RssAnon:") }
}

#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_gib: f64,
    pub kernel: String,
    pub file_system: String,
    pub load_at_start: String,
}

impl Machine {
    pub fn read(dir: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let models: Vec<&str> = cpus
            .lines()
            .filter(|line| line.starts_with("model name"))
            .filter_map(|l| l.split(": ").nth(1))
            .collect();
        let total = read("/proc/meminfo");
        let kib = total.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0);
        Self {
            cpu: models.first().map_or("unknown", |model| model).to_owned(),
            cores: models.len(),
            memory_gib: kib / f64::from(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(dir),
            load_at_start: read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

/// The type and options of the mount that holds `dir`.
fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let best = mounts
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|parts| parts.len() > 3 && dir.starts_with(parts[1]))
        .max_by_key(|parts| parts[1].len());
    best.map_or_else(String::new, |parts| format!("{} ({})", parts[2], parts[3]))
}
