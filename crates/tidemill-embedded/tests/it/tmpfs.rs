//! Small file systems in memory, for tests that need a disk that is full or cannot be written.

use std::path::Path;
use std::process::Command;

use crate::lab::{Fresh, announce};

/// A mounted file system; unmounted when dropped.
pub(crate) struct Tmpfs(Fresh);

impl Tmpfs {
    /// Mounts one of so many KiB. Without the right to do so it says that `test` is skipped, and why.
    pub(crate) fn mount(test: &str, kib: u64) -> Option<Self> {
        let dir = Fresh::new();
        match mount(&["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"], &dir) {
            Ok(()) => Some(Self(dir)),
            Err(problem) => {
                announce(&format!("SKIPPED {test}: mounting a tmpfs is not permitted: {problem}"));
                None
            }
        }
    }

    pub(crate) fn make_read_only(&self) {
        mount(&["-o", "remount,ro"], &self.0).unwrap();
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
        let _ = Command::new("umount").arg("-l").arg(&*self.0).status();
    }
}

fn mount(arguments: &[&str], dir: &Path) -> Result<(), String> {
    let done = Command::new("mount").args(arguments).arg(dir).output().map_err(|error| error.to_string())?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}
