//! The way to a field of an event's data.

use std::fmt;

use serde_json::Value;

/// How many names a path may hold.
pub const FIELD_SEGMENTS_MAX: usize = 8;

/// Names that reach behind an object in JavaScript. No event field has a reason to be called so.
const FORBIDDEN: [&str; 3] = ["__proto__", "constructor", "prototype"];

/// Names joined by dots, such as `user.tags.0`. In an object a name is a key, in a list it is a position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Box<str>);

impl FieldPath {
    /// Reads a path, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is an empty field; name one, such as `user.age`".to_owned());
        }
        if text.len() > super::TEXT_BYTES_MAX {
            return Err(format!(
                "is a field of {} bytes; the limit is {}",
                text.len(),
                super::TEXT_BYTES_MAX
            ));
        }
        let segments = text.split('.').count();
        if segments > FIELD_SEGMENTS_MAX {
            return Err(format!("is a field of {segments} names; the limit is {FIELD_SEGMENTS_MAX}"));
        }
        for segment in text.split('.') {
            if segment.is_empty() {
                return Err("is a field with an empty name between its dots".to_owned());
            }
            if FORBIDDEN.contains(&segment) {
                return Err(format!("is a field with the forbidden name `{segment}`"));
            }
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }

    /// The value at this place, if there is one.
    pub fn find<'v>(&self, data: &'v Value) -> Option<&'v Value> {
        self.segments().try_fold(data, step)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn step<'v>(value: &'v Value, segment: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(segment),
        Value::Array(items) => items.get(position(segment)?),
        _ => None,
    }
}

/// A position in a list. There is one way to write it: digits without a zero ahead.
pub(crate) fn position(segment: &str) -> Option<usize> {
    let digits = segment.bytes().all(|byte| byte.is_ascii_digit());
    let plain = segment == "0" || !segment.starts_with('0');
    if digits && plain { segment.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_through_objects_and_lists() {
        let data = json!({"a": {"b": [{"c": 1}, null], "": 2}, "0": "zero", "x": "text"});
        for (path, expected) in [
            ("a.b.0.c", Some(json!(1))),
            ("a.b.1", Some(json!(null))),
            ("a.b.2", None),
            ("a.b.00", None),
            ("a.b.+0", None),
            ("a.b.-1", None),
            ("a.b.length", None),
            ("a.b.99999999999999999999999", None),
            ("0", Some(json!("zero"))),
            ("x.0", None),
            ("x.length", None),
            ("a.b.0.c.d", None),
            ("A", None),
        ] {
            assert_eq!(FieldPath::parse(path).unwrap().find(&data), expected.as_ref(), "{path}");
        }
        assert_eq!(FieldPath::parse("a").unwrap().find(&json!([1])), None);
    }

    #[test]
    fn a_path_has_one_to_eight_names_and_none_that_reaches_behind() {
        for (path, problem) in [
            ("a.b.c.d.e.f.g.h", ""),
            ("grüße.名前", ""),
            ("constructors", ""),
            ("", "is an empty field"),
            (".", "an empty name"),
            ("a..b", "an empty name"),
            ("a.", "an empty name"),
            ("a.b.c.d.e.f.g.h.i", "is a field of 9 names; the limit is 8"),
            ("__proto__", "`__proto__`"),
            ("a.constructor.b", "`constructor`"),
            ("a.prototype", "`prototype`"),
        ] {
            let told = FieldPath::parse(path).err().unwrap_or_default();
            assert!(told.contains(problem) && told.is_empty() == problem.is_empty(), "{path}: {told}");
        }
        assert!(FieldPath::parse(&"a".repeat(1025)).unwrap_err().contains("1025 bytes"));
    }
}
