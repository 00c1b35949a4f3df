//! Tokens of parked executions: a client reports success or failure, or says that it is still at work.

use serde::Deserialize;
use serde_json::json;

use crate::call::StepFunctionsOperation;
use crate::json_fault::JsonFault;
use crate::wire_answer::{JSON_1_0, WireAnswer};

/// The characters of a token.
pub const TOKEN_CHARS_MAX: usize = 2_048;
/// The bytes of an output.
pub const OUTPUT_BYTES_MAX: usize = 262_144;
/// The characters of an error's name.
pub const ERROR_CHARS_MAX: usize = 256;
/// The characters of a cause.
pub const CAUSE_CHARS_MAX: usize = 32_768;

/// What a client says about a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskReport {
    /// The output is JSON, byte for byte.
    Success {
        task_token: String,
        output: String,
    },
    Failure {
        task_token: String,
        error: Option<String>,
        cause: Option<String>,
    },
    Heartbeat {
        task_token: String,
    },
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenTrouble {
    /// Nobody was given this token.
    #[error("The task token was never given out.")]
    TaskDoesNotExist,
    /// The token was used, has expired or was replaced.
    #[error("The task does not wait for this token any longer: it was used, has expired or was replaced.")]
    TaskTimedOut,
    /// The token cannot be read.
    #[error("The task token is malformed.")]
    InvalidToken,
}

impl TokenTrouble {
    pub fn fault(self) -> JsonFault {
        let code = match self {
            Self::TaskDoesNotExist => "TaskDoesNotExist",
            Self::TaskTimedOut => "TaskTimedOut",
            Self::InvalidToken => "InvalidToken",
        };
        JsonFault::new(code, self.to_string())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    task_token: Option<String>,
    output: Option<String>,
    error: Option<String>,
    cause: Option<String>,
}

impl TaskReport {
    pub fn read(operation: StepFunctionsOperation, body: &[u8]) -> Result<Self, JsonFault> {
        let body: Body = serde_json::from_slice(body).map_err(|error| JsonFault::serialization(&error))?;
        let task_token = body.task_token.ok_or_else(|| null("taskToken"))?;
        if task_token.is_empty() || task_token.chars().count() > TOKEN_CHARS_MAX {
            return Err(length("taskToken", 1, TOKEN_CHARS_MAX));
        }
        if !task_token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenTrouble::InvalidToken.fault());
        }
        Ok(match operation {
            StepFunctionsOperation::SendTaskSuccess => {
                let output = body.output.ok_or_else(|| null("output"))?;
                if output.len() > OUTPUT_BYTES_MAX {
                    return Err(length("output", 0, OUTPUT_BYTES_MAX));
                }
                if let Err(error) = serde_json::from_str::<serde_json::Value>(&output) {
                    return Err(JsonFault::new("InvalidOutput", format!("Invalid Output: {error}")));
                }
                Self::Success { task_token, output }
            }
            StepFunctionsOperation::SendTaskFailure => {
                for (name, text, chars_max) in
                    [("error", &body.error, ERROR_CHARS_MAX), ("cause", &body.cause, CAUSE_CHARS_MAX)]
                {
                    if text.as_ref().is_some_and(|text| text.chars().count() > chars_max) {
                        return Err(length(name, 0, chars_max));
                    }
                }
                Self::Failure { task_token, error: body.error, cause: body.cause }
            }
            StepFunctionsOperation::SendTaskHeartbeat => Self::Heartbeat { task_token },
        })
    }
}

/// The answer to a report that was taken.
pub fn task_report_answer() -> WireAnswer {
    WireAnswer::json(200, JSON_1_0, &json!({}))
}

fn null(name: &str) -> JsonFault {
    JsonFault::validation(format!(
        "1 validation error detected: Value null at '{name}' failed to satisfy constraint: Member must not be null"
    ))
}

fn length(name: &str, min: usize, max: usize) -> JsonFault {
    JsonFault::validation(format!(
        "1 validation error detected: Value at '{name}' failed to satisfy constraint: Member must have length between {min} and {max}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn reports_have_bounds_and_an_output_is_json() {
        use StepFunctionsOperation::{SendTaskFailure, SendTaskHeartbeat, SendTaskSuccess};
        let text = |chars: usize| "x".repeat(chars);
        let output = |bytes: usize| format!("\"{}\"", text(bytes - 2));
        for (operation, body, expected) in [
            (SendTaskSuccess, json!({"taskToken": "t", "output": "1"}), None),
            (SendTaskSuccess, json!({"taskToken": "t", "output": output(OUTPUT_BYTES_MAX)}), None),
            (
                SendTaskSuccess,
                json!({"taskToken": "t", "output": output(OUTPUT_BYTES_MAX + 1)}),
                Some("ValidationException"),
            ),
            (SendTaskSuccess, json!({"taskToken": "t", "output": "{"}), Some("InvalidOutput")),
            (SendTaskSuccess, json!({"taskToken": "t", "output": ""}), Some("InvalidOutput")),
            (SendTaskSuccess, json!({"taskToken": "t"}), Some("ValidationException")),
            (SendTaskSuccess, json!({"output": "1"}), Some("ValidationException")),
            (SendTaskSuccess, json!({"taskToken": "", "output": "1"}), Some("ValidationException")),
            (SendTaskSuccess, json!({"taskToken": "a b", "output": "1"}), Some("InvalidToken")),
            (SendTaskSuccess, json!({"taskToken": 1}), Some("SerializationException")),
            (SendTaskFailure, json!({"taskToken": "t"}), None),
            (SendTaskFailure, json!({"taskToken": "t", "error": text(ERROR_CHARS_MAX)}), None),
            (
                SendTaskFailure,
                json!({"taskToken": "t", "error": text(ERROR_CHARS_MAX + 1)}),
                Some("ValidationException"),
            ),
            (SendTaskFailure, json!({"taskToken": "t", "cause": text(CAUSE_CHARS_MAX)}), None),
            (
                SendTaskFailure,
                json!({"taskToken": "t", "cause": text(CAUSE_CHARS_MAX + 1)}),
                Some("ValidationException"),
            ),
            (SendTaskHeartbeat, json!({"taskToken": text(TOKEN_CHARS_MAX)}), None),
            (SendTaskHeartbeat, json!({"taskToken": text(TOKEN_CHARS_MAX + 1)}), Some("ValidationException")),
        ] {
            let read = TaskReport::read(operation, body.to_string().as_bytes());
            let shown: Value = body.to_string().chars().take(80).collect::<String>().into();
            assert_eq!(read.err().map(|fault| fault.code), expected, "{operation:?} {shown}");
        }
    }
}
