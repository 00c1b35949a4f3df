//! What the CLI prints, line by line: parsed as JSON whatever the order of keys, unknown kinds passed over.

use serde::Deserialize;
use serde_json::Value;
use tidemill_model::Usage;
use tidemill_model::spending::usage::micros_of;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// The bytes of one line.
pub(crate) const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What one line says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    /// The session begins.
    Init { session_id: Option<String>, model: Option<String>, version: Option<String>, tools: Vec<String> },
    /// The CLI is going to ask the API again.
    ApiRetry(ApiRetry),
    /// A whole message of the model, or a part of one.
    Assistant { blocks: Vec<Block>, error: Option<String> },
    /// Results of tools.
    ToolResults(Vec<ToolResult>),
    /// An answer of the API begins: what was read for it, by which model.
    AnswerBegins { usage: Usage, model: Option<String> },
    /// An answer of the API ends: what it used, which replaces what its beginning said.
    AnswerEnds(Usage),
    /// A part of an answer.
    AnswerGoesOn,
    /// The end of it all.
    Result(Box<ResultLine>),
    /// Anything else: a sign of life.
    Other(String),
}

/// A part of what the model says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    Text(String),
    ToolUse { id: String, name: String, input: Value },
    Other,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolResult {
    pub(crate) id: String,
    pub(crate) is_error: bool,
    pub(crate) content: Value,
    /// What the tool gave in its own form, if the line tells.
    pub(crate) structured: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiRetry {
    pub(crate) attempt: u64,
    pub(crate) delay_millis: u64,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<String>,
}

/// The line that ends a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ResultLine {
    pub(crate) subtype: String,
    pub(crate) is_error: bool,
    pub(crate) api_error_status: Option<u16>,
    pub(crate) text: Option<String>,
    pub(crate) errors: Vec<String>,
    pub(crate) structured_output: Option<Value>,
    pub(crate) stop_reason: Option<String>,
    pub(crate) terminal_reason: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) duration_millis: u64,
    pub(crate) api_duration_millis: u64,
    /// What this call of the CLI used.
    pub(crate) usage: Usage,
    pub(crate) permission_denials: Vec<Value>,
}

/// Reads a line.
pub(crate) fn parse(line: &[u8]) -> Result<Message, serde_json::Error> {
    // What a tool printed may be no text, or half of a character. That is no reason to lose what the line says.
    let value: Value = serde_json::from_slice(line)
        .or_else(|_| serde_json::from_str(&without_halves(&String::from_utf8_lossy(line))))?;
    let kind = value["type"].as_str().unwrap_or_default();
    Ok(match (kind, value["subtype"].as_str().unwrap_or_default()) {
        ("system", "init") => Message::Init {
            session_id: text(&value["session_id"]),
            model: text(&value["model"]),
            version: text(&value["claude_code_version"]),
            tools: value["tools"].as_array().into_iter().flatten().filter_map(text).collect(),
        },
        ("system", "api_retry") => Message::ApiRetry(ApiRetry {
            attempt: value["attempt"].as_u64().unwrap_or_default(),
            delay_millis: whole(&value["retry_delay_ms"]),
            status: status(&value["error_status"]),
            error: text(&value["error"]),
        }),
        ("assistant", _) => Message::Assistant {
            blocks: value["message"]["content"].as_array().into_iter().flatten().map(block).collect(),
            error: text(&value["error"]),
        },
        ("user", _) => tool_results(&value),
        ("stream_event", _) => stream_event(&value["event"]),
        ("result", _) => Message::Result(Box::new(result_line(&value))),
        (kind, subtype) => {
            Message::Other(if subtype.is_empty() { kind.to_owned() } else { format!("{kind}/{subtype}") })
        }
    })
}

