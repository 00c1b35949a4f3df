//! Time: epoch milliseconds, always 13 digits, so that text keys sort like numbers.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// A moment in epoch milliseconds, between 2001 and 2286.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

/// A number of milliseconds that is not a 13-digit moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be epoch milliseconds with 13 digits")]
pub struct BadTimestamp {
    pub field: &'static str,
    pub value: u64,
}

impl Timestamp {
    pub const MIN: Self = Self(1_000_000_000_000);
    pub const MAX: Self = Self(9_999_999_999_999);

    pub fn new(field: &'static str, millis: u64) -> Result<Self, BadTimestamp> {
        if (Self::MIN.0..=Self::MAX.0).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(BadTimestamp { field, value: millis })
        }
    }

    /// The nearest moment that can be written as a key.
    pub fn clamped(millis: u64) -> Self {
        Self(millis.clamp(Self::MIN.0, Self::MAX.0))
    }

    pub fn millis(self) -> u64 {
        self.0
    }

    /// The 13 digits of this moment, as they stand in keys.
    pub fn digits(self) -> [u8; 13] {
        let mut digits = [b'0'; 13];
        let mut rest = self.0;
        for digit in digits.iter_mut().rev() {
            *digit += u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        digits
    }

    /// This moment and `millis` more, held at the last one that can be written.
    #[must_use]
    pub fn plus(self, millis: u64) -> Self {
        Self::clamped(self.0.saturating_add(millis))
    }

    #[must_use]
    pub fn minus(self, millis: u64) -> Self {
        Self::clamped(self.0.saturating_sub(millis))
    }

    /// Milliseconds from `earlier` to this moment; 0 when it lies later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "integer",
            "description": "Epoch milliseconds.",
            "minimum": Self::MIN.0,
            "maximum": Self::MAX.0
        })
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let millis = u64::deserialize(deserializer)?;
        Self::new("timestamp", millis).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_thirteen_digits_are_moments() {
        for (millis, fits) in [
            (0, false),
            (999_999_999_999, false),
            (1_000_000_000_000, true),
            (9_999_999_999_999, true),
            (10_000_000_000_000, false),
        ] {
            assert_eq!(Timestamp::new("timestamp", millis).is_ok(), fits, "{millis}");
        }
        assert_eq!(
            Timestamp::new("timestamp", 5).unwrap_err().to_string(),
            "timestamp is 5; it must be epoch milliseconds with 13 digits"
        );
        assert_eq!(Timestamp::MAX.plus(1), Timestamp::MAX);
    }

    #[test]
    fn digits_are_the_decimal_form() {
        for millis in [Timestamp::MIN.0, 1_767_453_739_640, Timestamp::MAX.0] {
            let digits = Timestamp::clamped(millis).digits();
            assert_eq!(std::str::from_utf8(&digits), Ok(millis.to_string().as_str()));
        }
    }
}
