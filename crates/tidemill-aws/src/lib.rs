//! The backend on AWS: a commit log, rows and events in one DynamoDB table, large values in S3.
//!
//! The deciding core is the engine's; what differs from one machine is where the log lies. Item n of the log is put only
//! if it is absent, so of all processes one makes it, and the others see what it says before they decide again. What
//! follows from a commit (events on the bus, tickets in the queue) is read off the log and may be sent twice.

mod aws_sender;
mod backend;
mod bus;
mod connection;
mod deciding;
#[cfg(feature = "deploy")]
pub mod deploy;
mod events;
mod fault;
pub mod handlers;
mod housekeeping;
mod log;
mod objects;
mod rows;
mod service_pause;
mod stage;
mod table;
mod tickets;
mod transfer;

pub use aws_sender::AwsSender;
pub use backend::Aws;
pub use bus::outbox::Bus;
pub use connection::{Access, Connection};
pub use events::save_event::{Saved, save_event};
pub use housekeeping::{Housekept, Trimmed};
pub use stage::duty::{Roster, Terms};
pub use stage::options::AwsOptions;
pub use stage::settings::{AwsSettings, BadSetting};
pub use table::create_table::create_table;
pub use tickets::held_tickets::TicketOptions;
pub use tidemill_engine::export::{ExportError, Exported};
pub use transfer::restore::{RestoreError, Restored, check_empty, restore};
