//! Spans of time as people write them: `500ms`, `30s`, `5m`, `2h`, `7d`, or a number of milliseconds.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A span in milliseconds. It is written as a number and read as a number or a text with a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 24 * 3_600_000)];
/// The largest number that every JSON reader keeps exactly.
const NUMBER_MAX: u64 = 1 << 53;

/// The milliseconds that a JSON value stands for, or what is wrong with it.
pub fn parse_millis(value: &Value) -> Result<u64, String> {
    match value {
        Value::Number(number) => {
            let whole = number.as_u64().or_else(|| whole_float(number.as_f64()?));
            whole
                .filter(|millis| *millis <= NUMBER_MAX)
                .ok_or_else(|| format!("is {number}; it must be a whole number of milliseconds"))
        }
        Value::String(text) => parse_text(text),
        _ => Err("must be a number of milliseconds or a text such as 30s".to_owned()),
    }
}

/// The milliseconds of a text such as `30s`, or what is wrong with it.
pub fn parse_text(text: &str) -> Result<u64, String> {
    let wrong = || {
        let shown: String = text.chars().take(40).collect();
        format!("is {shown:?}; it must be a whole number and a unit: ms, s, m, h or d")
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let millis = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
    millis.filter(|millis| *millis <= NUMBER_MAX).ok_or_else(wrong)
}

/// YAML and some clients write whole numbers as floats.
fn whole_float(float: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the range is checked and the number is whole"
    )]
    let whole = (float.fract() == 0.0 && (0.0..=NUMBER_MAX as f64).contains(&float)).then_some(float as u64);
    whole
}

impl fmt::Display for Millis {
    /// The shortest exact form: `1500ms`, `30s`, `2h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().rev().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        let (name, factor) = unit.unwrap_or(&UNITS[0]);
        write!(f, "{}{name}", self.0 / factor)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        parse_millis(&value).map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Millis {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A span of time: a number of milliseconds, or a text such as 500ms, 30s, 5m, 2h, 7d.",
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": NUMBER_MAX },
                { "type": "string", "pattern": "^[0-9]{1,16}(ms|s|m|h|d)$" }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spans_are_numbers_or_texts_with_a_unit() {
        for (value, expected) in [
            (json!(0), Some(0)),
            (json!(1_500), Some(1_500)),
            (json!(2e3), Some(2_000)),
            (json!("500ms"), Some(500)),
            (json!("30s"), Some(30_000)),
            (json!("5m"), Some(300_000)),
            (json!("2h"), Some(7_200_000)),
            (json!("7d"), Some(604_800_000)),
            (json!("0s"), Some(0)),
            (json!(-1), None),
            (json!(1.5), None),
            (json!(1e300), None),
            (json!(u64::MAX), None),
            (json!(""), None),
            (json!("30"), None),
            (json!("s"), None),
            (json!("-3s"), None),
            (json!("1.5s"), None),
            (json!("30 s"), None),
            (json!("30S"), None),
            (json!("99999999999999999999d"), None),
            (json!("9999999999999999d"), None),
            (json!(null), None),
            (json!(true), None),
            (json!([30]), None),
        ] {
            assert_eq!(parse_millis(&value).ok(), expected, "{value}");
        }
    }

    #[test]
    fn a_span_is_shown_in_its_largest_whole_unit_and_reads_back() {
        for (millis, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_500, "1500ms"),
            (30_000, "30s"),
            (90_000, "90s"),
            (120_000, "2m"),
            (86_400_000, "1d"),
        ] {
            assert_eq!(Millis(millis).to_string(), text);
            assert_eq!(parse_text(text), Ok(millis));
        }
    }

    #[test]
    fn an_error_names_the_rule_and_a_short_part_of_the_text() {
        let long = "x".repeat(10_000);
        assert!(parse_text(&long).unwrap_err().len() < 200);
        assert_eq!(
            parse_text("5 minutes").unwrap_err(),
            r#"is "5 minutes"; it must be a whole number and a unit: ms, s, m, h or d"#
        );
    }
}
