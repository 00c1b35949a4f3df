//! The default backend: one data directory with a log, what is derived from it, and blobs.
//!
//! The log is the database. `log` keeps events and control entries, `store` joins it with the engine's state and with
//! derived rows, `backend` puts threads around them.

pub mod backend;
mod blob;
mod blob_file;
pub mod checked_file;
pub mod data_lock;
pub mod disk;
pub mod import_dir;
pub mod log;
pub mod real_disk;
pub mod salvage_dir;
pub mod store;

pub use backend::{Embedded, JobRest, OpenError};
pub use store::{Store, StoreOptions};
pub use tidemill_engine::codec;
