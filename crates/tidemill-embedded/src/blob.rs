//! Blobs: large values as files, each under its tenant.
//!
//! A blob and every directory on the way to it are synced before `put` returns, so a commit that names it never
//! outlives it. A blob that an event is to name leaves a note first; if the commit never came, the note leads to the
//! blob and both are removed (`store::blob_sweep`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_model::TenantId;

use crate::blob_file;
use crate::disk::{Disk, DiskFile, read_exact_at};

const DIR: &str = "blobs";
/// Where blobs are written before they get their name.
const DRAFTS: &str = "blobs/.drafts";
/// Notes of blobs that an event is to name.
const NOTES: &str = "blobs/.notes";
/// What the keys of such blobs begin with.
const EVENT_BLOBS: &str = "events/";
/// The longest part of a path that is kept as it is.
const PART_MAX: usize = 180;

pub(crate) struct Blobs {
    disk: Arc<dyn Disk>,
    drafts: AtomicU64,
}

impl Blobs {
    pub(crate) fn open(disk: Arc<dyn Disk>) -> io::Result<Self> {
        disk.create_dir(DRAFTS)?;
        disk.create_dir(NOTES)?;
        disk.sync_dir(".")?;
        disk.sync_dir(DIR)?;
        for left in disk.list(DRAFTS)? {
            disk.remove(&format!("{DRAFTS}/{left}"))?;
        }
        Ok(Self { disk, drafts: AtomicU64::new(0) })
    }

    pub(crate) fn put(&self, tenant: &TenantId, key: &str, bytes: &[u8]) -> io::Result<()> {
        if key.starts_with(EVENT_BLOBS) {
            self.note(tenant, key)?;
        }
        let draft = format!("{DRAFTS}/{}", self.drafts.fetch_add(1, Ordering::Relaxed));
        let stored = self
            .write(&draft, &blob_file::wrap(bytes))
            .and_then(|()| self.name(&draft, &path_of(tenant, key)));
        if stored.is_err() {
            // It never got its name; if it cannot be removed now, the next open does it.
            let _ = self.disk.remove(&draft);
        }
        stored
    }

