//! What the end of a try means: an output, or which failure.
//!
//! An exit status of 0 alone means nothing, and neither does the word `success` in a result: success is exit status 0, a
//! result that is no error, and an output that satisfies the schema.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::stream::{ApiRetry, LINE_BYTES_MAX, ResultLine};
use crate::failure::{AgentFailure, FailureKind};
use crate::prompting::schema::OutputSchema;

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
    /// The CLI was silent for this long.
    Idle(Duration),
    LineTooLong,
    /// The API failed in a way that waiting in the session does not help.
    GivenUp(ApiRetry),
    /// A signal asked us to stop.
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
pub(crate) fn judge(end: &TryEnd, schema: Option<&OutputSchema>) -> Result<Value, AgentFailure> {
    let well_ended = end.process == ProcessEnd::Code(0) || end.lingered;
    if end.cause == Some(Cause::Stopped) {
        return Err(AgentFailure::new(FailureKind::Stopped, "the agent was told to stop"));
    }
    match &end.result {
        // What came in the last moment still counts.
        Some(result) if !result.is_error && (well_ended || end.cause.is_some()) => accept(result, schema),
        _ if end.cause.is_some() => Err(ended_by_us(end)),
        Some(result) if result.is_error => Err(failure_of_result(end, result)),
        Some(_) => Err(AgentFailure::new(
            FailureKind::CliKilled,
            format!("claude told a result and then failed: {}", end.process.text()),
        )),
        None => Err(untold(end)),
    }
}

fn accept(result: &ResultLine, schema: Option<&OutputSchema>) -> Result<Value, AgentFailure> {
    if result.stop_reason.as_deref() == Some("refusal") {
        return Err(refused(result));
    }
    if result.usage.turns == 0 {
        let message = format!("claude took the prompt for a command of its own: {}", text_of_result(result));
        return Err(AgentFailure::new(FailureKind::NotAsked, message));
    }
    match schema {
        Some(schema) => {
            let Some(output) = &result.structured_output else {
                let message = format!(
                    "the model gave no output of the wanted form; it said: {}",
                    text_of_result(result)
                );
                return Err(AgentFailure::new(FailureKind::NoOutput, message));
            };
            schema.check(output).map_err(|problems| {
                AgentFailure::new(
                    FailureKind::BadOutput,
                    format!("the output does not satisfy its schema: {problems}"),
                )
            })?;
            Ok(output.clone())
        }
        None => match result.text.as_deref() {
            Some(text) if !text.trim().is_empty() => Ok(json!({ "result": text })),
            _ => Err(AgentFailure::new(FailureKind::EmptyResult, "the model answered nothing")),
        },
    }
}

fn ended_by_us(end: &TryEnd) -> AgentFailure {
    let Some(cause) = &end.cause else { return untold(end) };
    match cause {
        Cause::StepTimeout(limit) => AgentFailure::new(
            FailureKind::StepTimeout,
            format!("the step took longer than its {} ms", limit.as_millis()),
        ),
        Cause::NoTimeLeft => {
            AgentFailure::new(FailureKind::StepTimeout, "the time of the task ended before the step did")
        }
        Cause::Idle(limit) => AgentFailure::new(
            FailureKind::Idle,
            format!("nothing was heard of claude for {} ms", limit.as_millis()),
        ),
        Cause::LineTooLong => AgentFailure::new(
            FailureKind::LineTooLong,
            format!("claude printed a line of more than {LINE_BYTES_MAX} bytes"),
        ),
        Cause::GivenUp(retry) => api_failure(retry, &with_hint(given_up(end, retry), retry.status)),
        Cause::Stopped => AgentFailure::new(FailureKind::Stopped, "the agent was told to stop"),
    }
}

/// What the API said, if the CLI told it before it was ended; else what the CLI calls it.
fn given_up(end: &TryEnd, retry: &ApiRetry) -> String {
    let of_status = |result: &&ResultLine| retry.status.is_some() && result.api_error_status == retry.status;
    let said = end.result.as_ref().filter(of_status).map(text_of_result).unwrap_or_default();
    if !said.is_empty() {
        return said;
    }
    let called = retry.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    format!("the API answered {}{called}", status_text(retry.status))
}

/// A message with what to do about a status that tells of credentials.
fn with_hint(message: String, status: Option<u16>) -> String {
    match status {
        Some(401 | 403) => format!("{message}; check ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN"),
        _ => message,
    }
}

fn api_failure(retry: &ApiRetry, message: &str) -> AgentFailure {
    let kind = if retry.status.is_some() { FailureKind::ApiStatus } else { FailureKind::ApiUnreachable };
    AgentFailure {
        status: retry.status,
        retry_after_millis: Some(retry.delay_millis),
        ..AgentFailure::new(kind, message)
    }
}

fn status_text(status: Option<u16>) -> String {
    status.map_or_else(|| "nothing".to_owned(), |status| format!("with status {status}"))
}

