//! Blobs: large values as files, each under its tenant.
//!
//! A blob and every directory on the way to it are synced before `put` returns, so a commit that names it never
//! outlives it. A blob that an event is to name leaves a note first; if the commit never came, the note leads to the
//! blob and both are removed (`store::blob_sweep`).
//!
//! The name of a file comes from its key alone, a long one by its SHA-256, and the file says whose it is. So no key leads
//! to the blob of another. Blobs whose long names were made otherwise by former releases are still found.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use tidemill_model::TenantId;
use tidemill_model::values::hex;

use crate::blob_file::{self, BlobFile};
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
/// How much of a longer one is kept in front of what tells it apart.
const CUT_BYTES: usize = 160;

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
            .write(&draft, &blob_file::wrap(bytes, &blob_file::owner(tenant, key)))
            .and_then(|()| self.name(&draft, &path_of(tenant, key, push_digest)));
        if stored.is_err() {
            // It never got its name; if it cannot be removed now, the next open does it.
            let _ = self.disk.remove(&draft);
        }
        stored
    }

    /// Takes over the file of a blob as it lies in another directory under `path`, unless there is one already. One that is
    /// damaged or lies at the wrong place is an error of the kind `InvalidData`.
    pub(crate) fn adopt(&self, path: &str, file: &[u8]) -> io::Result<()> {
        let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
        let BlobFile { owner, .. } = blob_file::unwrap(file.to_vec()).map_err(wrong)?;
        let fits = owner.as_deref().is_none_or(|owner| {
            owner
                .split_once('\n')
                .is_some_and(|(tenant, key)| paths_of(&TenantId::trusted(tenant), key).any(|own| own == path))
        });
        if !fits {
            return Err(wrong("it is the blob of another key"));
        }
        match self.disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened.map(drop),
        }
        let draft = format!("{DRAFTS}/{}", self.drafts.fetch_add(1, Ordering::Relaxed));
        self.write(&draft, file).and_then(|()| self.name(&draft, path))
    }

    /// Whether there is space for a blob of this many bytes.
    pub(crate) fn check_space(&self, bytes: u64) -> io::Result<()> {
        let draft = format!("{DRAFTS}/{}", self.drafts.fetch_add(1, Ordering::Relaxed));
        let fits = self.disk.create(&draft).and_then(|file| file.allocate(bytes));
        match self.disk.remove(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => fits.and(Err(error)),
            _ => fits,
        }
    }

    /// Leaves a note of a blob that is coming, or whose event is going; durable when this returns.
    pub(crate) fn note(&self, tenant: &TenantId, key: &str) -> io::Result<()> {
        let text = blob_file::owner(tenant, key);
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
        match self.remove_note(&note_path(&blob_file::owner(tenant, key))) {
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

    /// A blob. One that is damaged, or that of another key, is an error of the kind `InvalidData`.
    pub(crate) fn get(&self, tenant: &TenantId, key: &str) -> io::Result<Option<Vec<u8>>> {
        let damaged =
            |problem| io::Error::new(io::ErrorKind::InvalidData, format!("blob {key} is damaged: {problem}"));
        for path in paths_of(tenant, key) {
            let file = match self.disk.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let BlobFile { content, owner } = blob_file::unwrap(read_all(&*file)?).map_err(damaged)?;
            if owner.is_some_and(|owner| owner != blob_file::owner(tenant, key)) {
                return Err(damaged("it is the blob of another key"));
            }
            return Ok(Some(content));
        }
        Ok(None)
    }

    pub(crate) fn remove(&self, tenant: &TenantId, key: &str) -> io::Result<()> {
        for path in paths_of(tenant, key) {
            match self.disk.remove(&path) {
                // Durable before its note goes: nothing else would lead to it again.
                Ok(()) => self.disk.sync_dir(path.rsplit_once('/').map_or(DIR, |(dir, _)| dir))?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn note_path(text: &str) -> String {
    let mut path = format!("{NOTES}/");
    push_hex(&mut path, text.as_bytes());
    path
}

fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}

/// Where a blob is looked for: its place, then the one that former releases gave it if they gave it another.
fn paths_of(tenant: &TenantId, key: &str) -> impl Iterator<Item = String> {
    let (path, former) = (path_of(tenant, key, push_digest), path_of(tenant, key, push_checksums));
    let former = (former != path).then_some(former);
    std::iter::once(path).chain(former)
}

/// The file of a blob. No key can leave its tenant's directory or collide with another key. `tell_apart` ends a part that
/// had to be cut, given the whole of it.
fn path_of(tenant: &TenantId, key: &str, tell_apart: fn(&mut String, &[u8])) -> String {
    let mut path = format!("{DIR}/{tenant}");
    let mut parts = key.split('/').peekable();
    while let Some(part) = parts.next() {
        path.push('/');
        let start = path.len();
        let is_file = parts.peek().is_none();
        push_part(&mut path, part, is_file);
        if path.len() - start > PART_MAX {
            let whole = path.split_off(start);
            path.push_str(&whole[..CUT_BYTES]);
            tell_apart(&mut path, whole.as_bytes());
        }
        // Files have a dot in their name and directories have none, so neither stands in the other's way.
        if is_file && !path[start..].contains('.') {
            path.push('.');
        }
    }
    path
}

/// Letters, digits, `-`, `_` and the inner dots of files stay; all else is written as `%` and two digits.
fn push_part(path: &mut String, part: &str, is_file: bool) {
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
}

/// Tells a long part apart from all others.
fn push_digest(path: &mut String, whole: &[u8]) {
    path.push_str("%_");
    push_hex(path, whole);
}

fn push_hex(path: &mut String, text: &[u8]) {
    path.push_str(&hex::encode(&Sha256::digest(text)));
}

/// What former releases told long parts apart by. Two parts can be made that agree in it, so nothing is written there.
fn push_checksums(path: &mut String, whole: &[u8]) {
    let reversed: Vec<u8> = whole.iter().rev().copied().collect();
    let (one, two, length) = (crc32fast::hash(whole), crc32fast::hash(&reversed), whole.len());
    write!(path, "%-{one:08x}{two:08x}{length}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real_disk::RealDisk;

    fn acme() -> TenantId {
        TenantId::new("acme").unwrap()
    }

    /// Blobs in a directory of their own, which goes with them.
    struct Lab {
        dir: std::path::PathBuf,
        blobs: Blobs,
    }

    impl Lab {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("tidemill-blob-{name}-{}", std::process::id()));
            let disk = Arc::new(RealDisk::new(&dir).unwrap());
            Self { dir, blobs: Blobs::open(disk).unwrap() }
        }

        fn write(&self, path: &str, bytes: &[u8]) {
            let path = self.dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }

        fn get(&self, key: &str) -> Option<Vec<u8>> {
            self.blobs.get(&acme(), key).unwrap()
        }
    }

    impl Drop for Lab {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    #[test]
    fn keys_stay_in_their_tenants_directory() {
        let tenant = acme();
        for (key, expected) in [
            ("events/req-1/x-payload.json", "blobs/acme/events/req-1/x-payload.json"),
            ("../../etc/passwd", "blobs/acme/%2E%2E/%2E%2E/etc/passwd."),
            ("a//b", "blobs/acme/a/%/b."),
            ("a.", "blobs/acme/a%2E."),
            ("a.b/c", "blobs/acme/a%2Eb/c."),
            ("arn:aws/x y", "blobs/acme/arn%3Aaws/x%20y."),
        ] {
            assert_eq!(path_of(&tenant, key, push_digest), expected);
            assert_eq!(paths_of(&tenant, key).count(), 1);
        }
        let long = path_of(&tenant, &"x".repeat(512), push_digest);
        assert!(long.rsplit('/').next().unwrap().len() <= 255, "{long}");
        assert_ne!(long, path_of(&tenant, &format!("{}y", "x".repeat(511)), push_digest));
    }

    /// Two names of the same length that begin alike and have the same CRC-32, read forwards and backwards: the
    /// checksums are linear, so which letters to swap is a system of equations with fewer equations than letters.
    fn names_that_agree() -> [String; 2] {
        let name = |swapped: u128| -> String {
            let end = (0..80).map(|at| if swapped >> at & 1 == 1 { 'b' } else { 'a' });
            "x".repeat(CUT_BYTES).chars().chain(end).collect()
        };
        let sums = |text: &str| {
            let reversed: Vec<u8> = text.bytes().rev().collect();
            (u64::from(crc32fast::hash(text.as_bytes())) << 32) | u64::from(crc32fast::hash(&reversed))
        };
        let none = sums(&name(0));
        // What each swap changes, in a form where each kept change has a bit of its own.
        let mut kept: Vec<(u64, u128)> = Vec::new();
        for at in 0..80 {
            let (mut change, mut swapped) = (sums(&name(1 << at)) ^ none, 1 << at);
            for (other, others) in &kept {
                if change ^ other < change {
                    (change, swapped) = (change ^ other, swapped ^ others);
                }
            }
            if change == 0 {
                let names = [name(0), name(swapped)];
                assert_eq!(sums(&names[0]), sums(&names[1]));
                return names;
            }
            kept.push((change, swapped));
            kept.sort_unstable_by_key(|(change, _)| std::cmp::Reverse(*change));
        }
        unreachable!("there are 64 equations for 80 letters");
    }

    #[test]
    fn names_made_to_agree_in_their_checksums_stay_apart() {
        let lab = Lab::new("agree");
        let keys = names_that_agree().map(|name| format!("task/logs/{name}/r1-a1/logs/output.log"));
        let former = keys.each_ref().map(|key| path_of(&acme(), key, push_checksums));
        assert_eq!(former[0], former[1], "the names must agree for the test to mean anything");
        for (key, bytes) in [(&keys[0], b"the log"), (&keys[1], b"another")] {
            lab.blobs.put(&acme(), key, bytes).unwrap();
        }
        assert_eq!(lab.get(&keys[0]).unwrap(), b"the log");
        assert_eq!(lab.get(&keys[1]).unwrap(), b"another");
        let noted = keys.map(|key| note_path(&blob_file::owner(&acme(), &key)));
        assert_ne!(noted[0], noted[1]);
    }

    #[test]
    fn a_blob_under_the_name_of_a_former_release_is_found_kept_and_removed() {
        let lab = Lab::new("former");
        // As a former release wrote it, name and form.
        let key = format!("task/logs/{}/r1-a1/logs/output.log", "r".repeat(200));
        let cut = "r".repeat(160);
        let path = format!("blobs/acme/task/logs/{cut}%-6591040a6591040a200/r1-a1/logs/output.log");
        assert_eq!(path_of(&acme(), &key, push_checksums), path);
        lab.write(&path, &blob_file::wrap_first(b"long ago"));
        assert_eq!(lab.get(&key).unwrap(), b"long ago");
        lab.blobs.put(&acme(), &key, b"now").unwrap();
        assert_eq!(lab.get(&key).unwrap(), b"now");
        lab.blobs.remove(&acme(), &key).unwrap();
        assert_eq!(lab.get(&key), None);
        assert!(!lab.dir.join(path).exists());
    }

    #[test]
    fn a_file_at_the_place_of_another_is_not_served() {
        let lab = Lab::new("moved");
        lab.blobs.put(&acme(), "a/one", b"one").unwrap();
        let [one, two] = ["a/one", "a/two"].map(|key| lab.dir.join(path_of(&acme(), key, push_digest)));
        std::fs::rename(one, two).unwrap();
        let refused = lab.blobs.get(&acme(), "a/two").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert_eq!(refused.to_string(), "blob a/two is damaged: it is the blob of another key");
    }
}
