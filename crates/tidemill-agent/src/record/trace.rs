//! A record of what happened, for later questions: `traces/session_trace.json` and `logs/summary.log`.
//!
//! The trace is a list of steps, each with its tries. Everything in it is bounded and free of secrets.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;
use tidemill_model::{MicroUsd, Usage};

use crate::failure::AgentFailure;
use crate::record::redact::Redactor;
use crate::record::report::count;
use crate::record::todo::Todo;

/// A step with its tries.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepTrace {
    pub(crate) request_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u64>,
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) model: String,
    pub(crate) max_turns: u32,
    pub(crate) tools: Vec<String>,
    pub(crate) timeout_ms: u64,
    pub(crate) prompt_bytes: usize,
    /// Its beginning, without secrets; absent before it was filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    pub(crate) started_at: u64,
    pub(crate) duration_ms: u64,
    pub(crate) usage: Usage,
    pub(crate) cache: CacheMetrics,
    pub(crate) attempts: Vec<TryTrace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Status {
    /// Its turn did not come.
    NotStarted,
    Completed,
    /// An earlier attempt had completed it.
    Reused,
    Failed,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::Completed => "completed",
            Self::Reused => "reused",
            Self::Failed => "failed",
        }
    }
}

/// One call of the CLI.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TryTrace {
    pub(crate) number: u32,
    pub(crate) session_id: String,
    pub(crate) resumed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cli_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    pub(crate) offered_tools: Vec<String>,
    pub(crate) started_at: u64,
    pub(crate) duration_ms: u64,
    pub(crate) api_duration_ms: u64,
    pub(crate) turns: u32,
    pub(crate) outcome: Outcome,
    /// How long it was waited before the next try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_try_after_ms: Option<u64>,
    pub(crate) exit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) terminal_reason: Option<String>,
    pub(crate) usage: Usage,
    /// It ended before the CLI told what it cost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cost_is_estimated: bool,
    pub(crate) cache: CacheMetrics,
    pub(crate) tool_calls: Vec<ToolCall>,
    #[serde(skip_serializing_if = "tidemill_model::is_default")]
    pub(crate) tool_calls_left_out: usize,
    pub(crate) todos: Vec<Todo>,
    pub(crate) api_retries: Vec<Value>,
    pub(crate) permission_denials: Vec<Value>,
    pub(crate) broken_lines: BrokenLines,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorTrace>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorTrace {
    code: &'static str,
    category: &'static str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    message: String,
}

impl Outcome {
    /// Not yet one.
    pub(crate) fn running() -> Self {
        Self { status: "running", error: None }
    }

    pub(crate) fn completed() -> Self {
        Self { status: "completed", error: None }
    }

    pub(crate) fn failed(failure: &AgentFailure, redactor: &Redactor) -> Self {
        let category = failure.category();
        let error = ErrorTrace {
            code: failure.kind.row().code,
            category: category.as_str(),
            retryable: category.is_retryable(),
            status: failure.status,
            retry_after_ms: failure.retry_after_millis,
            message: redactor.text(&failure.message),
        };
        Self { status: "failed", error: Some(error) }
    }

    fn line(&self) -> String {
        match &self.error {
            None => self.status.to_owned(),
            Some(error) => format!("{} {} ({}): {}", self.status, error.code, error.category, error.message),
        }
    }
}

/// What the prompt cache saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CacheMetrics {
    input_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    /// The part of all that was read that came from the cache.
    efficiency_percent: f64,
}

