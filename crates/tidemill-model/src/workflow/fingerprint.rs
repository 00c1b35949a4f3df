//! Fingerprints: which failures of tasks are the same error, though nobody gave it a code.

use sha2::{Digest, Sha256};

use super::error_code::ErrorCode;
use super::normalise::normalise;
use crate::error_class::ErrorCategory;
use crate::hex;

/// The type of codes that are made of a fingerprint.
pub const TASK_TYPE: &str = "99";
/// Hexadecimal digits of the hash that are kept: 64 bits, so that 100,000 groups do not meet by chance.
const DIGITS: usize = 16;

/// The error behind a failed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorFingerprint {
    /// `99` and the hash of class, definition and normalised message; or the code that the task gave itself.
    pub code: ErrorCode,
    /// The normalised message.
    pub message: String,
    pub class: ErrorCategory,
    /// What the task does: the name of its definition.
    pub definition: String,
}

impl ErrorFingerprint {
    /// The fingerprint of a failure. A code that the task itself gave counts if it is one.
    pub fn of(class: ErrorCategory, definition: &str, message: &str, own_code: Option<&str>) -> Self {
        let message = normalise(message);
        let own = own_code.and_then(|code| ErrorCode::new(code).ok());
        let code = own.unwrap_or_else(|| {
            let digest = Sha256::new()
                .chain_update(class.as_str())
                .chain_update([0])
                .chain_update(definition)
                .chain_update([0])
                .chain_update(&message)
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
    fn the_parts_do_not_run_together() {
        let one = code(ErrorCategory::Unknown, "a", "b c");
        assert_ne!(one, code(ErrorCategory::Unknown, "ab", " c"));
    }
}
