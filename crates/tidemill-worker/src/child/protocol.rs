//! The lines by which a child tells more than its exit status.
//!
//! Such a line begins with a fixed mark and goes on with a JSON object. Whatever cannot be understood is an ordinary
//! line of the log: a child is never failed for what it prints.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tidemill_engine::engine::limits::NAME_BYTES_MAX;
use tidemill_model::events::properties::ActivityKind;
use tidemill_model::{Json, SessionId, Usage};

use super::error_record::ErrorRecord;

/// What the lines of the protocol begin with.
pub(crate) const MARK: &[u8] = b"@@tidemill ";

/// The kind of a line that tells nothing but the session.
pub(crate) const SESSION: &str = "session";

/// One line of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) record: Record,
    /// The agent's session. Any line may tell it, so that it is known however the attempt ends.
    pub(crate) session_id: Option<SessionId>,
}

/// What a line says by its kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    Activity {
        kind: ActivityKind,
        step_name: String,
    },
    Result(ResultRecord),
    Error(ErrorRecord),
    /// What the attempt has used so far.
    Usage(Usage),
    /// An event of the child's own, or something of a later release.
    Other(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResultRecord {
    pub(crate) output: ResultOutput,
    pub(crate) usage: Option<Usage>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResultOutput {
    Inline(Json),
    /// A file inside the output directory that holds it.
    File(String),
    /// The record tells what was used and leaves the output to the other ways.
    Absent,
}

/// All fields of all kinds. Those that do not fit are passed over, but for the output.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    kind: String,
    #[serde(default, deserialize_with = "given")]
    output: Option<Json>,
    #[serde(default)]
    output_file: Value,
    #[serde(default)]
    usage: Value,
    #[serde(default, rename = "type")]
    activity: Value,
    #[serde(default)]
    step_name: Value,
    #[serde(default)]
    name: Value,
    #[serde(default)]
    code: Value,
    #[serde(default)]
    status: Value,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    retry_after_ms: Value,
    #[serde(default)]
    session_id: Value,
}

/// An output that is null is an output all the same.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// Reads a line; `None` when it is no line of the protocol, or not a sound one.
pub(crate) fn parse(line: &[u8]) -> Option<Told> {
    let fields: Fields = serde_json::from_slice(line.strip_prefix(MARK)?).ok()?;
    let session_id = text(&fields.session_id).and_then(|id| SessionId::new(id).ok());
    let usage = usage(fields.usage);
    let record = match fields.kind.as_str() {
        "activity" => Record::Activity {
            kind: serde_json::from_value(fields.activity).unwrap_or(ActivityKind::StepRunning),
            step_name: text(&fields.step_name).unwrap_or_default(),
        },
        "result" => {
            let output = match (fields.output, text(&fields.output_file)) {
                (Some(output), _) => ResultOutput::Inline(output),
                (None, Some(file)) => ResultOutput::File(file),
                (None, None) => ResultOutput::Absent,
            };
            Record::Result(ResultRecord { output, usage })
        }
        "error" => Record::Error(ErrorRecord {
            name: text(&fields.name),
            code: text(&fields.code),
            status: text(&fields.status).and_then(|status| status.parse().ok()),
            message: text(&fields.message),
            retry_after_millis: text(&fields.retry_after_ms).and_then(|millis| millis.parse().ok()),
            usage,
        }),
        "usage" => Record::Usage(usage.unwrap_or_default()),
        _ => Record::Other(fields.kind),
    };
    Some(Told { record, session_id })
}

fn usage(value: Value) -> Option<Usage> {
    value.is_object().then(|| serde_json::from_value(value).ok()).flatten()
}

/// As much of a step's name as a heartbeat takes.
pub(crate) fn step_name(text: &str) -> String {
    let mut name = String::new();
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        if name.len() + letter.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        name.push(letter);
    }
    name
}

