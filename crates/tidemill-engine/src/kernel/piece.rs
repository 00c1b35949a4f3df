//! What a store is made of, one by one, when all of it goes to another home.

use tidemill_model::{Event, TenantId};

use crate::kernel::state::row::{Row, RowKey};

/// A part of a store.
#[derive(Debug, Clone)]
pub enum Piece {
    Event(Box<Event>),
    /// A large value that an event names.
    Blob {
        tenant: TenantId,
        key: String,
        bytes: Vec<u8>,
    },
    Row(Box<(RowKey, Row)>),
    /// That was all. A store that stops without it has not handed everything over.
    End,
}