/// A result that says it is an error.
fn failure_of_result(end: &TryEnd, result: &ResultLine) -> AgentFailure {
    let said = text_of_result(result);
    if is_lost_session(&said) || is_lost_session(&end.stderr) {
        return AgentFailure::new(FailureKind::SessionLost, said);
    }
    match result.subtype.as_str() {
        "error_max_turns" => {
            return AgentFailure::new(FailureKind::MaxTurns, or(&said, "the model used up its turns"));
        }
        "error_max_budget_usd" => {
            return AgentFailure::new(FailureKind::MaxCost, or(&said, "the model used up its money"));
        }
        "error_max_structured_output_retries" => {
            return AgentFailure::new(
                FailureKind::OutputRetries,
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
        let otherwise = format!("the API answered {}", status_text(Some(status)));
        let message = with_hint(or(&said, &otherwise), Some(status));
        return AgentFailure {
            status: Some(status),
            retry_after_millis,
            ..AgentFailure::new(FailureKind::ApiStatus, message)
        };
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
        return AgentFailure::new(FailureKind::NotLoggedIn, message);
    } else if has(&["timed out", "timeout"]) {
        FailureKind::ApiTimeout
    } else if has(&[
        "unable to connect",
        "connection",
        "econnre",
        "enotfound",
        "eai_again",
        "socket",
        "fetch failed",
    ]) {
        FailureKind::ApiUnreachable
    } else if has(&["output token maximum", "prompt is too long"]) {
        FailureKind::AnswerTooLong
    } else if result.subtype == "error_during_execution" {
        FailureKind::Interrupted
    } else if matches!(api_error, Some("server_error" | "overloaded")) || said.starts_with("API Error") {
        FailureKind::ApiFailed
    } else {
        FailureKind::CliFailed
    };
    AgentFailure::new(kind, or(&said, "claude failed and did not say why"))
}

fn refused(result: &ResultLine) -> AgentFailure {
    AgentFailure::new(FailureKind::Refused, format!("the model refused: {}", text_of_result(result)))
}

/// No result at all.
fn untold(end: &TryEnd) -> AgentFailure {
    let printed = end.stderr.trim();
    let how = end.process.text();
    let with_printed = if printed.is_empty() { how.clone() } else { format!("{how}: {printed}") };
    if is_lost_session(printed) {
        return AgentFailure::new(FailureKind::SessionLost, printed);
    }
    match end.process {
        ProcessEnd::Signal(_) | ProcessEnd::Unknown | ProcessEnd::Code(128..) => {
            AgentFailure::new(FailureKind::CliKilled, format!("claude told no result: {with_printed}"))
        }
        _ if end.broken_lines > 0 => {
            let lines = match end.broken_lines {
                1 => "1 line that is".to_owned(),
                lines => format!("{lines} lines that are"),
            };
            let message = format!("claude told no result, and {lines} no JSON ({how})");
            AgentFailure::new(FailureKind::BrokenStream, message)
        }
        ProcessEnd::Code(0) => {
            AgentFailure::new(FailureKind::NoResult, "claude ended well and told no result")
        }
        ProcessEnd::Code(_) => {
            let lower = printed.to_lowercase();
            let misused =
                ["unknown option", "invalid json", "json schema", "missing required", "cannot be used with"];
            let is_misused = misused.iter().any(|word| lower.contains(word));
            let kind = if is_misused { FailureKind::CliMisused } else { FailureKind::CliFailed };
            AgentFailure::new(kind, format!("claude told no result: {with_printed}"))
        }
    }
}

fn is_lost_session(text: &str) -> bool {
    text.contains("No conversation found")
}

/// What a result says in words.
fn text_of_result(result: &ResultLine) -> String {
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
            (output(json!({ "a": "1" })), FailureKind::BadOutput),
            (output(json!({})), FailureKind::BadOutput),
            (ended(0, Some(result())), FailureKind::NoOutput),
            (
                ended(1, Some(ResultLine { structured_output: Some(json!({ "a": 1 })), ..result() })),
                FailureKind::CliKilled,
            ),
            (ended(0, None), FailureKind::NoResult),
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
        assert_eq!(judge(&stopped, None).unwrap_err().kind, FailureKind::Stopped);
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
                FailureKind::EmptyResult,
                ServerError,
                true,
            ),
            (
                ended(0, Some(ResultLine { text: None, ..result() })),
                FailureKind::EmptyResult,
                ServerError,
                true,
            ),
            (
                ended(0, Some(ResultLine { usage: Usage::default(), ..result() })),
                FailureKind::NotAsked,
                Validation,
                false,
            ),
            (ended(1, Some(of("error_max_turns"))), FailureKind::MaxTurns, Validation, false),
            (ended(1, Some(of("error_max_budget_usd"))), FailureKind::MaxCost, Validation, false),
            (
                ended(1, Some(of("error_max_structured_output_retries"))),
                FailureKind::OutputRetries,
                Validation,
                false,
            ),
            (ended(1, Some(of("error_during_execution"))), FailureKind::Interrupted, ServerError, true),
            (ended(0, Some(refusal())), FailureKind::Refused, Validation, false),
            (
                ended(1, Some(ResultLine { is_error: true, ..refusal() })),
                FailureKind::Refused,
                Validation,
                false,
            ),
            (status(400), FailureKind::ApiStatus, Validation, false),
            (status(401), FailureKind::ApiStatus, Auth, false),
            (status(403), FailureKind::ApiStatus, Auth, false),
            (status(404), FailureKind::ApiStatus, NotFound, false),
            (status(413), FailureKind::ApiStatus, Validation, false),
            (status(429), FailureKind::ApiStatus, RateLimit, true),
            (status(500), FailureKind::ApiStatus, ServerError, true),
            (status(529), FailureKind::ApiStatus, ServerError, true),
            (
                ended(1, Some(error("API Error: Unable to connect to API (ConnectionRefused)"))),
                FailureKind::ApiUnreachable,
                Network,
                true,
            ),
            (
                hinted("API Error: Connection refused (ECONNREFUSED)", "server_error"),
                FailureKind::ApiUnreachable,
                Network,
                true,
            ),
            (
                hinted("API Error: Connection dropped (ECONNRESET).", "server_error"),
                FailureKind::ApiUnreachable,
                Network,
                true,
            ),
            (hinted("Request timed out", "server_error"), FailureKind::ApiTimeout, Timeout, true),
            (hinted("something", "server_error"), FailureKind::ApiFailed, ServerError, true),
            (
                ended(1, Some(error("API Error: API returned a malformed response: SyntaxError"))),
                FailureKind::ApiFailed,
                ServerError,
                true,
            ),
            (
                ended(1, Some(error("Not logged in · Please run /login"))),
                FailureKind::NotLoggedIn,
                Auth,
                false,
            ),
            (hinted("no key", "authentication_failed"), FailureKind::NotLoggedIn, Auth, false),
            (
                ended(
                    1,
                    Some(error("API Error: Claude's response exceeded the 32000 output token maximum.")),
                ),
                FailureKind::AnswerTooLong,
                Validation,
                false,
            ),
            (ended(1, Some(error("strange"))), FailureKind::CliFailed, Unknown, false),
            (ended(1, None), FailureKind::CliFailed, Unknown, false),
            (printed(1, "error: unknown option '--max-turnz'"), FailureKind::CliMisused, Validation, false),
            (printed(1, "Error: connect ECONNREFUSED"), FailureKind::CliFailed, Network, true),
            (ended(0, None), FailureKind::NoResult, ServerError, true),
            (ended(137, None), FailureKind::CliKilled, ServerError, true),
            (ended(143, Some(result())), FailureKind::CliKilled, ServerError, true),
            (
                TryEnd { process: ProcessEnd::Signal(9), ..ended(0, None) },
                FailureKind::CliKilled,
                ServerError,
                true,
            ),
            (TryEnd { broken_lines: 2, ..ended(0, None) }, FailureKind::BrokenStream, Parse, false),
            (TryEnd { broken_lines: 2, ..ended(1, None) }, FailureKind::BrokenStream, Parse, false),
            (caused(Cause::LineTooLong), FailureKind::LineTooLong, Parse, false),
            (caused(Cause::StepTimeout(second)), FailureKind::StepTimeout, Timeout, true),
            (caused(Cause::NoTimeLeft), FailureKind::StepTimeout, Timeout, true),
            (caused(Cause::Idle(second)), FailureKind::Idle, Timeout, true),
            (caused(Cause::Stopped), FailureKind::Stopped, Timeout, false),
            (caused(Cause::GivenUp(retry(Some(429)))), FailureKind::ApiStatus, RateLimit, true),
            (caused(Cause::GivenUp(retry(Some(401)))), FailureKind::ApiStatus, Auth, false),
            (caused(Cause::GivenUp(retry(None))), FailureKind::ApiUnreachable, Network, true),
            (
                printed(1, "No conversation found with session ID: x"),
                FailureKind::SessionLost,
                Unknown,
                false,
            ),
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
    fn what_the_api_says_is_kept_with_a_hint_about_credentials() {
        let status =
            |status, text: &str| ended(1, Some(ResultLine { api_error_status: Some(status), ..error(text) }));
        let given_up = |code, error: Option<&str>, end: TryEnd| {
            let retry = ApiRetry {
                attempt: 1,
                delay_millis: 500,
                status: Some(code),
                error: error.map(str::to_owned),
            };
            TryEnd { cause: Some(Cause::GivenUp(retry)), ..end }
        };
        let hint = "; check ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN";
        let said = "API Error: 401 invalid x-api-key";
        for (end, expected) in [
            (status(401, said), format!("{said}{hint}")),
            (status(403, "API Error: 403 no"), format!("API Error: 403 no{hint}")),
            (status(429, "API Error: slow"), "API Error: slow".to_owned()),
            (status(401, ""), format!("the API answered with status 401{hint}")),
            (given_up(401, None, status(401, said)), format!("{said}{hint}")),
            (
                given_up(401, Some("authentication_failed"), ended(1, Some(error("interrupted")))),
                format!("the API answered with status 401 (authentication_failed){hint}"),
            ),
            (given_up(429, None, ended(1, None)), "the API answered with status 429".to_owned()),
        ] {
            assert_eq!(judge(&end, None).unwrap_err().message, expected);
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
