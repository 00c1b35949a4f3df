//! What values must be to one another. Contradictions stop the start.

use std::time::Duration;

use super::values::{BackendName, Values};

/// A queue of AWS hides a message for twelve hours in all, however often that is extended.
const AWS_TIMEOUT_MAX: Duration = Duration::from_secs(11 * 3_600);

/// `origin` tells where the value of a name came from.
pub(super) fn relations(values: &Values, origin: &dyn Fn(&str) -> String, problems: &mut Vec<String>) {
    let interval = u64::try_from(values.heartbeat_every.as_millis()).unwrap_or(u64::MAX);
    let amount = values.extension_secs;
    let interval_name =
        format!("VISIBILITY_EXTENSION_INTERVAL ({interval} ms, {})", origin("VISIBILITY_EXTENSION_INTERVAL"));
    let amount_name =
        format!("VISIBILITY_EXTENSION_AMOUNT ({amount} s, {})", origin("VISIBILITY_EXTENSION_AMOUNT"));
    if interval >= amount * 1_000 {
        problems.push(format!(
            "{interval_name} must be shorter than {amount_name}: a heartbeat must come before what it extends has ended"
        ));
    } else if values.lease_millis() <= interval.saturating_mul(2) {
        problems.push(format!(
            "{interval_name} is too long for {amount_name}: a lease lasts {} ms and must outlive two intervals",
            values.lease_millis()
        ));
    }
    if values.run_as.is_some() && !rustix::process::geteuid().is_root() {
        problems.push(format!(
            "TIDEMILL_RUN_AS ({}) needs root: only root runs tasks as others",
            origin("TIDEMILL_RUN_AS")
        ));
    }
    if values.allow_undefined_tasks {
        problems.push(format!(
            "ALLOW_UNDEFINED_TASKS ({}) must be false: it is not available",
            origin("ALLOW_UNDEFINED_TASKS")
        ));
    }
    if values.backend == BackendName::Aws {
        on_aws(values, origin, problems);
    }
}

fn on_aws(values: &Values, origin: &dyn Fn(&str) -> String, problems: &mut Vec<String>) {
    let name = format!("TIDEMILL_BACKEND ({})", origin("TIDEMILL_BACKEND"));
    if !cfg!(feature = "aws") {
        problems.push(format!(
            "{name} is aws, and this program was built without it; build one that has it with \
             `cargo build --release -p tidemill --features aws`"
        ));
    }
    if values.server.is_some() {
        problems.push(format!(
            "{name} is aws, and TIDEMILL_SERVER ({}) names a server; give one of them",
            origin("TIDEMILL_SERVER")
        ));
    }
    for (setting, given) in [("TASK_TIMEOUT", Some(values.timeout)), ("IDLE_TIMEOUT_MS", values.idle_timeout)]
    {
        if given.is_some_and(|given| given > AWS_TIMEOUT_MAX) {
            problems.push(format!(
                "{setting} ({}) must be at most 11h on AWS: a queue hides a message for 12 hours in all",
                origin(setting)
            ));
        }
    }
}
