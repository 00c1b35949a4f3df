//! What is kept of one try while it runs: the calls of its tools, its retries, what it used.

use std::collections::HashMap;

use serde_json::{Value, json};
use tidemill_model::Usage;

use crate::cli::stream::{ApiRetry, Block, Message, ResultLine, ToolResult, add, at_least};
use crate::record::price;
use crate::record::redact::Redactor;
use crate::record::todo::TodoList;
use crate::record::trace::{BrokenLines, CacheMetrics, Outcome, ToolCall, TryTrace};

/// How many calls of tools the trace has in full, per try.
const TOOL_CALLS_MAX: usize = 1_000;
/// How many broken lines the trace has, per try.
const BROKEN_LINES_MAX: usize = 10;
/// How many retries of the API the trace has, per try.
const API_RETRIES_MAX: usize = 50;

/// Watches one try and keeps what the trace tells of it.
#[derive(Debug)]
pub(crate) struct TryRecord {
    redactor: Redactor,
    started_at: u64,
    version: Option<String>,
    model: Option<String>,
    offered_tools: Vec<String>,
    calls: Vec<ToolCall>,
    calls_left_out: usize,
    /// Tools that run, with the place of their call in the list.
    running: HashMap<String, Option<usize>>,
    todos: TodoList,
    api_retries: Vec<Value>,
    pub(crate) last_api_retry: Option<ApiRetry>,
    /// What the CLI says of the last error of the API.
    pub(crate) last_api_error: Option<String>,
    pub(crate) broken: BrokenLines,
    /// What answers used that are complete, and the one that is under way, with its model. The money is an estimate.
    answered: Usage,
    answering: Usage,
    answering_model: Option<String>,
}

impl TryRecord {
    pub(crate) fn new(redactor: Redactor, now: u64) -> Self {
        Self {
            redactor,
            started_at: now,
            version: None,
            model: None,
            offered_tools: Vec::new(),
            calls: Vec::new(),
            calls_left_out: 0,
            running: HashMap::new(),
            todos: TodoList::default(),
            api_retries: Vec::new(),
            last_api_retry: None,
            last_api_error: None,
            broken: BrokenLines::default(),
            answered: Usage::default(),
            answering: Usage::default(),
            answering_model: None,
        }
    }

    /// Takes a message and tells what a reader of the log should see of it.
    pub(crate) fn take(&mut self, message: &Message, now: u64) -> Vec<String> {
        match message {
            Message::Init { model, version, tools, .. } => {
                self.version.clone_from(version);
                self.model.clone_from(model);
                self.offered_tools.clone_from(tools);
                let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
                vec![format!("claude {} with model {}", shown(version), shown(model))]
            }
            Message::ApiRetry(retry) => {
                self.retrying(retry, now);
                Vec::new()
            }
            Message::Assistant { blocks, error } => {
                if error.is_some() {
                    self.last_api_error.clone_from(error);
                }
                blocks.iter().filter_map(|block| self.describe_block(block, now)).collect()
            }
            Message::ToolResults(results) => {
                results.iter().filter_map(|result| self.answered(result, now)).collect()
            }
            Message::AnswerBegins { usage, model } => {
                self.close_answer();
                self.answering_model = model.clone().or_else(|| self.model.clone());
                self.answering = self.priced(Usage { turns: 1, ..*usage });
                Vec::new()
            }
            Message::AnswerEnds(usage) => {
                // Some servers repeat what was read, some tell only what was written.
                let whole = at_least(*usage, self.answering);
                self.answering = self.priced(Usage { turns: 1, ..whole });
                self.close_answer();
                Vec::new()
            }
            Message::Result(_) | Message::AnswerGoesOn | Message::Other(_) => Vec::new(),
        }
    }

    fn priced(&self, usage: Usage) -> Usage {
        Usage { cost_micros: price::cost_micros(self.answering_model.as_deref(), &usage), ..usage }
    }

    fn close_answer(&mut self) {
        self.answered = add(self.answered, std::mem::take(&mut self.answering));
    }

    fn retrying(&mut self, retry: &ApiRetry, now: u64) {
        self.last_api_retry = Some(retry.clone());
        if self.api_retries.len() < API_RETRIES_MAX {
            self.api_retries.push(json!({
                "at": now, "attempt": retry.attempt, "delayMs": retry.delay_millis,
                "status": retry.status, "error": retry.error.as_deref().map(|error| self.redactor.text(error))
            }));
        }
    }

