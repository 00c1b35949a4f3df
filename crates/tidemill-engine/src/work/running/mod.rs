//! How work is carried out: claimed, kept by heartbeats, finished or given back, and found again when it stands still.

pub(crate) mod advance;
pub(crate) mod claim;
pub(crate) mod claiming;
pub(crate) mod finish;
pub(crate) mod give_up;
pub(crate) mod heartbeat;
pub mod live_log;
pub(crate) mod load;
pub(crate) mod recover;
pub(crate) mod release;
pub(crate) mod report;
pub(crate) mod revocation;
pub(crate) mod standstill;
pub(crate) mod sweep;
