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

    /// The relative paths of all plain files below a directory, in order, as far as `limit` goes, and what was left out.
    /// Nothing where there is no such directory; an error where something else has its name.
    pub(crate) fn list(&self, name: &str, limit: usize) -> io::Result<(Vec<String>, LeftOut)> {
        let mut walk =
            Walk { limit, visits_left: VISITS_MAX, found: Vec::new(), left_out: LeftOut::default() };
        let top = match openat(&self.0, name, DIR_FLAGS, Mode::empty()) {
            Ok(top) => top,
            Err(Errno::NOENT) => return Ok((walk.found, walk.left_out)),
            Err(errno) => return Err(errno.into()),
        };
        walk.enter(&top, name, 1)?;
        walk.found.sort();
        Ok((walk.found, walk.left_out))
    }
}

/// What a list of files lacks, and why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// There are more files than the list may have.
    pub(crate) more: bool,
    /// There are more entries than are looked at.
    pub(crate) unseen: bool,
    /// Names that are no text cannot be the names of blobs.
    pub(crate) nameless: usize,
    /// Folders that lie deeper than files are looked for.
    pub(crate) deep: usize,
    /// Folders that cannot be opened.
    pub(crate) closed: usize,
    /// Links, pipes, sockets and devices. They are no files, so nothing of what was to be kept is missing.
    pub(crate) special: usize,
}

impl LeftOut {
    /// In words, of this folder: what was to be kept and is not.
    pub(crate) fn notes(self, folder: &str, limit: usize) -> Vec<String> {
        let reasons = [
            (self.more, format!("{folder} holds more than is kept; the limit is {limit} files")),
            (
                self.unseen,
                format!("{folder} holds more than is looked at; the limit is {VISITS_MAX} entries"),
            ),
            (
                self.nameless > 0,
                format!("{} kept: the name is no UTF-8", counted(self.nameless, "entry", "entries", folder)),
            ),
            (
                self.deep > 0,
                format!(
                    "{} kept: files are looked for {DEPTH_MAX} levels deep",
                    counted(self.deep, "folder", "folders", folder)
                ),
            ),
            (
                self.closed > 0,
                format!("{} kept: it cannot be read", counted(self.closed, "folder", "folders", folder)),
            ),
        ];
        reasons.into_iter().filter(|(is_so, _)| *is_so).map(|(_, note)| note).collect()
    }

    /// In words, of this folder: what is no file.
    pub(crate) fn special_note(self, folder: &str) -> Option<String> {
        let count = counted(self.special, "entry", "entries", folder);
        (self.special > 0).then(|| format!("{count} kept: only plain files are, no links, pipes or sockets"))
    }
}

/// Such as `2 folders in artifacts are not`.
fn counted(count: usize, one: &str, many: &str, folder: &str) -> String {
    if count == 1 {
        format!("1 {one} in {folder} is not")
    } else {
        format!("{count} {many} in {folder} are not")
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
    // A pipe must not make us wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(openat(dir, name, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    Ok((file, metadata.len()))
}

/// A search for plain files.
struct Walk {
    limit: usize,
    visits_left: usize,
    found: Vec<String>,
    left_out: LeftOut,
}

impl Walk {
    /// Collects the files of a directory and those below it.
    fn enter(&mut self, dir: &OwnedFd, path: &str, depth: usize) -> io::Result<()> {
        let mut dirs = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let Some(left) = self.visits_left.checked_sub(1) else {
                self.left_out.unseen = true;
                return Ok(());
            };
            self.visits_left = left;
            let Ok(name) = std::str::from_utf8(name) else {
                self.left_out.nameless += 1;
                continue;
            };
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = rustix::fs::statat(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            match kind {
                FileType::RegularFile if self.found.len() < self.limit => {
                    self.found.push(format!("{path}/{name}"));
                }
                FileType::RegularFile => self.left_out.more = true,
                FileType::Directory => dirs.push(name.to_owned()),
                _ => self.left_out.special += 1,
            }
        }
        for name in dirs {
            if self.left_out.more || self.left_out.unseen {
                break;
            }
            if depth == DEPTH_MAX {
                self.left_out.deep += 1;
                continue;
            }
            match openat(dir, OsStr::from_bytes(name.as_bytes()), DIR_FLAGS, Mode::empty()) {
                Ok(inner) => self.enter(&inner, &format!("{path}/{name}"), depth + 1)?,
                Err(_) => self.left_out.closed += 1,
            }
        }
        Ok(())
    }
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
        let links = LeftOut { special: 2, ..LeftOut::default() };
        assert_eq!(
            list(9),
            (["artifacts/a", "artifacts/c", "artifacts/deep/b"].map(str::to_owned).to_vec(), links)
        );
        assert_eq!((list(2).0.len(), list(2).1.more), (2, true));
        assert_eq!(list(3), (list(9).0, links));
        // What stands in the place of a folder is not kept, and that is to be said.
        assert!(dir.list("other", 9).is_err(), "a link is no folder");
        assert!(dir.list("top", 9).is_err(), "nor is a file");
        assert_eq!(dir.list("none", 9).unwrap(), (Vec::new(), LeftOut::default()));
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

    /// Each cause has its words, and none is taken for another.
    #[test]
    fn what_is_left_out_is_told_by_its_cause() {
        let root = std::env::temp_dir().join(format!("tidemill-left-out-{}", std::process::id()));
        let folder = root.join("artifacts");
        let deep = folder.join(vec!["d"; DEPTH_MAX].join("/"));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("x"), "").unwrap();
        let dir = InnerDir::open(&root).unwrap();
        let told = |limit| {
            let (_, left_out) = dir.list("artifacts", limit).unwrap();
            (left_out.notes("artifacts", limit), left_out.special_note("artifacts"))
        };
        let is_deep = "1 folder in artifacts is not kept: files are looked for 16 levels deep";
        assert_eq!(told(9), (vec![is_deep.to_owned()], None));
        std::fs::remove_dir_all(folder.join("d")).unwrap();
        for name in [&b"\xff"[..], b"\xfe"] {
            std::fs::write(folder.join(OsStr::from_bytes(name)), "").unwrap();
        }
        let is_nameless = "2 entries in artifacts are not kept: the name is no UTF-8";
        assert_eq!(told(9), (vec![is_nameless.to_owned()], None));
        for name in [&b"\xff"[..], b"\xfe"] {
            std::fs::remove_file(folder.join(OsStr::from_bytes(name))).unwrap();
        }
        std::os::unix::fs::symlink("/", folder.join("link")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap());
        let special = "2 entries in artifacts are not kept: only plain files are, no links, pipes or sockets";
        assert_eq!(told(9), (Vec::new(), Some(special.to_owned())));
        std::fs::write(folder.join("file"), "").unwrap();
        let is_more = "artifacts holds more than is kept; the limit is 0 files";
        assert_eq!(told(0).0, [is_more]);
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
