//! The files of tasks: what an attempt printed, its artifacts and its traces, as blobs.
//!
//! They lie below `task/logs/{requestId}/r{run}-a{attempt}/`. Blobs cannot be listed, so each task has a list of its files
//! beside them. Logs are left out of it: every attempt may have one, under a name that is known.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

use tidemill_model::{ArtifactFile, Json};

use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::commit::TaskKey;
use crate::kernel::notice::Notice;
use crate::kernel::reads::Reads as _;

/// The files of one task, its logs left out.
pub const TASK_FILES_MAX: usize = 10_000;
/// The attempts, newest first, whose logs are looked for.
const LOGS_MAX: u32 = 20;
const LOG: &str = "logs/output.log";
const LIST: &str = "files.json";

/// A file of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Below the task's folder, such as `r1-a1/artifacts/report.txt`.
    pub path: String,
    pub size_bytes: u64,
}

/// Whose list is being written: one change of a list at a time.
#[derive(Debug, Default)]
pub(crate) struct FileLists {
    busy: Mutex<HashSet<TaskKey>>,
    freed: Notice,
}

struct Turn<'a> {
    lists: &'a FileLists,
    task: TaskKey,
}

impl FileLists {
    async fn turn(&self, task: &TaskKey) -> Turn<'_> {
        loop {
            let freed = self.freed.listen();
            if self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(task.clone()) {
                return Turn { lists: self, task: task.clone() };
            }
            freed.await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lists.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.task);
        self.lists.freed.ring();
    }
}

impl<B: Backend> Engine<B> {
    /// Keeps a file of an attempt. `path` begins with the attempt, as in `r1-a1/logs/output.log`.
    pub async fn put_task_file(&self, task: &TaskKey, path: &str, bytes: Vec<u8>) -> Result<(), EngineError> {
        let size_bytes = bytes.len() as u64;
        self.inner.backend.put_blob(task.tenant.clone(), place(task, path), bytes).await?;
        if path.split_once('/').is_some_and(|(_, file)| file == LOG) {
            return Ok(());
        }
        let _turn = self.inner.file_lists.turn(task).await;
        let mut list = self.file_list(task).await?;
        if list.insert(path.to_owned(), size_bytes) == Some(size_bytes) {
            return Ok(());
        }
        check::count("files", list.len(), TASK_FILES_MAX)?;
        let list = Json::of(&list).as_str().as_bytes().to_vec();
        Ok(self.inner.backend.put_blob(task.tenant.clone(), place(task, LIST), list).await?)
    }

    /// A file of a task, if there is one. One that the task's list names and that is not there is an error.
    pub async fn task_file(&self, task: &TaskKey, path: &str) -> Result<Option<Vec<u8>>, EngineError> {
        let found = self.stored_file(task, path).await?;
        if found.is_none() && self.file_list(task).await?.contains_key(path) {
            return Err(EngineError::BlobMissing { key: place(task, path) });
        }
        Ok(found)
    }

    async fn stored_file(&self, task: &TaskKey, path: &str) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.inner.backend.blob(task.tenant.clone(), place(task, path)).await?)
    }

    /// The files of a task by path.
    pub async fn task_files(&self, task: &TaskKey) -> Result<Vec<KeptFile>, EngineError> {
        let mut list = self.file_list(task).await?;
        let head = self.inner.backend.task(task.clone()).await?.and_then(|snapshot| snapshot.head);
        let Some(head) = head else { return Ok(Vec::new()) };
        // Attempts of earlier runs are not counted anywhere; those whose first log is there had at least one.
        let attempts = (1..=head.run).rev().flat_map(|run| {
            let newest = if run == head.run { head.attempts + 1 } else { self.policy().retry.max_attempts };
            (1..=newest).rev().map(move |attempt| format!("r{run}-a{attempt}/{LOG}"))
        });
        let mut found = 0;
        for path in attempts.take(10 * LOGS_MAX as usize) {
            if let Some(bytes) = self.stored_file(task, &path).await? {
                list.insert(path, bytes.len() as u64);
                found += 1;
            }
            if found == LOGS_MAX {
                break;
            }
        }
        Ok(list.into_iter().map(|(path, size_bytes)| KeptFile { path, size_bytes }).collect())
    }

    /// Refuses files that were not kept before, or with another size.
    pub(super) async fn check_kept(&self, task: &TaskKey, named: &[ArtifactFile]) -> Result<(), EngineError> {
        let list = self.file_list(task).await?;
        for (at, artifact) in named.iter().enumerate() {
            let mut size = list.get(&artifact.path).copied();
            if size != Some(artifact.size_bytes) {
                // Several servers of a stage may have kept files at once, and the list of the last one lacks those of the others.
                let key = place(task, &artifact.path);
                size = self.inner.backend.blob_size(task.tenant.clone(), key).await?;
            }
            let (field, problem) = match size {
                None => ("path", "names a file that was not stored under this lease".to_owned()),
                Some(size) if size != artifact.size_bytes => {
                    ("sizeBytes", format!("is {}, but {size} bytes were stored", artifact.size_bytes))
                }
                Some(_) => continue,
            };
            return Err(EngineError::invalid(format!("artifacts[{at}].{field}"), problem));
        }
        Ok(())
    }

    async fn file_list(&self, task: &TaskKey) -> Result<BTreeMap<String, u64>, EngineError> {
        let Some(bytes) = self.stored_file(task, LIST).await? else { return Ok(BTreeMap::new()) };
        serde_json::from_slice(&bytes).map_err(|error| {
            Fault::Damaged(format!("the list of files of task {} cannot be read: {error}", task.request))
                .into()
        })
    }
}

fn place(task: &TaskKey, path: &str) -> String {
    format!("task/logs/{}/{path}", task.request)
}