    fn describe_block(&mut self, block: &Block, now: u64) -> Option<String> {
        match block {
            Block::Text(text) if text.trim().is_empty() => None,
            Block::Text(text) => Some(self.redactor.bounded_text(text)),
            Block::ToolUse { id, name, input } => {
                self.todos.called(id, name, input, now, &self.redactor);
                let input = self.redactor.bounded(input);
                let line = format!("tool {name} {input}");
                let place = (self.calls.len() < TOOL_CALLS_MAX).then(|| {
                    let call = ToolCall {
                        id: id.clone(),
                        name: name.clone(),
                        started_at: now,
                        duration_ms: None,
                        is_error: false,
                        input,
                        output: Value::Null,
                    };
                    self.calls.push(call);
                    self.calls.len() - 1
                });
                self.calls_left_out += usize::from(place.is_none());
                self.running.insert(id.clone(), place);
                Some(line)
            }
            Block::Other => None,
        }
    }

    fn answered(&mut self, result: &ToolResult, now: u64) -> Option<String> {
        self.todos.answered(result);
        let call = self.calls.get_mut(self.running.remove(&result.id)??)?;
        let took = now.saturating_sub(call.started_at);
        call.duration_ms = Some(took);
        call.is_error = result.is_error;
        call.output = self.redactor.bounded(&result.content);
        let how = if result.is_error { "failed" } else { "done" };
        Some(format!("tool {} {how} after {took} ms", call.name))
    }

    pub(crate) fn broken_line(&mut self, line: &[u8]) -> String {
        self.broken.count += 1;
        let text = String::from_utf8_lossy(&line[..line.len().min(1_000)]).into_owned();
        let sample: String = self.redactor.text(&text).chars().take(200).collect();
        if self.broken.samples.len() < BROKEN_LINES_MAX {
            self.broken.samples.push(sample.clone());
        }
        format!("a line of the CLI is no JSON: {sample}")
    }

    /// Whether a tool runs: then silence means nothing.
    pub(crate) fn has_running_tool(&self) -> bool {
        !self.running.is_empty()
    }

    /// What the try used so far, as far as its answers told.
    pub(crate) fn usage_so_far(&self) -> Usage {
        add(self.answered, self.answering)
    }

    /// What the try used: what its result says, or what its answers told.
    pub(crate) fn usage(&self, result: Option<&ResultLine>) -> Usage {
        let heard = self.usage_so_far();
        match result.map(|result| result.usage) {
            // The CLI counts a turn also when nobody answered.
            Some(told) if told.tokens() == 0 && heard.tokens() == 0 => Usage { turns: 0, ..told },
            Some(told) if told.tokens() >= heard.tokens() => told,
            // A result that was forced may know less than what the stream said.
            Some(told) => {
                Usage { turns: told.turns, cost_micros: told.cost_micros.max(heard.cost_micros), ..heard }
            }
            None => heard,
        }
    }

    /// Whether the money in it is an estimate of ours.
    fn is_estimated(&self, result: Option<&ResultLine>) -> bool {
        self.usage(result).cost_micros > result.map_or(0, |result| result.usage.cost_micros)
    }

    /// The trace of the try.
    pub(crate) fn into_trace(self, end: TryEndTrace<'_>) -> TryTrace {
        let usage = self.usage(end.result);
        let cost_is_estimated = self.is_estimated(end.result);
        let result = end.result;
        let denials = result.map(|result| result.permission_denials.as_slice()).unwrap_or_default();
        TryTrace {
            number: end.number,
            session_id: end.session_id,
            resumed: end.resumed,
            cli_version: self.version,
            model: self.model,
            offered_tools: self.offered_tools,
            started_at: self.started_at,
            duration_ms: end.now.saturating_sub(self.started_at),
            api_duration_ms: result.map(|result| result.api_duration_millis).unwrap_or_default(),
            turns: usage.turns,
            outcome: end.outcome,
            next_try_after_ms: None,
            exit: end.exit,
            stop_reason: result.and_then(|result| result.stop_reason.clone()),
            terminal_reason: result.and_then(|result| result.terminal_reason.clone()),
            usage,
            cost_is_estimated,
            cache: CacheMetrics::of(&usage),
            tool_calls: self.calls,
            tool_calls_left_out: self.calls_left_out,
            todos: self.todos.into_todos(),
            api_retries: self.api_retries,
            permission_denials: denials
                .iter()
                .take(100)
                .map(|denial| self.redactor.bounded(denial))
                .collect(),
            broken_lines: self.broken,
        }
    }
}

