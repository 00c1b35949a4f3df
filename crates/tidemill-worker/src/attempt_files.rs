//! Hands what an attempt left behind to the source: its log, its artifacts, its traces.
//!
//! A finished task is not failed for it. What cannot be handed over now is tried again under the lease that is kept
//! meanwhile: logs and traces for a minute, then they are noted. The artifacts of a completed task are part of its result, since
//! its dependents get them: they are tried for as long as its outcome would be, and without them the outcome is not reported.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::warn_seldom;
use tidemill_model::work::artifact::is_inner_path;
use tidemill_model::{ArtifactFile, Backoff};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::child::directory::AttemptDirectory;
use crate::child::inner_file::{InnerDir, Oversize};
use crate::child::inputs::sha256_of;
use crate::child::redaction::Redaction;
use crate::source::{HeldTask, SourceError, TaskSource};
use crate::trouble::{DESCRIPTORS_TO_KEEP, is_own, look_at_descriptors};

/// The folders of an attempt that are kept, in the order in which they are: what tells how it went comes first, so that
/// no number of artifacts takes its place.
const FOLDERS: [&str; 3] = ["logs", "traces", "artifacts"];
const ARTIFACTS: &str = "artifacts/";
/// And the files that go before all others, which a child can make many of in any folder.
const FIRST: [&str; 4] =
    ["logs/output.log", "logs/summary.log", "traces/session_trace.json", "artifacts/task-result.json"];
/// The files of an attempt that are kept.
pub(crate) const FILES_MAX: usize = 1_000;
/// The bytes of one of them; a log has this limit too, and a mark behind it.
pub(crate) const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024 + 4096;
/// The bytes of all of them.
pub(crate) const FILES_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// How many are handed over at a time: a store waits for its disk, and can for several at once.
const AT_ONCE: usize = 4;
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// For how long files are tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) artifacts: Duration,
    /// For logs and traces.
    pub(crate) others: Duration,
}

/// What was handed over.
#[derive(Debug, Default)]
pub(crate) struct HandedOver {
    /// The artifacts that are kept, by path.
    pub(crate) artifacts: Vec<ArtifactFile>,
    /// What was left out, in words.
    pub(crate) notes: Vec<String>,
    /// The first artifact that could not be handed over although nothing is wrong with it, in words.
    pub(crate) missing: Option<String>,
}

/// Hands over all files and tells what was left out. `Err` when the lease is lost.
pub(crate) async fn hand_over<S: TaskSource>(
    source: &S,
    claim: &HeldTask,
    directory: &Arc<AttemptDirectory>,
    redaction: &Redaction,
    patience: Patience,
) -> Result<HandedOver, SourceError> {
    let now = Instant::now();
    let until_of =
        |name: &str| now + if name.starts_with(ARTIFACTS) { patience.artifacts } else { patience.others };
    let (names, notes) = names_in(&directory.inner, now + patience.others).await;
    let mut handed = HandedOver { notes, ..HandedOver::default() };
    let mut taken = HashSet::new();
    let mut bytes_left = FILES_BYTES_MAX;
    let mut under_way = JoinSet::new();
    for name in names {
        let until = until_of(&name);
        let limit = FILE_BYTES_MAX.min(bytes_left);
        let Content { size, bytes, sha256 } = match read_patiently(directory, &name, limit, redaction, until)
            .await
        {
            Ok(read) => read,
            Err(Oversize::TooLarge(size)) => {
                handed.notes.push(format!("{name} is {size} bytes and is not kept; the limit is {limit}"));
                continue;
            }
            Err(Oversize::Io(error)) => {
                handed.left_out(&name, is_own(&error), format!("{name} cannot be read: {error}"));
                continue;
            }
        };
        bytes_left -= size;
        let kept_as = clean_name(&name, redaction, &mut taken);
        if under_way.len() == AT_ONCE {
            note_put(under_way.join_next().await, &mut handed)?;
        }
        let artifact = kept_as.strip_prefix(ARTIFACTS).filter(|path| is_inner_path(path)).zip(sha256);
        let artifact = artifact.map(|(path, sha256)| ArtifactFile {
            path: path.to_owned(),
            size_bytes: bytes.len() as u64,
            sha256,
        });
        let (source, claim) = (source.clone(), claim.clone());
        under_way.spawn(async move {
            let path = format!("r{}-a{}/{kept_as}", claim.run, claim.attempt);
            let put = put(&source, &claim, &path, bytes, until).await;
            put.map(|()| artifact).map_err(|error| (kept_as, error))
        });
    }
    while !under_way.is_empty() {
        note_put(under_way.join_next().await, &mut handed)?;
    }
    handed.artifacts.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(handed)
}

