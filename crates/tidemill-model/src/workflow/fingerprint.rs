//! Fingerprints: which failures of tasks are the same error, though nobody gave it a code.

use sha2::{Digest, Sha256};

use super::error_code::ErrorCode;
use super::normalise::normalise;
use crate::values::hex;
use crate::work::error_class::ErrorCategory;

/// The type of codes that are made of a fingerprint.
pub const TASK_TYPE: &str = "99";
/// Hexadecimal digits of the hash that are kept: 64 bits, so that 100,000 groups do not meet by chance.
const DIGITS: usize = 16;

/// How codes of the runner for agents begin.
const AGENT: &str = "AGENT_";
const AGENT_CODE_CHARS_MAX: usize = 64;
/// What stands between an error of an agent and what its model said.
const SAID: &str = "; it said: ";

/// The code, if it is one of the runner for agents, such as `AGENT_NO_OUTPUT`.
pub fn agent_code(code: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    let fits = code.len() <= AGENT_CODE_CHARS_MAX && code.starts_with(AGENT) && code.bytes().all(is_plain);
    fits.then_some(code)
}

/// The error behind a failed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorFingerprint {
    /// `99` and the hash of class, definition and normalised message, or code of the runner for agents; or the code that the
    /// task gave itself.
    pub code: ErrorCode,
    /// The normalised message.
    pub message: String,
    pub class: ErrorCategory,
    /// What the task does: the name of its definition.
    pub definition: String,
}

impl ErrorFingerprint {
    /// The fingerprint of a failure. A code that the task itself gave counts if it is one. One of the runner for agents says
    /// what went wrong whatever the model said, so it takes the place of the message.
    pub fn of(class: ErrorCategory, definition: &str, message: &str, own_code: Option<&str>) -> Self {
        let told = own_code.and_then(agent_code);
        let message = match told.and_then(|told| Some((told, message.split_once(SAID)?.0))) {
            Some((told, before)) => normalise(&format!("{before} ({told})")),
            None => normalise(message),
        };
        let own = own_code.and_then(|code| ErrorCode::new(code).ok());
        let code = own.unwrap_or_else(|| {
            let digest = Sha256::new()
                .chain_update(class.as_str())
                .chain_update([0])
                .chain_update(definition)
                .chain_update([0])
                .chain_update(told.unwrap_or(&message))
                .finalize();
            ErrorCode::trusted(&format!("{TASK_TYPE}{}", &hex::encode(&digest)[..DIGITS]))
        });
        Self { code, message, class, definition: definition.to_owned() }
    }

    /// The group for failures that come after the number of groups has reached its limit.
    pub fn other() -> ErrorCode {
        ErrorCode::trusted("99other")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(class: ErrorCategory, definition: &str, message: &str) -> ErrorCode {
        ErrorFingerprint::of(class, definition, message, None).code
    }

    #[test]
    fn the_same_error_has_the_same_code() {
        use ErrorCategory::{Network, Timeout};
        let first = code(Network, "fetch", "connect ECONNREFUSED 10.0.0.1:443 after 31 ms");
        assert_eq!(first, code(Network, "fetch", "connect ECONNREFUSED 10.9.8.7:80 after 4012 ms"));
        assert_ne!(first, code(Timeout, "fetch", "connect ECONNREFUSED 10.0.0.1:443 after 31 ms"));
        assert_ne!(first, code(Network, "load", "connect ECONNREFUSED 10.0.0.1:443 after 31 ms"));
        assert_ne!(first, code(Network, "fetch", "connect ECONNRESET 10.0.0.1:443 after 31 ms"));
        assert_eq!(first.as_str().len(), 18);
        assert_eq!(first.error_type().as_str(), TASK_TYPE);
        assert_eq!(ErrorCode::new(first.as_str()), Ok(first));
        assert_eq!(ErrorCode::new(ErrorFingerprint::other().as_str()), Ok(ErrorFingerprint::other()));
    }

    #[test]
    fn a_code_of_its_own_counts_if_it_is_one() {
        let of = |own| ErrorFingerprint::of(ErrorCategory::Unknown, "svl", "row 7 is bad", own).code;
        assert_eq!(of(Some("20Cook")).as_str(), "20Cook");
        for no_code in [None, Some("ECONNRESET"), Some(""), Some("42")] {
            assert_eq!(of(no_code).error_type().as_str(), TASK_TYPE, "{no_code:?}");
        }
    }

    #[test]
    fn an_agents_error_is_told_by_its_code_and_not_by_what_the_model_said() {
        let of =
            |message: &str, own| ErrorFingerprint::of(ErrorCategory::Validation, "ask", message, Some(own));
        let first = of(
            "no output of the wanted form; it said: I would rather not (AGENT_NO_OUTPUT)",
            "AGENT_NO_OUTPUT",
        );
        let second = of("no output of the wanted form; it said: Sure! (AGENT_NO_OUTPUT)", "AGENT_NO_OUTPUT");
        assert_eq!(first, second);
        assert_eq!(first.message, "no output of the wanted form (AGENT_NO_OUTPUT)");
        assert_eq!(first.code.error_type().as_str(), TASK_TYPE);
        assert_ne!(first.code, of("the answer is empty", "AGENT_EMPTY_RESULT").code);
        let other = ErrorFingerprint::of(ErrorCategory::Validation, "other", "x", Some("AGENT_NO_OUTPUT"));
        assert_ne!(first.code, other.code, "definitions are told apart");
        for no_code in ["AGENT_no", "agent", "AGENT_X Y", "XAGENT_NO", &"AGENT_A".repeat(20)] {
            assert_eq!(agent_code(no_code), None, "{no_code}");
        }
    }

    #[test]
    fn the_parts_do_not_run_together() {
        let one = code(ErrorCategory::Unknown, "a", "b c");
        assert_ne!(one, code(ErrorCategory::Unknown, "ab", " c"));
    }
}
