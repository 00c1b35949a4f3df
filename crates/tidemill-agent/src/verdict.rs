//! What the end of a try means: an output, or which failure.
//!
//! An exit status of 0 alone means nothing, and neither does the word `success` in a result: success is exit status 0, a
//! result that is no error, and an output that satisfies the schema.

use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Failure, Kind};
use crate::schema::OutputSchema;
use crate::stream::{ApiRetry, LINE_BYTES_MAX, ResultLine};

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Code(i32),
    Signal(i32),
    /// It did not end, even by SIGKILL, or was not waited for.
    Unknown,
}

impl ProcessEnd {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Code(code) => format!("exit code {code}"),
            Self::Signal(signal) => format!("killed by signal {signal}"),
            Self::Unknown => "not ended".to_owned(),
        }
    }
}

/// Why we ended it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cause {
    /// The time of the step is over.
    StepTimeout(Duration),
    /// The time of the whole task is over.
    NoTimeLeft,
    /// Nothing was heard for so long.
    Idle(Duration),
    LineTooLong,
    /// The API failed in a way that waiting in the session does not help.
    GivenUp(ApiRetry),
    /// We were told to stop.
    Stopped,
}

/// All that is known of a try when it is over.
#[derive(Debug, Clone)]
pub(crate) struct TryEnd {
    pub(crate) process: ProcessEnd,
    pub(crate) cause: Option<Cause>,
    /// It had told its result and did not end, so we ended it.
    pub(crate) lingered: bool,
    pub(crate) result: Option<ResultLine>,
    pub(crate) broken_lines: usize,
    pub(crate) last_api_retry: Option<ApiRetry>,
    /// What the CLI calls the last error of the API.
    pub(crate) last_api_error: Option<String>,
    pub(crate) stderr: String,
}

/// Judges a try.
pub(crate) fn judge(end: &TryEnd, schema: Option<&OutputSchema>) -> Result<Value, Failure> {
    let well_ended = end.process == ProcessEnd::Code(0) || end.lingered;
    if end.cause == Some(Cause::Stopped) {
        return Err(Failure::new(Kind::Stopped, "the agent was told to stop"));
    }
    match &end.result {
        // What came in the last moment still counts.
        Some(result) if !result.is_error && (well_ended || end.cause.is_some()) => accept(result, schema),
        _ if end.cause.is_some() => Err(ended_by_us(end)),
        Some(result) if result.is_error => Err(told(end, result)),
        Some(_) => Err(Failure::new(
            Kind::CliKilled,
            format!("claude told a result and then failed: {}", end.process.text()),
        )),
        None => Err(untold(end)),
    }
}

fn accept(result: &ResultLine, schema: Option<&OutputSchema>) -> Result<Value, Failure> {
    if result.stop_reason.as_deref() == Some("refusal") {
        return Err(refused(result));
    }
    if result.usage.turns == 0 {
        let message = format!("claude took the prompt for a command of its own: {}", said(result));
        return Err(Failure::new(Kind::NotAsked, message));
    }
    match schema {
        Some(schema) => {
            let Some(output) = &result.structured_output else {
                let message =
                    format!("the model gave no output of the wanted form; it said: {}", said(result));
                return Err(Failure::new(Kind::NoOutput, message));
            };
            schema.check(output).map_err(|problems| {
                Failure::new(Kind::BadOutput, format!("the output does not satisfy its schema: {problems}"))
            })?;
            Ok(output.clone())
        }
        None => match result.text.as_deref() {
            Some(text) if !text.trim().is_empty() => Ok(json!({ "result": text })),
            _ => Err(Failure::new(Kind::EmptyResult, "the model answered nothing")),
        },
    }
}

fn ended_by_us(end: &TryEnd) -> Failure {
    let Some(cause) = &end.cause else { return untold(end) };
    match cause {
        Cause::StepTimeout(limit) => {
            Failure::new(Kind::StepTimeout, format!("the step took longer than its {} ms", limit.as_millis()))
        }
        Cause::NoTimeLeft => {
            Failure::new(Kind::StepTimeout, "the time of the task ended before the step did")
        }
        Cause::Idle(limit) => {
            Failure::new(Kind::Idle, format!("nothing was heard of claude for {} ms", limit.as_millis()))
        }
        Cause::LineTooLong => Failure::new(
            Kind::LineTooLong,
            format!("claude printed a line of more than {LINE_BYTES_MAX} bytes"),
        ),
        Cause::GivenUp(retry) => {
            api_failure(retry, &format!("the API answered {}", status_text(retry.status)))
        }
        Cause::Stopped => Failure::new(Kind::Stopped, "the agent was told to stop"),
    }
}

