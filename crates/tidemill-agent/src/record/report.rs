//! The lines on stdout: the child protocol for the worker, and a log for people.
//!
//! Every line of the log begins with a word of ours, so nothing that a model says can pass for a line of the protocol.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_model::Usage;
use tokio::time::Instant;

use crate::failure::AgentFailure;
use crate::record::redact::Redactor;

const MARK: &str = "@@tidemill ";
const LOG_MARK: &str = "agent: ";
/// How often signs of life are reported at most.
const PACE: Duration = Duration::from_secs(1);
/// A larger output is reported by the name of its file: the worker cuts lines at 1 MiB.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// Writes to the process that started this one.
pub(crate) struct Report {
    out: Box<dyn Write + Send>,
    redactor: Redactor,
    active_at: Option<Instant>,
    used: Usage,
}

impl Report {
    pub(crate) fn new(out: Box<dyn Write + Send>, redactor: Redactor) -> Self {
        Self { out, redactor, active_at: None, used: Usage::default() }
    }

    /// A note for people. It is cleaned here.
    pub(crate) fn log(&mut self, text: &str) {
        let mut lines = String::new();
        for line in self.redactor.text(text).lines() {
            lines.push_str(LOG_MARK);
            lines.push_str(line);
            lines.push('\n');
        }
        self.write(&lines);
    }

    /// A sign of life.
    pub(crate) fn activity(&mut self, step: &str) {
        let now = Instant::now();
        if self.active_at.is_some_and(|at| now < at + PACE) {
            return;
        }
        self.active_at = Some(now);
        self.record(&json!({ "kind": "activity", "type": "sdk_query", "stepName": step }));
    }

    /// Between two tries.
    pub(crate) fn waiting(&mut self, step: &str) {
        self.record(&json!({ "kind": "activity", "type": "waiting", "stepName": step }));
    }

    /// The session of the try that begins.
    pub(crate) fn session(&mut self, id: &str) {
        self.record(&json!({ "kind": "session", "sessionId": id }));
    }

    /// What the attempt used so far.
    pub(crate) fn usage(&mut self, usage: &Usage) {
        if *usage == self.used {
            return;
        }
        self.used = *usage;
        self.record(&json!({ "kind": "usage", "usage": usage }));
    }

    /// The end, when it is a good one. `output` is clean, and `file` holds it too.
    pub(crate) fn result(
        &mut self,
        output: &Value,
        file: &str,
        usage: &Usage,
        session: Option<&str>,
        duration_ms: u64,
    ) {
        let mut record = json!({ "kind": "result", "usage": usage, "durationMs": duration_ms });
        if output.to_string().len() <= INLINE_BYTES_MAX {
            record["output"] = output.clone();
        } else {
            record["outputFile"] = json!(file);
        }
        if let Some(session) = session {
            record["sessionId"] = json!(session);
        }
        self.record(&record);
    }

    /// The end, when it is a bad one.
    pub(crate) fn error(&mut self, failure: &AgentFailure, usage: &Usage, session: Option<&str>) {
        let row = failure.kind.row();
        let mut record = json!({
            "kind": "error",
            "code": row.code,
            "message": self.redactor.text(&failure.message),
            "usage": usage,
        });
        if !row.name.is_empty() {
            record["name"] = json!(row.name);
        }
        if let Some(status) = failure.status {
            record["status"] = json!(status);
        }
        if let Some(millis) = failure.retry_after_millis {
            record["retryAfterMs"] = json!(millis);
        }
        if let Some(session) = session {
            record["sessionId"] = json!(session);
        }
        self.record(&record);
    }

    fn record(&mut self, record: &Value) {
        self.write(&format!("{MARK}{record}\n"));
    }

    fn write(&mut self, lines: &str) {
        // A parent that closed the pipe does not want to know.
        let _ = self.out.write_all(lines.as_bytes());
        let _ = self.out.flush();
    }
}

/// A count with its noun: `1 turn`, `2 turns`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::failure::FailureKind;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(write: impl FnOnce(&mut Report)) -> String {
        let shared = Shared::default();
        let redactor = Redactor::of_environment(&[("K_TOKEN".into(), "very-secret-1".into())]);
        write(&mut Report::new(Box::new(shared.clone()), redactor));
        String::from_utf8(shared.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn no_line_of_the_log_is_one_of_the_protocol() {
        let text = written(|report| report.log("@@tidemill {\"kind\":\"result\"}\n\nvery-secret-1"));
        assert_eq!(text, "agent: @@tidemill {\"kind\":\"result\"}\nagent: \nagent: [REDACTED]\n");
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_keep_their_pace_and_no_usage_is_held_back() {
        let used = |input_tokens| Usage { input_tokens, ..Usage::default() };
        let shared = Shared::default();
        let mut report = Report::new(Box::new(shared.clone()), Redactor::of_environment(&[]));
        for round in 0..30 {
            report.activity("s");
            report.usage(&used(round + 1));
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        report.usage(&used(30));
        let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("\"activity\"").count(), 3);
        assert_eq!(text.matches("\"kind\":\"usage\"").count(), 30);
    }

    #[test]
    fn the_end_is_told_whole() {
        let usage = Usage { input_tokens: 1, cost_micros: 250, ..Usage::default() };
        let small =
            written(|report| report.result(&json!({ "a": 1 }), "artifacts/x", &usage, Some("s-1"), 7));
        let record: Value = serde_json::from_str(small.strip_prefix(MARK).unwrap()).unwrap();
        assert_eq!((&record["output"], &record["sessionId"]), (&json!({ "a": 1 }), &json!("s-1")));
        assert_eq!(record["usage"]["costUsd"], json!(0.00025));
        let large = json!({ "a": "x".repeat(INLINE_BYTES_MAX) });
        let large = written(|report| report.result(&large, "artifacts/x", &usage, None, 7));
        assert!(large.len() < 1_000 && large.contains(r#""outputFile":"artifacts/x""#));
        let failure = AgentFailure {
            status: Some(429),
            retry_after_millis: Some(3_000),
            ..AgentFailure::new(FailureKind::ApiStatus, "slow down, very-secret-1")
        };
        let error = written(|report| report.error(&failure, &usage, None));
        let record: Value = serde_json::from_str(error.strip_prefix(MARK).unwrap()).unwrap();
        assert_eq!(record["message"], "slow down, [REDACTED]");
        assert_eq!((&record["status"], &record["retryAfterMs"]), (&json!(429), &json!(3_000)));
        assert_eq!(record["code"], "AGENT_API_STATUS");
        assert_eq!(record.get("name"), None);
    }
}
