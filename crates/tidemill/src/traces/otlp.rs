//! Spans as a collector reads them: OTLP in its JSON form.

use serde_json::{Value, json};
use tidemill_model::Timestamp;

use super::settings::TraceSettings;
use super::span::Span;

/// The codes of the protocol.
const INTERNAL: u8 = 1;
const OK: u8 = 1;
const ERROR: u8 = 2;

pub(super) fn body_of(spans: &[Span], settings: &TraceSettings) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        ("service.name", Value::from(settings.service.as_str())),
        ("service.version", version.into()),
        ("deployment.environment", settings.environment.as_str().into()),
    ];
    let resource: Vec<Value> = resource.iter().map(|(name, value)| attribute(name, value)).collect();
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "tidemill", "version": version }, "spans": spans }],
    }] })
    .to_string()
}

fn span(span: &Span) -> Value {
    let attributes: Vec<Value> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let status = match &span.error {
        None => json!({ "code": OK }),
        Some(error) => json!({ "code": ERROR, "message": error }),
    };
    let mut value = json!({
        "traceId": span.context.trace_id(),
        "spanId": span.context.span_id(),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end.max(span.start)),
        "attributes": attributes,
        "status": status,
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = parent.span_id().into();
    }
    value
}

fn attribute(name: &str, value: &Value) -> Value {
    let value = match value {
        // Whole numbers are texts here.
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::Bool(value) => json!({ "boolValue": value }),
        other => json!({ "stringValue": other.as_str().unwrap_or_default() }),
    };
    json!({ "key": name, "value": value })
}

fn nanos(at: Timestamp) -> String {
    format!("{}000000", at.millis())
}