    /// Leaves a note of a blob that is coming, or whose event is going; durable when this returns.
    pub(crate) fn note(&self, tenant: &TenantId, key: &str) -> io::Result<()> {
        let text = note_text(tenant, key);
        let name = note_path(&text);
        let written = match self.write(&name, text.as_bytes()) {
            // It was left before, whole or torn.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = self.disk.open(&name)?;
                file.write_at(text.as_bytes(), 0).and_then(|()| file.sync_data())
            }
            written => written,
        };
        written.and_then(|()| self.disk.sync_dir(NOTES))
    }

    /// Removes a blob, and then the note of it.
    pub(crate) fn remove_noted(&self, tenant: &TenantId, key: &str) -> io::Result<()> {
        self.remove(tenant, key)?;
        match self.remove_note(&note_path(&note_text(tenant, key))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The notes that were left: their names, and whose blobs they are of.
    pub(crate) fn notes(&self) -> io::Result<Vec<(String, TenantId, String)>> {
        let mut notes = Vec::new();
        for name in self.disk.list(NOTES)? {
            let path = format!("{NOTES}/{name}");
            let text = String::from_utf8_lossy(&read_all(&*self.disk.open(&path)?)?).into_owned();
            match text.split_once('\n') {
                Some((tenant, key)) => notes.push((path, TenantId::trusted(tenant), key.to_owned())),
                // Torn: the blob was not written yet.
                None => self.disk.remove(&path)?,
            }
        }
        Ok(notes)
    }

    pub(crate) fn remove_note(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn write(&self, draft: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.disk.create(draft)?;
        file.write_at(bytes, 0)?;
        file.sync_data()
    }

    fn name(&self, draft: &str, path: &str) -> io::Result<()> {
        let dir = path.rsplit_once('/').map_or(DIR, |(dir, _)| dir);
        self.disk.create_dir(dir)?;
        self.disk.rename(draft, path)?;
        let mut above = Some(dir);
        while let Some(dir) = above {
            self.disk.sync_dir(dir)?;
            above = dir.rsplit_once('/').map(|(above, _)| above);
        }
        Ok(())
    }

    /// A blob. One that is damaged is an error of the kind `InvalidData`.
    pub(crate) fn get(&self, tenant: &TenantId, key: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.disk.open(&path_of(tenant, key)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let damaged =
            |problem| io::Error::new(io::ErrorKind::InvalidData, format!("blob {key} is damaged: {problem}"));
        blob_file::unwrap(read_all(&*file)?).map(Some).map_err(damaged)
    }

    pub(crate) fn remove(&self, tenant: &TenantId, key: &str) -> io::Result<()> {
        let path = path_of(tenant, key);
        match self.disk.remove(&path) {
            // Durable before its note goes: nothing else would lead to it again.
            Ok(()) => self.disk.sync_dir(path.rsplit_once('/').map_or(DIR, |(dir, _)| dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn note_text(tenant: &TenantId, key: &str) -> String {
    format!("{tenant}\n{key}")
}

fn note_path(text: &str) -> String {
    format!("{NOTES}/{:08x}-{:08x}", crc32fast::hash(text.as_bytes()), text.len())
}

fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}

/// The file of a blob. No key can leave its tenant's directory or collide with another key.
fn path_of(tenant: &TenantId, key: &str) -> String {
    let mut path = format!("{DIR}/{tenant}");
    let mut parts = key.split('/').peekable();
    while let Some(part) = parts.next() {
        path.push('/');
        let start = path.len();
        let is_file = parts.peek().is_none();
        push_part(&mut path, part, is_file);
        // Files have a dot in their name and directories have none, so neither stands in the other's way.
        if is_file && !path[start..].contains('.') {
            path.push('.');
        }
    }
    path
}

/// Letters, digits, `-`, `_` and the inner dots of files stay; all else is written as `%` and two digits. A long part is
/// cut and told apart by a checksum of the whole.
fn push_part(path: &mut String, part: &str, is_file: bool) {
    use std::fmt::Write;
    let start = path.len();
    let last = part.len().saturating_sub(1);
    for (at, byte) in part.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => path.push(char::from(byte)),
            b'.' if is_file && at > 0 && at < last => path.push('.'),
            _ => write!(path, "%{byte:02X}").expect("writing to a string does not fail"),
        }
    }
    if path.len() == start {
        path.push('%');
    }
    if path.len() - start > PART_MAX {
        let whole = &path.as_bytes()[start..];
        let (one, two) =
            (crc32fast::hash(whole), crc32fast::hash(&whole.iter().rev().copied().collect::<Vec<_>>()));
        let cut: String = path[start..start + PART_MAX - 20].to_owned();
        let length = path.len() - start;
        path.truncate(start);
        write!(path, "{cut}%-{one:08x}{two:08x}{length}").expect("writing to a string does not fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_in_their_tenants_directory() {
        let tenant = TenantId::new("acme").unwrap();
        for (key, expected) in [
            ("events/req-1/x-payload.json", "blobs/acme/events/req-1/x-payload.json"),
            ("../../etc/passwd", "blobs/acme/%2E%2E/%2E%2E/etc/passwd."),
            ("a//b", "blobs/acme/a/%/b."),
            ("a.", "blobs/acme/a%2E."),
            ("a.b/c", "blobs/acme/a%2Eb/c."),
            ("arn:aws/x y", "blobs/acme/arn%3Aaws/x%20y."),
        ] {
            assert_eq!(path_of(&tenant, key), expected);
        }
        let long = path_of(&tenant, &"x".repeat(512));
        assert!(long.rsplit('/').next().unwrap().len() <= 255, "{long}");
        assert_ne!(long, path_of(&tenant, &format!("{}y", "x".repeat(511))));
    }
}
