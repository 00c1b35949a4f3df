//! A model server on loopback that plays what it is told: the Messages API as far as the CLI uses it.
//!
//! Tests and examples run the real CLI against it, without a network and without cost. A reply is found by the first of
//! these that fits:
//!
//! 1. A mark in the prompt: `[[stub: REPLY]]`, a list `[[stub: [REPLY, …]]]` with one reply per turn of the conversation,
//!    or `[[stub: {"inOrder": [REPLY, …]}]]` with one per request, also over several conversations. Behind the end of a list
//!    the replies below are given.
//! 2. A [`Rule`] whose text is in the prompt; its replies are one per turn.
//! 3. When an output of a certain form is wanted, one that satisfies its schema. Otherwise a short text.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// The bytes of a request.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;
const MARK: &str = "[[stub:";
/// The tool by which the CLI takes an output of a certain form.
const OUTPUT_TOOL: &str = "StructuredOutput";

/// What the model says to prompts that hold a text.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StubRule {
    pub when: String,
    /// One per turn.
    pub replies: Vec<StubReply>,
}

/// What the model says to one request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StubReply {
    pub text: Option<String>,
    /// Calls of tools.
    pub tools: Vec<ToolUse>,
    /// An output of the wanted form.
    pub structured: Option<Value>,
    /// An error instead of an answer.
    pub status: Option<u16>,
    /// With an error: the seconds of its header `retry-after`.
    pub retry_after: Option<u64>,
    /// `end_turn` or `tool_use` when it is left out.
    pub stop_reason: Option<String>,
    /// The usage of the answer, over the usual one.
    pub usage: Option<Value>,
    pub fault: Option<StubFault>,
    /// Between two events of the answer.
    pub pause_ms: u64,
    /// Signs of life before the answer, each after a pause.
    pub pings: u32,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ToolUse {
    pub name: String,
    #[serde(default)]
    pub input: Value,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StubFault {
    /// Nothing is answered.
    Hang,
    /// The answer stops in the middle, and the connection stays.
    HangMidStream,
    /// The connection is reset.
    Reset,
    /// The connection is reset in the middle of an answer.
    ResetMidStream,
    /// The answer is no stream of events.
    Garbage,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct StubRequest {
    pub at: Instant,
    pub path: String,
    /// Names in small letters.
    pub headers: HashMap<String, String>,
    pub body: Value,
}

impl StubRequest {
    /// The names of the tools that the model was offered.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool["name"].as_str()).collect()
    }

    /// All that users and tools said, with what the CLI adds to it.
    pub fn texts(&self) -> String {
        let mut all = String::new();
        for message in self.body["messages"].as_array().into_iter().flatten() {
            push_texts(&message["content"], &mut all);
        }
        all
    }
}

/// The server. It stops when this is dropped.
#[derive(Debug)]
pub struct StubModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    rules: Vec<StubRule>,
    requests: Mutex<Vec<StubRequest>>,
    /// How often each list that goes by requests was asked.
    asked: Mutex<HashMap<String, usize>>,
}

impl StubModel {
    /// Starts a server on a free port of loopback.
    pub fn start(rules: Vec<StubRule>) -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), rules)
    }

    /// Starts a server. It runs on a thread of its own.
    pub fn start_at(address: SocketAddr, rules: Vec<StubRule>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { rules, ..Shared::default() });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// For `ANTHROPIC_BASE_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests to the model so far.
    pub fn requests(&self) -> Vec<StubRequest> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for StubModel {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                // A connection that breaks is the other side's matter.
                let _ = connection(stream, &shared).await;
            });
        }
    }
}

