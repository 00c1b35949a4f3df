//! The embedded backend: the store with threads around it.
//!
//! Callers decide their own commands, one at a time, under one lock, into the open group. The holder of the writing
//! lock takes the group, appends it and syncs it; all callers that joined it are answered together. A blocking caller
//! writes itself, so a single one needs no other thread; async callers leave it to the writer thread.
//!
//! | thread | does | wakes |
//! | --- | --- | --- |
//! | writer | append and sync groups | when a group waits and nobody writes it |
//! | keeper | spares, sealing, rows, retention | after a roll, many changes, or a quiet while |
//! | timer | wakes workers that wait for work | when a hidden message is due |

mod bell;
mod embedded;
mod keeping;
mod progress;
mod reads;
mod rest_board;
mod timer;
mod work_queue;

pub use embedded::{Embedded, OpenError};
pub use rest_board::JobRest;
