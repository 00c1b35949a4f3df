//! The operators of a condition and what each of them means.

use std::cmp::Ordering;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::comparison::{compare_numbers, equal};

/// How a field is compared with the value of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    In,
    Nin,
    Contains,
    StartsWith,
    EndsWith,
    Exists,
}

impl Operator {
    pub const ALL: [Self; 12] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::In,
        Self::Nin,
        Self::Contains,
        Self::StartsWith,
        Self::EndsWith,
        Self::Exists,
    ];

    /// As it is written in rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::In => "in",
            Self::Nin => "nin",
            Self::Contains => "contains",
            Self::StartsWith => "startsWith",
            Self::EndsWith => "endsWith",
            Self::Exists => "exists",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.name() == name)
    }

    /// Whether a field with the value `actual` (none if it is missing) passes. This is the only place that knows.
    pub fn holds(self, expected: &Value, actual: Option<&Value>) -> bool {
        let Some(actual) = actual else {
            return match self {
                Self::Ne | Self::Nin => true,
                Self::Exists => *expected == Value::Bool(false),
                _ => false,
            };
        };
        match self {
            Self::Eq => equal(expected, actual),
            Self::Ne => !equal(expected, actual),
            Self::Gt => ordered(expected, actual).is_some_and(Ordering::is_gt),
            Self::Gte => ordered(expected, actual).is_some_and(Ordering::is_ge),
            Self::Lt => ordered(expected, actual).is_some_and(Ordering::is_lt),
            Self::Lte => ordered(expected, actual).is_some_and(Ordering::is_le),
            Self::In => listed(expected, actual),
            Self::Nin => !listed(expected, actual),
            Self::Contains => contains(expected, actual),
            Self::StartsWith => {
                both_texts(expected, actual).is_some_and(|(part, text)| text.starts_with(part))
            }
            Self::EndsWith => both_texts(expected, actual).is_some_and(|(part, text)| text.ends_with(part)),
            Self::Exists => *expected == Value::Bool(true),
        }
    }

    /// Whether a field must be there for a condition to pass.
    pub(crate) fn needs_the_field(self, expected: &Value) -> bool {
        match self {
            Self::Ne | Self::Nin => false,
            Self::Exists => *expected == Value::Bool(true),
            _ => true,
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Operator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How `actual` stands to `expected`: numbers with numbers, texts with texts, by code point. Nothing else has an order.
fn ordered(expected: &Value, actual: &Value) -> Option<Ordering> {
    match (actual, expected) {
        (Value::Number(actual), Value::Number(expected)) => Some(compare_numbers(actual, expected)),
        // Bytes of UTF-8 are in the order of code points.
        (Value::String(actual), Value::String(expected)) => Some(actual.cmp(expected)),
        _ => None,
    }
}

fn listed(list: &Value, actual: &Value) -> bool {
    list.as_array().is_some_and(|items| items.iter().any(|item| equal(item, actual)))
}

/// A list contains what is the same as one of its items; a text contains its parts.
fn contains(part: &Value, whole: &Value) -> bool {
    match whole {
        Value::Array(items) => items.iter().any(|item| equal(item, part)),
        Value::String(text) => part.as_str().is_some_and(|part| text.contains(part)),
        _ => false,
    }
}

fn both_texts<'v>(expected: &'v Value, actual: &'v Value) -> Option<(&'v str, &'v str)> {
    Some((expected.as_str()?, actual.as_str()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table of docs/reference/filters.md.
    #[test]
    fn sc_03_every_operator_has_one_meaning() {
        for (operator, expected, passes, fails) in [
            ("eq", json!("admin"), vec![json!("admin")], vec![json!("Admin"), json!(["admin"]), json!(null)]),
            ("eq", json!(1), vec![json!(1), json!(1.0)], vec![json!("1"), json!(true), json!(2)]),
            ("eq", json!(null), vec![json!(null)], vec![json!(0), json!(""), json!(false)]),
            ("eq", json!({"a": 1, "b": 2}), vec![json!({"b": 2, "a": 1.0})], vec![json!({"a": 1})]),
            ("ne", json!("admin"), vec![json!("user"), json!(1), json!(null)], vec![json!("admin")]),
            ("gt", json!(18), vec![json!(18.5), json!(19)], vec![json!(18), json!("19"), json!(null)]),
            ("gte", json!(18), vec![json!(18), json!(18.0)], vec![json!(17.99), json!([19]), json!(true)]),
            (
                "lt",
                json!("b"),
                vec![json!("a"), json!("B"), json!("")],
                vec![json!("b"), json!("é"), json!(1)],
            ),
            ("lte", json!("é"), vec![json!("z"), json!("é")], vec![json!("中"), json!(1)]),
            (
                "in",
                json!(["a", 1, null]),
                vec![json!("a"), json!(1.0), json!(null)],
                vec![json!("1"), json!(["a"])],
            ),
            ("nin", json!(["a", 1]), vec![json!("b"), json!(["a"])], vec![json!("a"), json!(1.0)]),
            (
                "contains",
                json!("da"),
                vec![json!("Monday"), json!(["da"])],
                vec![json!("DAY"), json!(["day"])],
            ),
            (
                "contains",
                json!(2),
                vec![json!([1, 2.0])],
                vec![json!("2"), json!(2), json!(["2"]), json!([[2]])],
            ),
            (
                "contains",
                json!(""),
                vec![json!("x"), json!(""), json!([""])],
                vec![json!([]), json!({"": 1})],
            ),
            ("startsWith", json!("ü"), vec![json!("über")], vec![json!("Über"), json!(["über"]), json!(1)]),
            (
                "endsWith",
                json!(".pdf"),
                vec![json!("a.pdf"), json!(".pdf")],
                vec![json!("a.PDF"), json!("pdf")],
            ),
            ("exists", json!(true), vec![json!(null), json!(0), json!({})], vec![]),
            ("exists", json!(false), vec![], vec![json!(null), json!(0), json!({})]),
        ] {
            let operator = Operator::from_name(operator).unwrap();
            for actual in passes {
                assert!(operator.holds(&expected, Some(&actual)), "{actual} {operator} {expected}");
            }
            for actual in fails {
                assert!(!operator.holds(&expected, Some(&actual)), "{actual} {operator} {expected}");
            }
            let missing = matches!(operator, Operator::Ne | Operator::Nin) || expected == json!(false);
            assert_eq!(operator.holds(&expected, None), missing, "missing {operator} {expected}");
        }
    }
}
