//! Files inside the directory of an attempt, reached without ever following a link out of it.
//!
//! A child may run as another user than the worker, and may put links where files are expected. No link is followed,
//! neither on the way nor at its end, and only plain files are read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, RawDir, SeekFrom, mkdirat, openat, seek};
use rustix::io::Errno;

/// How deep below the directory files are looked for.
const DEPTH_MAX: usize = 16;
/// How many entries are looked at.
const VISITS_MAX: usize = 20_000;

/// The directory of an attempt.
#[derive(Debug)]
pub(crate) struct InnerDir(pub(crate) OwnedFd);

const DIR_FLAGS: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl InnerDir {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, DIR_FLAGS, Mode::empty())?))
    }

    /// The directory of this name in it, made if it is not there.
    pub(crate) fn make(&self, name: &str, mode: Mode) -> io::Result<Self> {
        match mkdirat(&self.0, name, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(Self(openat(&self.0, name, DIR_FLAGS, Mode::empty())?))
    }

    pub(crate) fn create(&self, name: &str, mode: Mode) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, mode)?))
    }

    /// Like `create`, for what follows in a file.
    pub(crate) fn append(&self, name: &str, mode: Mode) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, mode)?))
    }

    /// A plain file at a relative path, with its size.
    pub(crate) fn file(&self, path: &Path) -> io::Result<(File, u64)> {
        let mut parts = path.components().peekable();
        let mut dir = None;
        while let Some(part) = parts.next() {
            let name = match part {
                Component::Normal(name) => name,
                Component::CurDir => continue,
                _ => return Err(Errno::INVAL.into()),
            };
            let at = dir.as_ref().map_or(self.0.as_fd(), OwnedFd::as_fd);
            if parts.peek().is_some() {
                dir = Some(openat(at, name, DIR_FLAGS, Mode::empty())?);
                continue;
            }
            return plain_file(at, name);
        }
        Err(Errno::INVAL.into())
    }

    /// The bytes of a plain file, if there are no more than `limit`; `Err(Ok(size))` tells how many there are.
    pub(crate) fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, Oversize> {
        let (file, size) = self.file(path)?;
        if size > limit {
            return Err(Oversize::TooLarge(size));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        // It may still grow.
        file.take(limit + 1).read_to_end(&mut bytes)?;
        match u64::try_from(bytes.len()) {
            Ok(size) if size <= limit => Ok(bytes),
            _ => Err(Oversize::TooLarge(limit + 1)),
        }
    }

    /// Whether there is nothing in it but what is named, and nothing in the directories among that.
    pub(crate) fn holds_only(&self, files: &[&str], dirs: &[&str]) -> bool {
        let is_named = |name: &[u8]| files.iter().chain(dirs).any(|known| known.as_bytes() == name);
        let is_empty = |dir: &&str| {
            openat(&self.0, *dir, DIR_FLAGS, Mode::empty()).is_ok_and(|dir| all_names(dir, |_| false))
        };
        seek(&self.0, SeekFrom::Start(0)).is_ok() && all_names(&self.0, is_named) && dirs.iter().all(is_empty)
    }

    /// The relative paths of all plain files below a directory, in order, as far as `limit` goes. True: there are more.
    /// Nothing where there is no such directory; an error where something else has its name.
    pub(crate) fn list(&self, name: &str, limit: usize) -> io::Result<(Vec<String>, bool)> {
        let mut found = Vec::new();
        let top = match openat(&self.0, name, DIR_FLAGS, Mode::empty()) {
            Ok(top) => top,
            Err(Errno::NOENT) => return Ok((found, false)),
            Err(errno) => return Err(errno.into()),
        };
        let mut visits_left = VISITS_MAX;
        let is_cut = !walk(&top, name, 1, limit, &mut visits_left, &mut found)?;
        found.sort();
        Ok((found, is_cut))
    }
}

/// Whether all entries of a directory that can be read are as they should be.
fn all_names(dir: impl AsFd, is_right: impl Fn(&[u8]) -> bool) -> bool {
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(dir, &mut space);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            Ok(entry) if is_right(entry.file_name().to_bytes()) => {}
            _ => return false,
        }
    }
    true
}

/// Why a file was not read.
#[derive(Debug)]
pub(crate) enum Oversize {
    TooLarge(u64),
    Io(io::Error),
}

