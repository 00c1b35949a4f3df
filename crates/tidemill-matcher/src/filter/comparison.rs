//! How two JSON values compare.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// Whether two values are the same: numbers by what they are worth (`1` is `1.0`), texts byte by byte, lists item by
/// item, objects field by field in any order. Values of different types are never the same.
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right).is_eq(),
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, left)| right.get(name).is_some_and(|right| equal(left, right)))
        }
        _ => false,
    }
}

/// The order of two numbers, exactly: a whole number of 64 bits is not rounded to be compared with a fraction.
pub fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_with_fraction(left, fraction(right)),
        (None, Some(right)) => compare_with_fraction(right, fraction(left)).reverse(),
        // JSON has no NaN.
        (None, None) => fraction(left).partial_cmp(&fraction(right)).unwrap_or(Ordering::Equal),
    }
}

/// The number if it was written without fraction and exponent and fits 64 bits.
pub(crate) fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// The nearest double; monotonous, so that what is not greater stays so.
pub(crate) fn fraction(number: &Number) -> f64 {
    number.as_f64().unwrap_or(0.0)
}

/// A double as a whole number, if it is one within 64 bits.
pub(crate) fn whole_fraction(number: f64) -> Option<i128> {
    let fits = number.fract() == 0.0 && (-TWO_TO_63..TWO_TO_64).contains(&number);
    fits.then(|| truncated(number))
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

fn compare_with_fraction(whole: i128, fraction: f64) -> Ordering {
    if fraction >= TWO_TO_64 {
        return Ordering::Less;
    }
    if fraction < -TWO_TO_63 {
        return Ordering::Greater;
    }
    let left_over = fraction - fraction.trunc();
    whole.cmp(&truncated(fraction)).then_with(|| 0.0.partial_cmp(&left_over).unwrap_or(Ordering::Equal))
}

/// The part before the point of a number within 64 bits.
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for, and the range was checked")]
fn truncated(number: f64) -> i128 {
    number.trunc() as i128
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn numbers_are_compared_exactly() {
        for (left, right, expected) in [
            ("1", "1.0", Ordering::Equal),
            ("0", "-0.0", Ordering::Equal),
            ("1e2", "100", Ordering::Equal),
            ("1", "1.5", Ordering::Less),
            ("-1", "-1.5", Ordering::Greater),
            ("-2", "-1.5", Ordering::Less),
            ("9007199254740993", "9007199254740992.0", Ordering::Greater),
            ("9007199254740993", "9007199254740994.0", Ordering::Less),
            ("18446744073709551615", "18446744073709551616", Ordering::Less),
            ("18446744073709551615", "-1", Ordering::Greater),
            ("9223372036854775808", "9223372036854775808.0", Ordering::Equal),
            ("-9223372036854775808", "-9223372036854775808.0", Ordering::Equal),
            ("-9223372036854775808", "-1e300", Ordering::Greater),
            ("1e300", "1e301", Ordering::Less),
        ] {
            assert_eq!(compare_numbers(&number(left), &number(right)), expected, "{left} and {right}");
            assert_eq!(
                compare_numbers(&number(right), &number(left)),
                expected.reverse(),
                "{right} and {left}"
            );
        }
    }

    #[test]
    fn values_of_different_types_are_never_the_same() {
        let values =
            [json!(null), json!(false), json!(0), json!("0"), json!([]), json!({}), json!(""), json!([0])];
        for (at, left) in values.iter().enumerate() {
            for (other, right) in values.iter().enumerate() {
                assert_eq!(equal(left, right), at == other, "{left} and {right}");
            }
        }
        assert!(equal(&json!({"a": [1, {"b": 2.0}], "c": null}), &json!({"c": null, "a": [1.0, {"b": 2}]})));
        assert!(!equal(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert!(!equal(&json!([1, 2]), &json!([2, 1])));
    }
}