/// JSON whose escapes of one half of a surrogate pair without the other stand for U+FFFD instead.
fn without_halves(json: &str) -> String {
    /// The number of an escape `\uXXXX` at the start.
    fn escape(text: &str) -> Option<u32> {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    }
    const ESCAPE_BYTES: usize = 6;
    let mut kept = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_pair = || matches!(rest.get(ESCAPE_BYTES..).and_then(escape), Some(0xdc00..=0xdfff));
        let length = match escape(rest) {
            Some(0xd800..=0xdbff) if is_pair() => 2 * ESCAPE_BYTES,
            Some(0xd800..=0xdfff) => {
                kept.push_str("\\ufffd");
                rest = &rest[ESCAPE_BYTES..];
                continue;
            }
            Some(_) => ESCAPE_BYTES,
            // The backslash and what it stands before, which may be another one.
            None => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        kept.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    kept.push_str(rest);
    kept
}

fn block(value: &Value) -> Block {
    match value["type"].as_str() {
        Some("text") => Block::Text(text(&value["text"]).unwrap_or_default()),
        Some("tool_use") => Block::ToolUse {
            id: text(&value["id"]).unwrap_or_default(),
            name: text(&value["name"]).unwrap_or_default(),
            input: value["input"].clone(),
        },
        _ => Block::Other,
    }
}

fn tool_results(value: &Value) -> Message {
    let blocks = value["message"]["content"].as_array().into_iter().flatten();
    let results: Vec<_> = blocks
        .filter(|block| block["type"] == "tool_result")
        .map(|block| ToolResult {
            id: text(&block["tool_use_id"]).unwrap_or_default(),
            is_error: block["is_error"].as_bool().unwrap_or_default(),
            content: block["content"].clone(),
            structured: value["tool_use_result"].clone(),
        })
        .collect();
    if results.is_empty() { Message::Other("user".to_owned()) } else { Message::ToolResults(results) }
}

fn stream_event(event: &Value) -> Message {
    match event["type"].as_str() {
        Some("message_start") => Message::AnswerBegins {
            usage: usage(&event["message"]["usage"]),
            model: text(&event["message"]["model"]),
        },
        Some("message_delta") => Message::AnswerEnds(usage(&event["usage"])),
        _ => Message::AnswerGoesOn,
    }
}

fn result_line(value: &Value) -> ResultLine {
    let turns = u32::try_from(whole(&value["num_turns"])).unwrap_or(u32::MAX);
    let list = |name: &str| value[name].as_array().cloned().unwrap_or_default();
    // Newer versions count modelUsage and the money over the whole session, and tell the part of this call apart.
    let part = value["model_usage_since_last_result"].as_object();
    let by_model = part.or_else(|| value["modelUsage"].as_object());
    let mut used = by_model
        .map(|models| models.values().map(model_usage).fold(Usage::default(), add))
        .unwrap_or_default();
    if used.tokens() == 0 {
        used = Usage { cost_micros: used.cost_micros, ..usage(&value["usage"]) };
    }
    if part.is_none() {
        used.cost_micros = micros_of(value["total_cost_usd"].as_f64().unwrap_or_default());
    }
    used.turns = turns;
    ResultLine {
        subtype: text(&value["subtype"]).unwrap_or_default(),
        // A result that does not say that it is none is an error, and so is one that is called so.
        is_error: value["is_error"].as_bool().unwrap_or(true)
            || value["subtype"].as_str().is_some_and(|subtype| subtype.starts_with("error")),
        api_error_status: status(&value["api_error_status"]),
        text: text(&value["result"]),
        errors: list("errors").iter().filter_map(text).collect(),
        structured_output: value.get("structured_output").filter(|output| !output.is_null()).cloned(),
        stop_reason: text(&value["stop_reason"]),
        terminal_reason: text(&value["terminal_reason"]),
        session_id: text(&value["session_id"]),
        duration_millis: whole(&value["duration_ms"]),
        api_duration_millis: whole(&value["duration_api_ms"]),
        usage: used.bounded(),
        permission_denials: list("permission_denials"),
    }
}

/// The usage of the API's own form.
fn usage(value: &Value) -> Usage {
    let read =
        if value.is_object() { Usage::deserialize(value).unwrap_or_default() } else { Usage::default() };
    read.bounded()
}

/// An entry of `modelUsage`.
fn model_usage(value: &Value) -> Usage {
    Usage {
        input_tokens: whole(&value["inputTokens"]),
        output_tokens: whole(&value["outputTokens"]),
        cache_read_tokens: whole(&value["cacheReadInputTokens"]),
        cache_write_tokens: whole(&value["cacheCreationInputTokens"]),
        turns: 0,
        cost_micros: micros_of(value["costUSD"].as_f64().unwrap_or_default()),
    }
}

/// The sum of two usages.
pub(crate) fn add(one: Usage, other: Usage) -> Usage {
    Usage {
        input_tokens: one.input_tokens.saturating_add(other.input_tokens),
        output_tokens: one.output_tokens.saturating_add(other.output_tokens),
        cache_read_tokens: one.cache_read_tokens.saturating_add(other.cache_read_tokens),
        cache_write_tokens: one.cache_write_tokens.saturating_add(other.cache_write_tokens),
        turns: one.turns.saturating_add(other.turns),
        cost_micros: one.cost_micros.saturating_add(other.cost_micros),
    }
}

/// The larger of each number of two usages.
pub(crate) fn at_least(one: Usage, other: Usage) -> Usage {
    Usage {
        input_tokens: one.input_tokens.max(other.input_tokens),
        output_tokens: one.output_tokens.max(other.output_tokens),
        cache_read_tokens: one.cache_read_tokens.max(other.cache_read_tokens),
        cache_write_tokens: one.cache_write_tokens.max(other.cache_write_tokens),
        turns: one.turns.max(other.turns),
        cost_micros: one.cost_micros.max(other.cost_micros),
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn status(value: &Value) -> Option<u16> {
    u16::try_from(value.as_u64()?).ok()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast goes to the nearest bound"
)]
fn whole(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_f64().map(|float| float as u64)).unwrap_or_default()
}

/// What was read from a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A line, without its end, is in the buffer.
    Line,
    /// A line is longer than the limit. Nothing more is read.
    TooLong,
    End,
}

