//! What agents used: of one attempt, and summed over many.
//!
//! Money is counted in millionths of a US dollar, so sums are exact. In JSON it is a number of dollars.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// One US dollar.
pub const MICROS_PER_USD: u64 = 1_000_000;
/// The most that one number of a report may say: a bound that no sum of reports can pass in a u64.
const COUNT_MAX: u64 = 1_000_000_000_000;

/// What one attempt of an agent used.
///
/// Read leniently, because agents write it: a number that is missing or strange is 0, and the names of the Messages API
/// are taken too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    #[serde(alias = "input_tokens", deserialize_with = "count")]
    pub input_tokens: u64,
    #[serde(alias = "output_tokens", deserialize_with = "count")]
    pub output_tokens: u64,
    #[serde(alias = "cache_read_tokens", alias = "cache_read_input_tokens", deserialize_with = "count")]
    pub cache_read_tokens: u64,
    #[serde(
        alias = "cache_write_tokens",
        alias = "cache_creation_input_tokens",
        deserialize_with = "count",
        skip_serializing_if = "crate::is_default"
    )]
    pub cache_write_tokens: u64,
    #[serde(alias = "num_turns", deserialize_with = "turns", skip_serializing_if = "crate::is_default")]
    pub turns: u32,
    /// In millionths of a US dollar.
    #[serde(
        rename = "costUsd",
        alias = "cost_usd",
        alias = "total_cost_usd",
        serialize_with = "dollars::serialize",
        deserialize_with = "usd",
        skip_serializing_if = "crate::is_default"
    )]
    #[schemars(with = "f64")]
    pub cost_micros: u64,
}

impl Usage {
    /// Tokens of all four kinds.
    pub fn tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }

    /// With each number at most as large as one report may say.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            input_tokens: self.input_tokens.min(COUNT_MAX),
            output_tokens: self.output_tokens.min(COUNT_MAX),
            cache_read_tokens: self.cache_read_tokens.min(COUNT_MAX),
            cache_write_tokens: self.cache_write_tokens.min(COUNT_MAX),
            turns: self.turns,
            cost_micros: self.cost_micros.min(COUNT_MAX),
        }
    }
}

/// What many attempts used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageSum {
    /// Attempts that said what they used, whatever became of them.
    pub attempts: u64,
    /// Runs of tasks that ended with one of these attempts.
    pub tasks: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub turns: u64,
    /// How long the attempts took, one after the other.
    pub duration_ms: u64,
    /// In dollars.
    #[serde(rename = "costUsd", with = "dollars")]
    #[schemars(with = "f64")]
    pub cost_micros: u64,
}

impl UsageSum {
    /// One attempt more; `is_end` says that the run of its task is over.
    #[must_use]
    pub fn plus(self, usage: &Usage, duration_millis: u64, is_end: bool) -> Self {
        self.and(&Self {
            attempts: 1,
            tasks: u64::from(is_end),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            turns: u64::from(usage.turns),
            duration_ms: duration_millis.min(COUNT_MAX),
            cost_micros: usage.cost_micros,
        })
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            attempts: self.attempts.saturating_add(other.attempts),
            tasks: self.tasks.saturating_add(other.tasks),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            turns: self.turns.saturating_add(other.turns),
            duration_ms: self.duration_ms.saturating_add(other.duration_ms),
            cost_micros: self.cost_micros.saturating_add(other.cost_micros),
        }
    }

    /// Tokens of all four kinds.
    pub fn tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }
}

/// A count that may be written as a float, and is 0 when it is anything else.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let whole = value.as_u64().or_else(|| value.as_f64().map(whole));
    Ok(whole.unwrap_or(0).min(COUNT_MAX))
}

fn turns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    count(deserializer).map(|turns| u32::try_from(turns).unwrap_or(u32::MAX))
}

fn usd<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let dollars = Value::deserialize(deserializer)?.as_f64().unwrap_or(0.0);
    Ok(micros_of(dollars).min(COUNT_MAX))
}

/// Money in JSON: a number of dollars.
pub mod dollars {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(micros: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(super::dollars_of(*micros))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        f64::deserialize(deserializer).map(super::micros_of)
    }
}

/// Dollars as a JSON number. Up to nine thousand million dollars it has no more than six decimals.
#[expect(clippy::cast_precision_loss, reason = "a sum of money that large is a mistake anyway")]
pub fn dollars_of(micros: u64) -> f64 {
    micros as f64 / MICROS_PER_USD as f64
}

/// Millionths of the dollars of a JSON number, rounded; 0 for what is negative or no number.
#[expect(clippy::cast_precision_loss, reason = "a million is exact")]
pub fn micros_of(dollars: f64) -> u64 {
    whole((dollars * MICROS_PER_USD as f64).round())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast goes to the nearest bound"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_old_event_stays_as_it_is() {
        let old = r#"{"inputTokens":1200,"outputTokens":340,"cacheReadTokens":56}"#;
        let usage: Usage = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&usage).unwrap(), old);
    }

    #[test]
    fn what_agents_write_is_read() {
        let all = Usage {
            input_tokens: 1,
            output_tokens: 2,
            cache_read_tokens: 3,
            cache_write_tokens: 4,
            turns: 5,
            cost_micros: 6_000_007,
        };
        for (written, expected) in [
            (json!({}), Usage::default()),
            (
                json!({"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 4, "turns": 5, "costUsd": 6.000_007}),
                all,
            ),
            (
                json!({"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4, "num_turns": 5, "total_cost_usd": 6.000_007, "service_tier": "x"}),
                all,
            ),
            (
                json!({"input_tokens": 1.0, "output_tokens": null, "costUsd": "much"}),
                Usage { input_tokens: 1, ..Usage::default() },
            ),
            (
                json!({"inputTokens": -4, "costUsd": -0.5, "turns": "x", "outputTokens": [1]}),
                Usage::default(),
            ),
            (json!({"costUsd": 0.000_000_4}), Usage::default()),
            (json!({"costUsd": 0.000_000_6}), Usage { cost_micros: 1, ..Usage::default() }),
            (
                json!({"inputTokens": u64::MAX, "turns": u64::MAX, "costUsd": 1e300}),
                Usage {
                    input_tokens: COUNT_MAX,
                    turns: u32::MAX,
                    cost_micros: COUNT_MAX,
                    ..Usage::default()
                },
            ),
        ] {
            assert_eq!(serde_json::from_value::<Usage>(written.clone()).unwrap(), expected, "{written}");
        }
        for strange in [json!(null), json!("x"), json!(7)] {
            assert!(serde_json::from_value::<Usage>(strange.clone()).is_err(), "{strange}");
        }
    }

    #[test]
    fn money_goes_to_json_and_back_without_loss() {
        for micros in [0, 1, 7, 10, 123_456, 999_999, 1_000_000, 5_120_000, 123_456_789_012, COUNT_MAX] {
            let text = serde_json::to_string(&dollars_of(micros)).unwrap();
            assert_eq!(micros_of(text.parse().unwrap()), micros, "{text}");
            assert!(
                text.split_once('.')
                    .is_none_or(|(_, decimals)| decimals.len() <= 6 || decimals.contains('e')),
                "{text}"
            );
        }
    }
}