/// The files that are kept. A machine without descriptors is asked again for a while: they may be free soon.
async fn names_in(directory: &InnerDir, until: Instant) -> (Vec<String>, Vec<String>) {
    let mut pauses = PAUSES;
    while look_at_descriptors(DESCRIPTORS_TO_KEEP).is_err() && Instant::now() < until {
        tokio::time::sleep(pauses.pause()).await;
    }
    list(directory)
}

/// Their names in the order in which they are kept, and what is left out, in words.
fn list(directory: &InnerDir) -> (Vec<String>, Vec<String>) {
    let is_there = |name: &&str| directory.file(Path::new(name)).is_ok();
    let mut names: Vec<String> = FIRST.into_iter().filter(|name| is_there(name)).map(str::to_owned).collect();
    let mut notes = Vec::new();
    for folder in FOLDERS {
        match directory.list(folder, FILES_MAX) {
            Ok((mut found, mut left_out)) => {
                found.retain(|name| !FIRST.contains(&name.as_str()));
                let room = FILES_MAX - names.len();
                left_out.more |= found.len() > room;
                notes.extend(left_out.notes(folder, FILES_MAX));
                found.truncate(room);
                names.extend(found);
            }
            Err(error) => notes.push(format!("{folder} cannot be read: {error}")),
        }
    }
    (names, notes)
}

/// What among the artifacts is no file, in words.
pub(crate) fn special_note(directory: &InnerDir) -> Option<String> {
    let (_, left_out) = directory.list(ARTIFACTS.trim_end_matches('/'), FILES_MAX).ok()?;
    left_out.special_note(ARTIFACTS.trim_end_matches('/'))
}

impl HandedOver {
    /// Notes a file that is left out. `is_passing`: nothing is wrong with the file itself.
    fn left_out(&mut self, name: &str, is_passing: bool, note: String) {
        if is_passing && name.starts_with(ARTIFACTS) {
            self.missing.get_or_insert_with(|| note.clone());
        }
        self.notes.push(note);
    }
}

type Put = Result<Result<Option<ArtifactFile>, (String, SourceError)>, JoinError>;

/// Notes what is kept, and what could not be. Only a lost lease ends it all.
fn note_put(put: Option<Put>, handed: &mut HandedOver) -> Result<(), SourceError> {
    match put {
        None => {}
        Some(Ok(Ok(artifact))) => handed.artifacts.extend(artifact),
        Some(Ok(Err((_, SourceError::Lost)))) => return Err(SourceError::Lost),
        Some(Ok(Err((name, error)))) => {
            let is_passing = matches!(error, SourceError::Unavailable(_));
            handed.left_out(&name, is_passing, format!("{name} could not be kept: {error}"));
        }
        Some(Err(error)) => handed.notes.push(format!("a file could not be kept: {error}")),
    }
    Ok(())
}

/// The name under which a file is kept: without secrets, and not that of another file.
fn clean_name(name: &str, redaction: &Redaction, taken: &mut HashSet<String>) -> String {
    // The folder is ours.
    let (folder, rest) = name.split_once('/').unwrap_or((name, ""));
    let clean = format!("{folder}/{}", redaction.clean_text(rest));
    let mut free = clean.clone();
    let mut number = 1_u32;
    while !taken.insert(free.clone()) {
        number += 1;
        free = format!("{clean}-{number}");
    }
    free
}

