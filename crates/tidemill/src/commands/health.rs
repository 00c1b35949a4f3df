//! `tidemill health`: whether running tasks report, and whether anything stands still.

use std::process::ExitCode;

use axum::http::Method;
use clap::Args;
use tidemill_api::{HealthCheckView, HealthName};

use super::runtime::block_on;
use super::{Ended, Flags};
use crate::client::{Call, Reach, ReachArguments};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::{count, grouped, span};
use crate::output::Output;

/// Check the health of running tasks
///
/// Lists the tasks that are not healthy, the worst first, and what else has stood for too long: tasks that nobody starts,
/// parked executions, jobs that cannot go on, deliveries that do not arrive. The check is written down as the event `Task
/// Health Check` and alerts as the timer of a server does. The exit code is 1 when a task is critical or overtime, or
/// anything else was found.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Health {
    #[command(flatten)]
    reach: ReachArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Make no check; show the last one
    #[arg(long)]
    last: bool,
    /// List healthy tasks too
    #[arg(long)]
    all: bool,
}

impl Health {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            let path = "/v1/health-check";
            let call = if self.last { Call::get(path) } else { Call::new(Method::POST, path) };
            let found: HealthCheckView = client.json(call).await?;
            if self.json {
                out.json(&found)?;
            } else {
                self.show(&found, out)?;
            }
            Ok(if found.is_healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        })
    }

    fn show(&self, found: &HealthCheckView, out: &mut Output) -> std::io::Result<()> {
        let listed = found.tasks.iter().filter(|task| self.all || task.health != HealthName::Healthy);
        let mut table = Table::new(&["TASK", "HEALTH", "RUNNING", "SILENT", "LAST EVENT", "WORKER"]);
        let mut rows = 0;
        for task in listed {
            rows += 1;
            table.row(vec![
                task.request_id.clone(),
                task.health.as_str().to_owned(),
                span(task.elapsed),
                span(task.time_since_last_event),
                task.last_event_type.clone(),
                task.worker_id.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        if rows > 0 {
            out.table(&table)?;
        }
        for finding in &found.findings {
            out.data(format_args!("{}: {}", finding.kind.as_str(), finding.message))?;
        }
        let summary = &found.summary;
        let parts = [
            (summary.healthy, "healthy"),
            (summary.warning, "with a warning"),
            (summary.critical, "critical"),
            (summary.overtime, "overtime"),
        ];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(own, _)| *own > 0)
            .map(|(own, name)| format!("{} {name}", grouped(u64::from(own))))
            .collect();
        let running = count(u64::from(summary.total_processing), "running task");
        let said = if parts.is_empty() { running } else { format!("{running}: {}", parts.join(", ")) };
        out.note(said);
        Ok(())
    }
}
