//! The backend on AWS: a commit log, rows and events in one DynamoDB table, large values in S3.
//!
//! The deciding core is the engine's; what differs from one machine is where the log lies. Item n of the log is put only
//! if it is absent, so of all processes one makes it, and the others see what it says before they decide again. What
//! follows from a commit (events on the bus, tickets in the queue) is read off the log and may be sent twice.

mod aws_sender;
mod backend;
mod batch_get;
mod bus_letter;
mod connection;
mod core;
#[cfg(feature = "deploy")]
pub mod deploy;
mod desk;
mod duty;
mod event_item;
mod events;
mod export;
mod export_window;
mod fault;
mod group;
pub mod handlers;
mod housekeeping;
mod item;
mod latest;
mod log;
mod names;
mod objects;
mod open;
mod options;
mod outbox;
mod pause;
mod pin;
mod recent;
mod restore;
mod row_item;
mod rows;
mod save_event;
mod sender;
mod settings;
mod skew;
mod stored;
mod table;
mod ticket;
mod tickets;
mod turns;
mod turnstile;
mod upkeep;
mod writer;

pub use aws_sender::AwsSender;
pub use backend::Aws;
pub use connection::{Access, Connection};
pub use duty::{Roster, Terms};
pub use housekeeping::{Housekept, Trimmed};
pub use options::AwsOptions;
pub use outbox::Bus;
pub use restore::{RestoreError, Restored, check_empty, restore};
pub use save_event::{Saved, save_event};
pub use settings::{AwsSettings, BadSetting};
pub use table::create_table;
pub use tickets::TicketOptions;
pub use tidemill_engine::export::{ExportError, Exported};
