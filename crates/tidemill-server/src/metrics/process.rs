//! The process itself, as the kernel tells it.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

use super::text::{Text, scaled};

/// What the process uses. Only Linux tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Process {
    cpu_ticks: u64,
    threads: u64,
    /// Since the machine began.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_bytes: u64,
    open_files: u64,
    open_files_max: Option<u64>,
    /// When the machine began, in epoch seconds.
    booted: u64,
}

impl Process {
    pub(super) fn look() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let memory = fs::read_to_string("/proc/self/statm").ok()?;
        let machine = fs::read_to_string("/proc/stat").ok()?;
        // One of them is the look itself.
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        let open_files_max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::of(&stat, &memory, &machine, open_files.saturating_sub(1), open_files_max)
    }

    fn of(stat: &str, memory: &str, machine: &str, open_files: u64, files_max: Option<u64>) -> Option<Self> {
        // The name of the program comes first and may hold anything.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let mut pages = memory.split_ascii_whitespace().map(|pages| pages.parse::<u64>().ok());
        let bytes = |pages: u64| pages.saturating_mul(page_size() as u64);
        Some(Self {
            cpu_ticks: field(11)?.saturating_add(field(12)?),
            threads: field(17)?,
            started_ticks: field(19)?,
            virtual_bytes: bytes(pages.next()??),
            resident_bytes: bytes(pages.next()??),
            open_files,
            open_files_max: files_max,
            booted: machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?,
        })
    }

    pub(super) fn render(&self, text: &mut Text) {
        let centis = |ticks: u64| ticks.saturating_mul(100) / clock_ticks_per_second().max(1);
        text.counter(
            "process_cpu_seconds_total",
            "User and system time of the process, without its children.",
            scaled(centis(self.cpu_ticks), 2),
        );
        text.gauge("process_resident_memory_bytes", "Memory that is held.", self.resident_bytes);
        text.gauge("process_virtual_memory_bytes", "Memory that is mapped.", self.virtual_bytes);
        text.gauge("process_open_fds", "Open files and connections.", self.open_files);
        if let Some(most) = self.open_files_max {
            text.gauge("process_max_fds", "How many there may be.", most);
        }
        text.gauge("process_threads", "Threads.", self.threads);
        text.gauge(
            "process_start_time_seconds",
            "When the process began, in seconds since 1970.",
            scaled(self.booted.saturating_mul(100).saturating_add(centis(self.started_ticks)), 2),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 9 0 0 0 120 30 0 0 20 0 5 0 4200 1000000 300 18446744073709551615";
        let found = Process::of(stat, "200 50 10 1 0 20 0\n", "cpu 1 2\nbtime 1700000000\n", 9, None);
        let found = found.expect("all is there");
        assert_eq!((found.cpu_ticks, found.threads, found.started_ticks), (150, 5, 4_200));
        assert_eq!(found.resident_bytes, 50 * page_size() as u64);
        assert_eq!((found.booted, found.open_files), (1_700_000_000, 9));
        assert_eq!(Process::of("7 (a) S 1", "1 1", "btime 1", 1, None), None);
    }
}
