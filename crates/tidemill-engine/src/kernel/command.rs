//! Commands: everything the outside can ask for.
//!
//! A command is complete when it arrives: ids are checked, JSON is valid, large values already lie in the blob store.
//! Decisions read no JSON and wait for nothing. What there is to say of a command stands in its own file.

use std::fmt;

use tidemill_model::{EventId, Json, Timestamp};

pub use crate::events::publish::PublishedEvent;
pub use crate::health::record::HealthAlert;
use crate::kernel::decision::Decision;
use crate::kernel::record::RecordKey;
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
pub use crate::outbound::end::DeliveryEnd;
pub use crate::scripts::end::{ExecutionEnd, ScriptEffect};
pub use crate::scripts::matched::NewExecution;
pub use crate::usage::budget::BudgetTarget;
pub use crate::work::resume::ResumeTarget;
pub use crate::work::running::heartbeat::Surroundings;
pub use crate::work::running::report::{Cause, Report, Spent};
pub use crate::work::submitting::add_tasks::Listed;
pub use crate::work::submitting::change_tasks::ChangeTarget;

/// Makes the one list of all commands: a line for each, with its file and its name.
macro_rules! commands {
    ($($($part:ident)::+ => $name:ident,)*) => {
        $(pub use crate::$($part)::+::$name;)*

        #[derive(Debug, Clone)]
        pub enum Command {
            $($name($name),)*
        }

        impl Command {
            pub(crate) fn decision(&self) -> &dyn Decision {
                match self {
                    $(Self::$name(command) => command,)*
                }
            }

            /// Its name, for logs and metrics.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($name),)*
                }
            }
        }

        $(impl From<$name> for Command {
            fn from(command: $name) -> Self {
                Self::$name(command)
            }
        })*
    };
}

commands! {
    work::submitting::submit_job => SubmitJob,
    work::submitting::add_tasks => AddTasks,
    work::submitting::change_tasks => ChangeTasks,
    work::submitting::submit_task => SubmitTask,
    work::running::claim => Claim,
    work::running::heartbeat => Begin,
    work::running::heartbeat => Heartbeat,
    work::running::finish => Finish,
    work::running::release => Release,
    work::resume => Resume,
    work::cancel => Cancel,
    work::cancel_task => CancelTask,
    work::running::advance => Advance,
    work::running::sweep => Sweep,
    work::running::recover => Recover,
    events::publish => Publish,
    outside::take_in => TakeIn,
    queue::send => Send,
    queue::receive => Receive,
    queue::receipt => Delete,
    queue::receipt => ChangeVisibility,
    queue::dead_letter => Replay,
    queue::dead_letter => Discard,
    kernel::put_record => PutRecord,
    kernel::put_record => PutRecords,
    usage::budget => SetBudget,
    scripts::matched => Match,
    scripts::end => EndExecution,
    scripts::letters => ReplayLetter,
    scripts::letters => DiscardLetter,
    alerts => Alert,
    health::record => RecordHealth,
    outbound::end => EndDelivery,
    outbound::letters => ReplayDelivery,
    outbound::letters => KeepLetter,
    outbound::letters => DiscardDelivery,
    parking::unpark => Unpark,
    parking::unpark => LookAfterParked,
    triage::bulk_steps => StartBulk,
    triage::bulk_steps => StepBulk,
    triage::bulk_steps => CancelBulk,
    kernel::forget => Forget,
}

impl Command {
    /// The rows to load before it is decided, as far as they are not in memory. Live work always is.
    pub fn touches(&self, state: &State, now: Timestamp) -> Vec<RowKey> {
        let decision = self.decision();
        let mut keys = decision.touches(state, now);
        let alerts = decision.may_fail_jobs().alerts_to_join(state).into_iter();
        keys.extend(alerts.map(|key| RowKey::Record(RecordKey::delivery(&key.tenant, key.id))));
        keys.retain(|key| !state.is_loaded(key));
        keys
    }

    /// About how many bytes it puts into the log at most.
    pub fn log_bytes(&self) -> u64 {
        self.decision().log_bytes()
    }

    /// The field that makes it large, as callers know it.
    pub fn large_field(&self) -> &'static str {
        self.decision().large_field()
    }
}

/// The names of commands, for the log: what else is in them may be anybody's secret.
pub(crate) struct Names<'a>(pub(crate) &'a [Command]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, command) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{}", command.name())?;
        }
        Ok(())
    }
}

/// An event's properties, made before the decision. `id` is set when the event's large fields were stored under it.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub id: Option<EventId>,
    pub properties: Json,
}

/// A promise that repeating the request changes nothing.
#[derive(Debug, Clone)]
pub struct Once {
    pub key: RecordKey,
    pub body_hash: [u8; 32],
    /// Kept as long as heads are, not just for the time of idempotency keys.
    pub lasting: bool,
}
