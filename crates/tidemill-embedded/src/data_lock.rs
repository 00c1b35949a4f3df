//! One process per data directory.

use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use crate::disk::is_full;
use crate::real_disk::FILE_MODE;

/// A process that was killed holds its files until the kernel has taken it apart. So a lock that is held is tried again,
/// this often and after such pauses, before it counts as held.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Held while a process uses the directory. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct DataLock {
    file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("the data directory {dir} is in use by process {holder}; use its server, or stop it first")]
    Held { dir: String, holder: String },
    #[error("the data directory {dir} cannot be used: {source}")]
    Unusable { dir: String, source: std::io::Error },
}

impl DataLock {
    /// Takes the lock, after a second at most if a process that is just ending still has it.
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        Self::take_pausing(dir, || std::thread::park_timeout(PAUSE))
    }

    fn take_pausing(dir: &Path, mut pause: impl FnMut()) -> Result<Self, LockError> {
        for _ in 1..TRIES {
            match Self::try_take(dir) {
                Err(LockError::Held { .. }) => pause(),
                taken => return taken,
            }
        }
        Self::try_take(dir)
    }

    /// Takes the lock if nobody has it now.
    fn try_take(dir: &Path) -> Result<Self, LockError> {
        let name = dir.display().to_string();
        let unusable = |source| LockError::Unusable { dir: name.clone(), source };
        let path = dir.join("LOCK");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { dir: name, holder: read_holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        match write_holder(&file) {
            // The file need not name the holder. A wrong number would be worse than none.
            Err(error) if is_full(&error) => file.set_len(0).map_err(unusable)?,
            written => written.map_err(unusable)?,
        }
        Ok(Self { file })
    }

    /// The process that has the directory now, if any has.
    pub fn holder(dir: &Path) -> Option<String> {
        let mut file = File::open(dir.join("LOCK")).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(read_holder(&mut file)),
            _ => None,
        }
    }
}

fn read_holder(file: &mut File) -> String {
    let mut holder = String::new();
    // The holder is named if the file can be read; it is already known that there is one.
    let _ = file.read_to_string(&mut holder);
    match holder.trim() {
        "" => "(unknown)".to_owned(),
        holder => holder.to_owned(),
    }
}

/// Written over what is there, which takes no space on most disks.
fn write_holder(file: &File) -> std::io::Result<()> {
    let text = format!("{}\n", std::process::id());
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Closing the file would not be enough: a child process this one is just starting has the same open file until it
/// runs its own program, and would hold the directory for that long.
impl Drop for DataLock {
    fn drop(&mut self) {
        // If it fails the system does it once the last of these processes has closed the file.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_about_to_go_is_waited_for_and_another_is_not() {
        let dir = std::env::temp_dir().join(format!("tidemill-data-lock-wait-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut ending = Some(DataLock::take(&dir).unwrap());
        let mut pauses = 0;
        let after = DataLock::take_pausing(&dir, || {
            pauses += 1;
            if pauses == TRIES - 1 {
                drop(ending.take());
            }
        });
        assert!(after.is_ok(), "{after:?}");
        assert_eq!(DataLock::holder(&dir), Some(std::process::id().to_string()));
        let mut pauses = 0;
        let refused = DataLock::take_pausing(&dir, || pauses += 1).unwrap_err();
        assert!(
            matches!(&refused, LockError::Held { holder, .. } if *holder == std::process::id().to_string())
        );
        assert_eq!(pauses, TRIES - 1);
        drop(after);
        assert_eq!(DataLock::holder(&dir), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_child_being_started_does_not_hold_the_directory() {
        let dir = std::env::temp_dir().join(format!("tidemill-data-lock-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let lock = DataLock::take(&dir).unwrap();
        let in_the_child = lock.file.try_clone().unwrap();
        assert!(matches!(DataLock::take(&dir), Err(LockError::Held { .. })));
        drop(lock);
        let again = DataLock::take(&dir);
        drop(in_the_child);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(again.is_ok(), "{again:?}");
    }
}
