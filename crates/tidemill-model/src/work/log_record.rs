//! A line of a program's own log, as one JSON object.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::security::text_direction::turns_text;
use crate::values::day::Day;
use crate::values::id::{JobId, RequestId, TaskId, TenantId};
use crate::values::time::Timestamp;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Every step, for developers who look for a mistake of ours.
    Trace,
    /// What was asked and what came of it, for the same.
    Debug,
    Info,
    /// It may need somebody.
    Warn,
    /// It needs somebody.
    Error,
}

/// What happened, and to what. What is not known is left out.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogRecord<'a> {
    #[serde(serialize_with = "moment")]
    pub ts: Timestamp,
    pub level: LogLevel,
    pub message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<&'a TenantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The execution of a script or a workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<&'a str>,
    /// Where it came from, if it was not this program: `stdout` or `stderr` of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<&'a str>,
    /// How an attempt ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'a str>,
    /// The class of its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// What else belongs to it, behind all others.
    #[serde(flatten)]
    pub further: Further<'a>,
}

/// Names and values beside those that every line may have. Names are written in camel case.
#[derive(Debug, Clone, Copy, Default)]
pub struct Further<'a>(pub &'a [(&'static str, Value)]);

impl Serialize for Further<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(&camel_case(name), value)?;
        }
        map.end()
    }
}

/// A name such as `left_out` as `leftOut`.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.push_str(letters.as_str());
        name
    })
}

impl<'a> LogRecord<'a> {
    pub fn new(ts: Timestamp, level: LogLevel, message: &'a str) -> Self {
        Self {
            ts,
            level,
            message,
            tenant: None,
            job: None,
            task: None,
            request: None,
            run: None,
            attempt: None,
            execution: None,
            worker: None,
            stream: None,
            outcome: None,
            class: None,
            duration_ms: None,
            further: Further::default(),
        }
    }

    /// The line, with its end. Marks that turn the direction of text are escaped: it may be read on a terminal.
    pub fn line(&self) -> String {
        let mut text = serde_json::to_string(self).expect("texts and numbers can be written");
        if text.contains(turns_text) {
            let escaped =
                |c: char| if turns_text(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
            text = text.chars().map(escaped).collect();
        }
        text.push('\n');
        text
    }
}

/// What a line of text begins with: its time and how much it matters.
pub fn text_stamp(at: Timestamp, level: LogLevel) -> String {
    let level = match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    format!("{} {level:<5} ", moment_text(at))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn moment<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&moment_text(*at))
}

fn moment_text(at: Timestamp) -> String {
    let millis = at.millis();
    let (seconds, rest) = (millis / 1_000, millis % 1_000);
    let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{}T{hours:02}:{minutes:02}:{:02}.{rest:03}Z", Day::of(at), seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_text_begins_with_its_time_and_level() {
        let at = Timestamp::clamped(1_763_251_445_007);
        for (level, expected) in [
            (LogLevel::Info, "2025-11-16T00:04:05.007Z info  "),
            (LogLevel::Warn, "2025-11-16T00:04:05.007Z warn  "),
            (LogLevel::Error, "2025-11-16T00:04:05.007Z error "),
        ] {
            assert_eq!(text_stamp(at, level), expected);
        }
    }

    #[test]
    fn a_line_is_one_object_with_what_is_known() {
        let at = Timestamp::clamped(1_763_251_445_007);
        let record = LogRecord::new(at, LogLevel::Warn, "a \"quote\"\nand a line");
        assert_eq!(
            record.line(),
            "{\"ts\":\"2025-11-16T00:04:05.007Z\",\"level\":\"warn\",\"message\":\"a \\\"quote\\\"\\nand a line\"}\n"
        );
        let (tenant, request) = (TenantId::trusted("acme"), RequestId::trusted("r-1"));
        let record = LogRecord { tenant: Some(&tenant), request: Some(&request), run: Some(1), ..record };
        let turned = LogRecord::new(at, LogLevel::Info, "a\u{202e}b").line();
        assert!(turned.contains(r"a\u202eb"), "{turned}");
        assert!(record.line().ends_with(",\"tenant\":\"acme\",\"request\":\"r-1\",\"run\":1}\n"));
        let more = [("error", Value::from("no space")), ("left_out", Value::from(3))];
        let record = LogRecord { further: Further(&more), ..record };
        assert!(record.line().ends_with(",\"run\":1,\"error\":\"no space\",\"leftOut\":3}\n"));
    }
}