async fn connection(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream).await? {
        if request.path.split('?').next() != Some("/v1/messages") {
            respond(&mut stream, 404, None, &json!({ "type": "error", "error": { "type": "not_found_error", "message": "no such route" } })).await?;
            continue;
        }
        let reply = shared.reply(&request.body);
        let body = request.body.clone();
        shared.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        if !answer(&mut stream, &reply, &body).await? {
            return Ok(());
        }
    }
    Ok(())
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<StubRequest>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    if length > REQUEST_BYTES_MAX {
        return Err(io::Error::other("the request is too large"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(StubRequest { at: Instant::now(), path, headers, body }))
}

impl Shared {
    fn reply(&self, body: &Value) -> StubReply {
        let turn = body["messages"]
            .as_array()
            .map_or(0, |messages| messages.iter().filter(|message| message["role"] == "assistant").count());
        let prompt = {
            let mut all = String::new();
            for message in body["messages"].as_array().into_iter().flatten() {
                if message["role"] == "user" {
                    push_texts(&message["content"], &mut all);
                }
            }
            all
        };
        if let Some(marked) = mark_in(&prompt) {
            let found = match &marked {
                Value::Array(replies) => replies.get(turn).cloned(),
                Value::Object(fields) if fields.contains_key("inOrder") => {
                    let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                    let count = asked.entry(marked.to_string()).or_default();
                    let found = fields["inOrder"].get(*count).cloned();
                    *count += 1;
                    found
                }
                _ => Some(marked.clone()).filter(|_| turn == 0),
            };
            if let Some(found) = found {
                return serde_json::from_value(found).unwrap_or_else(|error| StubReply {
                    text: Some(format!("the mark of the stub is wrong: {error}")),
                    ..StubReply::default()
                });
            }
        } else if let Some(reply) =
            self.rules.iter().find(|rule| prompt.contains(&rule.when)).and_then(|rule| rule.replies.get(turn))
        {
            return reply.clone();
        }
        usual(body)
    }
}

/// The JSON after the mark in a prompt.
fn mark_in(prompt: &str) -> Option<Value> {
    let (_, rest) = prompt.split_once(MARK)?;
    serde_json::Deserializer::from_str(rest).into_iter().next()?.ok()
}

/// The answer when no rule and no mark gives one.
fn usual(body: &Value) -> StubReply {
    let tools = body["tools"].as_array();
    let wanted = tools.and_then(|tools| tools.iter().find(|tool| tool["name"] == OUTPUT_TOOL));
    match wanted {
        Some(tool) => StubReply { structured: Some(example(&tool["input_schema"])), ..StubReply::default() },
        None => StubReply { text: Some("This is the stub model.".to_owned()), ..StubReply::default() },
    }
}

/// A value that satisfies a plain schema.
fn example(schema: &Value) -> Value {
    if let Some(value) =
        schema.get("const").or_else(|| schema["enum"].get(0)).or_else(|| schema["examples"].get(0))
    {
        return value.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("object");
    match kind {
        "string" => json!("example"),
        "integer" => json!(schema["minimum"].as_i64().unwrap_or(1)),
        "number" => json!(schema["minimum"].as_f64().unwrap_or(0.5)),
        "boolean" => json!(true),
        "null" => Value::Null,
        "array" => {
            let count = schema["minItems"].as_u64().unwrap_or(1);
            (0..count).map(|_| example(&schema["items"])).collect()
        }
        _ => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields
                .map(|(name, schema)| (name.clone(), example(schema)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
    }
}

/// Answers; false when the connection is over.
async fn answer(stream: &mut BufReader<TcpStream>, reply: &StubReply, body: &Value) -> io::Result<bool> {
    match reply.fault {
        Some(StubFault::Hang) => {
            wait_for_end(stream).await;
            return Ok(false);
        }
        Some(StubFault::Reset) => {
            reset(stream);
            return Ok(false);
        }
        Some(StubFault::Garbage) => {
            let text =
                "event: message_start\ndata: {\"type\":\"message_start\",\ndata: <html>\n\n\u{0}garbage\n\n";
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
                text.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(text.as_bytes()).await?;
            return Ok(true);
        }
        None | Some(StubFault::HangMidStream | StubFault::ResetMidStream) => {}
    }
    if let Some(status) = reply.status {
        let message = reply.text.clone().unwrap_or_else(|| format!("the stub answers {status}"));
        let error = json!({ "type": "error", "error": { "type": error_type(status), "message": message } });
        respond(stream, status, reply.retry_after, &error).await?;
        return Ok(true);
    }
    stream_answer(stream, reply, body).await
}

fn error_type(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

async fn respond(
    stream: &mut BufReader<TcpStream>,
    status: u16,
    retry_after: Option<u64>,
    body: &Value,
) -> io::Result<()> {
    let body = body.to_string();
    let retry = retry_after.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Stub\r\ncontent-type: application/json\r\n{retry}content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// The answer of a model as a stream of events.
async fn stream_answer(
    stream: &mut BufReader<TcpStream>,
    reply: &StubReply,
    body: &Value,
) -> io::Result<bool> {
    let mut blocks = Vec::new();
    if let Some(text) = &reply.text {
        blocks.push(json!({ "type": "text", "text": text }));
    }
    let output = reply.structured.iter().map(|input| (OUTPUT_TOOL, input));
    let calls: Vec<_> =
        reply.tools.iter().map(|tool| (tool.name.as_str(), &tool.input)).chain(output).collect();
    for (name, input) in &calls {
        let id = format!("toolu_{}", unique());
        blocks.push(json!({ "type": "tool_use", "id": id, "name": name, "input": input }));
    }
    let stop = reply.stop_reason.as_deref().unwrap_or(if calls.is_empty() { "end_turn" } else { "tool_use" });
    let mut usage = json!({ "input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 10 });
    if let (Some(usage), Some(Value::Object(own))) = (usage.as_object_mut(), &reply.usage) {
        usage.extend(own.clone());
    }
    let mut begun = usage.clone();
    begun["output_tokens"] = json!(1);
    let mut events = vec![json!({ "type": "message_start", "message": {
        "id": format!("msg_{}", unique()), "type": "message", "role": "assistant", "model": body["model"],
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": begun
    } })];
    events.extend((0..reply.pings).map(|_| json!({ "type": "ping" })));
    for (index, block) in blocks.iter().enumerate() {
        let (start, delta) = if let Some(text) = block["text"].as_str() {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": text }))
        } else {
            let mut start = block.clone();
            start["input"] = json!({});
            let text = block["input"].to_string();
            (start, json!({ "type": "input_json_delta", "partial_json": text }))
        };
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null }, "usage": usage }));
    events.push(json!({ "type": "message_stop" }));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    // After the beginning of the text.
    let breaks_at = if reply.fault.is_some() { 3 } else { events.len() };
    for (index, event) in events.iter().enumerate() {
        if index == breaks_at {
            if reply.fault == Some(StubFault::ResetMidStream) {
                reset(stream);
            } else {
                wait_for_end(stream).await;
            }
            return Ok(false);
        }
        if reply.pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(reply.pause_ms)).await;
        }
        let text = format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await?;
        stream.flush().await?;
    }
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(true)
}

/// Until the other side gives up.
async fn wait_for_end(stream: &mut BufReader<TcpStream>) {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

/// Closes the connection so that the other side gets an error and no end.
fn reset(stream: &BufReader<TcpStream>) {
    let _ = stream.get_ref().set_zero_linger();
}

fn unique() -> String {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes).to_string()
}

fn push_texts(content: &Value, all: &mut String) {
    match content {
        Value::String(text) => {
            all.push_str(text);
            all.push('\n');
        }
        Value::Array(blocks) => {
            for block in blocks {
                push_texts(block.get("text").unwrap_or(&block["content"]), all);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(prompt: &str, turns: usize) -> Value {
        let mut messages = vec![json!({ "role": "user", "content": [{ "type": "text", "text": prompt }] })];
        for _ in 0..turns {
            messages.push(json!({ "role": "assistant", "content": [] }));
            messages.push(json!({ "role": "user", "content": [{ "type": "tool_result", "content": "x" }] }));
        }
        json!({ "messages": messages })
    }

    fn said(shared: &Shared, prompt: &str, turns: usize) -> Option<String> {
        shared.reply(&body(prompt, turns)).text
    }

    #[test]
    fn marks_and_rules_choose_the_reply() {
        let rule = StubRule {
            when: "fonts".into(),
            replies: vec![StubReply { text: Some("Arial".into()), ..StubReply::default() }],
        };
        let shared = Shared { rules: vec![rule], ..Shared::default() };
        let by_turn = r#"x [[stub: [{"text":"one"},{"text":"two"}]]] y"#;
        let in_order = r#"x [[stub: {"inOrder":[{"text":"first"},{"text":"second"}]}]]"#;
        for (prompt, turns, expected) in [
            (by_turn, 0, "one"),
            (by_turn, 1, "two"),
            (by_turn, 2, "This is the stub model."),
            (in_order, 0, "first"),
            (in_order, 0, "second"),
            (in_order, 0, "This is the stub model."),
            (r#"[[stub: {"text":"only"}]]"#, 0, "only"),
            (r#"[[stub: {"text":"only"}]]"#, 1, "This is the stub model."),
            (r#"[[stub: {"txt":1}]]"#, 0, "the mark of the stub is wrong: unknown field `txt`"),
            ("find the fonts", 0, "Arial"),
            ("find the fonts", 1, "This is the stub model."),
        ] {
            let text = said(&shared, prompt, turns).unwrap();
            assert!(text.starts_with(expected), "{prompt} {turns}: {text}");
        }
    }

    #[test]
    fn a_wanted_form_is_filled_in() {
        let schema = json!({ "type": "object", "properties": {
            "a": { "type": "string" }, "n": { "type": "integer", "minimum": 3 }, "l": { "type": "array", "items": { "enum": ["x"] } },
            "o": { "type": ["object", "null"], "properties": { "b": { "type": "boolean" } } } } });
        let mut body = body("x", 0);
        body["tools"] = json!([{ "name": OUTPUT_TOOL, "input_schema": schema }]);
        let reply = Shared::default().reply(&body);
        assert_eq!(reply.structured, Some(json!({ "a": "example", "n": 3, "l": ["x"], "o": { "b": true } })));
        assert_eq!(
            crate::prompting::schema::OutputSchema::new(&schema).unwrap().check(&reply.structured.unwrap()),
            Ok(())
        );
    }
}
