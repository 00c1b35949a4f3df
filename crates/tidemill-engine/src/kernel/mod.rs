//! The kernel: a command is decided on the state, its commit is made durable by a backend, and the state follows.
//!
//! Nothing here knows what a capability does. `command` lists the commands; each lives in the folder of its capability.

pub(crate) mod any_backend;
pub mod backend;
pub mod clock;
pub mod codec;
pub mod command;
pub mod commit;
pub mod decision;
pub(crate) mod draft;
#[cfg(feature = "faults")]
pub mod faults;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod forget;
pub mod id_source;
mod job_list;
pub mod memory;
pub mod notice;
pub mod piece;
pub mod policy;
pub(crate) mod put_record;
pub mod reads;
pub mod record;
pub mod reply;
pub mod site;
mod snapshot;
pub mod state;
mod stored_job;
