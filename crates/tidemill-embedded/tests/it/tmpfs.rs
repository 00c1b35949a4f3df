//! Small file systems in memory, for tests that need a disk that is full or cannot be written. The tests of several
//! crates share this file.

#![allow(dead_code, reason = "each crate uses a part of it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system; unmounted when dropped.
pub(crate) struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts one of `kib` KiB at `dir`, which it makes. Without the right to do so it says that the test is skipped,
    /// and why; in CI that is a failure.
    pub(crate) fn mount(dir: PathBuf, kib: u64) -> Option<Self> {
        std::fs::create_dir_all(&dir).unwrap();
        let Err(problem) = mount(&["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"], &dir) else {
            return Some(Self(dir));
        };
        crate::parts::skip(&format!("mounting a tmpfs is not permitted: {problem}"));
        None
    }

    pub(crate) fn make_read_only(&self) {
        mount(&["-o", "remount,ro"], &self.0).unwrap();
    }

    /// Fills `kib` KiB of the space, or all that is left.
    pub(crate) fn fill(&self, name: &str, kib: usize) -> PathBuf {
        let path = self.join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        for _ in 0..kib {
            if file.write_all(&[7; 1_024]).is_err() {
                break;
            }
        }
        path
    }
}

impl std::ops::Deref for Tmpfs {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], dir: &Path) -> Result<(), String> {
    let done = Command::new("mount").args(arguments).arg(dir).output().map_err(|error| error.to_string())?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}
