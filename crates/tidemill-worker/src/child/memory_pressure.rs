//! Whether the kernel killed for want of memory: it counts such kills, for this control group or for the machine.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How old the count may be that a child begins with. Reading it for each child would cost more than a small child.
const FRESH: Duration = Duration::from_secs(1);
/// What the counter is called in all of its places.
const NAME: &str = "oom_kill";

/// The kernel's counters of such kills.
#[derive(Debug)]
pub(crate) struct MemoryPressure {
    /// The files that hold a counter.
    places: Vec<PathBuf>,
    last: Mutex<Option<(Instant, Kills)>>,
}

/// The counters at some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kills(Vec<Option<u64>>);

impl MemoryPressure {
    pub(crate) fn watch() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::among(candidates(&groups))
    }

    fn among(candidates: Vec<PathBuf>) -> Self {
        let places = candidates.into_iter().filter(|place| read(place).is_some()).collect();
        Self { places, last: Mutex::new(None) }
    }

    fn now(&self) -> Kills {
        Kills(self.places.iter().map(|place| read(place)).collect())
    }

    /// The counters when a child starts, not older than a second.
    pub(crate) fn before(&self) -> Kills {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((at, kills)) = &*last
            && now < *at + FRESH
        {
            return kills.clone();
        }
        let kills = self.now();
        *last = Some((now, kills.clone()));
        kills
    }

    /// Whether such a kill was counted since.
    pub(crate) fn has_grown(&self, before: &Kills) -> bool {
        before
            .0
            .iter()
            .zip(self.now().0)
            .any(|pair| matches!(pair, (Some(before), Some(now)) if now > *before))
    }
}

/// Where a counter may be: of the control group of this process, which its children share unless they leave it, and of
/// the whole machine.
fn candidates(groups: &str) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            places.push(PathBuf::from("/sys/fs/cgroup").join(path).join("memory.events"));
        } else if controllers.split(',').any(|controller| controller == "memory") {
            places.push(PathBuf::from("/sys/fs/cgroup/memory").join(path).join("memory.oom_control"));
        }
    }
    places.push(PathBuf::from("/proc/vmstat"));
    places
}

fn read(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(NAME)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_counter_is_found_in_both_kinds_of_groups() {
        let paths = |groups| -> Vec<String> {
            candidates(groups).into_iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            paths("0::/system.slice/tidemill.service\n"),
            ["/sys/fs/cgroup/system.slice/tidemill.service/memory.events", "/proc/vmstat"]
        );
        assert_eq!(
            paths("9:name=systemd:/\n4:memory:/a:b\n"),
            ["/sys/fs/cgroup/memory/a:b/memory.oom_control", "/proc/vmstat"]
        );
        assert_eq!(paths(""), ["/proc/vmstat"]);
    }

    #[test]
    fn a_kill_between_two_looks_is_seen() {
        let dir = std::env::temp_dir().join(format!("tidemill-oom-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("memory.events");
        std::fs::write(&file, "low 0\noom 3\noom_kill 2\noom_group_kill 9\n").unwrap();
        let pressure = MemoryPressure::among(vec![dir.join("none"), file.clone()]);
        let before = pressure.before();
        assert_eq!(before, Kills(vec![Some(2)]));
        assert!(!pressure.has_grown(&before));
        std::fs::write(&file, "oom_kill 3\n").unwrap();
        assert!(pressure.has_grown(&before));
        assert!(!pressure.has_grown(&Kills::default()));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