fn api_failure(retry: &ApiRetry, message: &str) -> Failure {
    let kind = if retry.status.is_some() { Kind::ApiStatus } else { Kind::ApiUnreachable };
    Failure {
        status: retry.status,
        retry_after_millis: Some(retry.delay_millis),
        ..Failure::new(kind, message)
    }
}

fn status_text(status: Option<u16>) -> String {
    status.map_or_else(|| "nothing".to_owned(), |status| format!("with status {status}"))
}

/// A result that says it is an error.
fn told(end: &TryEnd, result: &ResultLine) -> Failure {
    let said = said(result);
    if is_lost_session(&said) || is_lost_session(&end.stderr) {
        return Failure::new(Kind::SessionLost, said);
    }
    match result.subtype.as_str() {
        "error_max_turns" => return Failure::new(Kind::MaxTurns, or(&said, "the model used up its turns")),
        "error_max_budget_usd" => {
            return Failure::new(Kind::MaxCost, or(&said, "the model used up its money"));
        }
        "error_max_structured_output_retries" => {
            return Failure::new(
                Kind::OutputRetries,
                or(&said, "the model gave no output of the wanted form"),
            );
        }
        _ => {}
    }
    if let Some(status) = result.api_error_status {
        let retry_after_millis = end
            .last_api_retry
            .as_ref()
            .filter(|retry| retry.status == Some(status))
            .map(|retry| retry.delay_millis);
        return Failure { status: Some(status), retry_after_millis, ..Failure::new(Kind::ApiStatus, said) };
    }
    if result.stop_reason.as_deref() == Some("refusal") {
        return refused(result);
    }
    let lower = said.to_lowercase();
    let api_error = end.last_api_error.as_deref();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let kind = if has(&["not logged in", "/login", "invalid api key"])
        || api_error == Some("authentication_failed")
    {
        let message = format!(
            "{said}; set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, or CLAUDE_CONFIG_DIR to the directory of a login"
        );
        return Failure::new(Kind::NotLoggedIn, message);
    } else if has(&["timed out", "timeout"]) {
        Kind::ApiTimeout
    } else if has(&[
        "unable to connect",
        "connection",
        "econnre",
        "enotfound",
        "eai_again",
        "socket",
        "fetch failed",
    ]) {
        Kind::ApiUnreachable
    } else if has(&["output token maximum", "prompt is too long"]) {
        Kind::AnswerTooLong
    } else if result.subtype == "error_during_execution" {
        Kind::Interrupted
    } else if matches!(api_error, Some("server_error" | "overloaded")) || said.starts_with("API Error") {
        Kind::ApiFailed
    } else {
        Kind::CliFailed
    };
    Failure::new(kind, or(&said, "claude failed and did not say why"))
}

fn refused(result: &ResultLine) -> Failure {
    Failure::new(Kind::Refused, format!("the model refused: {}", said(result)))
}

/// No result at all.
fn untold(end: &TryEnd) -> Failure {
    let printed = end.stderr.trim();
    let how = end.process.text();
    let with_printed = if printed.is_empty() { how.clone() } else { format!("{how}: {printed}") };
    if is_lost_session(printed) {
        return Failure::new(Kind::SessionLost, printed);
    }
    match end.process {
        ProcessEnd::Signal(_) | ProcessEnd::Unknown | ProcessEnd::Code(128..) => {
            Failure::new(Kind::CliKilled, format!("claude told no result: {with_printed}"))
        }
        _ if end.broken_lines > 0 => {
            let message =
                format!("claude told no result, and {} lines that are no JSON ({how})", end.broken_lines);
            Failure::new(Kind::BrokenStream, message)
        }
        ProcessEnd::Code(0) => Failure::new(Kind::NoResult, "claude ended well and told no result"),
        ProcessEnd::Code(_) => {
            let lower = printed.to_lowercase();
            let misused =
                ["unknown option", "invalid json", "json schema", "missing required", "cannot be used with"];
            let is_misused = misused.iter().any(|word| lower.contains(word));
            let kind = if is_misused { Kind::CliMisused } else { Kind::CliFailed };
            Failure::new(kind, format!("claude told no result: {with_printed}"))
        }
    }
}

fn is_lost_session(text: &str) -> bool {
    text.contains("No conversation found")
}

/// What a result says in words.
fn said(result: &ResultLine) -> String {
    let text = result.text.clone().unwrap_or_default();
    let errors = result.errors.join("; ");
    match (text.trim().is_empty(), errors.is_empty()) {
        (false, _) => text,
        (true, false) => errors,
        (true, true) => String::new(),
    }
}

