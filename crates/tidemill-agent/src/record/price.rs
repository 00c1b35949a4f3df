//! What tokens cost, for tries that end before the CLI tells: an estimate from the list prices of the models.
//!
//! It errs on the dear side, because budgets go by it. What the CLI tells counts more, always.

use tidemill_model::Usage;

/// Parts of model names with their prices, in dollars for a million tokens, as read and as written. The first that fits.
const PRICES: [(&str, u64, u64); 6] = [
    ("opus-4-5", 5, 25),
    ("opus-4-6", 5, 25),
    ("sonnet-4", 3, 15),
    ("3-7-sonnet", 3, 15),
    ("3-5-sonnet", 3, 15),
    ("haiku-4-5", 1, 5),
];
/// The dearest, for models that are not listed.
const DEAREST: (u64, u64) = (15, 75);

/// What an answer of a model cost, in millionths of a dollar.
///
/// What is put into the cache costs twice as much as what is read, if it is to stay for an hour, and what is read from
/// it a tenth.
pub(crate) fn cost_micros(model: Option<&str>, usage: &Usage) -> u64 {
    let listed = PRICES.iter().find(|(part, ..)| model.is_some_and(|model| model.contains(part)));
    let (read, written) = listed.map_or(DEAREST, |(_, read, written)| (*read, *written));
    // Dollars for a million are millionths of a dollar for one.
    let whole = usage
        .input_tokens
        .saturating_add(usage.cache_write_tokens.saturating_mul(2))
        .saturating_mul(read)
        .saturating_add(usage.output_tokens.saturating_mul(written));
    whole.saturating_add(usage.cache_read_tokens.saturating_mul(read).div_ceil(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_cost_what_their_model_does_and_unknown_ones_the_most() {
        let usage = Usage {
            input_tokens: 1_000,
            output_tokens: 100,
            cache_read_tokens: 10_000,
            cache_write_tokens: 500,
            ..Usage::default()
        };
        for (model, expected) in [
            (Some("claude-sonnet-4-5-20250929"), 10_500),
            (Some("us.anthropic.claude-opus-4-5-20251101-v1:0"), 17_500),
            (Some("claude-haiku-4-5"), 3_500),
            (Some("claude-opus-4-1"), 52_500),
            (Some("tomorrow"), 52_500),
            (None, 52_500),
        ] {
            assert_eq!(cost_micros(model, &usage), expected, "{model:?}");
        }
        assert_eq!(cost_micros(None, &Usage::default()), 0);
        assert_eq!(cost_micros(None, &Usage { input_tokens: u64::MAX, ..usage }), u64::MAX);
    }
}
