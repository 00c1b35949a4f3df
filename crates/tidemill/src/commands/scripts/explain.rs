//! `tidemill scripts explain`: why an event did or did not match.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tidemill_api::{self as api, VerdictName};
use tidemill_model::EventId;

use super::event_of;
use crate::client::{Call, Client};
use crate::commands::Ended;
use crate::output::Output;

#[derive(Args)]
pub(super) struct Explain {
    /// The id of an event that happened, or a file with one that did not
    #[arg(long, value_name = "ID|FILE")]
    event: String,
    /// Only the subscriptions of this script
    #[arg(long, value_name = "ID")]
    script: Option<String>,
}

impl Explain {
    pub(super) async fn execute(self, client: &Client, json: bool, out: &mut Output) -> Ended {
        let mut request = if let Ok(id) = EventId::new(&self.event) {
            json!({ "eventId": id })
        } else {
            let event = event_of(&PathBuf::from(&self.event))?;
            let given = &event["properties"];
            let properties = if given.is_null() { json!({}) } else { given.clone() };
            json!({ "event": { "eventType": event["eventType"], "properties": properties } })
        };
        if let Some(script) = &self.script {
            request["scriptId"] = json!(script);
        }
        let told: api::ExplanationView = client.json(Call::post("/v1/scripts/explain", &request)).await?;
        if json {
            out.json(&told)?;
            return Ok(ExitCode::SUCCESS);
        }
        show(&told, out)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn show(told: &api::ExplanationView, out: &mut Output) -> std::io::Result<()> {
    if told.subscriptions.is_empty() {
        out.note(format_args!("no subscription wants {:?}", told.event_type.as_str()));
    }
    for one in &told.subscriptions {
        let verdict = match one.verdict {
            VerdictName::Matched => "matched",
            VerdictName::Filtered => "filtered",
            VerdictName::Disabled => "disabled",
            VerdictName::Before => "made after the event",
            VerdictName::BadRules => "its rules cannot be read",
        };
        let execution = one.execution_id.as_ref().map(|id| format!(", execution {id}")).unwrap_or_default();
        out.data(format_args!("{} (script {}): {verdict}{execution}", one.subscription_id, one.script_id))?;
        for condition in &one.conditions {
            let mark = if condition.passed { "passed" } else { "FAILED" };
            let actual = condition.actual.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
            out.data(format_args!(
                "  {mark}  {} {} {}: the event has {actual}",
                condition.field, condition.op, condition.value
            ))?;
        }
    }
    if told.truncated {
        out.note("there are more; name one script with --script");
    }
    if told.other_types > 0 {
        let want = if told.other_types == 1 { "subscription wants" } else { "subscriptions want" };
        out.note(format_args!("{} {want} other types", told.other_types));
    }
    Ok(())
}
