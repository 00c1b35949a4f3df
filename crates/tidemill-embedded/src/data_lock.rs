//! One process per data directory.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

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
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        let name = dir.display().to_string();
        let unusable = |source| LockError::Unusable { dir: name.clone(), source };
        let path = dir.join("LOCK");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(LockError::Held { dir: name, holder: holder.trim().to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        file.set_len(0).map_err(unusable)?;
        writeln!(file, "{}", std::process::id()).map_err(unusable)?;
        Ok(Self { file })
    }
}

/// Closing the file would not be enough: a child process this one is just starting has the same open file until it
/// runs its own program, and would hold the directory for that long.
impl Drop for DataLock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