/// A text, or a number as a text: programs write codes and statuses either way.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(json: &str) -> Option<Record> {
        parse(format!("@@tidemill {json}").as_bytes()).map(|told| told.record)
    }

    fn result(output: ResultOutput) -> Record {
        Record::Result(ResultRecord { output, usage: None })
    }

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn records_are_understood() {
        for (line, expected) in [
            (r#"{"kind":"result","output":{"a":1}}"#, Some(result(ResultOutput::Inline(json(r#"{"a":1}"#))))),
            (r#"{"kind":"result","output":null}"#, Some(result(ResultOutput::Inline(json("null"))))),
            (r#"{"kind":"result","output":[1e400]}"#, Some(result(ResultOutput::Inline(json("[1e400]"))))),
            (
                r#"{"kind":"result","outputFile":"artifacts/x"}"#,
                Some(result(ResultOutput::File("artifacts/x".into()))),
            ),
            (r#"{"kind":"result"}"#, Some(result(ResultOutput::Absent))),
            (
                r#"{"kind":"result","usage":"odd","outputFile":7.5}"#,
                Some(result(ResultOutput::File("7.5".into()))),
            ),
            (r#"{"kind":"progress","percent":5}"#, Some(Record::Other("progress".into()))),
            (r#"{"kind":7}"#, None),
            (r#"{"output":{}}"#, None),
            ("{", None),
            ("[]", None),
        ] {
            assert_eq!(record(line), expected, "{line}");
        }
        assert_eq!(parse(br#"@@tidemill{"kind":"result"}"#), None, "the mark ends with a space");
        assert_eq!(parse(br#" @@tidemill {"kind":"result"}"#), None);
    }

    #[test]
    fn usage_and_errors_are_read_leniently() {
        let usage = r#"{"kind":"result","output":{},"usage":{"inputTokens":3,"outputTokens":4,"other":1}}"#;
        let Some(Record::Result(ResultRecord { usage: Some(usage), .. })) = record(usage) else { panic!() };
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_read_tokens), (3, 4, 0));
        let error =
            r#"{"kind":"error","name":"E","code":429,"status":"429","message":"slow","retryAfterMs":1500}"#;
        let expected = ErrorRecord {
            name: Some("E".into()),
            code: Some("429".into()),
            status: Some(429),
            message: Some("slow".into()),
            retry_after_millis: Some(1_500),
            usage: None,
        };
        assert_eq!(record(error), Some(Record::Error(expected)));
        assert_eq!(
            record(r#"{"kind":"activity","type":"odd","stepName":"x"}"#),
            Some(Record::Activity { kind: ActivityKind::StepRunning, step_name: "x".into() })
        );
        assert_eq!(
            record(r#"{"kind":"activity","type":"sdk_query"}"#),
            Some(Record::Activity { kind: ActivityKind::SdkQuery, step_name: String::new() })
        );
    }

    #[test]
    fn any_line_may_tell_the_session_and_failures_tell_what_they_used() {
        let told = |json: &str| parse(format!("@@tidemill {json}").as_bytes()).unwrap();
        for (line, expected) in [
            (r#"{"kind":"activity","sessionId":"s-1"}"#, Some("s-1")),
            (r#"{"kind":"session","sessionId":"s-1"}"#, Some("s-1")),
            (r#"{"kind":"result","sessionId":"a b"}"#, None),
            (r#"{"kind":"result","sessionId":null}"#, None),
            (r#"{"kind":"usage"}"#, None),
        ] {
            let session = told(line).session_id;
            assert_eq!(session.as_ref().map(SessionId::as_str), expected, "{line}");
        }
        let used = Usage { input_tokens: 7, cost_micros: 250, ..Usage::default() };
        let line = r#"{"kind":"usage","usage":{"input_tokens":7,"costUsd":0.00025}}"#;
        assert_eq!(told(line).record, Record::Usage(used));
        let line = r#"{"kind":"error","message":"x","usage":{"inputTokens":7,"costUsd":0.00025}}"#;
        let Record::Error(error) = told(line).record else { panic!() };
        assert_eq!(error.usage, Some(used));
    }

    #[test]
    fn a_steps_name_is_cut_to_what_a_heartbeat_takes() {
        for (name, expected) in
            [("a\u{0}\nb", "ab".to_owned()), (&"ä".repeat(150), "ä".repeat(100)), ("", String::new())]
        {
            assert_eq!(step_name(name), expected);
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_left(line in ".{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = record(&line);
            let _ = record(&format!(r#"{{"kind":"result",{line}}}"#));
            let _ = parse(&[MARK, &bytes].concat());
        }
    }
}
