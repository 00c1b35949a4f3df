//! Batches: up to ten entries that stand or fall each on its own, once the batch as a whole is sound.

use std::collections::HashSet;

use super::fault::{SqsFault, SqsFaultCode};
use super::members::Members;

/// The entries of a batch.
pub const BATCH_ENTRIES_MAX: usize = 10;
/// The characters of an entry's id.
pub const BATCH_ID_CHARS_MAX: usize = 80;

/// The entries of a batch, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsBatch<T> {
    pub queue: String,
    pub entries: Vec<SqsBatchEntry<T>>,
}

/// One entry: its content, or why it is refused. The rest of the batch goes on without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsBatchEntry<T> {
    pub id: String,
    pub content: Result<T, SqsFault>,
}

impl<T> SqsBatch<T> {
    pub(super) fn read(
        queue: String,
        members: Members<'_>,
        entry_name: &str,
        content: impl Fn(Members<'_>) -> Result<T, SqsFault>,
    ) -> Result<Self, SqsFault> {
        let given = members.objects("Entries")?;
        if given.is_empty() {
            return Err(SqsFault::new(
                SqsFaultCode::EmptyBatchRequest,
                format!("There should be at least one {entry_name} in the request."),
            ));
        }
        if given.len() > BATCH_ENTRIES_MAX {
            return Err(SqsFault::new(
                SqsFaultCode::TooManyEntriesInBatchRequest,
                format!(
                    "Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent {}.",
                    given.len()
                ),
            ));
        }
        let mut entries: Vec<SqsBatchEntry<T>> = Vec::with_capacity(given.len());
        let mut seen = HashSet::new();
        for (at, members) in given.into_iter().enumerate() {
            let missing = || SqsFault::missing(&format!("{entry_name}.{}.Id", at + 1));
            let id = members.text("Id")?.filter(|id| !id.is_empty()).ok_or_else(missing)?;
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            if id.len() > BATCH_ID_CHARS_MAX || !id.bytes().all(allowed) {
                return Err(SqsFault::new(
                    SqsFaultCode::InvalidBatchEntryId,
                    format!(
                        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most {BATCH_ID_CHARS_MAX} letters long."
                    ),
                ));
            }
            if !seen.insert(id) {
                return Err(SqsFault::new(
                    SqsFaultCode::BatchEntryIdsNotDistinct,
                    format!("Id {id} repeated."),
                ));
            }
            entries.push(SqsBatchEntry { id: id.to_owned(), content: content(members) });
        }
        Ok(Self { queue, entries })
    }
}