/// Reads a file. What this machine lacks for it now may be there soon.
async fn read_patiently(
    directory: &Arc<AttemptDirectory>,
    name: &str,
    limit: u64,
    redaction: &Redaction,
    until: Instant,
) -> Result<Content, Oversize> {
    let mut pauses = PAUSES;
    loop {
        match read(directory, name, limit, redaction).await {
            Err(Oversize::Io(error)) if is_own(&error) && Instant::now() < until => {}
            read => return read,
        }
        tokio::time::sleep(pauses.pause()).await;
    }
}

/// A file that was read.
struct Content {
    /// What it has on the disk.
    size: u64,
    /// Without secrets.
    bytes: Vec<u8>,
    /// Of these bytes; only for artifacts.
    sha256: Option<String>,
}

/// Reads and cleans beside the runtime: files may be large and disks slow.
async fn read(
    directory: &Arc<AttemptDirectory>,
    name: &str,
    limit: u64,
    redaction: &Redaction,
) -> Result<Content, Oversize> {
    let (directory, name, redaction) = (Arc::clone(directory), name.to_owned(), redaction.clone());
    let read = tokio::task::spawn_blocking(move || {
        let bytes = directory.inner.read(Path::new(&name), limit)?;
        let clean = match redaction.clean(&bytes) {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(clean),
        };
        let size = bytes.len() as u64;
        let bytes = clean.unwrap_or(bytes);
        let sha256 = name.starts_with(ARTIFACTS).then(|| sha256_of(&bytes));
        Ok(Content { size, bytes, sha256 })
    });
    read.await.unwrap_or_else(|error| Err(Oversize::Io(std::io::Error::other(error))))
}

/// Keeps the log of an attempt that has no directory. What cannot be kept is said in words.
pub(crate) async fn keep_log<S: TaskSource>(
    source: &S,
    claim: &HeldTask,
    bytes: Vec<u8>,
    patience: Duration,
) -> Result<Option<String>, SourceError> {
    let path = format!("r{}-a{}/{}", claim.run, claim.attempt, FIRST[0]);
    match put(source, claim, &path, bytes, Instant::now() + patience).await {
        Ok(()) => Ok(None),
        Err(SourceError::Lost) => Err(SourceError::Lost),
        Err(error) => Ok(Some(format!("the log could not be kept: {error}"))),
    }
}

async fn put<S: TaskSource>(
    source: &S,
    claim: &HeldTask,
    path: &str,
    bytes: Vec<u8>,
    until: Instant,
) -> Result<(), SourceError> {
    let mut pauses = PAUSES;
    loop {
        match source.put_blob(claim, path, bytes.clone()).await {
            Err(SourceError::Unavailable(problem)) if Instant::now() < until => {
                warn_seldom!(problem, request = %claim.task.request, path, "a file of a task cannot be stored now; it is tried again");
            }
            put => return put,
        }
        tokio::time::sleep(pauses.pause()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_files_takes_the_place_of_logs_and_traces() {
        let root = std::env::temp_dir().join(format!("tidemill-kept-{}", std::process::id()));
        let write = |name: &str| std::fs::write(root.join(name), "").unwrap();
        for folder in FOLDERS {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        ["logs/other.log", "traces/other.json"].iter().chain(&FIRST).for_each(|name| write(name));
        (0..=FILES_MAX).for_each(|number| write(&format!("artifacts/{number:04}")));
        let directory = InnerDir::open(&root).unwrap();
        let (names, notes) = list(&directory);
        assert_eq!(names.len(), FILES_MAX);
        assert_eq!(names[..4], FIRST);
        assert_eq!(names[4..7], ["logs/other.log", "traces/other.json", "artifacts/0000"]);
        assert_eq!(notes, ["artifacts holds more than is kept; the limit is 1000 files"]);
        (0..=FILES_MAX).for_each(|number| write(&format!("logs/{number:04}")));
        let (names, notes) = list(&directory);
        assert_eq!((names.len(), notes.len()), (FILES_MAX, 3));
        assert_eq!(names[..4], FIRST, "a child may make many files in any folder");
        std::fs::remove_dir_all(root).unwrap();
    }
}
