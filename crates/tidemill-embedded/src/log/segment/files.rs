//! The names of the log's files, and what they have in common.

use std::sync::Arc;

use crate::disk::{Disk, DiskFile, is_full};
use crate::log::LogError;

/// The directory of the log, in the data directory.
pub(in crate::log) const DIRECTORY: &str = "log";
/// What is not finished yet and is removed on open.
pub(in crate::log) const TEMPORARY: &str = ".tmp";
/// The version of every file of the log. A newer one is refused.
pub(in crate::log) const VERSION: u32 = 1;

const RAW: &str = ".log";
const SEALED: &str = ".sealed";
const DICTIONARY: &str = ".dict";

/// A segment as it is written.
pub(in crate::log) fn raw(segment: u32) -> String {
    format!("{DIRECTORY}/{segment:010}{RAW}")
}

pub(in crate::log) fn sealed(segment: u32) -> String {
    format!("{DIRECTORY}/{segment:010}{SEALED}")
}

pub(in crate::log) fn dictionary(id: u32) -> String {
    format!("{DIRECTORY}/{id:010}{DICTIONARY}")
}

pub(in crate::log) fn format() -> String {
    format!("{DIRECTORY}/FORMAT")
}

pub(in crate::log) fn mark() -> String {
    format!("{DIRECTORY}/mark")
}

pub(in crate::log) fn spare() -> String {
    format!("{DIRECTORY}/spare")
}

/// What the files in the log's directory are, by their names.
#[derive(Debug, Default)]
pub(in crate::log) struct Listing {
    pub(in crate::log) raw: Vec<u32>,
    pub(in crate::log) sealed: Vec<u32>,
    pub(in crate::log) dictionaries: Vec<u32>,
    pub(in crate::log) temporary: Vec<String>,
    pub(in crate::log) has_format: bool,
    pub(in crate::log) has_mark: bool,
    pub(in crate::log) has_spare: bool,
}

impl Listing {
    pub(in crate::log) fn of(disk: &dyn Disk) -> Result<Self, LogError> {
        let mut listing = Self::default();
        for name in disk.list(DIRECTORY).map_err(LogError::io("list", DIRECTORY))? {
            if name.ends_with(TEMPORARY) {
                listing.temporary.push(format!("{DIRECTORY}/{name}"));
            } else if let Some(number) = numbered(&name, RAW) {
                listing.raw.push(number);
            } else if let Some(number) = numbered(&name, SEALED) {
                listing.sealed.push(number);
            } else if let Some(number) = numbered(&name, DICTIONARY) {
                listing.dictionaries.push(number);
            } else {
                match name.as_str() {
                    "FORMAT" => listing.has_format = true,
                    "mark" => listing.has_mark = true,
                    "spare" => listing.has_spare = true,
                    _ => {}
                }
            }
        }
        Ok(listing)
    }
}

fn numbered(name: &str, suffix: &str) -> Option<u32> {
    name.strip_suffix(suffix).filter(|digits| digits.len() == 10)?.parse().ok()
}

/// Makes a file that a crash leaves either absent or whole: written under another name, synced, renamed.
pub(in crate::log) fn write_whole(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), LogError> {
    let temporary = format!("{path}{TEMPORARY}");
    let file = create_over(disk, &temporary)?;
    let written = file.write_at(bytes, 0).and_then(|()| file.sync_data());
    written.and_then(|()| disk.rename(&temporary, path)).map_err(|error| {
        // Best effort: an open removes it too.
        let _ = disk.remove(&temporary);
        full_or_io("write", path, bytes.len() as u64)(error)
    })?;
    sync_directory(disk)
}

/// Makes an empty file, in the place of an old one if there is any.
pub(in crate::log) fn create_over(disk: &dyn Disk, path: &str) -> Result<Arc<dyn DiskFile>, LogError> {
    let created = match disk.create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            disk.remove(path).and_then(|()| disk.create(path))
        }
        created => created,
    };
    created.map_err(full_or_io("create", path, 0))
}

pub(in crate::log) fn sync_directory(disk: &dyn Disk) -> Result<(), LogError> {
    disk.sync_dir(DIRECTORY).map_err(LogError::io("sync", DIRECTORY))
}

/// A full disk is an error of its own; others are returned as they are.
pub(in crate::log) fn full_or_io(
    action: &'static str,
    file: &str,
    bytes: u64,
) -> impl FnOnce(std::io::Error) -> LogError {
    let file = file.to_owned();
    move |source| {
        if is_full(&source) {
            LogError::Full { file, bytes, source }
        } else {
            LogError::Io { action, file, source }
        }
    }
}
