//! What an agent did: steps, tries, calls of tools, tokens and dollars.
//!
//! The trace is a file that a task left, so anybody may have written it: it is read leniently, shown as text, and cut.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use tidemill_model::authored::bounded_value::read_value;
use tidemill_model::{RequestId, Timestamp, Usage};

use super::super::form::encode;
use super::super::screen::Screen;
use super::super::visit::{Sight, Visit};
use super::super::widgets::{
    bytes, counted, cut, dollars, empty, figure, moment, noun, number, shortened, span, state,
};
use super::Page;
use crate::api::Artifact;
use crate::problem::Problem;

/// The bytes of a trace that is shown; a larger one is a download.
const TRACE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Steps that are shown.
const STEPS_MAX: usize = 100;
/// Tries of a step that are shown.
const TRIES_MAX: usize = 20;
/// Calls of tools that are shown, on the whole page.
const CALLS_MAX: usize = 400;
/// Entries of a list of things to do that are shown, per try.
const TODOS_MAX: usize = 100;
/// The characters of one value.
const VALUE_CHARS_MAX: usize = 4_000;
/// The characters of a name or another short text.
const WORD_CHARS_MAX: usize = 200;
/// A prompt of up to this many characters is shown open; readers open a longer one themselves.
const OPEN_PROMPT_CHARS_MAX: usize = 600;
/// The file that the runner for agents writes, below the folder of its attempt.
const FILE: &str = "/traces/session_trace.json";

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/tasks/{requestId}/trace/{attempt}", show).large()]
}

/// The page that shows a file of a task, if it is a trace.
pub(super) fn address(request: &str, path: &str) -> Option<String> {
    let attempt = path.strip_suffix(FILE).filter(|attempt| !attempt.contains('/'))?;
    Some(format!("/tasks/{request}/trace/{}", encode(attempt)))
}

