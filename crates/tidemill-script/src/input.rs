//! What is given to a script: JSON that holds nothing but data.
//!
//! It reaches the engine through its JSON parser only, as text that was parsed before. Members that a script could take
//! for something of the language are dropped, and so are task tokens, which are secrets. NUL characters go too.

use std::borrow::Cow;

use tidemill_model::Json;

use crate::limits::INPUT_DEPTH_MAX;

/// Members that are dropped wherever they stand.
const DROPPED: [&str; 4] = ["__proto__", "constructor", "prototype", "taskToken"];

/// Why an input cannot be given to a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadInput {
    #[error("ctx.{field} has {size} bytes; the limit is {limit}")]
    TooLarge { field: &'static str, size: usize, limit: usize },
    #[error("ctx.{field} has {depth} levels; the limit is {INPUT_DEPTH_MAX}")]
    TooDeep { field: &'static str, depth: usize },
    #[error("ctx.{field} is no JSON")]
    NotJson { field: &'static str },
}

/// The JSON text that a script is given for `value`.
pub(crate) fn cleaned<'a>(
    field: &'static str,
    value: &'a Json,
    limit: usize,
) -> Result<Cow<'a, str>, BadInput> {
    let text = value.as_str();
    if text.len() > limit {
        return Err(BadInput::TooLarge { field, size: text.len(), limit });
    }
    let depth = value.depth();
    if depth > INPUT_DEPTH_MAX {
        return Err(BadInput::TooDeep { field, depth });
    }
    // An escape may hide a name or a NUL. Most texts have neither.
    if !text.contains("\\u") && !DROPPED.iter().any(|name| text.contains(name)) {
        return Ok(Cow::Borrowed(text));
    }
    let mut copier = Copier { text, at: 0, out: String::with_capacity(text.len()) };
    copier.value().ok_or(BadInput::NotJson { field })?;
    Ok(Cow::Owned(copier.out))
}

/// Copies a JSON text, value by value. The text was parsed before, so there is little to go wrong; what does, ends it.
struct Copier<'a> {
    text: &'a str,
    at: usize,
    out: String,
}

impl<'a> Copier<'a> {
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'{' => self.members(),
            b'[' => self.elements(),
            b'"' => {
                let string = self.string()?;
                self.out.push_str(&without_nul(string));
                Some(())
            }
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.find([',', ']', '}', ' ', '\t', '\n', '\r']).unwrap_or(rest.len());
                self.out.push_str(&rest[..end]);
                self.at += end;
                (end > 0).then_some(())
            }
        }
    }

    fn members(&mut self) -> Option<()> {
        self.at += 1;
        self.out.push('{');
        let mut first = true;
        while self.peek()? != b'}' {
            if self.peek()? == b',' {
                self.at += 1;
                self.peek()?;
            }
            let key = self.string()?;
            if self.peek()? != b':' {
                return None;
            }
            self.at += 1;
            let key = without_nul(key);
            let start = self.out.len();
            if !first {
                self.out.push(',');
            }
            self.out.push_str(&key);
            self.out.push(':');
            self.value()?;
            // A name that is not text, with half of a surrogate pair, is none of ours.
            let plain = serde_json::from_str::<String>(&key);
            if plain.is_ok_and(|plain| DROPPED.contains(&plain.as_str())) {
                self.out.truncate(start);
            } else {
                first = false;
            }
        }
        self.at += 1;
        self.out.push('}');
        Some(())
    }

    fn elements(&mut self) -> Option<()> {
        self.at += 1;
        self.out.push('[');
        while self.peek()? != b']' {
            if self.peek()? == b',' {
                self.at += 1;
                self.out.push(',');
            }
            self.value()?;
        }
        self.at += 1;
        self.out.push(']');
        Some(())
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let skip = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))?;
        self.at += skip;
        Some(rest[skip])
    }

    /// A string with its quotes, as it is written.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        if *bytes.get(start)? != b'"' {
            return None;
        }
        let mut at = start + 1;
        loop {
            match bytes.get(at)? {
                b'"' => break,
                // What follows a backslash ends nothing.
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        self.text.get(start..=at)
    }
}

/// A written string without escaped NULs.
fn without_nul(written: &str) -> Cow<'_, str> {
    const NUL: &str = "\\u0000";
    if !written.contains(NUL) {
        return Cow::Borrowed(written);
    }
    let mut kept = String::with_capacity(written.len());
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix(NUL) {
            rest = after;
        } else {
            // An escape is a backslash and at least one more character, which is not looked at on its own.
            let next = rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at);
            kept.push_str(&rest[..next]);
            rest = &rest[next..];
        }
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn clean(text: &str) -> String {
        cleaned("event.data", &Json::parse(text.to_owned()).unwrap(), 1 << 20).unwrap().into_owned()
    }

    #[test]
    fn members_that_are_not_data_are_dropped() {
        for (given, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"__proto__":{"x":1},"a":[{"constructor":2,"b":3}]}"#, r#"{"a":[{"b":3}]}"#),
            (r#"{ "prototype" : { "deep" : [1, 2] } , "a" : "x" }"#, r#"{"a":"x"}"#),
            (r#"{"a":{"taskToken":"secret"},"taskToken":"secret"}"#, r#"{"a":{}}"#),
            (r#"{"\u005f_proto__":1,"b":2}"#, r#"{"b":2}"#),
            (r#"{"task\u0000Token":1,"b":2}"#, r#"{"b":2}"#),
            (
                r#"["constructor","a\u0000b","\\u0000","\u00e9"]"#,
                r#"["constructor","ab","\\u0000","\u00e9"]"#,
            ),
            (r#"[1.50,-2e10,true,null,[],{}, "\ud800" ]"#, r#"[1.50,-2e10,true,null,[],{},"\ud800"]"#),
        ] {
            assert_eq!(clean(given), expected, "{given}");
        }
    }

    #[test]
    fn size_and_depth_are_limited() {
        let deep = |levels: usize| Json::parse("[".repeat(levels) + &"]".repeat(levels)).unwrap();
        assert!(cleaned("input", &deep(32), 1000).is_ok());
        let problem = cleaned("input", &deep(33), 1000).unwrap_err();
        assert_eq!(problem.to_string(), "ctx.input has 33 levels; the limit is 32");
        let problem = cleaned("input", &Json::parse("[1,2,3]".to_owned()).unwrap(), 6).unwrap_err();
        assert_eq!(problem.to_string(), "ctx.input has 7 bytes; the limit is 6");
    }

    fn values() -> impl Strategy<Value = Value> {
        let key = prop_oneof![
            Just("__proto__".to_owned()),
            Just("constructor".to_owned()),
            Just("taskToken".to_owned()),
            "[a-c\u{0}\"\\\\é]{0,4}",
        ];
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<i32>().prop_map(|n| json!(n)),
            ".{0,6}".prop_map(|s| json!(s))
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// The same by taking values apart.
    fn plainly(value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(text.replace('\0', "")),
            Value::Array(values) => values.into_iter().map(plainly).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(key, value)| (key.replace('\0', ""), value))
                .filter(|(key, _)| !DROPPED.contains(&key.as_str()))
                .map(|(key, value)| (key, plainly(value)))
                .collect(),
            other => other,
        }
    }

    proptest! {
        #[test]
        fn copying_equals_taking_apart(value in values()) {
            let given = serde_json::to_string(&value).unwrap();
            let found: Value = serde_json::from_str(&clean(&given)).unwrap();
            prop_assert_eq!(found, plainly(value));
        }
    }
}
