//! What may go wrong with an operation, and how often.

use std::collections::BTreeMap;
use std::io;

use crate::rng::Rng;

/// The kinds of disk operations that can fail or be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Read,
    Write,
    /// `fdatasync` of a file.
    Sync,
    Allocate,
    SetLen,
    Create,
    Rename,
    Remove,
    SyncDir,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// EIO: what was asked may be done in part.
    Io,
    /// ENOSPC.
    Full,
}

impl Trouble {
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::Io => io::Error::other("input/output error (simulated)"),
            Self::Full => io::ErrorKind::StorageFull.into(),
        }
    }
}

/// How likely which trouble is.
#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<Operation, (Trouble, u32)>);

impl Troubles {
    pub(super) fn set(&mut self, operation: Operation, trouble: Trouble, per_mille: u32) {
        self.0.insert(operation, (trouble, per_mille));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn strike(&self, operation: Operation, rng: &mut Rng) -> Option<Trouble> {
        let (trouble, per_mille) = self.0.get(&operation)?;
        rng.chance(*per_mille).then_some(*trouble)
    }
}