impl From<io::Error> for Oversize {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn plain_file(dir: impl AsFd, name: &OsStr) -> io::Result<(File, u64)> {
    // A pipe must not make us wait for somebody who writes to it.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(openat(dir, name, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    Ok((file, metadata.len()))
}

/// Collects files; false when there are more than `limit`, or they lie too deep.
fn walk(
    dir: &OwnedFd,
    path: &str,
    depth: usize,
    limit: usize,
    visits_left: &mut usize,
    found: &mut Vec<String>,
) -> io::Result<bool> {
    let mut is_whole = true;
    let mut dirs = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let Some(left) = visits_left.checked_sub(1) else { return Ok(false) };
        *visits_left = left;
        // A name that is no text cannot be the name of a blob.
        let Ok(name) = std::str::from_utf8(name) else {
            is_whole = false;
            continue;
        };
        if matches!(name, "." | "..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        match kind {
            FileType::RegularFile if found.len() < limit => found.push(format!("{path}/{name}")),
            FileType::RegularFile => return Ok(false),
            FileType::Directory => dirs.push(name.to_owned()),
            _ => {}
        }
    }
    for name in dirs {
        if depth == DEPTH_MAX {
            return Ok(false);
        }
        match openat(dir, OsStr::from_bytes(name.as_bytes()), DIR_FLAGS, Mode::empty()) {
            Ok(inner) => {
                let path = format!("{path}/{name}");
                is_whole &= walk(&inner, &path, depth + 1, limit, visits_left, found)?;
            }
            Err(_) => is_whole = false,
        }
    }
    Ok(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_below_the_directory_are_reached() {
        let root = std::env::temp_dir().join(format!("tidemill-inner-{}", std::process::id()));
        std::fs::create_dir_all(root.join("in/artifacts/deep")).unwrap();
        std::fs::write(root.join("secret"), "secret").unwrap();
        for (path, text) in
            [("artifacts/a", "a"), ("artifacts/deep/b", "bb"), ("artifacts/c", "ccc"), ("top", "t")]
        {
            std::fs::write(root.join("in").join(path), text).unwrap();
        }
        std::os::unix::fs::symlink(root.join("secret"), root.join("in/artifacts/link")).unwrap();
        std::os::unix::fs::symlink(&root, root.join("in/artifacts/way")).unwrap();
        std::os::unix::fs::symlink(root.join("in/artifacts"), root.join("in/other")).unwrap();
        let dir = InnerDir::open(&root.join("in")).unwrap();
        let list = |limit| dir.list("artifacts", limit).unwrap();
        assert_eq!(
            list(9),
            (["artifacts/a", "artifacts/c", "artifacts/deep/b"].map(str::to_owned).to_vec(), false)
        );
        assert_eq!((list(2).0.len(), list(2).1), (2, true));
        assert_eq!(list(3), (list(9).0, false));
        // What stands in the place of a folder is not kept, and that is to be said.
        assert!(dir.list("other", 9).is_err(), "a link is no folder");
        assert!(dir.list("top", 9).is_err(), "nor is a file");
        assert_eq!(dir.list("none", 9).unwrap(), (Vec::new(), false));
        for (path, expected) in [
            ("top", Some("t")),
            ("artifacts/deep/b", Some("bb")),
            ("./top", Some("t")),
            ("artifacts/link", None),
            ("artifacts/way/secret", None),
            ("../secret", None),
            ("artifacts/../top", None),
            ("/etc/passwd", None),
            ("artifacts", None),
            ("", None),
            ("none", None),
        ] {
            let read = dir.read(Path::new(path), 10).ok().map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(read.as_deref(), expected, "{path}");
        }
        assert!(matches!(dir.read(Path::new("artifacts/c"), 2), Err(Oversize::TooLarge(3))));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn whatever_is_more_than_was_given_is_seen() {
        let root = std::env::temp_dir().join(format!("tidemill-given-{}", std::process::id()));
        std::fs::create_dir_all(root.join("artifacts")).unwrap();
        std::fs::write(root.join("input.json"), "{}").unwrap();
        let dir = InnerDir::open(&root).unwrap();
        let is_bare = || dir.holds_only(&["input.json"], &["artifacts"]);
        assert!(is_bare() && is_bare());
        for name in ["artifacts/a", "artifacts/.hidden", "logs", "input.json2"] {
            std::fs::write(root.join(name), "").unwrap();
            assert!(!is_bare(), "{name}");
            std::fs::remove_file(root.join(name)).unwrap();
            assert!(is_bare(), "{name}");
        }
        std::fs::remove_dir(root.join("artifacts")).unwrap();
        assert!(!is_bare(), "what was given and is not there any more is looked at closely too");
        std::os::unix::fs::symlink("/", root.join("artifacts")).unwrap();
        assert!(!is_bare(), "and so is a link in its place");
        std::fs::remove_dir_all(root).unwrap();
    }
}
