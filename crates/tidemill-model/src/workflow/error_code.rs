//! Codes of errors and ids of executions.

use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::values::hex;
use crate::values::id::{BadId, IdProblem, RequestId, TEXT, check, is_text, text_id, text_schema};

text_id!(
    /// One execution of a workflow: the name that its own engine gave it, or the request id of one of our tasks.
    WorkflowRunId, "executionId", 512, TEXT, is_text, check_execution
);

text_id!(
    /// What went wrong, as a stable name: two digits for the phase, then what tells it from others of the phase.
    ErrorCode, "code", 256, TEXT, is_text, check_code
);

/// A part of a path that clients take out of it before anybody can read it.
fn check_execution(field: &'static str, text: &str) -> Result<(), BadId> {
    let fits = !matches!(text, "." | "..");
    let form = "a name other than . and ..";
    if fits { Ok(()) } else { Err(BadId { field, problem: IdProblem::Form { form } }) }
}

const FORM: &str = "two digits and at least one character more";

fn check_code(field: &'static str, text: &str) -> Result<(), BadId> {
    let bytes = text.as_bytes();
    let fits = bytes.len() > 2 && bytes[..2].iter().all(u8::is_ascii_digit);
    if fits { Ok(()) } else { Err(BadId { field, problem: IdProblem::Form { form: FORM } }) }
}

impl ErrorCode {
    /// The type, by which codes are counted together: its first two digits.
    pub fn error_type(&self) -> ErrorType {
        let bytes = self.as_str().as_bytes();
        ErrorType([bytes[0], bytes[1]])
    }
}

impl From<&RequestId> for WorkflowRunId {
    /// Every request id is an execution id: it is shorter and has fewer characters to choose from.
    fn from(request: &RequestId) -> Self {
        Self::trusted(request.as_str())
    }
}

/// The first two digits of a code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorType([u8; 2]);

impl ErrorType {
    /// The type of these two digits.
    pub fn parse(text: &str) -> Option<Self> {
        match text.as_bytes() {
            [first, second] if first.is_ascii_digit() && second.is_ascii_digit() => {
                Some(Self([*first, *second]))
            }
            _ => None,
        }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a type is two digits")
    }
}

impl fmt::Display for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("a type of errors is two digits"))
    }
}

text_schema!(ErrorType, json_schema!({ "type": "string", "pattern": "^[0-9]{2}$" }));

/// The SHA-256 that tells one validation error from another: 64 lower-case hexadecimal digits.
pub fn validation_hash(message: &str, path: &str, county: &str) -> String {
    let digest = Sha256::new()
        .chain_update(message)
        .chain_update("#")
        .chain_update(path)
        .chain_update("#")
        .chain_update(county)
        .finalize();
    hex::encode(&digest)
}

/// The code of a validation error: `30` and its hash.
pub fn validation_code(message: &str, path: &str, county: &str) -> ErrorCode {
    ErrorCode::trusted(&format!("30{}", validation_hash(message, path, county)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_two_digits_and_more() {
        for (text, fits) in [
            ("", false),
            ("2", false),
            ("20", false),
            ("X1", false),
            ("X10", false),
            ("2X0", false),
            ("٢٠x", false),
            ("20#", false),
            ("20\n", false),
            ("200", true),
            ("20Cook", true),
            ("20St. Louis", true),
            ("01002Hamilton", true),
            ("20é", true),
        ] {
            assert_eq!(ErrorCode::new(text).is_ok(), fits, "{text}");
        }
        assert_eq!(ErrorCode::new("20Cook").unwrap().error_type().as_str(), "20");
        assert!(ErrorCode::new(format!("20{}", "x".repeat(254))).is_ok());
        assert_eq!(
            ErrorCode::new("X1").unwrap_err().to_string(),
            "code is not of the form two digits and at least one character more"
        );
        assert_eq!(ErrorType::parse("7"), None);
        assert_eq!(ErrorType::parse("a7"), None);
    }

    #[test]
    fn the_hash_is_that_of_message_path_and_county() {
        // As sha256sum prints it for the text `must be string#/a/b#Cook`.
        let expected = "1027f7ed3c6d513c0d73f5df2f4386701118cbf652cee73b5424c3dc002475a5";
        assert_eq!(validation_hash("must be string", "/a/b", "Cook"), expected);
        let code = validation_code("must be string", "/a/b", "Cook");
        assert_eq!(code.as_str(), format!("30{expected}"));
        assert_eq!(ErrorCode::new(code.as_str()), Ok(code));
        let other = validation_hash("must be string", "/a", "b#Cook");
        assert_ne!(other, expected);
        assert_ne!(validation_hash("é", "", ""), validation_hash("e", "", ""), "bytes of UTF-8");
    }
}
