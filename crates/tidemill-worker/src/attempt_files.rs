//! Hands what an attempt left behind to the source: its log, its artifacts, its traces.
//!
//! A finished task is not failed for it. What cannot be handed over is tried again twice and then noted.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};

use crate::child::directory::AttemptDirectory;
use crate::child::inner_file::Oversize;
use crate::child::redaction::Redaction;
use crate::source::{Claim, SourceError, TaskSource};

/// The folders of an attempt that are kept.
const FOLDERS: [&str; 3] = ["artifacts", "logs", "traces"];
/// The files of an attempt that are kept.
pub(crate) const FILES_MAX: usize = 1_000;
/// The bytes of one of them; a log has this limit too, and a mark behind it.
pub(crate) const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024 + 4096;
/// The bytes of all of them.
pub(crate) const FILES_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// How many are handed over at a time: a store waits for its disk, and can for several at once.
const AT_ONCE: usize = 4;
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Hands over all files and tells what was left out, in words. `Err` when the lease is lost.
pub(crate) async fn hand_over<S: TaskSource>(
    source: &S,
    claim: &Claim,
    directory: &Arc<AttemptDirectory>,
    redaction: &Redaction,
) -> Result<Vec<String>, SourceError> {
    let mut notes = Vec::new();
    let mut names = Vec::new();
    for folder in FOLDERS {
        match directory.inner.list(folder, FILES_MAX - names.len()) {
            Ok((found, is_cut)) => {
                names.extend(found);
                if is_cut {
                    notes.push(format!("{folder} holds more than is kept; the limit is {FILES_MAX} files"));
                }
            }
            Err(error) => notes.push(format!("{folder} cannot be read: {error}")),
        }
    }
    let mut bytes_left = FILES_BYTES_MAX;
    let mut under_way = JoinSet::new();
    for name in names {
        let limit = FILE_BYTES_MAX.min(bytes_left);
        let bytes = match read(directory, &name, limit).await {
            Ok(bytes) => bytes,
            Err(Oversize::TooLarge(size)) => {
                notes.push(format!("{name} is {size} bytes and is not kept; the limit is {limit}"));
                continue;
            }
            Err(Oversize::Io(error)) => {
                notes.push(format!("{name} cannot be read: {error}"));
                continue;
            }
        };
        bytes_left -= bytes.len() as u64;
        let bytes = match redaction.clean(&bytes) {
            Cow::Borrowed(_) => bytes,
            Cow::Owned(clean) => clean,
        };
        if under_way.len() == AT_ONCE {
            note_put(under_way.join_next().await, &mut notes)?;
        }
        let (source, claim) = (source.clone(), claim.clone());
        under_way.spawn(async move {
            let path = format!("r{}-a{}/{name}", claim.run, claim.attempt);
            put(&source, &claim, &path, bytes).await.map_err(|error| (name, error))
        });
    }
    while !under_way.is_empty() {
        note_put(under_way.join_next().await, &mut notes)?;
    }
    Ok(notes)
}

type Put = Result<Result<(), (String, SourceError)>, JoinError>;

/// Notes what could not be kept. Only a lost lease ends it all.
fn note_put(put: Option<Put>, notes: &mut Vec<String>) -> Result<(), SourceError> {
    match put {
        None | Some(Ok(Ok(()))) => {}
        Some(Ok(Err((_, SourceError::Lost)))) => return Err(SourceError::Lost),
        Some(Ok(Err((name, error)))) => notes.push(format!("{name} could not be kept: {error}")),
        Some(Err(error)) => notes.push(format!("a file could not be kept: {error}")),
    }
    Ok(())
}

/// Reads beside the runtime: files may be large and disks slow.
async fn read(directory: &Arc<AttemptDirectory>, name: &str, limit: u64) -> Result<Vec<u8>, Oversize> {
    let (directory, name) = (Arc::clone(directory), name.to_owned());
    let read = tokio::task::spawn_blocking(move || directory.inner.read(Path::new(&name), limit)).await;
    read.unwrap_or_else(|error| Err(Oversize::Io(std::io::Error::other(error))))
}

async fn put<S: TaskSource>(
    source: &S,
    claim: &Claim,
    path: &str,
    bytes: Vec<u8>,
) -> Result<(), SourceError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match source.put_blob(claim, path, bytes.clone()).await {
            Err(SourceError::Unavailable(_)) => {}
            put => return put,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    source.put_blob(claim, path, bytes).await
}
