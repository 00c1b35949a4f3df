//! How the backend is set up.

use std::time::Duration;

use tidemill_engine::policy::Policy;
use tidemill_engine::site::Site;

use crate::outbox::Bus;

#[derive(Debug, Clone)]
pub struct AwsOptions {
    /// The events table, such as `events-prod`. The log and the rows are in it too, without attributes of the indexes.
    pub table: String,
    /// Where large values go.
    pub bucket: String,
    /// Which log. One is enough for a stage; the name is in every key, so that there may be several.
    pub shard: String,
    /// Where events go once they are committed.
    pub bus: Bus,
    /// The queue that wakes workers; without one nobody is woken in other processes.
    pub queue_url: Option<String>,
    pub policy: Policy,
    pub site: Site,
    /// Makes the ids of this process differ from those of others: 64 random bits.
    pub seed: u64,
    /// After so many items of the log the rows that changed are written down.
    pub flush_every: u64,
    /// How often the log is looked at for what others wrote, while nothing is asked; `None`: only when asked.
    pub follow_every: Option<Duration>,
}

impl AwsOptions {
    pub fn new(table: impl Into<String>, bucket: impl Into<String>, bus: Bus, seed: u64) -> Self {
        Self {
            table: table.into(),
            bucket: bucket.into(),
            shard: "0".to_owned(),
            bus,
            queue_url: None,
            policy: Policy::default(),
            site: Site::default(),
            seed,
            flush_every: 256,
            follow_every: Some(Duration::from_secs(1)),
        }
    }
}
