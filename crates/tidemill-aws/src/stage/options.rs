//! How the backend is set up.

use std::time::Duration;

use tidemill_engine::policy::Policy;
use tidemill_engine::site::Site;

use crate::bus::outbox::Bus;
use crate::stage::settings::AwsSettings;
use crate::tickets::held_tickets::TicketOptions;

/// How long the outbox must stand still before others send what was left in it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an event may take from the bus to the table before readers no longer find it in this process.
const SAVE_LAG: Duration = Duration::from_secs(60);
const GROUP_BYTES_MAX: usize = 64 << 20;
const KEEP_LOG: Duration = Duration::from_secs(24 * 3_600);

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
    /// After this many items of the log the changed rows are written.
    pub flush_every: u64,
    /// What one command may come to in the log.
    pub group_bytes_max: usize,
    /// How often the log is looked at for what others wrote, while nothing is asked; `None`: only when asked.
    pub follow_every: Option<Duration>,
    /// How long the outbox must stand still before this process sends what another committed.
    pub patience: Duration,
    /// How long after an event was put on the bus questions are also answered from memory.
    pub save_lag: Duration,
    /// How long groups stay in the log at least once they are sent and in the rows. A follower of the log from
    /// further back begins at the oldest group that is left.
    pub keep_log: Duration,
    /// Whether to refuse when this machine's clock is off: leases are judged by it.
    pub checks_clock: bool,
    /// Whether the tokens of workflow events are of Step Functions. Then an [`AwsSender`](crate::AwsSender) notifies
    /// it when their executions go on.
    pub step_functions: bool,
    /// Whether tasks are run in this process. It then takes tickets from the queue while somebody waits for work.
    pub takes_tickets: bool,
    /// How tickets are taken.
    pub tickets: TicketOptions,
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
            group_bytes_max: GROUP_BYTES_MAX,
            follow_every: Some(Duration::from_secs(1)),
            patience: PATIENCE,
            save_lag: SAVE_LAG,
            keep_log: KEEP_LOG,
            checks_clock: false,
            step_functions: false,
            takes_tickets: false,
            tickets: TicketOptions::default(),
        }
    }

    /// A stage as its settings say. `seed` is 64 random bits.
    pub fn from_settings(settings: &AwsSettings, seed: u64) -> Self {
        let bus = Bus::Named(settings.bus.clone());
        Self {
            queue_url: settings.queue_url.clone(),
            site: Site::new(&settings.stage),
            checks_clock: true,
            step_functions: true,
            tickets: TicketOptions {
                at_once: settings.tickets_at_once,
                wait: settings.wait,
                visibility: settings.visibility,
            },
            ..Self::new(settings.table.clone(), settings.bucket.clone(), bus, seed)
        }
    }
}