/// The way to the newest trace of a task, if it left one.
pub(super) fn link(request: &str, files: &[Artifact]) -> Markup {
    let number = |file: &Artifact| {
        let (run, attempt) = file.path.strip_suffix(FILE)?.strip_prefix('r')?.split_once("-a")?;
        Some((run.parse::<u32>().ok()?, attempt.parse::<u32>().ok()?))
    };
    let newest = files.iter().filter(|file| number(file).is_some()).max_by_key(|file| number(file));
    let page = newest.and_then(|file| address(request, &file.path));
    html! { @if let Some(page) = page { a class="button" href=(page) { "Agent trace" } } }
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let given = visit.part("requestId");
    let request = RequestId::new(given).map_err(|_| Problem::not_found("task", given))?;
    let attempt = visit.part("attempt");
    let path = format!("{}{FILE}", encode(attempt));
    let file = visit.api.open(&format!("/v1/tasks/{request}/artifacts/{path}")).await?;
    let read = match Limited::new(file.into_body(), TRACE_BYTES_MAX).collect().await {
        Ok(read) => Some(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => None,
        Err(error) => return Err(Problem::internal(&error)),
    };
    let download = format!("/tasks/{request}/files/{path}");
    let body = match read.as_deref().map(self::read) {
        None => unseen(&format!("The trace is larger than {}", bytes(TRACE_BYTES_MAX as u64))),
        Some(None) => unseen("The file does not hold a list of steps"),
        Some(Some(steps)) => steps_of(&steps, visit.now),
    };
    let screen = Screen::new("tasks", "Agent trace")
        .still("head", html! {
            div class="title" {
                div {
                    nav class="crumbs" aria-label="Where" { a href="/tasks" { "Tasks" } " / " a href={ "/tasks/" (request) } { (shortened(request.as_str())) } }
                    h1 { "Agent trace" }
                    p class="faint" { (attempt_words(attempt)) }
                }
                div class="actions" { a class="button" href=(download) download { "Download" } }
            }
        })
        .still("trace", body);
    Ok(screen.into())
}

/// `r1-a2` in words.
fn attempt_words(attempt: &str) -> String {
    match attempt.strip_prefix('r').and_then(|rest| rest.split_once("-a")) {
        Some((run, attempt)) => format!("run {run}, attempt {attempt}"),
        None => attempt.to_owned(),
    }
}

fn unseen(why: &str) -> Markup {
    empty(why, &html! { "It can be downloaded as it is." })
}

/// The text of a field, if it has one.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A short text of a field, cut.
fn word(value: &Value, field: &str) -> Markup {
    cut(value[field].as_str().unwrap_or("–"), WORD_CHARS_MAX)
}

fn count(value: &Value, field: &str) -> Option<u64> {
    value[field].as_u64()
}

/// A moment that is one.
fn moment_of(value: &Value, field: &str) -> Option<u64> {
    count(value, field).filter(|millis| Timestamp::new("moment", *millis).is_ok())
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// What was used. A number that is strange is 0.
fn usage_of(value: &Value) -> Usage {
    Usage::deserialize(&value["usage"]).unwrap_or_default().bounded()
}

fn calls_of(one: &Value) -> u64 {
    (list(one, "toolCalls").len() as u64).saturating_add(count(one, "toolCallsLeftOut").unwrap_or(0))
}

fn state_of(status: &str) -> &'static str {
    match status {
        "completed" => "completed",
        "reused" => "reused",
        "failed" => "failed",
        "running" => "running",
        _ => "waiting",
    }
}

fn steps_of(steps: &[Value], now: u64) -> Markup {
    let sum =
        |of: fn(&Usage) -> u64| steps.iter().map(|step| of(&usage_of(step))).fold(0, u64::saturating_add);
    let tries = steps.iter().flat_map(|step| list(step, "attempts"));
    let calls = tries.map(calls_of).fold(0, u64::saturating_add);
    let took = steps.iter().filter_map(|step| count(step, "durationMs")).fold(0, u64::saturating_add);
    let mut calls_left = CALLS_MAX;
    html! {
        div class="figures" {
            @for (name, value) in [
                ("step", steps.len() as u64),
                ("turn", sum(|usage| u64::from(usage.turns))),
                ("tool call", calls),
                ("token", sum(Usage::tokens)),
            ] {
                (figure(&noun(value, name), &number(value), "calm", None))
            }
            (figure("cost", &dollars(sum(|usage| usage.cost_micros)), "calm", None))
            (figure("duration", &span(took), "calm", None))
        }
        @for step in steps.iter().take(STEPS_MAX) { (step_card(step, &mut calls_left, now)) }
        @if steps.len() > STEPS_MAX { p class="faint" { "The first " (STEPS_MAX) " of " (number(steps.len() as u64)) " steps; the download has all of them." } }
    }
}

fn step_card(step: &Value, calls_left: &mut usize, now: u64) -> Markup {
    let tries = list(step, "attempts");
    html! {
        section class="card step" {
            header {
                h2 { (word(step, "name")) " " (state(state_of(text(step, "status")))) }
                div class="aside" { @if let Some(at) = moment_of(step, "startedAt") { (moment(now, at)) } }
            }
            (prompt_of(step))
            dl class="facts" {
                div { dt { "Model" } dd { (word(step, "model")) } }
                @if let Some(took) = count(step, "durationMs") { div { dt { "Duration" } dd { (span(took)) } } }
                (usage_facts(&usage_of(step), count(step, "maxTurns")))
            }
            @for one in tries.iter().take(TRIES_MAX) { (try_of(one, tries.len() > 1, calls_left)) }
            @if tries.len() > TRIES_MAX { p class="faint" { "The first " (TRIES_MAX) " of " (number(tries.len() as u64)) " tries." } }
        }
    }
}

/// What the agent was asked, if the trace tells: the beginning of it.
fn prompt_of(step: &Value) -> Markup {
    let prompt = text(step, "prompt");
    let length = count(step, "promptBytes").unwrap_or(0).max(prompt.len() as u64);
    let short: String = prompt.chars().take(VALUE_CHARS_MAX).collect();
    let is_open = prompt.chars().nth(OPEN_PROMPT_CHARS_MAX).is_none();
    html! {
        @if !prompt.is_empty() {
            details open[is_open] {
                summary { "Prompt " span class="faint" { (bytes(length)) } }
                pre class="json" tabindex="0" { (short) @if (short.len() as u64) < length { "…" } }
            }
        }
    }
}

fn usage_facts(usage: &Usage, max_turns: Option<u64>) -> Markup {
    html! {
        div { dt { "Turns" } dd { (usage.turns) @if let Some(most) = max_turns { " of " (most) } } }
        div { dt { "Input tokens" } dd { (number(usage.input_tokens)) } }
        div { dt { "Output tokens" } dd { (number(usage.output_tokens)) } }
        div { dt { "From cache" } dd { (number(usage.cache_read_tokens)) } }
        div { dt { "To cache" } dd { (number(usage.cache_write_tokens)) } }
        div { dt { "Cost" } dd { (dollars(usage.cost_micros)) } }
    }
}

fn try_of(one: &Value, is_one_of_many: bool, calls_left: &mut usize) -> Markup {
    let calls = list(one, "toolCalls");
    let shown = calls.len().min(*calls_left);
    *calls_left -= shown;
    let left = calls_of(one).saturating_sub(shown as u64);
    let error = &one["outcome"]["error"];
    let todos = list(one, "todos");
    html! {
        @if is_one_of_many {
            h3 {
                "Try " (count(one, "number").unwrap_or(1)) " " (state(state_of(text(&one["outcome"], "status"))))
                @if let Some(took) = count(one, "durationMs") { span class="faint small" { " " (span(took)) } }
                span class="faint small" { ", " (dollars(usage_of(one).cost_micros)) @if one["costIsEstimated"] == true { " estimated" } }
            }
        }
        @if error.is_object() {
            div class="problem" {
                strong { (word(error, "code")) } " " (word(error, "category"))
                pre { (cut(text(error, "message"), VALUE_CHARS_MAX)) }
            }
        }
        @if !list(one, "permissionDenials").is_empty() { p class="faint" { (list(one, "permissionDenials").len()) " calls were not permitted." } }
        @if !todos.is_empty() {
            ul class="todos" {
                @for todo in todos.iter().take(TODOS_MAX) {
                    li { (state(match text(todo, "status") { "completed" => "completed", "in_progress" | "inProgress" => "running", _ => "waiting" })) " " (word(todo, "content")) }
                }
            }
        }
        @if calls.is_empty() { p class="faint" { "No tool was called." } }
        @else { ol class="events calls" { @for call in &calls[..shown] { (call_of(call)) } } }
        @if left > 0 { p class="faint" { (counted(left, "more tool call")) (if left == 1 { " is" } else { " are" }) " not shown." } }
    }
}

fn call_of(call: &Value) -> Markup {
    html! {
        li {
            details {
                summary {
                    span class="event-type" { (word(call, "name")) }
                    span class="event-entity faint" { code { (cut(&call["input"].to_string(), 80)) } }
                    span class="event-time" {
                        @if call["isError"] == true { (state("failed")) }
                        @match count(call, "durationMs") { Some(took) => (span(took)), None => span class="faint" { "did not end" } }
                    }
                }
                h3 { "Input" }
                (shown_value(&call["input"]))
                h3 { "Output" }
                (shown_value(&call["output"]))
            }
        }
    }
}

/// A value as text: a text as it is, anything else as JSON laid out.
fn shown_value(value: &Value) -> Markup {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    let short: String = text.chars().take(VALUE_CHARS_MAX).collect();
    let is_cut = short.len() < text.len();
    html! { pre class="json" tabindex="0" { (short) @if is_cut { "…" } } }
}

/// The steps of a trace, if it is one that can be read without harm.
fn read(bytes: &[u8]) -> Option<Vec<Value>> {
    match read_value(std::str::from_utf8(bytes).ok()?).ok()? {
        Value::Array(steps) => Some(steps),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        steps_of(&read(text.as_bytes()).unwrap(), 1_763_238_912_345).0
    }

    #[test]
    fn a_trace_of_strange_values_is_shown_as_far_as_it_is_one() {
        for text in [
            "[]",
            "[{}]",
            r#"[{"name": 5, "status": ["failed"], "usage": "much", "attempts": {"a": 1}}]"#,
            r#"[{"name": "s", "attempts": [7, {"toolCalls": [null, {"name": {}, "input": [[[]]], "durationMs": -1}]}]}]"#,
            r#"[{"durationMs": 18446744073709551615, "startedAt": 18446744073709551615, "usage": {"inputTokens": 18446744073709551615}}, {"durationMs": 18446744073709551615, "usage": {"inputTokens": 18446744073709551615}}]"#,
        ] {
            assert!(shown(text).contains("tool calls"), "{text}");
        }
        for text in ["", "{\"steps\": []}", "null", "[1e400]", "[", &"[".repeat(100_000), "\u{0}"] {
            assert_eq!(read(text.as_bytes()), None, "{}", text.len());
        }
        assert_eq!(read(b"[\"\xff\"]"), None);
    }

    #[test]
    fn what_an_agent_wrote_stays_text() {
        let bad = "<script>alert(1)</script><img src=x onerror=alert(2)>\\u202e";
        let call = format!(
            r#"{{"name": "{bad}", "input": {{"{bad}": "{bad}"}}, "output": "{bad}", "isError": true}}"#
        );
        let text = format!(
            r#"[{{"name": "{bad}", "status": "{bad}", "model": "{bad}", "prompt": "{bad}", "attempts": [
                {{"number": 1, "toolCalls": [{call}], "todos": [{{"content": "{bad}", "status": "{bad}"}}],
                  "outcome": {{"status": "failed", "error": {{"code": "{bad}", "category": "{bad}", "message": "{bad}"}}}}}},
                {{"number": 2}}]}}]"#
        );
        let shown = shown(&text);
        assert!(!shown.contains("<script") && !shown.contains("<img"), "{shown}");
        assert!(shown.contains("&lt;script"), "{shown}");
    }

    #[test]
    fn the_prompt_comes_first_and_a_long_one_is_folded() {
        let page = shown(r#"[{"name": "s", "prompt": "say <b>hi</b>", "promptBytes": 13, "model": "m"}]"#);
        let (prompt, model) = (page.find("say &lt;b&gt;hi"), page.find("Model"));
        assert!(prompt.is_some() && prompt < model, "{page}");
        assert!(page.contains("<details open>") && !page.contains("…"), "{page}");
        let long = "x".repeat(OPEN_PROMPT_CHARS_MAX + 1);
        let page = shown(&format!(r#"[{{"prompt": "{long}", "promptBytes": 90000}}]"#));
        assert!(page.contains("<details><summary>Prompt") && page.contains(&format!("{long}…")), "{page}");
        assert!(!shown(r#"[{"prompt": 7}]"#).contains("Prompt"));
    }

    #[test]
    fn a_page_is_bounded_whatever_the_trace_is() {
        let long = "x".repeat(20_000);
        let call = format!(r#"{{"name": "{long}", "input": "{long}", "output": "{long}"}}"#);
        let calls = vec![call; CALLS_MAX + 50].join(",");
        let step =
            format!(r#"{{"name": "{long}", "prompt": "{long}", "attempts": [{{"toolCalls": [{calls}]}}]}}"#);
        let text = format!("[{step},{}]", vec![r#"{"attempts": [{}, {}]}"#; STEPS_MAX + 10].join(","));
        let shown = shown(&text);
        assert!(shown.len() < 6 * 1024 * 1024, "{}", shown.len());
        assert!(shown.contains("50 more tool calls are not shown"), "those beyond the limit are counted");
        assert!(shown.contains("The first 100 of 111 steps"), "{}", &shown[shown.len() - 500..]);
    }

    #[test]
    fn only_the_runners_own_trace_has_a_page() {
        assert_eq!(address("t", "r1-a2/traces/session_trace.json").as_deref(), Some("/tasks/t/trace/r1-a2"));
        for path in [
            "r1-a2/traces/other.json",
            "r1-a2/artifacts/traces/session_trace.json",
            "traces/session_trace.json",
        ] {
            assert_eq!(address("t", path), None, "{path}");
        }
    }

    #[test]
    fn a_task_leads_to_its_newest_trace() {
        let file = |path: &str| Artifact { path: path.to_owned(), size_bytes: 1 };
        let files = [
            "r1-a1/logs/output.log",
            "r1-a1/traces/session_trace.json",
            "r1-a10/traces/session_trace.json",
            "r1-a2/traces/session_trace.json",
        ];
        let files: Vec<_> = files.iter().map(|path| file(path)).collect();
        assert!(link("t", &files).0.contains("/tasks/t/trace/r1-a10\""));
        assert_eq!(link("t", &files[..1]).0, "");
    }
}