impl CacheMetrics {
    pub(crate) fn of(usage: &Usage) -> Self {
        let read = usage
            .input_tokens
            .saturating_add(usage.cache_read_tokens)
            .saturating_add(usage.cache_write_tokens);
        #[expect(clippy::cast_precision_loss, reason = "a share of two numbers, to a tenth of a percent")]
        let share = if read == 0 { 0.0 } else { usage.cache_read_tokens as f64 * 100.0 / read as f64 };
        Self {
            input_tokens: usage.input_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            efficiency_percent: (share * 10.0).round() / 10.0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) started_at: u64,
    /// `None` when it did not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
    pub(crate) is_error: bool,
    pub(crate) input: Value,
    pub(crate) output: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BrokenLines {
    pub(crate) count: usize,
    /// The first ones, shortened.
    pub(crate) samples: Vec<String>,
}

/// The text of `logs/summary.log`.
pub(crate) fn summary(steps: &[StepTrace], outcome: &Outcome, duration_ms: u64, usage: &Usage) -> String {
    let mut text = String::new();
    let mut line =
        |args: std::fmt::Arguments<'_>| writeln!(text, "{args}").expect("writing to a string does not fail");
    if let Some(step) = steps.first() {
        line(format_args!("Request: {}", step.request_id));
        if let (Some(run), Some(attempt)) = (step.run, step.attempt) {
            line(format_args!("Run: {run}, attempt: {attempt}"));
        }
    }
    line(format_args!("Status: {}", outcome.line()));
    line(format_args!("Duration: {duration_ms} ms"));
    line(format_args!("Turns: {}", usage.turns));
    line(format_args!("Tokens: {}", tokens(usage)));
    line(format_args!("Cost: ${}", MicroUsd(usage.cost_micros)));
    for step in steps {
        line(format_args!(""));
        line(format_args!("Step {}: {}", step.name, step.status.as_str()));
        line(format_args!("  Model: {}", step.model));
        line(format_args!("  Duration: {} ms, turns: {}", step.duration_ms, step.usage.turns));
        line(format_args!("  Tokens: {}", tokens(&step.usage)));
        line(format_args!("  Cache efficiency: {} %", step.cache.efficiency_percent));
        line(format_args!("  Cost: ${}", MicroUsd(step.usage.cost_micros)));
        for one in &step.attempts {
            let (number, took, calls) =
                (one.number, one.duration_ms, one.tool_calls.len() + one.tool_calls_left_out);
            let cost = if one.cost_is_estimated { ", cost estimated" } else { "" };
            let calls = count(calls as u64, "tool call");
            line(format_args!("  Try {number}: {} ({took} ms, {calls}{cost})", one.outcome.line()));
        }
    }
    text
}

fn tokens(usage: &Usage) -> String {
    format!(
        "{} in, {} out, {} from the cache, {} to the cache",
        usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;
    use crate::record::try_record::{TryEndTrace, TryRecord};

    #[test]
    fn the_summary_tells_status_duration_turns_tokens_and_cost() {
        let usage = Usage {
            input_tokens: 10,
            output_tokens: 2,
            cache_read_tokens: 30,
            cache_write_tokens: 0,
            turns: 3,
            cost_micros: 4_200,
        };
        let failure =
            AgentFailure { status: Some(529), ..AgentFailure::new(FailureKind::ApiStatus, "overloaded") };
        let redactor = Redactor::of_environment(&[]);
        let end = TryEndTrace {
            number: 1,
            session_id: "s".into(),
            resumed: false,
            result: None,
            outcome: Outcome::failed(&failure, &redactor),
            exit: "exit code 1".into(),
            now: 5,
        };
        let step = StepTrace {
            request_id: "r-1".into(),
            run: Some(1),
            attempt: Some(2),
            name: "find".into(),
            status: Status::Completed,
            model: "m".into(),
            max_turns: 30,
            tools: Vec::new(),
            timeout_ms: 1,
            prompt_bytes: 1,
            prompt: None,
            started_at: 0,
            duration_ms: 900,
            usage,
            cache: CacheMetrics::of(&usage),
            attempts: vec![TryRecord::new(redactor, 0).into_trace(end)],
        };
        let text = summary(&[step], &Outcome::completed(), 1_234, &usage);
        for part in [
            "Request: r-1\n",
            "Run: 1, attempt: 2\n",
            "Status: completed\n",
            "Duration: 1234 ms\n",
            "Turns: 3\n",
            "Tokens: 10 in, 2 out, 30 from the cache, 0 to the cache\n",
            "Cost: $0.0042\n",
            "Step find: completed\n",
            "  Cache efficiency: 75 %\n",
            "  Try 1: failed AGENT_API_STATUS (server-error): overloaded (5 ms, 0 tool calls)\n",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }
}