/// How a try ended, for its trace.
pub(crate) struct TryEndTrace<'a> {
    pub(crate) number: u32,
    pub(crate) session_id: String,
    pub(crate) resumed: bool,
    pub(crate) result: Option<&'a ResultLine>,
    pub(crate) outcome: Outcome,
    pub(crate) exit: String,
    pub(crate) now: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> TryRecord {
        TryRecord::new(Redactor::of_environment(&[("API_KEY".into(), "very-secret-1".into())]), 1_000)
    }

    fn ended(record: TryRecord, result: Option<&ResultLine>) -> Value {
        let end = TryEndTrace {
            number: 1,
            session_id: "s".into(),
            resumed: false,
            result,
            outcome: Outcome::completed(),
            exit: "exit code 0".into(),
            now: 3_000,
        };
        serde_json::to_value(record.into_trace(end)).unwrap()
    }

    fn call(id: &str, command: &str) -> Message {
        let input = json!({ "command": command });
        Message::Assistant {
            blocks: vec![Block::ToolUse { id: id.into(), name: "Bash".into(), input }],
            error: None,
        }
    }

    fn answer(id: &str, content: &str) -> Message {
        let result =
            ToolResult { id: id.into(), is_error: false, content: json!(content), structured: Value::Null };
        Message::ToolResults(vec![result])
    }

    #[test]
    fn calls_of_tools_have_durations_and_no_secrets() {
        let mut record = record();
        record.take(&call("t1", "echo very-secret-1"), 1_100);
        record.take(&call("t2", "sleep"), 1_200);
        assert!(record.has_running_tool());
        let log = record.take(&answer("t1", "very-secret-1"), 1_350);
        assert_eq!(log, ["tool Bash done after 250 ms"]);
        assert!(record.has_running_tool());
        let trace = ended(record, None);
        let calls = trace["toolCalls"].as_array().unwrap();
        assert_eq!((&calls[0]["durationMs"], &calls[0]["output"]), (&json!(250), &json!("[REDACTED]")));
        assert_eq!(calls[0]["input"]["command"], "echo [REDACTED]");
        assert_eq!(calls[1].get("durationMs"), None, "it did not end");
        assert!(!trace.to_string().contains("very-secret"));
    }

    #[test]
    fn usage_is_known_without_a_result() {
        let mut record = record();
        let usage = |input_tokens, output_tokens| Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens: 300,
            ..Usage::default()
        };
        let begins = |usage| Message::AnswerBegins { usage, model: Some("claude-haiku-4-5".to_owned()) };
        record.take(&begins(usage(100, 1)), 1);
        record.take(&Message::AnswerEnds(usage(0, 30)), 2);
        record.take(&begins(usage(50, 1)), 3);
        let so_far = record.usage_so_far();
        assert_eq!((so_far.input_tokens, so_far.output_tokens, so_far.turns), (150, 31, 2));
        // At 1 and 5 dollars for a million, and a tenth of 1 for the 600 of the cache.
        let estimate = 150 + 31 * 5 + 60;
        assert_eq!(so_far.cost_micros, estimate);
        let less = ResultLine {
            usage: Usage { cost_micros: 5, turns: 3, ..Usage::default() },
            ..ResultLine::default()
        };
        let merged = record.usage(Some(&less));
        assert_eq!((merged.input_tokens, merged.turns, merged.cost_micros), (150, 3, estimate));
        assert!(record.is_estimated(Some(&less)) && record.is_estimated(None));
        let more = ResultLine {
            usage: Usage { input_tokens: 1_000, cost_micros: 5, turns: 3, ..Usage::default() },
            ..ResultLine::default()
        };
        assert_eq!(record.usage(Some(&more)), more.usage, "who knows all is believed");
        assert!(!record.is_estimated(Some(&more)));
        let trace = ended(record, None);
        assert_eq!(
            trace["cache"],
            json!({"inputTokens": 150, "cacheReadTokens": 600, "cacheWriteTokens": 0, "efficiencyPercent": 80.0})
        );
    }

    #[test]
    fn nobody_answered_and_there_was_no_turn() {
        let told = ResultLine { usage: Usage { turns: 1, ..Usage::default() }, ..ResultLine::default() };
        assert_eq!(record().usage(Some(&told)), Usage::default());
    }

    #[test]
    fn many_calls_and_broken_lines_are_counted_and_not_kept() {
        let mut record = record();
        for at in 0..TOOL_CALLS_MAX + 5 {
            record.take(&call(&format!("t{at}"), "x"), 1);
            record.take(&answer(&format!("t{at}"), "y"), 2);
        }
        for _ in 0..50 {
            record.broken_line(&b"not json very-secret-1 ".repeat(100));
        }
        assert!(!record.has_running_tool());
        let trace = ended(record, None);
        assert_eq!(trace["toolCalls"].as_array().unwrap().len(), TOOL_CALLS_MAX);
        assert_eq!(trace["toolCallsLeftOut"], 5);
        assert_eq!(
            (
                trace["brokenLines"]["count"].as_u64(),
                trace["brokenLines"]["samples"].as_array().unwrap().len()
            ),
            (Some(50), 10)
        );
        assert!(!trace.to_string().contains("very-secret"));
    }
}
