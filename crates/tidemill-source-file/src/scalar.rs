//! Which value a plain scalar of YAML is: the core schema of YAML 1.2. `yes`, `no`, `on` and `off` are words.

use serde_json::Number;

use crate::node::SourceKind;

/// The value of a plain scalar, or why there is none.
pub(crate) fn plain(text: &str) -> Result<SourceKind, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(SourceKind::Null),
        "true" | "True" | "TRUE" => return Ok(SourceKind::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(SourceKind::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return Err(not_a_number(text)),
        _ => {}
    }
    if matches!(text.trim_start_matches(['-', '+']), ".inf" | ".Inf" | ".INF") {
        return Err(not_a_number(text));
    }
    match number(text) {
        Some(number) => number.map(SourceKind::Number),
        None => Ok(SourceKind::Text(text.to_owned())),
    }
}

fn not_a_number(text: &str) -> String {
    format!("{text} is no number that JSON has; quote it if it is text")
}

/// `None`: it does not look like a number.
fn number(text: &str) -> Option<Result<Number, String>> {
    let too_large = || format!("{text} is too large for a number; quote it if it is text");
    let radix =
        |digits: &str, radix| u64::from_str_radix(digits, radix).map(Number::from).map_err(|_| too_large());
    if let Some(digits) = text.strip_prefix("0x").filter(|rest| all(rest, |c| c.is_ascii_hexdigit())) {
        return Some(radix(digits, 16));
    }
    if let Some(digits) = text.strip_prefix("0o").filter(|rest| all(rest, |c| ('0'..='7').contains(&c))) {
        return Some(radix(digits, 8));
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if all(unsigned, |c| c.is_ascii_digit()) {
        let positive = text.strip_prefix('+').unwrap_or(text);
        let whole = positive.parse::<i64>().map(Number::from);
        let whole = whole.or_else(|_| positive.parse::<u64>().map(Number::from));
        return Some(whole.map_err(|_| too_large()));
    }
    if !is_float(unsigned) {
        return None;
    }
    let float = text.parse::<f64>().ok().and_then(Number::from_f64);
    Some(float.ok_or_else(too_large))
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let is_exponent = exponent
        .is_none_or(|digits| all(digits.strip_prefix(['-', '+']).unwrap_or(digits), |c| c.is_ascii_digit()));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some(("", after)) => all(after, |c| c.is_ascii_digit()),
        Some((before, after)) => all(before, |c| c.is_ascii_digit()) && digits(after),
        None => all(mantissa, |c| c.is_ascii_digit()),
    };
    is_mantissa && is_exponent
}

/// Whether there is at least one character and all are of a kind.
fn all(text: &str, is: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(is)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{SourceNode, TextPosition};

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for (text, expected) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("null", json!(null)),
            ("nULL", json!("nULL")),
            ("true", json!(true)),
            ("FALSE", json!(false)),
            ("yes", json!("yes")),
            ("no", json!("no")),
            ("on", json!("on")),
            ("off", json!("off")),
            ("y", json!("y")),
            ("0", json!(0)),
            ("-12", json!(-12)),
            ("+7", json!(7)),
            ("007", json!(7)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("0b11", json!("0b11")),
            ("1_000", json!("1_000")),
            ("18446744073709551615", json!(u64::MAX)),
            ("1.5", json!(1.5)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("-1e3", json!(-1000.0)),
            ("1e", json!("1e")),
            (".", json!(".")),
            ("+", json!("+")),
            ("1.2.3", json!("1.2.3")),
            ("12:30", json!("12:30")),
            ("2024-01-01", json!("2024-01-01")),
            ("30s", json!("30s")),
        ] {
            let node = SourceNode { place: TextPosition::START, kind: plain(text).unwrap() };
            assert_eq!(node.to_value(), expected, "{text}");
        }
        for text in [".nan", "-.inf", ".Inf", "18446744073709551616", "1e999", "0xFFFFFFFFFFFFFFFFF"] {
            assert!(plain(text).is_err(), "{text}");
        }
    }
}