fn or(said: &str, otherwise: &str) -> String {
    if said.is_empty() { otherwise.to_owned() } else { said.to_owned() }
}

#[cfg(test)]
mod tests {
    use tidemill_model::{ErrorCategory, Usage};

    use super::*;

    fn result() -> ResultLine {
        ResultLine {
            subtype: "success".into(),
            text: Some("done".into()),
            stop_reason: Some("end_turn".into()),
            usage: Usage { turns: 1, ..Usage::default() },
            ..ResultLine::default()
        }
    }

    fn error(text: &str) -> ResultLine {
        ResultLine { is_error: true, text: Some(text.into()), ..result() }
    }

    fn ended(code: i32, result: Option<ResultLine>) -> TryEnd {
        TryEnd {
            process: ProcessEnd::Code(code),
            cause: None,
            lingered: false,
            result,
            broken_lines: 0,
            last_api_retry: None,
            last_api_error: None,
            stderr: String::new(),
        }
    }

    fn schema() -> OutputSchema {
        OutputSchema::new(
            &json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "integer" } } }),
        )
        .unwrap()
    }

    #[test]
    fn success_needs_all_of_its_signs() {
        assert_eq!(judge(&ended(0, Some(result())), None), Ok(json!({ "result": "done" })));
        let output =
            |output: Value| ended(0, Some(ResultLine { structured_output: Some(output), ..result() }));
        assert_eq!(judge(&output(json!({ "a": 1 })), Some(&schema())), Ok(json!({ "a": 1 })));
        for (end, kind) in [
            (output(json!({ "a": "1" })), Kind::BadOutput),
            (output(json!({})), Kind::BadOutput),
            (ended(0, Some(result())), Kind::NoOutput),
            (
                ended(1, Some(ResultLine { structured_output: Some(json!({ "a": 1 })), ..result() })),
                Kind::CliKilled,
            ),
            (ended(0, None), Kind::NoResult),
        ] {
            let failure = judge(&end, Some(&schema())).unwrap_err();
            assert_eq!(failure.kind, kind, "{failure}");
        }
    }

    #[test]
    fn a_result_stands_though_the_process_had_to_be_ended() {
        let lingering =
            TryEnd { process: ProcessEnd::Signal(15), lingered: true, ..ended(0, Some(result())) };
        assert!(judge(&lingering, None).is_ok());
        let late =
            TryEnd { cause: Some(Cause::StepTimeout(Duration::from_secs(1))), ..ended(1, Some(result())) };
        assert!(judge(&late, None).is_ok());
        let stopped = TryEnd { cause: Some(Cause::Stopped), ..ended(0, Some(result())) };
        assert_eq!(judge(&stopped, None).unwrap_err().kind, Kind::Stopped);
    }

    /// One row per way to fail: the end, its kind, its class, whether it is tried again here.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn every_failure_has_its_kind_and_class() {
        use ErrorCategory::{
            Auth, Network, NotFound, Parse, RateLimit, ServerError, Timeout, Unknown, Validation,
        };
        let of =
            |subtype: &str| ResultLine { subtype: subtype.into(), is_error: true, text: None, ..result() };
        let status =
            |status: u16| ended(1, Some(ResultLine { api_error_status: Some(status), ..error("API Error") }));
        let caused = |cause: Cause| TryEnd { cause: Some(cause), ..ended(143, None) };
        let printed = |code: i32, stderr: &str| TryEnd { stderr: stderr.into(), ..ended(code, None) };
        let hinted = |text: &str, hint: &str| TryEnd {
            last_api_error: Some(hint.into()),
            ..ended(1, Some(error(text)))
        };
        let retry = |status| ApiRetry { attempt: 1, delay_millis: 60_000, status, error: None };
        let refusal = || ResultLine { stop_reason: Some("refusal".into()), ..result() };
        let second = Duration::from_secs(1);
        for (end, kind, category, again) in vec![
            (
                ended(0, Some(ResultLine { text: Some(" \n".into()), ..result() })),
                Kind::EmptyResult,
                ServerError,
                true,
            ),
            (ended(0, Some(ResultLine { text: None, ..result() })), Kind::EmptyResult, ServerError, true),
            (
                ended(0, Some(ResultLine { usage: Usage::default(), ..result() })),
                Kind::NotAsked,
                Validation,
                false,
            ),
            (ended(1, Some(of("error_max_turns"))), Kind::MaxTurns, Validation, false),
            (ended(1, Some(of("error_max_budget_usd"))), Kind::MaxCost, Validation, false),
            (
                ended(1, Some(of("error_max_structured_output_retries"))),
                Kind::OutputRetries,
                Validation,
                false,
            ),
            (ended(1, Some(of("error_during_execution"))), Kind::Interrupted, ServerError, true),
            (ended(0, Some(refusal())), Kind::Refused, Validation, false),
            (ended(1, Some(ResultLine { is_error: true, ..refusal() })), Kind::Refused, Validation, false),
            (status(400), Kind::ApiStatus, Validation, false),
            (status(401), Kind::ApiStatus, Auth, false),
            (status(403), Kind::ApiStatus, Auth, false),
            (status(404), Kind::ApiStatus, NotFound, false),
            (status(413), Kind::ApiStatus, Validation, false),
            (status(429), Kind::ApiStatus, RateLimit, true),
            (status(500), Kind::ApiStatus, ServerError, true),
            (status(529), Kind::ApiStatus, ServerError, true),
            (
                ended(1, Some(error("API Error: Unable to connect to API (ConnectionRefused)"))),
                Kind::ApiUnreachable,
                Network,
                true,
            ),
            (
                hinted("API Error: Connection refused (ECONNREFUSED)", "server_error"),
                Kind::ApiUnreachable,
                Network,
                true,
            ),
            (
                hinted("API Error: Connection dropped (ECONNRESET).", "server_error"),
                Kind::ApiUnreachable,
                Network,
                true,
            ),
            (hinted("Request timed out", "server_error"), Kind::ApiTimeout, Timeout, true),
            (hinted("something", "server_error"), Kind::ApiFailed, ServerError, true),
            (
                ended(1, Some(error("API Error: API returned a malformed response: SyntaxError"))),
                Kind::ApiFailed,
                ServerError,
                true,
            ),
            (ended(1, Some(error("Not logged in · Please run /login"))), Kind::NotLoggedIn, Auth, false),
            (hinted("no key", "authentication_failed"), Kind::NotLoggedIn, Auth, false),
            (
                ended(
                    1,
                    Some(error("API Error: Claude's response exceeded the 32000 output token maximum.")),
                ),
                Kind::AnswerTooLong,
                Validation,
                false,
            ),
            (ended(1, Some(error("strange"))), Kind::CliFailed, Unknown, false),
            (ended(1, None), Kind::CliFailed, Unknown, false),
            (printed(1, "error: unknown option '--max-turnz'"), Kind::CliMisused, Validation, false),
            (printed(1, "Error: connect ECONNREFUSED"), Kind::CliFailed, Network, true),
            (ended(0, None), Kind::NoResult, ServerError, true),
            (ended(137, None), Kind::CliKilled, ServerError, true),
            (ended(143, Some(result())), Kind::CliKilled, ServerError, true),
            (TryEnd { process: ProcessEnd::Signal(9), ..ended(0, None) }, Kind::CliKilled, ServerError, true),
            (TryEnd { broken_lines: 2, ..ended(0, None) }, Kind::BrokenStream, Parse, false),
            (TryEnd { broken_lines: 2, ..ended(1, None) }, Kind::BrokenStream, Parse, false),
            (caused(Cause::LineTooLong), Kind::LineTooLong, Parse, false),
            (caused(Cause::StepTimeout(second)), Kind::StepTimeout, Timeout, true),
            (caused(Cause::NoTimeLeft), Kind::StepTimeout, Timeout, true),
            (caused(Cause::Idle(second)), Kind::Idle, Timeout, true),
            (caused(Cause::Stopped), Kind::Stopped, Timeout, false),
            (caused(Cause::GivenUp(retry(Some(429)))), Kind::ApiStatus, RateLimit, true),
            (caused(Cause::GivenUp(retry(Some(401)))), Kind::ApiStatus, Auth, false),
            (caused(Cause::GivenUp(retry(None))), Kind::ApiUnreachable, Network, true),
            (printed(1, "No conversation found with session ID: x"), Kind::SessionLost, Unknown, false),
        ] {
            let failure = judge(&end, None).unwrap_err();
            assert_eq!(
                (failure.kind, failure.category(), failure.may_be_tried_again()),
                (kind, category, again),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_delay_that_the_api_asked_for_is_passed_on() {
        let limited = ResultLine { api_error_status: Some(429), ..error("slow down") };
        let retry = ApiRetry { attempt: 1, delay_millis: 3_000, status: Some(429), error: None };
        let end = TryEnd { last_api_retry: Some(retry), ..ended(1, Some(limited)) };
        let failure = judge(&end, None).unwrap_err();
        assert_eq!((failure.status, failure.retry_after_millis), (Some(429), Some(3_000)));
    }
}
