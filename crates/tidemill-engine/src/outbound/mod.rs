//! Outbound: what Tidemill tells others over the network.
//!
//! A delivery is a durable record that is made in the commit of its cause, tried until it arrives or is given up, and
//! then kept as a dead letter. How it travels is not known here: that is the `Sender` of the program around.

pub mod alert_text;
mod allowed_hosts;
pub(crate) mod callback;
mod courier;
pub(crate) mod deliveries;
mod delivery;
pub(crate) mod end;
pub(crate) mod failed_job_text;
mod failed_jobs;
pub(crate) mod letters;
pub(crate) mod outbox;
mod sender;

pub use allowed_hosts::AllowedHosts;
pub use courier::{Courier, IN_FLIGHT_MAX};
pub use delivery::{Delivery, DeliveryId, DeliveryKey, DeliveryLetter, Lane, Target, Way, pause_after};
pub use failed_jobs::{FailedJob, FailedJobs, JOB_FAILED, JOBS_NAMED_MAX, JobFailedAlerts};
pub use sender::{Parcel, SendError, Sender};
