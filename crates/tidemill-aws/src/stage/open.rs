//! Opening a stage: the state is made, and the tasks of the process begin.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;
use tidemill_engine::policy::Policy;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::backend::Aws;
use crate::bus::outbox::{Outbox, Progress};
use crate::bus::outbox_sender::OutboxSender;
use crate::connection::Connection;
use crate::deciding::contention::Contention;
use crate::deciding::core::Core;
use crate::deciding::shared_core::SharedCore;
use crate::deciding::writer::{Notices, Writer};
use crate::deciding::writer_handle::WriterHandle;
use crate::log::commit_log::CommitLog;
use crate::objects::Objects;
use crate::rows::row_store::RowStore;
use crate::stage::clock_skew;
use crate::stage::options::AwsOptions;
use crate::stage::parts;
use crate::tickets::held_tickets::HeldTickets;
use crate::transfer::restore;

impl Aws {
    /// Opens the store: rows up to their checkpoint, then what the log says after it. What another committed and did not
    /// send is sent, once it is clear that nobody does.
    pub async fn open(
        connection: Connection,
        options: AwsOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let skew_millis = check(&connection, &options, &*clock).await?;
        let objects = Objects::new(&connection, &options.bucket);
        let log = CommitLog::new(&connection, objects.clone(), &options.table, &options.shard);
        let rows = RowStore::new(&connection, objects.clone(), &options.table, &options.shard);
        let (asks, asked) = mpsc::unbounded_channel();
        let outbox = Outbox {
            asks: asks.clone(),
            connection: connection.clone(),
            table: options.table.clone(),
            shard: options.shard.clone(),
            bus: options.bus,
            queue_url: options.queue_url.clone(),
            clock: Arc::clone(&clock),
        };
        let (to_send, sendings) = mpsc::unbounded_channel();
        let cursor = outbox.cursor().await?;
        if rows.checkpoint().await?.is_none() {
            restore::check_whole(&connection, &options.table, &options.shard).await?;
        }
        let policy = Policy { task_tokens: options.step_functions, ..options.policy };
        let mut core = Core::new(rows.clone(), policy, options.site, options.seed, options.group_bytes_max);
        core.rebuild(&log, cursor).await?;
        let (end, newest) = (core.end, Arc::new(AtomicU64::new(core.newest)));
        let state_notices = core.state.notices();
        let record_listener = Arc::clone(&core.record_listener);
        let core = SharedCore::new(core);
        let notices = Notices::default();
        let (sent, unsent) = (Arc::new(AtomicU64::new(cursor)), Arc::new(AtomicU64::new(0)));
        let handle = WriterHandle { core: Arc::clone(&core), asks };
        let mut tasks = Vec::new();
        let tickets = match options.queue_url {
            Some(queue) if options.takes_tickets => {
                let (sqs, clock) = (connection.sqs.clone(), Arc::clone(&clock));
                let (tickets, moves) = HeldTickets::new(sqs, queue, options.tickets, clock);
                tasks.push(tokio::spawn(tickets.clone().follow(handle.clone(), moves)));
                tasks.push(tokio::spawn(tickets.clone().take(handle.clone(), notices.arrived.clone())));
                Some(tickets)
            }
            _ => None,
        };
        let writer = Writer {
            core: Arc::clone(&core),
            log: log.clone(),
            rows: rows.clone(),
            clock: Arc::clone(&clock),
            outbox: outbox.clone(),
            sendings: to_send,
            notices: notices.clone(),
            tickets: tickets.clone(),
            unsent: Arc::clone(&unsent),
            newest: Arc::clone(&newest),
            seed: options.seed,
            puts: 0,
            flush_every: options.flush_every,
            follow_every: options.follow_every,
            flushed: end,
            flushing: JoinSet::new(),
            life: 0,
            contention: Contention::default(),
        };
        let sender = OutboxSender {
            outbox: outbox.clone(),
            log: log.clone(),
            core,
            progress: Progress::from(cursor),
            notices: notices.clone(),
            sent: Arc::clone(&sent),
            unsent: Arc::clone(&unsent),
            patience: options.patience,
            save_lag: options.save_lag,
        };
        tasks.extend([tokio::spawn(writer.run(asked)), tokio::spawn(sender.run(sendings))]);
        Ok(Self {
            writer: handle,
            runtime: Handle::current(),
            connection,
            table: options.table.into(),
            objects,
            rows,
            log,
            clock,
            notices,
            newest,
            sent,
            unsent,
            outbox,
            tickets,
            keep_log: options.keep_log,
            patience: options.patience,
            skew_millis,
            record_listener,
            state_notices,
            tasks,
        })
    }
}

/// Whether the settings are those of the stage, and how far the clock is off.
async fn check(connection: &Connection, options: &AwsOptions, clock: &dyn Clock) -> Result<i64, Fault> {
    parts::check(connection, options).await?;
    if options.checks_clock { clock_skew::check(connection, &options.table, clock).await } else { Ok(0) }
}