/// Reads the next line into `line`, which keeps what was read of it if the future is dropped.
pub(crate) async fn next_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    line: &mut Vec<u8>,
    limit: usize,
) -> std::io::Result<Read> {
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(if line.is_empty() { Read::End } else { Read::Line });
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if line.len() + part.len() > limit {
            return Ok(Read::TooLong);
        }
        line.extend_from_slice(part);
        let count = part.len() + usize::from(end.is_some());
        reader.consume(count);
        if end.is_some() {
            return Ok(Read::Line);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn message(value: &Value) -> Message {
        parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn lines_are_told_by_their_fields_and_not_by_their_order() {
        let reordered = r#"{"duration_api_ms":38,"is_error":false,"num_turns":1,"subtype":"success","result":"hi","type":"result"}"#;
        let Message::Result(result) = parse(reordered.as_bytes()).unwrap() else { panic!() };
        assert_eq!((result.is_error, result.text.as_deref(), result.usage.turns), (false, Some("hi"), 1));
        for (line, expected) in [
            (json!({"type": "system", "subtype": "status", "status": "requesting"}), "system/status"),
            (json!({"type": "tomorrow"}), "tomorrow"),
            (json!({}), ""),
            (json!([1]), ""),
            (json!({"type": "user", "message": {"content": "text"}}), "user"),
        ] {
            assert_eq!(message(&line), Message::Other(expected.to_owned()));
        }
        assert!(parse(b"{\"type\":").is_err());
        assert!(parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn a_line_is_not_lost_for_a_broken_character() {
        let line = |text: &[u8]| {
            [&br#"{"type":"result","subtype":"success","is_error":false,"result":""#[..], text, b"\"}"]
                .concat()
        };
        for (text, expected) in [
            (&br"a\ud83db"[..], "a\u{fffd}b"),
            (br"\udc00\ud83d", "\u{fffd}\u{fffd}"),
            (br"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (br"\ud83d\n\u00e9\\ud83d", "\u{fffd}\n\u{e9}\\ud83d"),
            (b"cut \xf0\x9f\x98 off", "cut \u{fffd} off"),
            (b"\xff\\ud800", "\u{fffd}\u{fffd}"),
        ] {
            let Ok(Message::Result(result)) = parse(&line(text)) else { panic!("{expected}") };
            assert_eq!(result.text.as_deref(), Some(expected));
        }
        for text in [&br"\ud83"[..], br"\ud83g", b"\\"] {
            assert!(parse(&line(text)).is_err(), "{text:?} is no JSON for another reason");
        }
    }

    #[test]
    fn what_is_called_an_error_is_one() {
        for (line, is_error) in [
            (json!({"type": "result", "subtype": "success", "is_error": false}), false),
            (json!({"type": "result", "subtype": "success", "is_error": true}), true),
            (json!({"type": "result", "subtype": "error_max_turns", "is_error": false}), true),
            (json!({"type": "result", "subtype": "success"}), true),
            (json!({"type": "result", "is_error": false}), false),
        ] {
            let Message::Result(result) = message(&line) else { panic!() };
            assert_eq!(result.is_error, is_error, "{line}");
        }
    }

    #[test]
    fn what_is_said_and_done_is_read() {
        let line = json!({"type": "assistant", "message": {"content": [
            {"type": "text", "text": "I look"}, {"type": "thinking", "thinking": "x"},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]}});
        let Message::Assistant { blocks, error: None } = message(&line) else { panic!() };
        let call = Block::ToolUse { id: "t1".into(), name: "Bash".into(), input: json!({"command": "ls"}) };
        assert_eq!(blocks, [Block::Text("I look".into()), Block::Other, call]);
        let line = json!({"type": "user", "tool_use_result": {"stdout": "a"}, "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "a", "is_error": true}]}});
        let expected = ToolResult {
            id: "t1".into(),
            is_error: true,
            content: json!("a"),
            structured: json!({"stdout": "a"}),
        };
        assert_eq!(message(&line), Message::ToolResults(vec![expected]));
        let line = json!({"type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": 575.9, "error_status": 429, "error": "rate_limit"});
        let retry =
            ApiRetry { attempt: 1, delay_millis: 575, status: Some(429), error: Some("rate_limit".into()) };
        assert_eq!(message(&line), Message::ApiRetry(retry));
    }

    #[test]
    fn usage_is_that_of_this_call() {
        let tokens = json!({"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1});
        let model = |input: u64, cost: f64| json!({"inputTokens": input, "outputTokens": 2, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 1, "costUSD": cost});
        for (line, input_tokens, cost_micros) in [
            // As older versions tell it: everything is of this call.
            (
                json!({"type": "result", "usage": tokens, "total_cost_usd": 0.00081, "modelUsage": {"m": model(10, 0.00081)}}),
                10,
                810,
            ),
            // A second model did a part of the work.
            (
                json!({"type": "result", "usage": tokens, "total_cost_usd": 0.5, "modelUsage": {"a": model(10, 0.25), "b": model(7, 0.25)}}),
                17,
                500_000,
            ),
            // As newer versions tell a resumed session.
            (
                json!({"type": "result", "usage": tokens, "total_cost_usd": 0.00162, "modelUsage": {"m": model(20, 0.00162)},
                    "model_usage_since_last_result": {"m": model(10, 0.00081)}}),
                10,
                810,
            ),
            (
                json!({"type": "result", "usage": tokens, "total_cost_usd": 0.7, "modelUsage": {}, "model_usage_since_last_result": {}}),
                10,
                0,
            ),
            (json!({"type": "result"}), 0, 0),
        ] {
            let Message::Result(result) = message(&line) else { panic!() };
            assert_eq!(
                (result.usage.input_tokens, result.usage.cost_micros),
                (input_tokens, cost_micros),
                "{line}"
            );
            assert!(result.is_error, "a result that does not say otherwise is an error");
        }
    }

    #[test]
    fn answers_tell_what_they_use_as_they_come() {
        let begin = json!({"type": "stream_event", "event": {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}});
        let end = json!({"type": "stream_event", "event": {"type": "message_delta", "usage": {"input_tokens": 9, "output_tokens": 30}}});
        let usage = |output_tokens| Usage { input_tokens: 9, output_tokens, ..Usage::default() };
        assert_eq!(message(&begin), Message::AnswerBegins { usage: usage(1), model: Some("m".to_owned()) });
        assert_eq!(message(&end), Message::AnswerEnds(usage(30)));
        let part = json!({"type": "stream_event", "event": {"type": "content_block_delta"}});
        assert_eq!(message(&part), Message::AnswerGoesOn);
    }

    #[tokio::test]
    async fn lines_have_a_limit() {
        for (bytes, expected) in
            [("", &[][..]), ("a\nbc", &["a", "bc"]), ("\n\n", &["", ""]), ("12345678\n", &["12345678"])]
        {
            let mut reader = bytes.as_bytes();
            let mut lines = Vec::new();
            loop {
                let mut line = Vec::new();
                match next_line(&mut reader, &mut line, 8).await.unwrap() {
                    Read::Line => lines.push(String::from_utf8(line).unwrap()),
                    Read::End => break,
                    Read::TooLong => panic!("{bytes} is short"),
                }
            }
            assert_eq!(lines, expected, "{bytes:?}");
        }
        let mut endless = tokio::io::BufReader::new(tokio::io::repeat(b'x'));
        let mut line = Vec::new();
        assert_eq!(next_line(&mut endless, &mut line, LINE_BYTES_MAX).await.unwrap(), Read::TooLong);
        assert!(line.len() <= LINE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(text in ".{0,80}", kind in "result|assistant|user|system|stream_event", value in "[\\[\\]{}\",:0-9a-z]{0,40}") {
            let _ = parse(text.as_bytes());
            let _ = parse(format!("{{\"a\":\"\\ud8{text}").as_bytes());
            let _ = parse(format!("{{\"type\":\"{kind}\",\"message\":{value},\"event\":{value},\"usage\":{value}}}").as_bytes());
        }
    }
}
