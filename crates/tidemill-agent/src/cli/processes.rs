//! What the CLI leaves behind. Its tools run in process groups of their own and outlive a CLI that is killed, so every
//! process below this one is looked for and ended. One process carries out one task: whatever runs below it, or was left
//! to it, belongs to that task.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

/// How often the end of what was killed is looked for, and how long.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
const LOOKS_MAX: usize = 400;

/// From now on orphans below this process become its children, where they can be found.
pub(crate) fn adopt_orphans() {
    // On failure the worker's spawner, which does the same, still finds them.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Kills everything below this process and waits until it is gone. To be called only when no child is waited for
/// elsewhere. Tells how many were killed.
pub(crate) async fn end_descendants() -> usize {
    let mut killed = 0;
    for look in 0..LOOKS_MAX {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let left = descendants(std::process::id());
        if left.is_empty() {
            break;
        }
        // Later looks find those that were started meanwhile.
        for pid in &left {
            if let Some(pid) = Pid::from_raw(*pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if look == 0 {
            killed = left.len();
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    killed
}

/// All processes below one, except those that have ended and are only not waited for.
fn descendants(root: u32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut processes = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((state, parent)) = parse_stat(&stat) {
            processes.push((pid, state, parent));
        }
    }
    let mut found: Vec<i32> = Vec::new();
    let mut parents = vec![i32::try_from(root).unwrap_or_default()];
    while let Some(parent) = parents.pop() {
        for (pid, state, _) in processes.iter().filter(|(pid, _, of)| *of == parent && *pid != parent) {
            parents.push(*pid);
            if *state != 'Z' {
                found.push(*pid);
            }
        }
    }
    found
}

/// The state and the parent of a process. Its name stands in brackets and may hold anything.
fn parse_stat(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_below_its_parent_whatever_its_name() {
        assert_eq!(parse_stat("7 (a) b) (x) S 5 7 7 0"), Some(('S', 5)));
        assert_eq!(parse_stat("7 (a"), None);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(descendants(std::process::id()).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants(std::process::id()).contains(&pid));
    }
}
